"""The event loop in virtual time, in addition to what the schedules show of it."""

from __future__ import annotations

import asyncio
import gc
from random import Random

import pytest

from tests.simulation.world.loop import Owner, VirtualLoop, bury


def test_a_task_that_a_last_step_makes_is_closed_too(caplog: pytest.LogCaptureFixture) -> None:
    failed: list[BaseException] = []
    loop, owner = VirtualLoop(Random(0), failed.append), Owner()

    async def work() -> None:
        try:
            await asyncio.sleep(9.0)
        finally:
            await asyncio.shield(asyncio.sleep(1.0))

    loop.spawn(owner, work())
    loop.later(1.0, loop.stop)
    loop.run_forever()
    asyncio.set_event_loop(other := asyncio.new_event_loop())  # as tests before it leave one
    try:
        bury(loop, [owner])
    finally:
        asyncio.set_event_loop(None)
        other.close()
    loop.close()
    gc.collect()
    assert not failed
    assert not caplog.records, "an unfinished task is told of"
