"""Processes that cannot run, clocks that go back, full disks: nobody healthy is ended, nothing waits unseen."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from photon.embedded.ports import free_ports
from tests.integration.commands import alive, photon, running, until

UP_S = 150.0
LIMIT_S = 2.0
BURDEN_S = 1.2
BUSY = 4


DEPLOYMENT = """
key_file = "key"
[join.clicks]
unmatched_after = "1h"
[join.clicks.primary]
format = "jsonl"
key = "query_id"
[join.clicks.foreign]
format = "jsonl"
key = "query_id"
id = "click_id"
time = {{ field = "time_us", unit = "us" }}
[registry]
shards = 1
[registry.replicas.r1]
address = "127.0.0.1:{}"
directory = "registry"
datacentre = "east"
[datacentre.east]
join = "clicks"
primary = "queries"
foreign = "clicks"
output = "output"
state = "state"
eventstore = "127.0.0.1:{}"
dispatcher = "127.0.0.1:{}"
verifier = "127.0.0.1:{}"
[datacentre.east.joiners.east-1]
address = "127.0.0.1:{}"
"""


def _one_datacentre(directory: Path) -> Path:
    """A registry of one replica, an event store, a joiner, a dispatcher and a verifier."""
    for name in ("queries", "clicks"):
        (directory / name).mkdir(parents=True)
    (directory / "key").write_bytes(b"k" * 32)
    file = directory / "photon.toml"
    file.write_text(DEPLOYMENT.format(*free_ports(5)))
    return file


@contextlib.contextmanager
def _up(file: Path, *arguments: str) -> Iterator[Path]:
    """``photon up`` in the foreground, and its log."""
    log = file.with_suffix(".log")
    with running("up", file, *arguments, log=log) as process:
        yield log
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def _states(file: Path) -> dict[str, dict[str, Any]]:
    result = photon("ps", file, "-o", "json")
    return {row["name"]: row for row in json.loads(result.out)["processes"]} if result.out else {}


BURDEN = """
import signal, time
def work(*_):
    until = time.thread_time() + {burden_s}
    while time.thread_time() < until:
        pass
signal.signal(signal.SIGUSR1, work)
"""
"""What every process does when it hears SIGUSR1: its loop has much to do at once."""


@contextlib.contextmanager
def _starved(pid: int) -> Iterator[None]:
    """Several others want the one processor that it may run on, all the time."""
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
    (tmp_path / "sitecustomize.py").write_text(BURDEN.format(burden_s=BURDEN_S))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    with _up(file, "--unhealthy-after", str(LIMIT_S), "--no-logs") as log:
        until(lambda: {row["state"] for row in _states(file).values()} == {"up"}, UP_S, "all up")
        before = _states(file)
        slow, hung = before["dispatcher east"]["pid"], before["verifier east"]["pid"]
        with _starved(slow):
            os.kill(slow, signal.SIGUSR1)
            time.sleep(BURDEN_S * (BUSY + 2))
        until(lambda: _states(file)["dispatcher east"]["state"] == "up", UP_S, "the slow one answers again")
        assert "kill -9" not in log.read_text()
        os.kill(hung, signal.SIGSTOP)
        until(lambda: _states(file)["verifier east"]["pid"] not in (None, hung), UP_S, "the hung one is replaced")
        assert not alive(hung)
        assert _states(file)["dispatcher east"]["pid"] == slow
        [told] = [line for line in log.read_text().splitlines() if "kill -9" in line]
        assert told.startswith("verifier east")
        assert "it hangs" in told
