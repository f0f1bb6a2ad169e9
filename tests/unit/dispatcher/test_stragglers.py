"""An event with a slow answer holds back neither the events read after it nor the others' offsets."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from photon.batch.events import Events
from photon.dispatcher.committing import STRAGGLERS
from photon.dispatcher.core import Core
from photon.dispatcher.events import Batch
from photon.dispatcher.limits import Limits
from photon.dispatcher.process import Policy
from photon.dispatcher.retry import Patience
from photon.joiner.api import JoinAnswers, Outcome
from tests.unit.dispatcher.test_engine import QUICK, World, running, until
from tests.unit.dispatcher.world import block, core, take

LIVE = Patience(unmatched_after_ns=3600 * 10**9)
SMALL = Limits(batch_events=10, window_bytes=1 << 30, hold_bytes=10_000, hold_s=5.0)


def text(start: int, stop: int) -> bytes:
    return b"".join(b"id%06d k 1\n" % n for n in range(start, stop))


def joined(c: Core, batch: Batch, now: float) -> None:
    c.answered(batch, JoinAnswers.alike(len(batch), Outcome.JOINED), 0, now)


def read(c: Core, blocks: int) -> list[Batch]:
    """Reads ``blocks`` blocks of a hundred events; returns the batches that go out."""
    size = len(text(0, 100))
    for n in range(blocks):
        take(c, block(text(100 * n, 100 * n + 100), n * size), now=0.0)
    batches = []
    while (batch := c.next_batch(0.0, flush=True)) is not None:
        batches.append(batch)
    return batches


def test_a_few_stragglers_become_rows_where_finished_work_waits_for_them_and_memory_is_short() -> None:
    c = core(patience=LIVE, limits=SMALL)
    slow, *others = read(c, 5)
    for batch in others:
        joined(c, batch, 1.0)
    assert not c.committing.changes(0, 4.9).positions  # not before they have had their time
    changes = c.committing.changes(0, 5.0)
    assert changes.stored.events.ids == [b"id%06d" % n for n in range(10)]
    assert changes.positions["log1"].offset == len(text(0, 500))
    assert c.logs.window_bytes == 0
    changes.stored.row_ids[:] = range(1, 11)
    c.committing.committed()
    assert c.waiting.loaded.without(range(1, 11)) == []  # they are still on their way
    joined(c, slow, 6.0)
    assert c.committing.changes(0, 6.0).deleted == list(range(1, 11))
    assert c.waiting.open == 0


@pytest.mark.parametrize("case", ["memory is not short", "many are left", "nothing waits for them", "once"])
def test_else_they_are_waited_for(case: str) -> None:
    limits = replace(SMALL, hold_bytes=1 << 30) if case == "memory is not short" else SMALL
    c = core(patience=Patience(once=True) if case == "once" else LIVE, limits=limits)
    batches = read(c, 1 if case == "nothing waits for them" else 5)
    slow = int(100 * STRAGGLERS) // 10 + 1 if case == "many are left" else 1
    for batch in batches[slow:]:
        joined(c, batch, 1.0)
    changes = c.committing.changes(0, 20.0)
    assert not changes.stored
    assert not changes.positions


class SlowForOne:
    """Answers at once, except for batches with one certain event, which take as long as ``gate`` is shut."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.gate = asyncio.Event()
        self.held = 0

    async def join(self, events: Events, *, timeout: float) -> JoinAnswers:
        if b"id7" in events.ids:
            self.held += 1
            await self.gate.wait()
        return self.world.registry.answers(events.rows())

    async def close(self) -> None: ...


async def test_one_slow_event_and_a_small_memory(tmp_path: Path) -> None:
    world = World(tmp_path)
    slow = SlowForOne(world)
    world.joiners = [slow]  # type: ignore[list-item]
    limits = Limits(batch_events=50, window_bytes=16 << 20, hold_bytes=8 << 20, hold_s=0.05)
    world.policy = Policy(LIVE, limits, replace(QUICK, join_timeout_s=60.0))
    world.write("a.log", b"".join(b"id%d k%0140d 0\n" % (n, n) for n in range(60_000)))  # many times the window
    with world.engine() as engine:
        async with running(engine):
            await until(lambda: engine.status().read - engine.status().pending >= 60_000 - 50)
            assert slow.held >= 1
            slow.gate.set()
            await until(lambda: engine.status().pending == 0)
    assert world.ledger().read == 60_000
