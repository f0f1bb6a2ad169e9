"""Final verdicts on events of a range, and the answers about ids that the registry has forgotten."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from photon.adapters.contract import LogFile, Matching
from photon.adapters.envelope import Envelope
from photon.batch.events import Events, ForeignEvent
from photon.batch.ids import Ids
from photon.batch.verdicts import Verdicts
from photon.config.clock import SystemClock
from photon.idregistry.api import Answer, Kind
from photon.joiner.verdicts import Judge, envelope_lines
from photon.spark.backfill.deciding import (
    BackfillFailed,
    ComparedIds,
    FinalDecider,
    FoundPrimaries,
    RangeReader,
)
from photon.spark.backfill.tasks import _by_part
from photon.spark.pipeline.journal import Part, Plan
from photon.spark.pipeline.reading import PartRead
from photon.spark.sources import TimeRange
from tests.unit.joiner.test_matching import ORDER_AT, Payments

PRIMARY = pa.struct([("log", pa.string()), ("offset", pa.int64()), ("header", pa.binary()), ("record", pa.binary())])
PLAN = Plan(number=0, incarnation=1, at_ns=0, first_read_ns=0, read_past_ns=0, parts=[])
TOKEN = 255


def table(**records: list[bytes]) -> pa.Table:
    """The records of each key."""
    found = [
        [{"log": "q.log", "offset": at, "header": None, "record": each} for at, each in enumerate(some)] or None
        for some in records.values()
    ]
    keys = pa.array([key.encode() for key in records], pa.binary())
    times = pa.nulls(len(keys), pa.int64())
    return pa.table({"key": keys, "event_time_ns": times, "primaries": pa.array(found, pa.list_(PRIMARY))})


def events(*names: bytes, times: list[int] | None = None) -> Events:
    """Each with its name as key."""
    file = LogFile("c.log")
    return Events.of(
        [
            ForeignEvent(name, name.ljust(16), time, name, b"f", file, at, 0)
            for at, (name, time) in enumerate(zip(names, times or [ORDER_AT] * len(names), strict=True))
        ]
    )


def decider(found: pa.Table, adapter: Any, *, unmatched: bool, boundary_ns: int = 0) -> FinalDecider:
    marked, unmarked = (envelope_lines(Envelope(with_token=with_token)) for with_token in (True, False))
    judge, whole_sets = Judge(adapter, check_payloads=True), adapter.matching.whole_sets
    store = FoundPrimaries(found)
    return FinalDecider(store, judge, whole_sets, marked, unmarked, boundary_ns, unmatched, SystemClock())


@pytest.mark.parametrize("unmatched", [False, True])
async def test_all_primaries_of_a_key_are_joined_and_misses_wait_for_the_operators_word(unmatched: bool) -> None:
    adapter = Payments({})
    adapter.matching = Matching("all", before_ns=10, after_ns=0)
    found = table(a=[b"a 95 a", b"a 50 b", b"a 100 c"], b=[], c=[b"c 50"], d=[b"d 95"] * 1001)
    decide = decider(found, adapter, unmatched=unmatched)
    told = await decide(PLAN, TOKEN, PartRead(events(b"a", b"b", b"c", b"d"), fresh=4))
    absent = [Kind.UNMATCHED] if unmatched else []
    assert told.rows.kinds.tolist() == [Kind.JOINED, *absent, Kind.UNMATCHED, Kind.REJECTED]
    assert told.rows.lines[0].count(b"\n") == 2
    assert (len(told.waits), told.without_primary) == (0, 0 if unmatched else 1)


async def test_a_key_that_was_not_searched_is_no_miss() -> None:
    decide = decider(table(a=[b"a 95 a"]), Payments({}), unmatched=True)
    with pytest.raises(BackfillFailed, match="has changed since"):
        await decide(PLAN, TOKEN, PartRead(events(b"a", b"b"), fresh=2))


async def test_lines_before_the_boundary_have_no_token() -> None:
    adapter = Payments({})
    adapter.matching = Matching("all", before_ns=10, after_ns=0)
    records = {name: [f"{name} {at} p".encode()] for name, at in (("a", 96), ("b", 97), ("c", 98))}
    decide = decider(table(**records), adapter, unmatched=True, boundary_ns=100)
    told = await decide(PLAN, TOKEN, PartRead(events(b"a", b"b", b"c", times=[99, 100, 99]), fresh=3))
    assert [b'"token"' in line for line in told.rows.lines] == [False, True, False]


async def test_ids_before_the_boundary_are_answered_without_the_registry() -> None:
    asked: list[bytes] = []

    class Registry:
        async def insert(self, inserts: Ids, *, timeout: float) -> Verdicts:
            asked.append(inserts.digests)
            return Verdicts.blank(len(inserts), Answer.DONE)

    names, times = [bytes([n]) * 16 for n in range(4)], np.array([1, 2, 3, 4])
    compared = ComparedIds(Registry(), 3, frozenset({names[1], names[3]}))
    answers = await compared.insert(Ids.of(b"".join(names), times), timeout=1.0)
    assert answers.outcomes.tolist() == [Answer.TAKEN, Answer.COMMITTED, Answer.DONE, Answer.DONE]
    assert asked == [names[2] + names[3]]
    await compared.insert(Ids.of(names[0], times[:1]), timeout=1.0)
    assert len(asked) == 1


def test_events_of_other_times_are_none() -> None:
    def read(plan: Plan, part: Part) -> PartRead:
        some = events(b"a", b"b", b"c", b"d", times=[9, 10, 19, 20])
        return PartRead(some, np.zeros(4, np.int64), 4)

    read_now = RangeReader(read, TimeRange(begin_ns=10, end_ns=20))(PLAN, Part([], []))
    assert (list(read_now.events.ids), read_now.fresh, len(read_now.first_read_ns)) == ([b"b", b"c"], 2, 2)


def test_rows_are_cut_by_part() -> None:
    rows = pa.RecordBatch.from_arrays([pa.array([0, 0, 3, 7, 7, 7], pa.int32())], names=["part"])
    assert [(part, len(each)) for part, each in _by_part(rows)] == [(0, 2), (3, 1), (7, 3)]
    assert not list(_by_part(rows.slice(0, 0)))
