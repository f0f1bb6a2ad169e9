"""Resources of a command and all of its descendants: wall time, CPU time, peak memory.

CPU time is the kernel's own account of ended children. This process adopts orphans of the command (Linux's child
subreaper), so that a daemon whose parent ended is counted as well. Memory is the sum of the tree's resident pages,
sampled; a page that n processes share counts 1/n in each (the kernel's "proportional set size").
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from photon.supervision.zygote import adopt_orphans

# Interval between two samples of memory: each looks through the page tables of all processes. Shorter at first.
SAMPLE_S = 1.0
FIRST_S = 0.1
END_S = 10.0  # time for processes that outlive their command, before they are killed


@dataclass(frozen=True, slots=True)
class Measured:
    """Resources used by one run of a command."""

    wall_s: float
    cpu_s: float
    peak_mib: float
    code: int  # as in ``subprocess``; never ``None``: a process that takes too long is killed (-9)
    output: str
    error: str  # last lines of its error output


def tree(pid: int) -> list[int]:
    """Returns the pids of a process and its descendants."""
    found = [pid]
    for each in found:
        try:
            tasks = [int(task) for task in os.listdir(f"/proc/{each}/task")]
        except OSError:
            continue
        for task in tasks:
            try:
                found += [int(c) for c in Path(f"/proc/{each}/task/{task}/children").read_text().split()]
            except OSError:
                continue
    return found


def resident(pids: Sequence[int]) -> int:
    """Returns the resident bytes of all these processes together."""
    total = 0
    for pid in pids:
        try:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        total += sum(int(line.split()[1]) << 10 for line in rollup.splitlines() if line.startswith("Pss:"))
    return total


def cpu_s(pids: Sequence[int]) -> float:
    """Returns the CPU seconds of running processes, including their ended children."""
    ticks = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        except (OSError, IndexError):
            continue
        ticks += sum(int(field) for field in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def measure(
    command: Sequence[str | Path],
    *,
    scratch: Path,
    environment: Mapping[str, str] | None = None,
    timeout_s: float = 3600.0,
) -> Measured:
    """Runs a command to its end. ``scratch``: a directory for its output."""
    adopt_orphans(True)
    env = None if environment is None else {**os.environ, **environment}
    out, err = scratch / "stdout", scratch / "stderr"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    peak, seen = 0, set[int]()
    with open(out, "wb") as stdout, open(err, "wb") as stderr:
        began = time.perf_counter()
        process = subprocess.Popen(
            [str(each) for each in command], stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, env=env
        )
        pause = FIRST_S
        while True:
            try:
                process.wait(pause)
                break
            except subprocess.TimeoutExpired:
                pids = tree(process.pid)
                seen.update(pids)
                peak = max(peak, resident(pids))
                pause = min(1.5 * pause, SAMPLE_S)
                if time.perf_counter() - began > timeout_s:
                    kill_tree(process.pid)
        wall = time.perf_counter() - began
    _reap(seen - {process.pid})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Measured(wall, cpu, peak / 2**20, process.returncode, out.read_text(errors="replace"), tail(err))


def tail(file: Path, lines: int = 200) -> str:
    """Returns the last lines of a text file."""
    return "\n".join(file.read_text(errors="replace").splitlines()[-lines:])


def kill_tree(pid: int) -> None:
    """kill -9 of a process and its descendants: the parent first, so that it starts none of them again."""
    for each in tree(pid):
        _kill(each)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _reap(pids: set[int]) -> None:
    """Waits for adopted children."""
    deadline = time.monotonic() + END_S
    left = set(pids)
    while left:
        for pid in sorted(left):
            try:
                if os.waitpid(pid, os.WNOHANG)[0]:
                    left.discard(pid)
                elif time.monotonic() > deadline:
                    _kill(pid)
            except ChildProcessError:
                left.discard(pid)
        if left:
            time.sleep(0.01)
