"""The interval at which the event store is asked for its progress."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from photon.config.clock import NEVER_NS
from photon.dispatcher.progress import AHEAD_BYTES, Pace, ProgressWatch
from photon.dispatcher.reporting import Troubles
from photon.dispatcher.two_clocks import Heard
from photon.eventstore.api import Progress
from photon.eventstore.tiered import NOTHING_READ_NS

S = 1_000_000_000
WAIT_S = 30.0
PACE = Pace(busy_s=0.002, idle_s=3600.0)


class Rig:
    """A watch over values set by a test."""

    def __init__(self, pace: Pace = PACE) -> None:
        self.asked = 0
        self.asking = asyncio.Event()
        self.said: int | Exception = 100
        self.told: list[int] = []
        self.store_ahead = 0
        self.unread = 0
        self.now, self.took = 0.0, 0.0
        self.ahead_told = 0
        self.waiting: Any = SimpleNamespace(
            open=0,
            followed=False,
            room=SimpleNamespace(next_trigger_ns=lambda: self.held_trigger),
            read_past_ns=-1,
            progressed=self._progressed,
            first_read=SimpleNamespace(hear=self._clocks),
        )
        self.state: Any = SimpleNamespace(retry_rows=0, next_trigger_ns=lambda after: self.next_trigger)
        self.next_trigger: int | None = None
        self.held_trigger: int | None = None
        clock: Any = SimpleNamespace(monotonic=lambda: self.now, now_ns=lambda: 1000 * S)
        log: Any = SimpleNamespace(warning=lambda *a, **k: None, info=lambda *a, **k: None)
        self.troubles = Troubles(log)
        self.watch = ProgressWatch(
            self._progress, self.waiting, self.state, self.troubles, clock, lambda: self.told.append(0), pace, 5 * S
        )

    def run(self) -> None:
        """Runs until the test's loop ends."""
        self._task = asyncio.create_task(self.watch.run())

    async def _progress(self) -> Progress:
        self.count()
        self.now += self.took
        if isinstance(self.said, Exception):
            raise self.said
        age = 1000 * S - self.said + self.store_ahead
        return Progress(self.said, age, bytes_read=7, bytes_known=7 + self.unread)

    def count(self) -> None:
        self.asked += 1
        self.asking.set()

    def _progressed(self, read_past_ns: int) -> None:
        self.waiting.read_past_ns = read_past_ns

    def _clocks(self, told: Heard) -> None:
        self.ahead_told = told.ahead_ns

    async def until_asked(self, times: int) -> None:
        async with asyncio.timeout(WAIT_S):
            while self.asked < times:
                self.asking.clear()
                await self.asking.wait()
        await asyncio.sleep(0)  # what it does with the answer


async def test_it_is_asked_at_once_when_events_come_and_often_while_they_wait() -> None:
    rig = Rig()
    rig.run()
    await rig.until_asked(1)
    assert rig.told == [0]
    for _ in range(20):  # idle: nothing more for an hour
        await asyncio.sleep(0.002)
    assert rig.asked == 1
    rig.said = 200
    rig.watch.wanted()
    await rig.until_asked(2)
    assert rig.waiting.read_past_ns == 200
    rig.waiting.open = 5
    rig.watch.wanted()
    await rig.until_asked(6)  # nobody says so again


async def test_what_comes_while_it_is_asked_is_not_missed() -> None:
    rig = Rig()
    asked = asyncio.Event()
    answer = asyncio.Event()

    async def slowly() -> Progress:
        rig.count()
        asked.set()
        await answer.wait()
        return Progress(read_past_ns=100)

    rig.watch.progress = slowly
    rig.run()
    await asked.wait()
    rig.watch.wanted()
    answer.set()
    await rig.until_asked(2)


async def test_nothing_is_read_before_the_stores_clock_is_known() -> None:
    rig = Rig(Pace(busy_s=0.001, idle_s=3600.0))
    rig.said = NOTHING_READ_NS  # as a client says that has not reached its store
    rig.store_ahead = -(2**63)
    met: list[str] = []
    rig.troubles.met = lambda what, problem, now: met.append(f"{what}: {problem}")  # type: ignore[method-assign]
    rig.run()
    await rig.until_asked(3)
    assert (rig.watch.may_read, rig.told) == (False, [])
    assert met[0] == "event store: it has not answered yet; reading of the logs begins once it does"
    rig.said, rig.store_ahead = 900 * S, 0
    await rig.until_asked(rig.asked + 1)
    assert (rig.watch.may_read, rig.told) == (True, [0])


async def test_finished_logs_are_read_when_the_store_has_read_most_of_its_own() -> None:
    rig = Rig(Pace(busy_s=0.001, idle_s=3600.0, once=True))
    rig.said, rig.unread = 900 * S, AHEAD_BYTES + 1
    rig.run()
    await rig.until_asked(2)
    assert (rig.watch.may_read, rig.ahead_told) == (False, 0)
    told = len(rig.told)
    rig.unread = AHEAD_BYTES
    await rig.until_asked(rig.asked + 2)
    assert (rig.watch.may_read, len(rig.told)) == (True, told + 1)


