"""Requests to entries and back, without threads, sockets or clocks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from photon.batch.ids import Ids
from photon.idregistry.api import Answer
from photon.idregistry.core import commands as c
from photon.idregistry.core.state_machine import BatchAnswers, ShardMachine
from photon.idregistry.replica.batching import QUEUED_IDS_MAX, QUEUED_REQUESTS_MAX, Batcher, Waiting
from tests.unit.idregistry.groups import inserts
from tests.unit.idregistry.model import ALL_OF_TIME


def insert(ticket: str, ids: list[int], incarnation: int = 1, deadline: float = 9.0) -> Waiting[str]:
    return Waiting(ticket, inserts(ids, incarnation, 0), incarnation, deadline, 1)


def clear(ticket: str, ids: list[int]) -> Waiting[str]:
    rows = inserts(ids, 1, 0)
    return Waiting(ticket, Ids.of(rows.digests, rows.times, rows.tokens), 0, 9.0, 1)


@pytest.fixture
def machine() -> ShardMachine:
    machine = ShardMachine()
    for command in (c.Configure(1, ALL_OF_TIME), c.Announce("a", "d", [1]), c.Announce("b", "d", [2])):
        machine.apply(1, c.encode(command))
    return machine


def test_what_queued_becomes_one_entry_and_each_gets_its_rows(machine: ShardMachine) -> None:
    batcher: Batcher[str] = Batcher()
    for request in (insert("one", [1, 2]), clear("clear", [2, 9]), insert("two", [3, 1], incarnation=2)):
        assert batcher.offer(request)
    entry, expired = batcher.take(0.0)
    assert entry is not None
    assert expired == []
    command = entry.command()
    assert command.callers == [(1, 2), (2, 2)]
    result = machine.apply(2, c.encode(command))
    assert isinstance(result, BatchAnswers)
    replies = dict(entry.split(result))
    assert replies["one"].outcomes.tolist() == [Answer.COMMITTED, Answer.COMMITTED]
    assert replies["two"].outcomes.tolist() == [Answer.COMMITTED, Answer.TAKEN]
    assert replies["clear"].outcomes.tolist() == [Answer.CLEARED, Answer.REFUSED]


def test_a_few_entries_in_flight() -> None:
    batcher: Batcher[str] = Batcher()
    assert not batcher.may_take
    batcher.offer(insert("one", [1]))
    first, _ = batcher.take(1.0)
    assert first is not None
    batcher.offer(insert("two", [2]))
    assert batcher.may_take
    second, _ = batcher.take(1.0)
    assert second is not None
    batcher.offer(insert("three", [3]))
    batcher.offer(insert("four", [4]))
    assert not batcher.may_take
    assert batcher.take(1.5) == (None, [])
    batcher.finish(first, 1.25, applied=True)
    third, _ = batcher.take(2.0)
    assert third.tickets == ["three", "four"]
    batcher.finish(second, 2.5, applied=False)
    batcher.finish(third, 2.5, applied=False)
    assert (batcher.batches, batcher.ids) == (1, 1)
    assert batcher.commit_ms(0.5) == 250.0


def test_the_queue_is_bounded() -> None:
    batcher: Batcher[str] = Batcher()
    ids = list(range(8192))
    for _ in range(QUEUED_IDS_MAX // 8192):
        assert batcher.offer(insert("x", ids))
    assert not batcher.offer(insert("y", [1]))
    assert batcher.overloaded == 1
    entry, _ = batcher.take(0.0)
    assert sum(len(each.ids) for each in entry.inserts) == c.MAX_ENTRY_IDS
    assert batcher.offer(insert("y", [1]))


def test_so_is_the_number_of_requests_however_small() -> None:
    batcher: Batcher[str] = Batcher()
    assert all(batcher.offer(insert("x", [1])) for _ in range(QUEUED_REQUESTS_MAX))
    assert not batcher.offer(insert("y", [1]))


def test_entries_respect_the_limit() -> None:
    batcher: Batcher[str] = Batcher()
    batcher.offer(insert("small", [1]))
    batcher.offer(insert("large", list(range(c.MAX_ENTRY_IDS))))
    entry, _ = batcher.take(0.0)
    assert entry.tickets == ["small"]
    with pytest.raises(ValueError, match="1 to"):
        batcher.offer(insert("none", []))


def test_what_waited_too_long_is_not_proposed() -> None:
    batcher: Batcher[str] = Batcher()
    batcher.offer(insert("late", [1], deadline=1.0))
    batcher.offer(insert("fine", [2], deadline=3.0))
    entry, expired = batcher.take(2.0)
    assert expired == ["late"]
    assert entry.tickets == ["fine"]
    assert batcher.queued_ids == 0


def test_generations_of_some_requests_are_zeros_for_the_others() -> None:
    batcher: Batcher[str] = Batcher()
    batcher.offer(insert("plain", [1, 2]))
    generation = (7).to_bytes(4, "little")
    reopened = replace(inserts([3], 1, 0), generations=np.array([7], np.uint32))
    batcher.offer(Waiting("reopened", reopened, 1, 9.0, 1))
    entry, _ = batcher.take(0.0)
    assert entry.command().generations == bytes(8) + generation
