"""Processes that cannot run, clocks that go back, full disks: no healthy process is ended, and nothing waits
unseen."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from photon.dispatcher.database import STATE_NAME, read_ledger
from photon.dispatcher.errors import StateError
from photon.dispatcher.events import REJECTED, Export
from photon.dispatcher.ledger import Verdict, cell
from photon.dispatcher.state import Changes, State
from tests.deployments import deployment
from tests.integration.commands import Result, alive, interrupt, photon, running, until
from tests.integration.forked import FIRST
from tests.integration.hostile.small_disk import mounted
from tests.integration.join_logs import CONFIG

UP_S = 150.0
LIMIT_S = 2.0
BURDEN_S = 0.8
BUSY = 4


def _one_datacentre(directory: Path) -> Path:
    """A registry of one replica, an event store, a joiner, a dispatcher and a verifier."""
    joined = '[join.clicks]\nunmatched_after = "1h"\n' + CONFIG + "[registry]\nshards = 1\n"
    return deployment(directory, joined, "eventstore", "dispatcher", "verifier", "joiners.east-1")


@contextlib.contextmanager
def _up(file: Path, *arguments: str) -> Iterator[Path]:
    """``photon up`` in the foreground, and its log."""
    log = file.with_suffix(".log")
    with running("up", file, *arguments, log=log) as process:
        yield log
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def _states(file: Path) -> dict[str, dict[str, Any]]:
    result = photon("status", "processes", "--config", file, "-o", "json")
    return {row["name"]: row for row in json.loads(result.out)["processes"]} if result.out else {}


# Every process reacts to SIGUSR1 with much work on its loop at once.
BURDEN = """
import signal, time
def work(*_):
    until = time.thread_time() + {burden_s}
    while time.thread_time() < until:
        pass
signal.signal(signal.SIGUSR1, work)
"""


@contextlib.contextmanager
def _starved(pid: int) -> Iterator[None]:
    """Several others want its only processor all the time."""
    [processor, *_] = sorted(os.sched_getaffinity(0))
    spins = f"import os\nos.sched_setaffinity(0, {{{processor}}})\nwhile True: pass"
    busy = [subprocess.Popen([sys.executable, "-c", spins]) for _ in range(BUSY)]
    threads = [int(thread) for thread in os.listdir(f"/proc/{pid}/task")]
    try:
        for thread in threads:
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(thread, {processor})
        yield
    finally:
        for each in busy:
            each.kill()
            each.wait()


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the kernel does not say how much one may run")
def test_one_that_is_kept_from_running_is_left_alone_and_one_that_hangs_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = _one_datacentre(tmp_path)
    (tmp_path / "burden.py").write_text(BURDEN.format(burden_s=BURDEN_S))
    monkeypatch.setenv(FIRST, str(tmp_path / "burden.py"))
    with _up(file, "--unhealthy-after", str(LIMIT_S), "--no-logs") as log:
        until(lambda: {row["state"] for row in _states(file).values()} == {"up"}, UP_S, "all up")
        before = _states(file)
        slow, hung = before["dispatcher east"]["pid"], before["verifier east"]["pid"]
        with _starved(slow):
            os.kill(slow, signal.SIGUSR1)
            time.sleep(BURDEN_S * (BUSY + 2))
        until(lambda: _states(file)["dispatcher east"]["state"] == "up", UP_S, "the slow one answers again")
        assert "SIGKILL" not in log.read_text()
        os.kill(hung, signal.SIGSTOP)
        until(lambda: _states(file)["verifier east"]["pid"] not in (None, hung), UP_S, "the hung one is replaced")
        assert not alive(hung)
        assert _states(file)["dispatcher east"]["pid"] == slow
        [told] = [line for line in log.read_text().splitlines() if "SIGKILL" in line]
        assert told.startswith("verifier east")
        assert "it hangs" in told


# The wall clock of every process of a run, except that of gRPC, half of which is not written in Python and has
# another.
CLOCK = """
import os, sys, time
ahead_s, now, now_ns = float(os.environ["TEST_CLOCK_AHEAD_S"]), time.time, time.time_ns
def grpc():
    return sys._getframe(2).f_globals.get("__name__", "").startswith("grpc")
time.time = lambda: now() + (0 if grpc() else ahead_s)
time.time_ns = lambda: now_ns() + int(ahead_s * 1e9)
"""
# The same clock, but read from a file: it steps for all processes at once.
STEPPED = """
import mmap, os, struct, sys, time
now, now_ns = time.time, time.time_ns
with open(os.environ["TEST_CLOCK_FILE"], "rb") as file:
    shown = mmap.mmap(file.fileno(), 8, prot=mmap.PROT_READ)
