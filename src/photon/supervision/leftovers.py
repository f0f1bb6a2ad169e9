"""Stops processes that a killed supervisor left running. They normally stop by themselves; this module is for those
that hang.

A process is identified by its pid, its start time and the machine's boot, so that no other process is ever signalled.
The file is written at each start. A process started just before its supervisor was killed may be missing in it, but
cannot hang yet.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec

from photon.config.versioned_file import decoded

FILE_NAME = "processes.json"
GRACE_S = 10.0  # seconds between SIGTERM and SIGKILL
PID_MAX = 1 << 22
PROCESSES_MAX = 10_000


class _Process(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    pid: Annotated[int, msgspec.Meta(ge=1, le=PID_MAX)]
    started: int  # clock ticks from the machine's boot to the process's start


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="version", tag=1):
    boot: str
    processes: list[_Process]


def remember(run: Path, pids: Mapping[str, int]) -> None:
    processes = [_Process(name, pid, started) for name, pid in pids.items() if (started := _started(pid)) is not None]
    data = msgspec.json.encode(_File(_boot(), processes))
    temporary = run / (FILE_NAME + ".tmp")
    temporary.write_bytes(data)
    os.replace(temporary, run / FILE_NAME)  # no fsync: no process survives a power cut


def forget(run: Path) -> None:
    (run / FILE_NAME).unlink(missing_ok=True)


def end_leftovers(run: Path, grace_s: float = GRACE_S) -> list[str]:
    """Stops the processes that a dead supervisor left running, and waits for them. Returns ``NAME (pid N)`` of
    each."""
    with contextlib.ExitStack() as stack:
        left = []
        for process in _remembered(run):
            try:
                descriptor = os.pidfd_open(process.pid)
            except ProcessLookupError:
                continue
            stack.callback(os.close, descriptor)
            if (
                _started(process.pid) == process.started
            ):  # the descriptor still means this process if the pid is reused
                left.append((f"{process.name} (pid {process.pid})", descriptor))
        for number in (signal.SIGTERM, signal.SIGCONT):
            for _, descriptor in left:
                _signal(descriptor, number)
        deadline = time.monotonic() + grace_s
        for _, descriptor in left:
            if not _ended(descriptor, max(0.0, deadline - time.monotonic())):
                _signal(descriptor, signal.SIGKILL)
                _ended(descriptor, grace_s)
    forget(run)
    return [name for name, _ in left]


def leftovers(run: Path) -> list[str]:
    """Returns ``NAME (pid N)`` of each process that ``end_leftovers`` would stop."""
    left = [process for process in _remembered(run) if _started(process.pid) == process.started]
    return [f"{process.name} (pid {process.pid})" for process in left]


def _remembered(run: Path) -> list[_Process]:
    """Returns the processes in the file; none if it is from another boot, or unreadable because its writer was
    killed."""
    try:
        file = decoded((run / FILE_NAME).read_bytes(), _File)
    except (OSError, msgspec.DecodeError):
        return []
    return file.processes[:PROCESSES_MAX] if file.boot == _boot() else []


def _signal(descriptor: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(descriptor, number)


def _ended(descriptor: int, timeout: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(timeout * 1000))


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _started(pid: int) -> int | None:
    """Returns a process's start time; `None` if there is no such process, or it is already dead."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])
