"""The follower over objects: each is a separate log by its key, final, and read once over all starts."""

from __future__ import annotations

import errno
import gzip
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import zstandard

from photon.adapters.contract import Framing
from photon.adapters.logs.api import LogPosition
from photon.adapters.logs.discovery import check_directory
from photon.adapters.logs.follower import Follower
from photon.adapters.logs.identity import head_by_path
from photon.adapters.logs.links import log_path
from photon.adapters.logs.log_finder import find_logs
from photon.adapters.logs.problems import LogDirectoryError, Problem, ProblemKind
from photon.adapters.logs.slices import Reading, cut, read_slice, standing_logs
from photon.adapters.logs.unended_lines import RestRule
from photon.config.back_off import BackOff
from photon.dispatcher.partitions import all_of
from photon.objects import ranges
from photon.objects.api import Meta
from photon.objects.directory import bucket_of
from photon.objects.paths import ObjectPath
from photon.objects.ranges import HURRIED_S, READ_ON_BYTES
from tests.unit.objects.fakes import MemoryBucket, unavailable

WITHIN_S = 20.0
CASES = {
    "h0/log.1": b"a\nb\n",
    "h0/log.2": b"a\nb\n",  # the same bytes, and a name that a rotation would give: still two logs
    "h0/open": b"c\nd",
    "h1/x.gz": gzip.compress(b"e\nf"),
    "h1/x.zst": zstandard.compress(b"g\nh\n"),
    "h1/marked": b"\xef\xbb\xbfi\nj\n",
    "h2/empty": b"",
    "h2/.hidden": b"no\n",
}


@dataclass
class Site:
    bucket: MemoryBucket
    path: ObjectPath
    problems: list[Problem] = field(default_factory=list)

    def follower(
        self, positions: Sequence[LogPosition] = (), *, hurried: bool = False, header: bool = False
    ) -> Follower:
        return Follower(
            self.path, has_header=header, positions=positions, report=self.problems.append, hurried=hurried,
            rest=RestRule(60.0, time.time_ns),
        )  # fmt: skip


@pytest.fixture
def site(bucket: MemoryBucket, logs: ObjectPath) -> Site:
    return Site(bucket, logs)


def put(site: Site, **objects: bytes) -> None:
    site.bucket.data.update({f"logs/{key.replace('__', '/')}": data for key, data in objects.items()})


def before_reading(site: Site, act: Callable[[int], None]) -> None:
    """``act`` is called with the place that is about to be read."""
    there = site.bucket.read

    def read(meta: Meta, begin: int, end: int) -> bytes:
        act(begin)
        return there(meta, begin, end)

    site.bucket.read = read  # type: ignore[method-assign]


def lines(follower: Follower, count: int, *, done: Callable[[], bool] = lambda: True) -> list[bytes]:
    """Lines handed out until there are ``count``."""
    found: list[bytes] = []
    until = time.monotonic() + WITHIN_S
    while (len(found) < count or not done()) and time.monotonic() < until:
        follower.scan()
        while blocks := follower.poll(1 << 20):
            for block in blocks:
                found += block.data.splitlines()
        time.sleep(0.005)
    return sorted(found)


@pytest.mark.parametrize("hurried", [False, True])
def test_every_object_is_read_once(site: Site, hurried: bool) -> None:
    site.bucket.data = {f"logs/{key}": data for key, data in CASES.items()}
    wanted = sorted(b"a b a b c d e f g h i j".split())
    follower = site.follower(hurried=hurried)
    assert lines(follower, len(wanted), done=follower.caught_up) == wanted
    assert follower.seen_ns(time.time_ns()) < time.time_ns()
    positions = follower.positions()
    follower.close()
    read = sum(each.startswith("read") for each in site.bucket.asked)
    again = site.follower(positions, hurried=hurried)
    put(site, h0__late=b"late\n", a=b"first of all\n")
    assert lines(again, 2) == [b"first of all", b"late"]
    assert again.caught_up()
    assert again.unread() == []
    again.close()
    assert sum(each.startswith("read") for each in site.bucket.asked) == read + 2
    assert site.problems == []


