"""Slow nodes are not waited for; the first answer counts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from photon.adapters.contract import LogFile
from photon.batch.records import NO_RECORDS, PrimaryRecord
from photon.eventstore.api import EventLookUps, LookUpCode
from photon.eventstore.cache_nodes import wire
from photon.eventstore.cache_nodes.nodes import CacheNodes, HedgedLookUps
from photon.eventstore.found_records import FoundRecords
from photon.eventstore.index import U64

HIT = FoundRecords.of([(0, "id", PrimaryRecord(b"k,1", LogFile("a"), 0))])


class SlowAsked:
    """Stands in for a question to nodes: answered when the test says so."""

    hedge_s = 0.01

    def __init__(self) -> None:
        self.answered = asyncio.Event()
        self.have: list[FoundRecords] = []

    async def complete(self, timeout: float | None = None) -> bool:
        try:
            await asyncio.wait_for(self.answered.wait(), timeout)
        except TimeoutError:
            return False
        return True

    def located(self) -> list[FoundRecords]:
        return list(self.have)

    async def leave(self) -> None:
        await self.complete()


class SlowNodes(CacheNodes):
    def __init__(self) -> None:
        super().__init__(wire.source_of(b""), time.monotonic)
        self.asked = SlowAsked()

    def ask(self, hashes: U64) -> SlowAsked:  # type: ignore[override]
        return self.asked


class Answers:
    """Stands for map and logs: slow where caches had nothing."""

    def __init__(self) -> None:
        self.logs = asyncio.Event()
        self.calls: list[int] = []
        self.cancelled = 0
        self.called = asyncio.Event()

    async def __call__(
        self, keys: Sequence[bytes], as_of: Sequence[int], located: Sequence[FoundRecords]
    ) -> EventLookUps:
        self.calls.append(len(located))
        self.called.set()
        if not located:
            try:
                await self.logs.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        return EventLookUps(bytes([LookUpCode.FOUND if located else LookUpCode.NOT_YET]) * len(keys), NO_RECORDS)


async def test_nodes_that_answer_in_time_are_waited_for() -> None:
    nodes, answers = SlowNodes(), Answers()
    nodes.asked.have, hedged = [HIT], HedgedLookUps(nodes, answers)
    nodes.asked.answered.set()
    assert (await hedged.look_up([b"k"], [0])).answers == [LookUpCode.FOUND]
    assert (answers.calls, hedged.hedged) == ([1], 0)


async def test_logs_answer_for_nodes_that_hang() -> None:
    nodes, answers = SlowNodes(), Answers()
    answers.logs.set()
    hedged = HedgedLookUps(nodes, answers)
    assert (await asyncio.wait_for(hedged.look_up([b"k"], [0]), 30)).answers == [LookUpCode.NOT_YET]
    assert (answers.calls, hedged.hedged) == ([0], 1)
    nodes.asked.answered.set()


async def asked() -> tuple[SlowAsked, Answers, asyncio.Task[EventLookUps]]:
    """A look-up, for which the logs are asked as the nodes are slow."""
    nodes, answers = SlowNodes(), Answers()
    asking = asyncio.create_task(HedgedLookUps(nodes, answers).look_up([b"k"], [0]))
    await answers.called.wait()
    return nodes.asked, answers, asking


async def test_a_late_node_still_wins_against_slower_logs() -> None:
    nodes, answers, asking = await asked()
    nodes.have = [HIT]
    nodes.answered.set()
    assert (await asyncio.wait_for(asking, 30)).answers == [LookUpCode.FOUND]
    assert (answers.calls, answers.cancelled) == ([0, 1], 1)


async def test_late_nodes_that_have_nothing_new_start_nothing() -> None:
    nodes, answers, asking = await asked()
    nodes.answered.set()
    await asyncio.sleep(0)
    answers.logs.set()
    assert (await asyncio.wait_for(asking, 30)).answers == [LookUpCode.NOT_YET]
    assert answers.calls == [0]


async def test_an_asker_that_goes_away_leaves_nothing_running() -> None:
    nodes, answers, asking = await asked()
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    assert answers.cancelled == 1
    nodes.answered.set()
