"""Links in a log directory: none leads out of it unless permitted, and the log behind one is read through
rotations."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from photon.adapters.logs import follower as follower_module
from photon.adapters.logs.discovery import compile_patterns, discover, look_at
from photon.adapters.logs.elsewhere import open_stored
from photon.adapters.logs.framings import open_anywhere
from photon.adapters.logs.links import HOPS_MAX, LinkOutside, Links, hops, log_path, stat_log
from photon.adapters.logs.log_finder import find_logs
from photon.adapters.logs.problems import Problem, ProblemKind, ProblemReporter
from photon.adapters.logs.reader import open_source
from photon.adapters.logs.slices import LogUnreadable, Reading, Slice, StandingLog, read_slice, standing_logs
from photon.adapters.logs.tail import DANGLING_S
from photon.eventstore.log_files import Pages, open_log
from tests.unit.adapters.logs.tails import Tail, append
from tests.unit.adapters.logs.test_watching import Watched

ALL = compile_patterns(["**/*"])


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir()
    return tmp_path / "logs"


@pytest.fixture
def pods(tmp_path: Path) -> Path:
    (tmp_path / "pods").mkdir()
    return tmp_path / "pods"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    (tmp_path / "private").mkdir()
    path = tmp_path / "private" / "key.pem"
    path.write_bytes(b"secret\n")
    return path


def scan(directory: Path, *follow: Path) -> tuple[list[str], list[Problem]]:
    problems: list[Problem] = []
    links = [str(each) for each in follow]
    found = discover(directory, ALL, ProblemReporter(problems.append), links=links)
    return [each.path for each in found], problems


def test_a_log_directory_that_is_a_link_is_its_real_directory(logs: Path, secret: Path) -> None:
    append(logs / "a.log", b"1\n")
    (logs / "current.log").symlink_to("a.log")
    (logs / "evil.log").symlink_to(secret)
    (logs.parent / "link").symlink_to(logs)
    tail = Tail(logs.parent / "link", patterns=("[ce]*.log",))
    assert tail.read(final=True) == [b"1"]
    assert tail.kinds() == [ProblemKind.LINK]


def test_what_a_link_cannot_lead_to_is_told(logs: Path, pods: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (logs / "web.log").symlink_to(pods / "0.log")
    real = os.lstat

    def denied(path: str) -> os.stat_result:
        if str(path).startswith(str(pods)):
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr("photon.adapters.logs.discovery.os.lstat", denied)
    found, problems = scan(logs, pods)
    assert (found, [each.kind for each in problems]) == ([], [ProblemKind.LINK])
    assert "cannot be examined (Permission denied)" in str(problems[0])


def test_thousands_of_links_in_a_row_are_a_loop(logs: Path) -> None:
    for number in range(1_200):
        (logs / f"l{number}").symlink_to(f"l{number + 1}")
    assert len(hops(logs, "l0")) == HOPS_MAX
    assert scan(logs)[0] == []
    (logs / "round").symlink_to("round")
    (logs / "deep").symlink_to("x/" * 2_000 + "y")
    (logs / "dot").symlink_to("..")
    assert scan(logs) == ([], [])


OPENERS = [
    pytest.param(lambda place: open_anywhere(place, Reading().framing), id="framings"),
    pytest.param(open_source, id="reader"),
    pytest.param(open_stored, id="stored"),
    pytest.param(lambda place: open_log(place, Pages(), 1), id="event store"),
]


@pytest.mark.parametrize("opened", OPENERS)
@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_a_file_that_becomes_a_link_after_the_scan_is_not_opened(
    logs: Path, pods: Path, secret: Path, opened: Callable[[object], object], suffix: str
) -> None:
    (logs / f"a.log{suffix}").symlink_to(secret)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(LinkOutside, match=f"leads to {secret}, outside the log directory"):
        opened(log_path(logs, f"a.log{suffix}", [str(pods)]))
    with pytest.raises(OSError, match="symbolic links"):  # a plain path does not circumvent it
        opened(logs / f"a.log{suffix}")
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_directory_that_becomes_a_link_after_the_scan_is_not_entered(logs: Path, secret: Path) -> None:
    (logs / "d").symlink_to(secret.parent)
    with pytest.raises(LinkOutside):
        open_source(log_path(logs, "d/key.pem"))
    with pytest.raises(LinkOutside):
        open_source(log_path(logs, "../private/key.pem"))
    assert open_source(log_path(logs, "../private/key.pem", [str(secret.parent)])).read(0, 9) == b"secret\n"


def test_the_follower_does_not_read_a_file_that_became_a_link_between_scan_and_opening(
    logs: Path, secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(logs / "a.log", b"1\n")
    listed = follower_module.discover

    def swapped(*arguments: object) -> object:
        found = listed(*arguments)  # type: ignore[arg-type]
        (logs / "a.log").unlink(missing_ok=True)
        (logs / "a.log").symlink_to(secret)
        monkeypatch.setattr(follower_module, "discover", listed)
        return found

    monkeypatch.setattr(follower_module, "discover", swapped)
    tail = Tail(logs)
    assert tail.read(final=True) == []
    assert [(each.kind, each.path) for each in tail.follower.unread()] == [(ProblemKind.LINK, "a.log")]


def test_a_slice_of_a_file_that_became_a_link_is_refused(logs: Path, pods: Path, secret: Path) -> None:
    append(pods / "0.log", b"1\n")
    (logs / "web.log").symlink_to(pods / "0.log")
    reading = Reading(links=(str(pods),))
    (log,) = standing_logs(logs, reading, print)
    assert [block.data for block in read_slice(logs, Slice(log, 0, None), reading)] == [b"1\n"]
    assert standing_logs(logs, Reading(), lambda problem: None) == []
    with pytest.raises(LogUnreadable, match="outside the log directory"):
        list(read_slice(logs, Slice(log, 0, None), Reading()))
    (logs / "web.log").unlink()
    (logs / "web.log").symlink_to(secret)
    evil = StandingLog("web.log", "x", b"", 0, 7, 0, splittable=True)
    with pytest.raises(LogUnreadable, match="outside the log directory"):
        list(read_slice(logs, Slice(evil, 0, None), reading))


def test_readers_at_places_find_what_may_be_followed(logs: Path, pods: Path) -> None:
    append(pods / "0.log", b"1\n")
    (logs / "web.log").symlink_to(pods / "0.log")
    assert find_logs(logs, ["**/*"], has_header=False) == {}
    (found,) = find_logs(logs, ["**/*"], has_header=False, links=[str(pods)]).values()
    assert found.file.path == "web.log"


def test_a_rolled_target_is_read_under_the_name_of_its_link(logs: Path, pods: Path) -> None:
    append(pods / "0.log.1", b"1\n")
    (logs / "sub").mkdir()
    (logs / "sub" / "web.log").symlink_to(pods / "0.log")  # which is not there yet
    place = log_path(logs, "sub/web.log.1", [str(pods)])
    assert open_source(place).read(0, 9) == b"1\n"
    assert stat_log(logs, "sub/web.log.1").st_size == 2
    with pytest.raises(LinkOutside):
        open_source(log_path(logs, "sub/web.log.1"))
    for missing in ("sub/web.log.2", "sub/app.log.1", "sub/app.log"):
        with pytest.raises(FileNotFoundError):
            open_source(log_path(logs, missing, [str(pods)]))
    append(logs / "sub" / "web.log.1", b"real\n")  # existing files go first
    assert open_source(place).read(0, 9) == b"real\n"
    assert scan(logs, pods)[0] == ["../pods/0.log.1", "sub/web.log.1"]


def test_target_directories_are_listed_once_a_pass(logs: Path, pods: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(50):
        append(pods / f"p{number}.log", b"%d\n" % number)
        (logs / f"l{number}.log").symlink_to(pods / f"p{number}.log")
    listed: list[str] = []
    real = os.scandir
    monkeypatch.setattr("photon.adapters.logs.links.os.scandir", lambda path: listed.append(str(path)) or real(path))
    assert len(scan(logs, pods)[0]) == 50
    assert listed.count(str(pods)) == 1


class Polled:
    """Like ``Watched``, but each look is at the whole directory."""

    def __init__(self, directory: Path, links: list[str]) -> None:
        self._tail = Tail(directory, links=links)
        self.read, self.close, self.problems = self._tail.read, self._tail.close, self._tail.problems
        self.follower = self._tail.follower


@pytest.fixture(params=["notified", "polled"])
def world(request: pytest.FixtureRequest, logs: Path, pods: Path) -> Iterator[Watched | Polled]:
    links = [str(pods)]
    made = Watched(logs, links=links) if request.param == "notified" else Polled(logs, links)
    (logs / "web.log").symlink_to(pods / "0.log")
    made.read()
    yield made
    made.close()


def test_rotation_behind_a_link_loses_nothing(world: Watched | Polled, logs: Path, pods: Path) -> None:
    log, lines = pods / "0.log", list[bytes]()
    append(log, b"first\n")
    lines += world.read()
    for turn in range(4):
        append(log, b"%d before\n" % turn)
        if turn % 2:
            lines += world.read()
        rolled = log.rename(pods / f"0.log.2024030{turn + 1}-101010")
        append(rolled, b"%d late\n" % turn)
        if turn < 3:
            lines += world.read()  # the link leads to nothing
            append(rolled, b"%d later\n" % turn)
            lines += world.read()
        append(log, b"%d after\n" % turn)
        lines += world.read()
    expected = [b"%d %s" % (turn, each) for turn in range(4) for each in (b"before", b"late", b"after")]
    assert sorted(lines) == sorted([b"first", *expected, *(b"%d later" % turn for turn in range(3))])
    assert world.problems == []
    assert world.follower.lost_bytes == 0


def test_what_is_of_no_log_that_is_followed_is_not_noticed_behind_a_link(logs: Path, pods: Path) -> None:
    append(pods / "0.log", b"1\n")
    append(pods / "other.log", b"x\n")
    (logs / "web.log").symlink_to(pods / "0.log")
    world = Watched(logs, links=[str(pods)])
    assert world.read() == [b"1"]
    (pods / "other.log").rename(logs.parent / "away.log")
    append(pods / "another.log", b"x\n")
    assert world.watcher.changed() == (set(), set())
    world.close()


def test_growth_behind_a_link_lists_no_directory(logs: Path, pods: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("0.log", "0.log.1"):
        append(pods / name, name.encode() + b"\n")
    (logs / "web.log").symlink_to(pods / "0.log")
    world = Watched(logs, links=[str(pods)])
    assert sorted(world.read()) == [b"0.log", b"0.log.1"]
    world.whole = 0
    listed: list[str] = []
    monkeypatch.setattr("photon.adapters.logs.links.os.scandir", lambda path: listed.append(str(path)))
    append(pods / "0.log", b"2\n")
    append(pods / "0.log.1", b"3\n")
    assert sorted(world.read()) == [b"2", b"3"]
    assert listed == []
    assert world.whole == 0
    assert {each.path for each in world.follower.positions()} == {"web.log", "web.log.1"}
    world.close()


def test_dangling_links_are_looked_at_now_and_then(logs: Path, pods: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (logs / "web.log").symlink_to(pods / "0.log")
    world = Watched(logs, links=[str(pods)])
    world.read()
    world.read()
    looked: list[object] = []
    monkeypatch.setattr(follower_module, "look_at", lambda *given: looked.append(given[3]) or look_at(*given))
    for _ in range(8):
        world.now += DANGLING_S / 4
        world.read()
    assert looked == [{"web.log"}] * 2
    world.close()


def test_a_removed_link_is_watched_no_more(logs: Path, pods: Path) -> None:
    append(pods / "0.log", b"1\n")
    (logs / "web.log").symlink_to(pods / "0.log")
    world = Watched(logs, links=[str(pods)])
    assert world.read() == [b"1"]
    (logs / "web.log").unlink()
    world.now += 60.0
    world.read()
    append(pods / "0.log", b"2\n")
    assert world.watcher.changed() == (set(), set())
    world.close()


def test_all_that_was_seen_was_read_only_when_a_rolled_target_was(logs: Path, pods: Path) -> None:
    append(pods / "0.log", b"1\n")
    (logs / "web.log").symlink_to(pods / "0.log")
    world = Watched(logs, links=[str(pods)])
    world.read()
    append(pods / "0.log", b"2\n")
    (pods / "0.log").rename(pods / "0.log.1")
    append(pods / "0.log", b"3\n")
    world.tail.scan()
    assert not world.follower.caught_up()
    blocks = world.tail.poll(1)
    assert not world.follower.caught_up()
    while more := world.tail.poll(1 << 20):
        blocks += more
    assert {block.data for block in blocks} == {b"2\n", b"3\n"}
    assert world.follower.caught_up()
    world.close()


def test_links_of_a_directory_that_is_gone_are_an_error(logs: Path) -> None:
    links = Links(logs / "nowhere")
    with pytest.raises(FileNotFoundError):
        links.begin(whole=True)
