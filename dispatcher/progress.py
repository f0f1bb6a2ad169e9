"""Follows how far the event store has read the primary logs, by asking often while an event may wait for that, and
seldom otherwise. An event may wait from its reading until it is a row of the retry store that is not due yet. Code
that reads events calls ``wanted``: the store is then asked at once, so the progress is as recent as with constant
polling. If the store reports arrivals itself (``arrivals``), an event in memory waits for progress only after a miss,
and for a known point of the logs: until that can have been passed, the store is asked less often.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from photon.config.clock import NS_PER_S, Clock
from photon.config.stopping import until
from photon.dispatcher.reporting import Troubles
from photon.dispatcher.state import State
from photon.dispatcher.two_clocks import heard, passed_by_both
from photon.dispatcher.waiting import Waiting
from photon.eventstore.api import Progress

AskProgress = Callable[[], Awaitable[Progress]]  # asks how far the event store has read the primary logs

IDLE_S = 1.0  # interval while nothing waits: a row of the retry store may wait this long for news of fully read logs
# The interval while no event in memory waits for a point that may be passed by then: each request costs both sides
# together some 1 ms of CPU.
FOLLOWED_S = 0.25
# ``once``: no foreign log is read while more of the primary logs is unread. A store that is reading answers slowly,
# mostly with a miss; a join of 10 M + 1 M takes 0.83 of the time if the two do not overlap.
AHEAD_BYTES = 256 << 20
STORE = "event store"
CLOCKS = "clocks"  # their names in the log


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds between requests: ``busy_s`` while events wait, ``idle_s`` while none does, ``followed_s`` while they
    wait only for reported arrivals or a later point of the logs. ``once``: always ``busy_s``.
    """

    busy_s: float
    idle_s: float = IDLE_S
    once: bool = False
    followed_s: float = FOLLOWED_S


@dataclass(eq=False)
class ProgressWatch:
    """Asks the event store for its progress, and passes it to ``waiting``. Calls ``moved`` when it has changed."""

    progress: AskProgress
    waiting: Waiting
    state: State
    troubles: Troubles
    clock: Clock
    moved: Callable[[], None]
    pace: Pace
    slack_ns: int  # clocks may differ by this

    def __post_init__(self) -> None:
        self._wanted = asyncio.Event()
        # True if logs may be read: the event store's clock is known (``two_clocks``), and of finished logs it has
        # read most.
        self.may_read = False

    def wanted(self) -> None:
        self._wanted.set()

    async def run(self) -> None:
        while True:
            self._wanted.clear()
            await self._ask()
            pause_s = self.pause_s()
            if pause_s <= self.pace.busy_s or self.waiting.open:
                await asyncio.sleep(pause_s)
                continue
            await until(self._wanted, pause_s)

    def pause_s(self) -> float:
        """Returns the seconds until the store is asked again, unless ``wanted`` is called."""
        waiting, pace = self.waiting, self.pace
        if pace.once or not self.may_read or (waiting.open and not waiting.followed):
            return pace.busy_s
        most_s = pace.followed_s if waiting.open else pace.idle_s
        held_ns = waiting.room.next_trigger_ns()
        stored_ns = self.state.next_trigger_ns(waiting.read_past_ns) if self.state.retry_rows else None
        next_ns = min((ns for ns in (held_ns, stored_ns) if ns is not None), default=None)
        if next_ns is None:
            return most_s
        return min(max((next_ns - self.clock.now_ns()) / NS_PER_S, pace.busy_s), most_s)

    async def _ask(self) -> None:
        now, asked_ns = self.clock.monotonic(), self.clock.now_ns()
        try:
            progress = await self.progress()
        except Exception as error:
            self.troubles.met(STORE, f"its progress is unknown: {type(error).__name__}: {error}", now)
            return
        if (told := heard(progress, asked_ns, now)) is None:
            self.troubles.met(STORE, "it has not answered yet; reading of the logs begins once it does", now)
            return
        self.troubles.well(STORE, now)
        took_ns = int((self.clock.monotonic() - now) * NS_PER_S)
        self._compare(told.ahead_ns - min(max(told.ahead_ns, 0), took_ns), now)
        self.waiting.first_read.hear(told)
        read_past_ns = passed_by_both(progress, asked_ns)
        may_read = not self.pace.once or progress.bytes_known - progress.bytes_read <= AHEAD_BYTES
        if may_read != self.may_read or read_past_ns != self.waiting.read_past_ns:
            self.may_read = may_read
            self.waiting.progressed(read_past_ns)
            self.moved()

    def _compare(self, ahead: int, now: float) -> None:
        """Reports clocks that differ by more than permitted. ``ahead``: the least possible ns, as the answer took
        time.
        """
        if abs(ahead) <= self.slack_ns:
            self.troubles.well(CLOCKS, now)
            return
        side = "ahead of" if ahead > 0 else "behind"
        self.troubles.met(
            CLOCKS,
            f"the event store's clock is {abs(ahead) / NS_PER_S:.1f} s {side} this machine's, so events without a "
            "primary event wait longer for their verdict; synchronise both machines",
            now,
        )
