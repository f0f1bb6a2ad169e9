"""Whether a process answers its health service, and whether one that does not hangs.

An answer is the heartbeat of a process's loop: the loop itself gives it. On a machine that has more to run than it
can, a healthy process answers late, and so does the one who asks; to kill it then costs a restart, which makes the
machine slower still. So silence is judged by what the process could have done meanwhile. Time in which one of its
threads was ready to run and another process had the processor is *starved*, and so is time in which the supervisor
was; only the rest counts. What is left over is a process that

- stands still: it waits for something that does not come, or was stopped (SIGSTOP) by someone other than its
  supervisor: it is found after the limit,
- spins: it used so much time of a processor without giving an answer,
- does anything at all, and has not answered for many times the limit: there is a bound that no load moves.
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

STARVED_TIMES = 40.0  # silent for this many times the limit, a process is taken to hang however little it could run
UNKNOWN_TIMES = 4.0  # the limit is this many times as long where the kernel does not say how much a process could run
_LISTEN = "0A"  # the state of a listening socket in the kernel's table


class Health(enum.Enum):
    SERVING = "serving"
    NOT_SERVING = "not serving"
    """It answers, so it does not hang: a registry replica without a majority says so for as long as that lasts."""
    SILENT = "silent"


async def ask_health(address: str, name: str, timeout: float, to: Towards | None = None) -> Health:
    """Asks a process's gRPC health service once. ``to`` None: plain text."""
    async with open_channel(address, to=to) as channel:
        answer = await serves(channel, name, timeout)
    if answer is None:
        return Health.SILENT
    return Health.SERVING if answer else Health.NOT_SERVING


def listens(pid: int, address: str) -> bool:
    """Whether it is this process that listens at host:port. Another one there would answer in its place, while this
    one is about to end because the port is in use. True where that is not to be known."""
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
        return not os.path.exists("/proc/self/net/tcp")  # of a process that has just ended it is not told
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
    """What the scheduler says of one thread."""

    ran_ns: int
    waited_ns: int  # ready to run, up to the last time that it was let: a wait that still lasts is not in it
    ready: bool  # running now, or waiting to


Turns = Mapping[int, Turn]  # scheduler times of all threads of a process at one moment, by their ids


def turns_of(pid: int) -> Turns | None:
    """Asks the kernel. None: it does not say (no /proc, or one without schedstat), or the process is gone."""
    found: dict[int, Turn] = {}
    own = pid == os.getpid()  # who looks runs just now, which says nothing of the time before
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError, ValueError, IndexError):  # a thread that has just ended
                thread = Path(f"/proc/{pid}/task/{name}")
                ran, waited, _ = map(int, (thread / "schedstat").read_text().split())
                ready = not own and (thread / "stat").read_text().rpartition(")")[2].split()[0] == "R"
                found[int(name)] = Turn(ran, waited, ready)
    return found or None


def used_s(before: Turns, after: Turns, passed_s: float) -> tuple[float, float]:
    """Of ``passed_s`` between two looks at a process: how long its busiest thread ran, and how long the one that was
    kept from running most had to wait."""
    ran_s = waited_s = 0.0
    for thread, now in after.items():
        if (then := before.get(thread)) is not None:
            ran = (now.ran_ns - then.ran_ns) / 1e9
            waited = (now.waited_ns - then.waited_ns) / 1e9
            ran_s = max(ran_s, ran)
            waited_s = max(waited_s, waited, passed_s - ran if then.ready and now.ready else 0.0)
    return min(ran_s, passed_s), min(waited_s, passed_s)


class Answers:
    """The health of one process over time. Pure."""

    def __init__(self) -> None:
        self.last: Health | None = None
        self.was_up = False  # it served once; only then can it be said to hang
        self.silent_s = 0.0
        self.ran_s = 0.0  # how long its busiest thread ran in that time
        self.starved_s = 0.0  # how long it, or the supervisor, was kept from running in that time
        self._known = True
        self._at_s: float | None = None
        self._turns: Sequence[Turns | None] = ()

    def heard(self, health: Health, now_s: float, gap_max_s: float, turns: Sequence[Turns | None] = ()) -> None:
        """Counts the time between two checks as silent only up to ``gap_max_s``: when the one who asks was itself
        stopped for a while, that says nothing of the one who is asked. ``turns``: of the process and of the one who
        asks, while it is silent; None: the kernel does not say."""
        if health is not Health.SILENT or not self.was_up:
            self.silent_s = self.ran_s = self.starved_s = 0.0
            self._known, self._turns = True, ()
        elif self._at_s is not None:
            # How much it could run is known from the first look without an answer on, and so its silence counts.
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
        """It had ``limit_s`` to answer in which it could run, or has been silent for far longer."""
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
        """Its silence was wanted (paused); counting restarts."""
        self.silent_s = self.ran_s = self.starved_s = 0.0
        self._known, self._at_s, self._turns = True, None, ()
