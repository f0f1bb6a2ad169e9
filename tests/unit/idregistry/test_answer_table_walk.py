"""Random commands to a shard's state machine: it answers as a model of a few lines does, across snapshots."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from photon.idregistry.core import commands as c
from photon.idregistry.core.state_machine import UNKNOWN_CALLER, ShardMachine
from tests.unit.idregistry.model import ALL_OF_TIME, BUCKET_BITS, Model, Row, batch, reopen, time_of, xor_of
from tests.unit.idregistry.shard import Shard, ids_in

NUMBERS = range(24)
IDS = st.integers(0, 23)
# 1 to 4 are known from the start, 3 and 4 of one slot; 5 and 6 come when they are announced.
INCARNATIONS = st.integers(1, 6)
ROWS = st.lists(
    st.builds(Row, IDS, INCARNATIONS, st.integers(0, 2), st.sampled_from([0, 0, 0, 1, 2]), st.integers(1, 4)),
    min_size=1,
    max_size=8,
)
SLOTS = st.sampled_from("abc")


class AnswerTable(RuleBasedStateMachine):
    """Batches with equal ids, predecessors' tokens, watermarks, fences, snapshots read while commands go on."""

    @initialize()
    def begin(self) -> None:
        self.shard = Shard(configured=False)
        self.follower = ShardMachine(BUCKET_BITS)
        self.shard.do(c.Configure(1, ALL_OF_TIME))
        self.model = Model()
        self.kept: tuple[Iterable[bytes], Model] | None = None
        for slot, incarnation in (("a", 1), ("b", 2), ("c", 3), ("c", 4)):
            self.announced(slot, incarnation)

    def announced(self, slot: str, incarnation: int) -> None:
        self.shard.do(c.Announce(slot, "dc", [incarnation]))
        self.model.slot_of[incarnation] = slot
        self.model.newest[slot] = max(incarnation, self.model.newest.get(slot, 0))

    def run(self, rows: list[Row], callers: list[int]) -> None:
        expected = [self.model.insert(row, caller) for row, caller in zip(rows, callers, strict=True)]
        assert self.shard.insert(*rows, callers=[(caller, 1) for caller in callers]) == expected

    @rule(rows=ROWS)
    def insert(self, rows: list[Row]) -> None:
        self.run(rows, [row.incarnation for row in rows])

    @rule(rows=ROWS)
    def redo(self, rows: list[Row]) -> None:
        """By each slot's newest process, under any token in its log."""
        newest = [self.model.newest.get(self.model.slot_of.get(row.incarnation, ""), 1) for row in rows]
        self.run(rows, newest)

    @rule(rows=ROWS)
    def clear(self, rows: list[Row]) -> None:
        expected = [self.model.clear(row) for row in rows]
        assert self.shard.clear(*rows) == expected

    @rule(incarnation=INCARNATIONS, upto=st.integers(0, 3), wrong=st.sampled_from([0, 0, 0, 1, 2]))
    def clear_below(self, incarnation: int, upto: int, wrong: int) -> None:
        ids = self.model.owned_below(incarnation, upto)
        count = len(ids) + (wrong == 1)
        xor = xor_of([*ids, 99] if wrong == 2 else ids)
        owned = (len(ids), xor_of(ids))
        expected = self.model.clear_below(incarnation, upto, count, xor)
        found = self.shard.do(c.ClearBelow(incarnation, upto, count, xor))
        assert found.applied == expected
        if not expected and incarnation in self.model.slot_of:
            assert (found.count, found.xor) == owned

    @rule(rows=ROWS, operator=st.booleans(), retired=st.booleans())
    def reopen(self, rows: list[Row], operator: bool, retired: bool) -> None:
        expected = [self.model.reopen(row, operator, retired) for row in rows]
        assert self.shard.do(reopen(rows, operator, retired)).tolist() == expected

    @rule(number=IDS)
    def boundary(self, number: int) -> None:
        self.model.collect(time_of(number))
        assert self.shard.do(c.Boundary(time_of(number))) == self.model.boundary

    @rule()
    def follow(self) -> None:
        """Another replica applies the missing entries together, and has the same state, row by row."""
        self.follower.apply_run(self.follower.applied + 1, self.shard.log[self.follower.applied :])
        assert list(self.follower.snapshot()) == list(self.shard.machine.snapshot())

    @rule(slot=SLOTS)
    def fence(self, slot: str) -> None:
        if len(self.model.fenced | {slot}) < 3:
            self.shard.do(c.Fence(slot))
            self.model.fenced.add(slot)

    @rule(incarnation=st.sampled_from([5, 6]))
    def announce(self, incarnation: int) -> None:
        self.announced("a" if incarnation == 5 else "b", incarnation)

    @rule()
    def reload(self) -> None:
        self.shard.reload()

    @rule()
    def begin_snapshot(self) -> None:
        self.kept = (self.shard.machine.snapshot(), copy.deepcopy(self.model))

    @precondition(lambda self: self.kept is not None)
    @rule()
    def go_back_to_snapshot(self) -> None:
        """Its chunks are read only now: they are from the moment when it was begun."""
        assert self.kept is not None
        chunks, self.model = self.kept
        self.kept = None
        self.shard.machine = ShardMachine(BUCKET_BITS)
        self.shard.machine.restore(chunks)
        self.shard.forget_after(self.shard.machine.applied)
        if self.follower.applied > self.shard.index:
            self.follower = ShardMachine(BUCKET_BITS)

    @rule(slot=SLOTS, upto=INCARNATIONS, limit=st.integers(1, 30))
    def scan(self, slot: str, upto: int, limit: int) -> None:
        pages = self.shard.owned(slot, upto, limit)
        found = ids_in(pages)
        assert len(set(found)) == len(found)
        assert set(found) == self.model.owned_by(slot, upto)
        assert {page.fenced for page in pages} == {slot in self.model.fenced}

    @rule(limit=st.integers(1, 30))
    def scan_reopened(self, limit: int) -> None:
        pages = self.shard.reopened(limit)
        expected = {i: gen for i, (state, _, gen) in self.model.entries.items() if state == "reopened"}
        generations = [gen for page in pages for gen in page.generations.tolist()]
        assert dict(zip(ids_in(pages), generations, strict=True)) == expected

    @invariant()
    def look_ups_agree(self) -> None:
        if hasattr(self, "model"):
            assert self.shard.look_up(*NUMBERS) == [self.model.look_up(i) for i in NUMBERS]
            assert self.shard.machine.ids == len(self.model.entries)


def test_model_knows_unknown_callers() -> None:
    """Both sides call it by the same number."""
    answers: Any = Shard().insert(Row(1, incarnation=9))
    assert answers == [UNKNOWN_CALLER] == [Model().insert(Row(1, incarnation=9), 9)]
    assert batch([Row(1)]).callers == [(1, 1)]


AnswerTable.TestCase.settings = settings(deadline=None, max_examples=25, stateful_step_count=40)
TestAnswerTable = AnswerTable.TestCase