def test_a_header_record_and_many_objects(site: Site) -> None:
    put(site, **{f"part{number:03}": b"id,name\n%d,x\n" % number for number in range(60)})
    follower = site.follower(hurried=True, header=True)
    assert lines(follower, 60, done=follower.caught_up) == sorted(b"%d,x" % number for number in range(60))
    assert {log.header for log in follower.positions()} == {b"id,name"}
    follower.close()


def test_dispatchers_divide_objects_and_open_none_of_another(site: Site) -> None:
    put(site, **{f"n{n}": b"%d\n" % n for n in range(12)})
    for partition in all_of(3):
        site.bucket.asked.clear()
        follower = Follower(site.path, has_header=False, hurried=True, mine=partition.holds)
        own = [n for n in range(12) if partition.holds(head_by_path(f"n{n}").identity)]
        assert sorted(lines(follower, len(own))) == sorted(b"%d" % n for n in own)
        assert follower.caught_up()
        assert sum(each.startswith("read") for each in site.bucket.asked) == len(own)
        follower.close()


def test_other_bytes_under_a_key_are_read_from_their_start(site: Site) -> None:
    put(site, one=b"a\nb\n", two=b"c\n")
    follower = site.follower()
    assert lines(follower, 3) == [b"a", b"b", b"c"]
    put(site, one=b"x\ny\nz\n")
    assert lines(follower, 3) == [b"x", b"y", b"z"]
    assert [problem.kind for problem in site.problems] == [ProblemKind.REWRITTEN]
    follower.close()


def test_an_object_that_is_gone_and_one_that_is_damaged(site: Site) -> None:
    put(site, one=b"a\n", **{"two.gz": gzip.compress(b"b\n" * 5000)[:-12]})
    follower = site.follower()
    assert b"a" in lines(follower, 1)
    del site.bucket.data["logs/one"]
    until = time.monotonic() + WITHIN_S
    while len(follower.present()) > 1 and time.monotonic() < until:
        follower.scan()
    assert list(follower.present().values()) == ["two.gz"]
    for _ in range(5):
        follower.scan()
        follower.poll(1 << 20)
    assert {problem.kind for problem in site.problems} == {ProblemKind.DAMAGED}
    follower.close()