def ahead_s():
    grpc = sys._getframe(2).f_globals.get("__name__", "").startswith("grpc")
    return 0 if grpc else struct.unpack("q", shown)[0]
time.time = lambda: now() + ahead_s()
time.time_ns = lambda: now_ns() + ahead_s() * 10**9
"""
STEP_S = 30.0
BOUNDARY_S = 3.0  # a registry that believed the clock would move its boundary within this time
# A photon that is killed when its first records are logged, and before the registry is asked.
DIES = """
import photon.joiner.core as core
core.SlotCore.redo_synced = lambda self, upto: os.kill(os.getpid(), 9)
"""
DAY_S = 86_400.0
JOIN = """
[join.join.primary]
format = "jsonl"
key = "query_id"
[join.join.foreign]
format = "jsonl"
key = "query_id"
id = "click_id"
time = { field = "time_us", unit = "us" }
"""


class Site:
    """Logs, an output, and runs of ``photon join`` over them with a wrong clock."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.output = directory / "out"
        for name in ("q", "c"):
            (directory / name).mkdir()
        (directory / "join.toml").write_text(JOIN)
        (directory / "clock.py").write_text(CLOCK)
        (directory / "dies.py").write_text(CLOCK + DIES)

    def write(self, name: str, clicks: int, ago_s: float) -> None:
        """Clicks, a tenth of them without a query; their times begin that long ago by the true clock."""
        first_us = int((time.time() - ago_s) * 1e6)
        with open(self.directory / "q" / "q.log", "a") as queries, open(self.directory / "c" / "c.log", "a") as log:
            for n in range(clicks):
                each = {"query_id": f"{name}{n}", "time_us": first_us + n}
                if n % 10:
                    queries.write(json.dumps(each) + "\n")
                log.write(json.dumps({"click_id": f"c{name}{n}", **each}) + "\n")

    def command(self, *arguments: str) -> list[str]:
        logs = ["--primary", str(self.directory / "q"), "--foreign", str(self.directory / "c")]
        config = ("--config", str(self.directory / "join.toml"))
        return ["join", *logs, *config, "--output", str(self.output), *arguments]

    def run(self, ahead_s: float, *arguments: str) -> Result:
        return photon(*self.command("--once", *arguments), env=self._clock(ahead_s))

    def killed(self, ahead_s: float) -> None:
        done = photon(*self.command("--once", "--keep-pending"), env=self._clock(ahead_s, "dies.py"))
        assert done.code == -signal.SIGKILL, done.err

    def _clock(self, ahead_s: float, first: str = "clock.py") -> dict[str, str]:
        return {"TEST_CLOCK_AHEAD_S": str(ahead_s), FIRST: str(self.directory / first)}

    def joined(self) -> list[str]:
        """Keys of all joined records, sorted."""
        lines = photon("read", self.output).out.splitlines()
        return sorted(json.loads(line)["key"] for line in lines)


def _ledger(result: Result) -> Counter[str]:
    rows = re.findall(r"(?m)^(\w+) +([\d,]+)  \w", result.out)
    return Counter({name: int(count.replace(",", "")) for name, count in rows})


@pytest.mark.parametrize("killed", [False, True])
def test_a_clock_that_stands_before_what_is_remembered_is_told_and_holds_up_no_join(
    tmp_path: Path, killed: bool
) -> None:
    """The right time, a day ahead in the next run, ten days back in the third."""
    site = Site(tmp_path)
    site.write("now", 10, ago_s=3600)
    assert _ledger(site.run(0.0, "--keep-pending"))["joined"] == 9
    site.write("a", 100, ago_s=3600)
    if killed:
        site.killed(DAY_S)
    else:
        assert _ledger(site.run(DAY_S, "--keep-pending"))["joined"] == 99
    site.write("b", 50, ago_s=1800)
    site.write("old", 20, ago_s=11 * DAY_S)
    third = site.run(-10 * DAY_S, "--keep-pending")
    assert third.code == 0, third.err
    assert (_ledger(third)["joined"], _ledger(third)["pending"]) == (162, 18)
    if not killed:
        told = [line for line in third.err.splitlines() if "warning" in line]
        assert any("clock has gone back" in line and "clock=" in line and "was=" in line for line in told)
    sizes = (("now", 10), ("a", 100), ("b", 50), ("old", 20))
    assert site.joined() == sorted(f"{name}{n}" for name, count in sizes for n in range(count) if n % 10)


