"""Notification and polling: noticed changes, doubtful ones, and watchers that fail."""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import inotify_simple
import pytest

from photon.adapters.logs import inotify as inotify_module
from photon.adapters.logs import watching as watching_module
from photon.adapters.logs.api import Changes, LogPosition
from photon.adapters.logs.follower import Follower
from photon.adapters.logs.inotify import InotifyWatcher
from photon.adapters.logs.mounts import is_network, type_at
from photon.adapters.logs.problems import Problem, ProblemKind
from photon.adapters.logs.tail import CHANGED_S, IDLE_S, READ_PAUSE_MOST_S, READ_SHARE, SCAN_S, WHOLE_S, Tail
from photon.adapters.logs.watching import Watch, open_watcher
from tests.unit.adapters.logs.tails import append

MOUNTINFO = r"""22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
40 22 0:35 / /srv/logs rw,relatime shared:9 - nfs4 filer:/logs rw
41 22 0:36 / /srv/logs/local rw - xfs /dev/vdb rw
42 22 0:37 / /srv/my\040logs rw - fuse.sshfs host: rw
43 22 0:38 / /srv/logs2 rw - ext4 /dev/vdc rw
"""


@pytest.mark.parametrize(
    ("path", "kind", "network"),
    [
        ("/srv/logs", "nfs4", True),
        ("/srv/logs/a/b", "nfs4", True),
        ("/srv/logs/local/a", "xfs", False),
        ("/srv/logs2", "ext4", False),
        ("/srv/my logs/a", "fuse.sshfs", True),
        ("/var/log", "ext4", False),
        ("/", "ext4", False),
    ],
)
def test_the_file_system_of_a_path_is_that_of_the_longest_mount(path: str, kind: str, network: bool) -> None:
    assert type_at(path, MOUNTINFO) == kind
    assert is_network(kind) is network


class Watched:
    """A follower with notification and a manually set clock."""

    def __init__(
        self, directory: Path, positions: list[LogPosition] | None = None, links: Sequence[str] = ()
    ) -> None:
        self.now = 100.0
        self.problems: list[Problem] = []
        self.failures: list[str] = []
        self.watcher = InotifyWatcher(directory)
        self.follower = Follower(
            directory,
            patterns=("**/*.log*",),
            has_header=False,
            positions=positions or [],
            report=self.problems.append,
            enter=self.watcher.enter,
            links=links,
        )
        self.whole = 0
        self._scan = self.follower.scan
        self.follower.scan = self._counted  # type: ignore[method-assign]
        self.tail = Tail(self.follower, self.watcher, lambda: self.now, report=self.failures.append)

    def _counted(self, *changes: set[str]) -> bool:
        whole = self._scan(*changes)
        self.whole += whole
        return whole

    def read(self) -> list[bytes]:
        """Scans if due, and returns the new lines."""
        self.tail.scan()
        lines = []
        while blocks := self.tail.poll(1 << 20):
            lines += [line for block in blocks for line in block.data.split(b"\n")[:-1]]
        return lines

    def close(self) -> None:
        self.tail.close()
        self.follower.close()


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    world = Watched(tmp_path)
    world.read()
    world.whole = 0
    yield world
    world.close()


def test_an_overflowing_queue_means_anywhere(watched: Watched, tmp_path: Path) -> None:
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if limit > 1 << 16:
        pytest.skip(f"the kernel queues {limit} events")
    names = itertools.cycle([tmp_path / "a.log", tmp_path / "b.log"])
    with (tmp_path / "a.log").open("ab") as a, (tmp_path / "b.log").open("ab") as b:
        for path in itertools.islice(names, limit + 10):  # equal events in a row would count as one
            (a if path.name == "a.log" else b).write(path.name[:1].encode() + b"\n")
            (a if path.name == "a.log" else b).flush()
    (tmp_path / "c.log").write_bytes(b"last\n")
    lines = watched.read()
    assert lines.count(b"a") + lines.count(b"b") == limit + 10
    assert lines[-1] == b"last"
    assert watched.whole == 1


def test_the_whole_directory_is_looked_at_now_and_then(watched: Watched, tmp_path: Path) -> None:
    append(tmp_path / "a.log", b"1\n")
    assert watched.read() == [b"1"]
    append(tmp_path / "a.log", b"2\n")
    assert watched.watcher.changed() == Changes({"a.log"}, set())  # taken from under the tail, as if never reported
    assert watched.read() == []
    watched.now += WHOLE_S
    assert watched.read() == [b"2"]
    assert watched.whole == 1


def test_without_further_watches_it_is_polled_and_said_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(tmp_path / "x" / "a.log", b"1\n")
    watched = Watched(tmp_path)
    added = watched.watcher._inotify.add_watch

    def full(path: Path, mask: int) -> int:
        if Path(path).name == "x":
            raise OSError(errno.ENOSPC, "No space left on device")
        return int(added(path, mask))

    monkeypatch.setattr(watched.watcher._inotify, "add_watch", full)
    assert watched.read() == [b"1"]
    assert not watched.tail.native
    (said,) = watched.failures
    assert "fs.inotify.max_user_watches" in said
    append(tmp_path / "x" / "a.log", b"2\n")
    assert watched.read() == [b"2"]
    assert len(watched.failures) == 1
    watched.close()


