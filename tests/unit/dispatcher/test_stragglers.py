"""An event with a slow answer holds back neither the events read after it nor the others' offsets."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from photon.batch.events import Events
from photon.dispatcher.limits import Limits
from photon.dispatcher.process import Policy
from photon.dispatcher.retry import Patience
from photon.joiner.api import JoinAnswers
from tests.unit.dispatcher.test_engine import QUICK, World, running, until

LIVE = Patience(unmatched_after_ns=3600 * 10**9)


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
