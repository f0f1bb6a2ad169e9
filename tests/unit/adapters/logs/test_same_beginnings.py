"""Logs with the same beginning: told apart, each read once, and found again after a restart."""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path

import pytest

from photon.adapters.logs.assignment import GRACE_SCANS
from photon.adapters.logs.follower import ProblemKind
from photon.adapters.logs.identity import HEAD_BYTES
from photon.adapters.logs.log_finder import find_logs
from photon.adapters.logs.slices import Reading, standing_logs
from tests.unit.adapters.logs.tails import Tail, append, begun


def test_a_successor_that_begins_alike_is_read_while_it_runs_and_after_restarts(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    append(log, b"begin\n1\n")
    tail = Tail(tmp_path)
    assert tail.read() == [b"begin", b"1"]
    append(log, b"2\n")
    log.rename(tmp_path / "a.log.1")
    append(log, b"begin\n")
    assert tail.read() == [b"2"]  # its contents may yet become a copy
    append(log, b"3\n")
    assert tail.read() == [b"begin", b"3"]
    assert [str(each) for each in tail.problems] == [
        "a.log: begins like a.log.1 and goes on otherwise: it is another log, and read as well"
    ]
    first, second = tail.follower.positions()
    assert second.identity == f"{first.identity}~1"
    append(log, b"4\n")
    again = Tail(tmp_path, [first, second])
    assert again.read() == [b"4"]
    assert not again.problems
    (tmp_path / "a.log.1").rename(tmp_path / "a.log.2")
    log.rename(tmp_path / "a.log.1")
    append(log, b"begin\n5\n")
    assert again.read() == [b"begin", b"5"]
    (tmp_path / "a.log.1.gz").write_bytes(gzip.compress((tmp_path / "a.log.1").read_bytes()))
    (tmp_path / "a.log.1").unlink()
    (tmp_path / "a.log.2").unlink()
    append(log, b"6\n")
    last = Tail(tmp_path, again.follower.positions())
    assert last.read() == [b"6"]
    assert not last.problems


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("new", [b"begin\nx\n", b"begin\nx\ny\nz\n"])
def test_rolled_between_two_runs(tmp_path: Path, packed: bool, new: bytes) -> None:
    log, tail = begun(tmp_path, b"begin\n1\n2\n")
    append(log, b"3\n")
    (tmp_path / f"a.log.1{'.gz' * packed}").write_bytes(
        gzip.compress(log.read_bytes()) if packed else log.read_bytes()
    )
    log.unlink()
    append(log, new)
    again = Tail(tmp_path, tail.follower.positions())
    assert sorted(again.read(final=True)) == sorted([b"3", *new.splitlines()])
    assert again.kinds() == [ProblemKind.ALIKE]
    assert Tail(tmp_path, again.follower.positions()).read(final=True) == []


def test_copied_and_truncated_by_a_writer_that_begins_alike(tmp_path: Path) -> None:
    log, tail = begun(tmp_path, b"begin\n1\n2\n")
    append(log, b"3\n")
    shutil.copy(log, tmp_path / "a.log.1")
    log.write_bytes(b"begin\n4\n")
    assert sorted(tail.read()) == [b"3", b"4", b"begin"]
    assert tail.kinds() == [ProblemKind.ALIKE]


def test_at_a_first_start_the_oldest_is_the_first(tmp_path: Path) -> None:
    for at, name in enumerate(("a.log.2.gz", "a.log.1", "a.log")):
        data = b"begin\n%d\n" % at
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        os.utime(tmp_path / name, (at, at))
    tail = Tail(tmp_path)
    assert sorted(tail.read()) == [b"0", b"1", b"2", *[b"begin"] * 3]
    names = {position.path: position.identity.partition("~")[2] for position in tail.follower.positions()}
    assert names == {"a.log.1": "", "a.log": "1", "a.log.2.gz": "2"}  # plain ones first
    for paths in (
        {identity: log.file.path for identity, log in find_logs(tmp_path, ["**/*"], has_header=False).items()},
        {log.identity: log.path for log in standing_logs(tmp_path, Reading(), pytest.fail)},
    ):
        assert paths == {position.identity: position.path for position in tail.follower.positions()}


def test_they_are_read_in_the_order_in_which_they_were_met(tmp_path: Path) -> None:
    """Also the eleventh and the tenth: what a later one shares with an earlier one is known by then."""
    files = [tmp_path / f"a.log.{20 - at}" for at in range(12)]
    for at, log in enumerate(files):
        append(log, b"begin\n%d\n" % at)
        os.utime(log, (at, at))
    tail = Tail(tmp_path)
    tail.read()
    for at, log in enumerate(files):
        append(log, b"more %d\n" % at)
    assert Tail(tmp_path, tail.follower.positions()).read() == [b"more %d" % at for at in range(12)]


def test_a_copy_in_the_making_is_no_other_log(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    data = b"begin\n" + b"x" * 100 + b"\n"
    data += b"".join(b"%d\n" % n for n in range(HEAD_BYTES // 4))
    log.write_bytes(data)
    tail = Tail(tmp_path)
    read = tail.read()
    packed = gzip.compress(data)
    for to in (1000, 5000, len(packed)):
        (tmp_path / "a.log.1.gz").write_bytes(packed[:to])
        (tmp_path / "a.log.1").write_bytes(data[: to * 3])
        assert tail.read() == []
    assert len(read) == data.count(b"\n")
    assert set(tail.kinds()) <= {ProblemKind.COPY}
    assert len(tail.follower.positions()) == 1


@pytest.mark.parametrize("names", [("a.log", "b.log"), ("a.log", "b.gz"), ("a.gz", "b.gz"), ("a.log", "a.log.1.gz")])
@pytest.mark.parametrize("longer", [False, True])
@pytest.mark.parametrize("following", [False, True])
def test_logs_with_one_long_beginning_are_both_read(
    tmp_path: Path, names: tuple[str, str], longer: bool, following: bool
) -> None:
    """They differ after the bytes compared first, and share their last ones."""
    begin, end = (b"".join(b"%s %d\n" % (what, n) for n in range(HEAD_BYTES // 8)) for what in (b"begin", b"end"))
    other = begin + end + b"further\n" * 1000 if longer else begin + b"other\n" * 1000 + end
    for name, data in zip(names, (begin + b"first\n" * 1000 * (not longer) + end, other), strict=True):
        level = 1 if name == "a.gz" else 9  # the shorter one may have the larger file
        (tmp_path / name).write_bytes(gzip.compress(data, level) if name.endswith(".gz") else data)
    standing = [log.path for log in standing_logs(tmp_path, Reading(), lambda problem: None)]
    found = [log.file.path for log in find_logs(tmp_path, ["**/*"], has_header=False).values()]
    if not longer or names[1] != "b.log":
        assert standing == sorted(found) == sorted(names)
    tail = Tail(tmp_path)
    if following:  # one of them grows all the time
        read = []
        for n in range(GRACE_SCANS + 2):
            if names[0] == "a.log" and not longer:
                append(tmp_path / "a.log", b"more %d\n" % n)
            read += tail.read()
    else:
        read = tail.read(final=True)
    expected = set(other.splitlines()) | ({b"first"} if not longer else set())
    assert expected <= set(read)


def three_alike(base: Path) -> list[bytes]:
    """The log's contents in the order in which they are met: the second is the longest."""
    contents = [b"begin\n1\n", b"begin\n" + b"2\n" * 50, b"begin\n3\n3\n"]
    for at, (name, data) in enumerate(zip(("a.log.2", "a.log.1", "a.log"), contents, strict=True)):
        (base / name).write_bytes(data)
        os.utime(base / name, (at, at))
    return contents


def test_a_compressed_one_is_found_again_behind_a_longer_one_that_is_gone(tmp_path: Path) -> None:
    contents = three_alike(tmp_path)
    tail = Tail(tmp_path)
    tail.read(final=True)
    first, _, third = sorted(position.identity for position in tail.follower.positions())
    (tmp_path / "a.log.1").unlink()
    (tmp_path / "a.log").unlink()
    (tmp_path / "a.log.1.gz").write_bytes(gzip.compress(contents[2]))
    again = Tail(tmp_path, tail.follower.positions())
    assert again.read(final=True) == []
    assert again.follower.present() == {first: "a.log.2", third: "a.log.1.gz"}
    assert not again.problems


@pytest.mark.parametrize(("cut", "final"), [(False, False), (True, False), (True, True)])
def test_a_compressed_one_with_less_than_was_read_of_one_that_is_gone_is_read(
    tmp_path: Path, cut: bool, final: bool
) -> None:
    """A cut-off one may be an unfinished copy: it is waited for."""
    three_alike(tmp_path)
    tail = Tail(tmp_path)
    tail.read(final=True)
    (tmp_path / "a.log.1").unlink()
    (tmp_path / "a.log").unlink()
    packed = gzip.compress(b"begin\n4\n", 0)
    (tmp_path / "a.log.1.gz").write_bytes(packed[:-8] if cut else packed)
    again = Tail(tmp_path, tail.follower.positions())
    lines = [b"begin", b"4"]
    if not cut:
        assert again.read() == lines
    elif final:
        assert again.read(final=True) == lines
    else:
        assert [again.read() for _ in range(GRACE_SCANS + 1)] == [*[[]] * GRACE_SCANS, lines]
    assert again.read(final=True) == []
    assert again.kinds() == [ProblemKind.ALIKE, *[ProblemKind.DAMAGED] * cut]


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("copy", [False, True])
def test_of_a_plain_one_and_a_compressed_one_that_goes_on_behind_it_all_is_read(
    tmp_path: Path, known: bool, copy: bool
) -> None:
    """The plain one may turn out to be the same log, or another with the same beginning."""
    log, rolled = tmp_path / "a.log", tmp_path / "a.log.1.gz"
    lines = [b"begin", b"1", b"2", b"3"]
    log.write_bytes(b"".join(line + b"\n" for line in lines))
    tail = Tail(tmp_path)
    if known:
        assert tail.read() == lines
    rolled.write_bytes(gzip.compress(log.read_bytes()))
    log.unlink()
    append(log, b"begin\n1\n")
    for paths in (
        [each.file.path for each in find_logs(tmp_path, ["**/*"], has_header=False).values()],
        [each.path for each in standing_logs(tmp_path, Reading(), pytest.fail)],
    ):
        assert paths == ["a.log.1.gz"]
    again = Tail(tmp_path, tail.follower.positions())
    assert again.read(final=True) == ([] if known else lines)
    assert list(again.follower.present().values()) == ["a.log.1.gz"]
    assert [str(each) for each in again.problems] == [
        "a.log: holds the same bytes as a.log.1.gz, as far as it goes: it is left out as its copy until they differ"
    ]
    append(log, b"2\n3\n4\n" if copy else b"5\n")
    assert again.read() == ([b"4"] if copy else [b"begin", b"1", b"5"])
    assert sorted(again.follower.present().values()) == ["a.log", *["a.log.1.gz"] * (not copy)]