def test_a_network_file_system_below_is_met(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inotify_module, "read_type", lambda place: "nfs4")
    watcher = InotifyWatcher(tmp_path, foreign=is_network)
    watcher.enter("")
    assert "nfs4" in watcher.failed
    watcher.close()


def test_who_chooses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    assert open_watcher(tmp_path, Watch.POLL, said.append) is None
    monkeypatch.setattr(watching_module, "read_type", lambda place: "nfs4")
    assert open_watcher(tmp_path, Watch.AUTO, said.append) is None
    (line,) = said
    assert "nfs4" in line
    native = open_watcher(tmp_path, Watch.NATIVE, said.append)
    assert native is not None
    native.close()
    assert len(said) == 1


def test_no_further_instance_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(directory: Path, *, foreign: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(inotify_module, "InotifyWatcher", none)
    said: list[str] = []
    assert open_watcher(tmp_path, Watch.NATIVE, said.append) is None
    (line,) = said
    assert "fs.inotify.max_user_instances" in line


def test_moments_of_polling_follow_what_a_scan_takes(tmp_path: Path) -> None:
    times = iter([0.0, 0.3, 10.0, 10.001])
    tail = Tail(Follower(tmp_path, has_header=False), None, lambda: next(times))
    assert tail.due(0.0)
    tail.scan()
    assert not tail.due(3.29 - 1.0)
    assert tail.next_at() == pytest.approx(0.3 + 2.0)  # not 3 s: no further apart than SCAN_MOST_S
    tail.scan()
    assert tail.next_at() == pytest.approx(10.001 + SCAN_S)


async def test_a_notification_wakes_once_until_the_next_scan(watched: Watched, tmp_path: Path) -> None:
    woken = asyncio.Event()
    wakes = []

    def wake() -> None:
        wakes.append(1)
        woken.set()

    watched.tail.attach(asyncio.get_running_loop(), wake)
    watched.now += IDLE_S
    watched.tail.scan()
    quiet_until = watched.tail.next_at()
    assert quiet_until == pytest.approx(watched.now + IDLE_S)
    for _ in range(3):
        append(tmp_path / "a.log", b"1\n")
        await asyncio.wait_for(woken.wait(), 10)
    assert watched.tail.next_at() < quiet_until
    assert len(wakes) == 1
    assert watched.read() == [b"1"] * 3
    woken.clear()
    append(tmp_path / "a.log", b"2\n")
    await asyncio.wait_for(woken.wait(), 10)
    assert watched.read() == [b"2"]
    watched.tail.detach()


def test_a_thread_waits_until_woken_or_stopped(tmp_path: Path) -> None:
    with watching_module.watching(tmp_path, Watch.NATIVE, print) as watcher:
        assert watcher is not None
        follower = Follower(tmp_path, has_header=False, enter=watcher.enter)
        tail = Tail(follower, watcher, time.monotonic, idle_s=60.0)
        tail.scan()
        thread = threading.Timer(0.05, append, (tmp_path / "a.log", b"1\n"))
        thread.start()
        begun = time.monotonic()
        stop = threading.Event()
        bell = os.eventfd(0)
        tail.wait(stop, bell)
        assert time.monotonic() - begun < 30
        thread.join()
        tail.scan()
        assert [block.data for block in tail.poll(1 << 20)] == [b"1\n"]
        os.eventfd_write(bell, 1)
        tail.wait(stop, bell)
        os.eventfd_read(bell)
        stop.set()
        tail.wait(stop, bell)
        os.close(bell)
        follower.close()


class _Pauses(threading.Event):
    """Notes how long a thread would wait for it, and is set then."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.seconds.append(timeout)
        return True


@pytest.mark.parametrize(
    ("reading_s", "pause_s"), [(0.0002, CHANGED_S), (0.002, 0.002 / READ_SHARE), (1.0, READ_PAUSE_MOST_S)]
)
def test_a_thread_that_reads_pauses_for_the_others(watched: Watched, reading_s: float, pause_s: float) -> None:
    watched.tail.scan()
    watched.now += reading_s
    stop = _Pauses()
    watched.tail.wait(stop, bell=-1)
    assert stop.seconds == [pytest.approx(pause_s, abs=0.0003)]


def test_an_unreadable_directory_is_tried_again(
    watched: Watched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where root, who may read everything, runs the tests: the system's refusals are simulated."""
    append(tmp_path / "x" / "a.log", b"1\n")
    scandir, add_watch = os.scandir, inotify_simple.INotify.add_watch

    def refused(path: str | Path) -> None:
        if Path(path) == tmp_path / "x":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))

    def careful_scandir(path: str | Path) -> object:
        refused(path)
        return scandir(path)

    def careful_add_watch(self: inotify_simple.INotify, path: str | Path, mask: int) -> int:
        refused(path)
        return int(add_watch(self, path, mask))

    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", careful_scandir)
        patched.setattr(inotify_simple.INotify, "add_watch", careful_add_watch)
        assert watched.read() == []
        assert {problem.kind for problem in watched.problems} == {ProblemKind.UNREADABLE}
    (tmp_path / "x").chmod(0o700)  # a repair changes it
    assert watched.read() == [b"1"]
