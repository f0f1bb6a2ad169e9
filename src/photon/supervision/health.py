"""Checks whether a process answers its health service, and whether a process that does not answer hangs.

The process's event loop gives the answer itself, so an answer is its heartbeat. On an overloaded machine a healthy
process answers late, and so does the supervisor; killing the process then costs a restart, which slows the machine
further. So silence is judged by the time that the process could have used. Time in which one of its threads was ready
to run but another process had the processor is *starved*, and so is time in which the supervisor was; only the rest
counts. Thus a process that

- is stuck or was suspended (SIGSTOP) by someone other than its supervisor is found after the limit,
- spins is found once it has used that much processor time without giving an answer,
- does anything else is found after many times the limit, regardless of load.
"""

from __future__ import annotations

import contextlib
import enum
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from photon.config.rpc import serves
from photon.config.tls import Towards, open_channel

STARVED_TIMES = 40.0  # a process silent for this many times the limit hangs, however little it ran
UNKNOWN_TIMES = 4.0  # factor of the limit if the kernel does not report how long a process could run
_LISTEN = "0A"  # state of a listening socket in the kernel's table


class Health(enum.Enum):
    SERVING = "serving"
    # Answers, so it does not hang; a registry replica without a majority stays in this state.
    NOT_SERVING = "not serving"
    SILENT = "silent"


async def ask_health(address: str, name: str, timeout: float, to: Towards | None = None) -> Health:
    """Asks a process's gRPC health service once. ``to``: `None` means plain text."""
    async with open_channel(address, to=to) as channel:
        answer = await serves(channel, name, timeout)
    if answer is None:
        return Health.SILENT
    return Health.SERVING if answer else Health.NOT_SERVING


def listens(pid: int, address: str) -> bool:
    """Returns True if this process listens at host:port, or if that is unknown. If it does not, another process
    answers in its place, and this one is about to stop because the port is in use."""
    port = address.rpartition(":")[2]
    if not port.isdigit():
        return True
    sockets: set[str] = set()
    known = False
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            rows = [line.split() for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]]
            sockets |= {
                row[9] for row in rows if row[3] == _LISTEN and int(row[1].rpartition(":")[2], 16) == int(port)
            }
            known = True
    if not known:
        return not os.path.exists("/proc/self/net/tcp")  # unknown for a process that has just stopped
    return any(name in sockets for name in _sockets(pid))


def _sockets(pid: int) -> list[str]:
    found = []
    with contextlib.suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                target = os.readlink(entry.path)
                if target.startswith("socket:["):
                    found.append(target[8:-1])
    return found


class Turn(NamedTuple):
    """The scheduler's times for one thread."""

    ran_ns: int
    waited_ns: int  # total time spent waiting to run, without the current wait
    ready: bool  # running now, or waiting to run


Turns = Mapping[int, Turn]  # thread id -> scheduler times, of all threads of a process at one moment


def turns_of(pid: int) -> Turns | None:
    """Reads the scheduler times of a process's threads from the kernel.

    Returns `None` if they are not available (no /proc, or one without schedstat), or if the process is gone.
    """
    found: dict[int, Turn] = {}
    own = pid == os.getpid()  # this thread is running now, which says nothing about the time before
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError, ValueError, IndexError):  # the thread has just ended
                thread = Path(f"/proc/{pid}/task/{name}")
                ran, waited, _ = map(int, (thread / "schedstat").read_text().split())
                ready = not own and (thread / "stat").read_text().rpartition(")")[2].split()[0] == "R"
                found[int(name)] = Turn(ran, waited, ready)
    return found or None


def used_s(before: Turns, after: Turns, passed_s: float) -> tuple[float, float]:
    """Returns the running time of a process's busiest thread, and the longest time that a thread waited to run,
    during ``passed_s`` between two checks."""
    ran_s = waited_s = 0.0
    for thread, now in after.items():
        if (then := before.get(thread)) is not None:
            ran = (now.ran_ns - then.ran_ns) / 1e9
            waited = (now.waited_ns - then.waited_ns) / 1e9
            ran_s = max(ran_s, ran)
            waited_s = max(waited_s, waited, passed_s - ran if then.ready and now.ready else 0.0)
    return min(ran_s, passed_s), min(waited_s, passed_s)


class Answers:
    """The answers to one process's health checks over time. Pure."""

    def __init__(self) -> None:
        self.last: Health | None = None
        self.was_up = False  # True once it has served; only then can it hang
        self.silent_s = 0.0
        self.ran_s = 0.0  # running time of its busiest thread during the silence
        self.starved_s = 0.0  # time in which the process or the supervisor was kept from running
        self._known = True
        self._at_s: float | None = None
        self._turns: Sequence[Turns | None] = ()

    def heard(self, health: Health, now_s: float, gap_max_s: float, turns: Sequence[Turns | None] = ()) -> None:
        """Records the result of one check. The time since the previous check counts as silence only up to
        ``gap_max_s``, because the supervisor itself may have been suspended. ``turns``: of the process and of the
        supervisor, while the process is silent; `None` if not available."""
        if health is not Health.SILENT or not self.was_up:
            self.silent_s = self.ran_s = self.starved_s = 0.0
            self._known, self._turns = True, ()
        elif self._at_s is not None:
            # Running times are known only from the first unanswered check on, so silence counts from there.
            passed_s = 0.0 if turns and not self._turns else min(now_s - self._at_s, gap_max_s)
            self.silent_s += passed_s
            self._starved(passed_s, turns)
        self.was_up = self.was_up or health is Health.SERVING
        self.last, self._at_s = health, now_s

    def _starved(self, passed_s: float, turns: Sequence[Turns | None]) -> None:
        starved_s = 0.0
        for number, (before, after) in enumerate(zip(self._turns, turns, strict=False)):
            if before is not None and after is not None:
                ran_s, waited_s = used_s(before, after, passed_s)
                starved_s += waited_s
                self.ran_s += 0.0 if number else ran_s
        self.starved_s += min(starved_s, passed_s)
        self._known = self._known and None not in turns
        self._turns = turns

    def hangs(self, limit_s: float) -> bool:
        """Returns True if the process could run for ``limit_s`` without answering, or has been silent for far
        longer."""
        own_s = self.silent_s - self.starved_s
        return own_s > limit_s * (1.0 if self._known else UNKNOWN_TIMES) or self.silent_s > limit_s * STARVED_TIMES

    @property
    def words(self) -> str:
        if not self._known:
            return f"has not answered for {self.silent_s:.0f} s"
        return (
            f"has not answered for {self.silent_s:.0f} s, in which it ran for {self.ran_s:.0f} s and was kept from "
            f"running for {self.starved_s:.0f} s"
        )

    def excused(self) -> None:
        """Starts counting silence from zero, after intended silence (a pause)."""
        self.silent_s = self.ran_s = self.starved_s = 0.0
        self._known, self._at_s, self._turns = True, None, ()