async def test_logs_that_grow_are_read_however_far_the_store_is() -> None:
    rig = Rig()
    rig.unread = AHEAD_BYTES + 1
    rig.run()
    await rig.until_asked(1)
    assert rig.watch.may_read


async def test_a_store_that_does_not_answer_is_asked_again() -> None:
    rig = Rig(Pace(busy_s=0.001, idle_s=0.002))
    rig.said = OSError("away")
    rig.run()
    await rig.until_asked(3)
    assert (rig.waiting.read_past_ns, rig.told) == (-1, [])
    rig.said = 7
    await rig.until_asked(5)
    assert rig.waiting.read_past_ns == 7


@pytest.mark.parametrize(
    ("ahead_s", "took_s", "past_s", "said"),
    [
        (60, 0, 840, "60.0 s ahead of"),
        (-60, 0, 900, "60.0 s behind"),
        (4, 0, 896, ""),
        (-4, 0, 900, ""),
        (60, 10, 840, "50.0 s ahead of"),
        (10, 10, 890, ""),  # a slow answer is no wrong clock
        (-60, 10, 900, "60.0 s behind"),
    ],
)
async def test_clocks_that_differ_too_much_are_told(ahead_s: int, took_s: int, past_s: int, said: str) -> None:
    """``ahead_s``: as it appears from when the store was asked."""
    rig = Rig()
    rig.took = took_s
    met: list[str] = []
    rig.troubles.met = lambda what, problem, now: met.append(f"{what}: {problem}")  # type: ignore[method-assign]
    rig.said, rig.store_ahead = 900 * S, ahead_s * S
    rig.run()
    await rig.until_asked(1)
    assert (rig.waiting.read_past_ns, rig.ahead_told) == (past_s * S, ahead_s * S)
    assert [line.startswith("clocks: ") and said in line for line in met] == [True] * bool(said)


@pytest.mark.parametrize(
    ("open_", "rows", "trigger_ns", "pause_s"),
    [
        (0, 0, None, 10.0),  # idle
        (1, 0, None, 0.05),
        (0, 3, None, 10.0),  # rows that wait for their back-off only
        (0, 3, 999 * S, 0.05),  # a row waits for logs that may be read at any moment
        (0, 3, 1004 * S, 4.0),  # it cannot be passed before that time
        (0, 3, NEVER_NS - 2, 10.0),
    ],
)
def test_the_pause(open_: int, rows: int, trigger_ns: int | None, pause_s: float) -> None:
    rig = Rig(Pace(busy_s=0.05, idle_s=10.0))
    rig.watch.may_read = True
    rig.waiting.open, rig.state.retry_rows, rig.next_trigger = open_, rows, trigger_ns
    assert rig.watch.pause_s() == pytest.approx(pause_s)


@pytest.mark.parametrize(
    ("held_ns", "rows", "stored_ns", "pause_s"),
    [
        (None, 0, None, 0.25),  # all are on their way for the first time
        (999 * S, 0, None, 0.05),  # one missed, and waits for logs that may be read at any moment
        (1000 * S + S // 10, 0, None, 0.1),
        (1030 * S, 0, None, 0.25),
        (1030 * S, 3, 999 * S, 0.05),
        (None, 3, 1004 * S, 0.25),
    ],
)
def test_the_pause_while_the_store_tells(
    held_ns: int | None, rows: int, stored_ns: int | None, pause_s: float
) -> None:
    rig = Rig(Pace(busy_s=0.05, idle_s=10.0))
    rig.watch.may_read = rig.waiting.followed = True
    rig.waiting.open, rig.state.retry_rows = 5, rows
    rig.held_trigger, rig.next_trigger = held_ns, stored_ns
    assert rig.watch.pause_s() == pytest.approx(pause_s)


async def test_events_that_come_do_not_have_it_asked_more_often_than_others_that_wait() -> None:
    rig = Rig(Pace(busy_s=0.001, idle_s=7200.0, followed_s=3600.0))
    rig.waiting.open, rig.waiting.followed = 5, True
    rig.run()
    await rig.until_asked(1)
    for _ in range(20):
        rig.watch.wanted()
        await asyncio.sleep(0.001)
    assert rig.asked == 1


def test_a_store_that_was_not_heard_is_asked_often() -> None:
    assert Rig(Pace(busy_s=0.05, idle_s=10.0)).watch.pause_s() == 0.05


def test_with_once_it_is_always_asked_often() -> None:
    assert Rig(Pace(busy_s=0.05, idle_s=10.0, once=True)).watch.pause_s() == 0.05
