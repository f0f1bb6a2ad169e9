"""A shard that does not answer holds back only its own ids."""

from __future__ import annotations

import asyncio

import pytest

from photon.idregistry.client import routing
from photon.idregistry.client.routing import ShardCalls

SICK = 2


class Shards:
    """Answers at once; the sick one when ``gate`` opens."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.answered: list[int] = []
        self.cancelled = 0

    async def ask(self, shard: int) -> bool:
        try:
            if shard == SICK:
                await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        self.answered.append(shard)
        return True


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "GRACE_S", 0.2)
    monkeypatch.setattr(routing, "LATE_S", 0.01)
    monkeypatch.setattr(routing, "LOOK_S", 1000.0)


async def took(p: ShardCalls, shards: Shards, *numbers: int) -> float:
    loop = asyncio.get_running_loop()
    begun = loop.time()
    async with asyncio.timeout(60):
        await p.run([(number, shards.ask(number)) for number in numbers])
    elapsed = loop.time() - begun
    await asyncio.sleep(0)  # what was cancelled ends
    return elapsed


async def test_the_others_are_answered_after_a_moment_then_at_once() -> None:
    p, shards = ShardCalls(), Shards()
    assert await took(p, shards, 1, SICK, 3) >= 0.2
    assert sorted(shards.answered) == [1, 3]
    assert shards.cancelled == 1
    quickest = min([await took(p, shards, 1, SICK, 3) for _ in range(10)])
    assert quickest < 0.2  # it is known to be late
    assert shards.cancelled == 11


async def test_a_late_one_that_answers_is_waited_for_again() -> None:
    p, shards = ShardCalls(), Shards()
    await took(p, shards, 1, SICK)
    asyncio.get_running_loop().call_later(0.05, shards.gate.set)
    await took(p, shards, SICK, SICK)  # alone: as long as it takes
    assert shards.answered.count(SICK) == 2
    shards.gate.clear()
    asyncio.get_running_loop().call_later(0.1, shards.gate.set)
    await took(p, shards, 1, SICK)
    assert shards.answered.count(SICK) == 3


async def test_late_ones_are_looked_at_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    p, shards = ShardCalls(), Shards()
    await took(p, shards, 1, SICK)
    monkeypatch.setattr(routing, "LOOK_S", 0.0)
    p._look_at = 0.0
    asyncio.get_running_loop().call_later(0.05, shards.gate.set)
    await took(p, shards, 1, SICK)
    assert SICK in shards.answered


async def test_a_cancelled_call_leaves_nothing_behind_and_errors_come_through() -> None:
    p, shards = ShardCalls(), Shards()
    running = asyncio.create_task(p.run([(1, shards.ask(1)), (SICK, shards.ask(SICK))]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await asyncio.sleep(0)
    assert shards.cancelled == 1

    async def broken() -> bool:
        raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug"):
        await p.run([(1, shards.ask(1)), (3, broken())])