def test_a_store_that_refuses_holds_back_what_counts_as_read(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("photon.objects.retrying.PAUSES", BackOff(first=0.0, most=0.0, floor=0.0))
    put(site, one=b"a\n")
    refused = [True]
    site.bucket._fails = lambda request: unavailable() if refused[0] and request.startswith("read") else None
    follower = site.follower()
    follower.scan()
    assert follower.poll(1 << 20) == []
    assert [each.kind for each in follower.unread()] == [ProblemKind.UNREADABLE]
    assert follower.unread_now().doubt
    refused[0] = False
    assert lines(follower, 1) == [b"a"]
    follower.scan()
    assert follower.unread() == []
    assert not follower.unread_now().doubt
    follower.close()


def test_slices_and_finder_agree_with_the_follower(site: Site) -> None:
    site.bucket.data = {f"logs/{key}": data for key, data in CASES.items() if not key.endswith("marked")}
    reading = Reading()
    logs = standing_logs(site.path, reading, site.problems.append)
    blocks = [block for log in logs for part in cut(log, 3) for block in read_slice(site.path, part, reading)]
    found = [line for block in blocks for line in block.data.splitlines()]
    assert sorted(found) == sorted(b"a b a b c d e f g h".split())
    follower = site.follower()
    lines(follower, len(found))
    finder = find_logs(site.path, ("**/*",), has_header=False)
    present = follower.present()
    assert {log.identity for log in logs if log.size} == present.keys()
    assert {identity: log.file.path for identity, log in finder.items() if log.file.size} == present
    follower.close()


def test_quoted_records_and_binary_messages(site: Site) -> None:
    put(site, one=b'1,"a\nb"\n2,c')
    follower = Follower(site.path, has_header=False, framing=Framing("quoted"))
    assert len(lines(follower, 2)) == 2
    follower.close()


def test_a_bucket_that_is_not_there(site: Site) -> None:
    site.bucket._fails = lambda request: FileNotFoundError(2, "no such bucket")
    with pytest.raises(LogDirectoryError, match="no such directory"):
        check_directory(site.path)


def test_more_objects_than_are_kept_by_an_event_loop(site: Site) -> None:
    """Otherwise each is fetched, and thrown away before its next turn."""
    put(site, **{f"part{number:03}": b"%08d\n" % number for number in range(100)})
    bucket_of(site.path).chunks.kept_bytes = 200
    before_reading(site, lambda begin: time.sleep(2 * HURRIED_S))
    follower = site.follower(hurried=True)
    assert lines(follower, 100) == [b"%08d" % number for number in range(100)]
    assert sum(each.startswith("read") for each in site.bucket.asked) == 100
    follower.close()


def test_what_takes_long_and_fails_is_not_read_at_the_end(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """With --once: it is reported, and nothing is called absent."""
    monkeypatch.setattr(ranges, "WAIT_S", 0.05)
    put(site, one=b"a\n")

    def hangs(begin: int) -> None:
        time.sleep(0.2)
        raise OSError(errno.EIO, "timed out")

    before_reading(site, hangs)
    follower = site.follower()
    follower.scan()
    assert not follower.caught_up()
    while not follower.caught_up():
        assert follower.poll(100) == []
    assert follower.poll(100, final=True) == []
    (unread,) = follower.unread()
    assert "timed out" in str(unread)
    follower.close()


def test_a_header_that_is_on_its_way(site: Site) -> None:
    """For one of Zeek's logs, read from a place after it: it is waited for, without trouble."""
    fill = b"x" * READ_ON_BYTES * 2 + b"\n"
    put(site, conn=b"#fields\ta\n" + fill + b"more\n")
    at = LogPosition(head_by_path("conn").identity, "conn", len(b"#fields\ta\n" + fill))
    before_reading(site, lambda begin: time.sleep(4 * HURRIED_S if begin == 0 else 0.0))
    report, zeek = site.problems.append, Framing("zeek")
    follower = Follower(site.path, has_header=False, framing=zeek, positions=[at], report=report, hurried=True)
    assert lines(follower, 1) == [b"more"]
    assert site.problems == []
    follower.close()


def test_objects_that_begin_alike_are_told_where_lines_have_no_ids(site: Site) -> None:
    put(site, one=b"start\na\n", two=b"start\nb\n", three=b"else\n")
    follower = site.follower()
    follower.scan()
    assert sorted(lines(follower, 5)) == [b"a", b"b", b"else", b"start", b"start"]
    assert site.problems == []
    follower.speak()
    assert [str(problem) for problem in site.problems] == ["two: begins with the same record as one: both are read"]
    follower.close()


def test_a_key_is_never_a_path_of_this_machine(site: Site, tmp_path: Path) -> None:
    secret = tmp_path / "secret.log"
    secret.write_bytes(b"secret\n")
    keys = [f"../{secret.name}", f"/{secret}", str(secret), f"x/../../..{secret}", "..//x.log"]
    site.bucket.data = {f"logs/{key}": b"object\n" for key in keys} | {"logs/a.log": b"a\n"}
    follower = site.follower()
    found = lines(follower, 1, done=follower.caught_up)
    assert b"a" in found
    assert set(found) <= {b"a", b"object"}
    follower.close()
    for key in keys:
        place = log_path(site.path, key)
        assert isinstance(place, ObjectPath)
        with pytest.raises(TypeError, match="is not a file on this machine"):
            place.read_bytes()