@pytest.mark.parametrize("flags", [(), ("--set", "registry.retention=30d")], ids=["permanently", "30 days"])
def test_a_follower_whose_clock_steps_joins_on(tmp_path: Path, flags: tuple[str, ...]) -> None:
    """Two hours ahead, a day back, 400 days ahead, right again: existing events are joined within seconds
    each time."""
    site, count = Site(tmp_path), 0
    (tmp_path / "clock.py").write_text(STEPPED)
    shown = tmp_path / "ahead"
    shown.write_bytes(bytes(8))
    env = {"TEST_CLOCK_FILE": str(shown), FIRST: str(tmp_path / "clock.py")}
    with running(*site.command(*flags), log=tmp_path / "said", env=env) as process:
        for ahead_s in (0, 7200, -DAY_S, 400 * DAY_S, 0):
            with shown.open("r+b") as file:
                file.write(struct.pack("q", int(ahead_s)))
            time.sleep(BOUNDARY_S)
            site.write(f"n{count}x", 10, ago_s=60)
            count += 1
            until(partial(_all_joined, site, 9 * count), STEP_S, f"all is joined by a clock {ahead_s:+} s")
        assert interrupt(process) == 0
    [state] = site.output.rglob(STATE_NAME)
    assert read_ledger(state).total.verdicts[Verdict.LATE] == 0


def _all_joined(site: Site, count: int) -> bool:
    return len(site.joined()) == count


def test_events_read_by_a_clock_that_was_ahead_are_given_up_by_the_right_one(tmp_path: Path) -> None:
    """And not only when it reaches the other clock's time, a day later."""
    site = Site(tmp_path)
    site.write("a", 100, ago_s=3600)
    assert _ledger(site.run(DAY_S, "--keep-pending"))["pending"] == 10
    patience = ("--set", "join.join.unmatched_after=1s", "--set", "clock.uncertainty=500ms")
    [state] = site.output.rglob(STATE_NAME)
    with running(*site.command(*patience), log=tmp_path / "said") as process:
        until(lambda: read_ledger(state).total.verdicts[Verdict.UNMATCHED] == 10, 60.0, "they are given up")
        interrupt(process)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "small", "4k") as directory:
        yield directory


def _resize(directory: Path, kib: int) -> None:
    subprocess.run(["mount", "-o", f"remount,size={kib}k", directory], check=True)


def test_a_dispatchers_state_says_of_a_full_disk_what_to_do_at_every_size(small_disk: Path) -> None:
    """Opening, writing and counting run out of space, at another statement each time."""
    path, committed = small_disk / STATE_NAME, 0
    told = set()
    changes = Changes(cells={cell(0, Verdict.READ): 1}, exports=[Export(REJECTED, b"x" * 1000)])
    for kib in range(4, 300, 4):
        _resize(small_disk, kib)
        try:
            with closing(State(path, rule=b"rule")) as state:
                for _ in range(2):
                    state.commit(changes)
                    committed += 1
        except StateError as error:
            told.add(re.sub(r"\(.*\)", "()", str(error)))
    assert told == {f"{path}: cannot be written (); make room on the disk, then start again"}
    _resize(small_disk, 1 << 12)
    assert read_ledger(path).total.read == committed > 0


def test_a_full_disk_ends_a_join_in_one_line_wherever_it_is_met(tmp_path: Path, small_disk: Path) -> None:
    """The registry's journal, the file map, the dispatcher's database, the redo log and the output run out of space,
    each at another size; every run continues from the state left by the one before."""
    site = Site(tmp_path)
    site.write("a", 1000, ago_s=3600)
    site.output = small_disk / "out"
    told = set()
    for kib in (8, 24, 120, 160, 240, 320, 480):
        _resize(small_disk, kib)
        run = site.run(0.0)
        assert run.code == 1, (kib, run)
        assert "Traceback" not in run.err, (kib, run.err)
        lines = re.findall(r"(?m)^photon: .*(?:No space left on device|disk is full|disk I/O error).*$", run.err)
        assert len(lines) == 1, (kib, run.err)
        [line] = lines
        assert str(small_disk) in line, line
        told.add(re.sub(r".*/small/out/?([^ :]*).*", r"\1", line))
    assert len(told) >= 3, told
    _resize(small_disk, 1 << 18)
    last = site.run(0.0)
    assert last.code == 0, last.err
    assert site.joined() == sorted(f"a{n}" for n in range(1000) if n % 10)
    assert _ledger(last)["read"] == 1000
