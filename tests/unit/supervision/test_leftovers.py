"""Processes left by a killed supervisor."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from photon.supervision.leftovers import FILE_NAME, end_leftovers, forget, remember

IGNORES_SIGTERM = "import signal, time; signal.signal(15, signal.SIG_IGN); print(flush=True); time.sleep(600)"
SLEEPS = "import time; print(flush=True); time.sleep(600)"
Start = Callable[[str], "subprocess.Popen[bytes]"]


@pytest.fixture
def start() -> Iterator[Start]:
    processes: list[subprocess.Popen[bytes]] = []

    def one(code: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        processes.append(process)
        process.stdout.readline()
        return process

    yield one
    for process in processes:
        process.kill()
        process.wait()
        process.stdout.close()


def test_those_that_still_live_are_ended(tmp_path: Path, start: Start) -> None:
    one, stopped, ended = start(SLEEPS), start(SLEEPS), start(SLEEPS)
    remember(tmp_path, {"one": one.pid, "stopped": stopped.pid, "ended": ended.pid})
    stopped.send_signal(signal.SIGSTOP)
    ended.kill()
    ended.wait()
    assert end_leftovers(tmp_path) == [f"one (pid {one.pid})", f"stopped (pid {stopped.pid})"]
    assert [one.wait(60), stopped.wait(60)] == [-signal.SIGTERM, -signal.SIGTERM]
    assert end_leftovers(tmp_path) == []


def test_one_that_does_not_listen_is_killed(tmp_path: Path, start: Start) -> None:
    process = start(IGNORES_SIGTERM)
    remember(tmp_path, {"deaf": process.pid})
    assert end_leftovers(tmp_path, grace_s=0.2) == [f"deaf (pid {process.pid})"]
    assert process.wait(60) == -signal.SIGKILL


@pytest.mark.parametrize("change", ["started", "boot", "version", "magic"])
def test_no_other_process_is_touched(tmp_path: Path, start: Start, change: str) -> None:
    process = start(SLEEPS)
    remember(tmp_path, {"one": process.pid})
    path = tmp_path / FILE_NAME
    file = json.loads(path.read_bytes())
    if change == "started":
        file["processes"][0]["started"] += 1
    else:
        file[change] = 2 if change == "version" else "another"
    path.write_text(json.dumps(file))
    assert end_leftovers(tmp_path) == []
    assert process.poll() is None


@pytest.mark.parametrize("data", [b"", b"{}", b"\xff", b'{"magic":"photon processes","version":1}'])
def test_a_file_that_cannot_be_read_names_nobody(tmp_path: Path, data: bytes) -> None:
    (tmp_path / FILE_NAME).write_bytes(data)
    assert end_leftovers(tmp_path) == []


@pytest.mark.parametrize("pid", [0, -1, 1 << 40])
def test_pids_that_none_can_have(tmp_path: Path, pid: int) -> None:
    remember(tmp_path, {"one": os.getpid()})
    path = tmp_path / FILE_NAME
    path.write_text(path.read_text().replace(f'"pid":{os.getpid()}', f'"pid":{pid}'))
    assert end_leftovers(tmp_path) == []


def test_forgotten_ones_are_left_alone(tmp_path: Path, start: Start) -> None:
    process = start(SLEEPS)
    remember(tmp_path, {"one": process.pid})
    forget(tmp_path)
    assert end_leftovers(tmp_path) == []
    assert process.poll() is None
