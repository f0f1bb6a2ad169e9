"""Memory cost of events: equal to the count, and nothing once they are dealt with."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator

import pytest

from photon.batch.events import Events
from photon.config.clock import SystemClock
from photon.dispatcher.core import Core
from photon.dispatcher.events import Batch, Stretch
from photon.dispatcher.limits import Limits
from photon.dispatcher.lookups import Backlog
from photon.dispatcher.replay.redispatch import Redispatcher
from photon.joiner.api import ForeignEvent, JoinAnswers, Outcome
from tests.unit.dispatcher.world import block, core, take

EVENTS = 2100  # a few more than the table had rows for: it has just doubled, and takes most per event


@pytest.fixture
def no_collector() -> Iterator[None]:
    """In a run, garbage collection is so rare that it may as well never happen (``config.runtime``)."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def in_memory(c: Core | None = None) -> tuple[int, int]:
    """Objects that may hold events, and rows of a core's table."""
    objects = sum(type(each) in (Stretch, Batch, Events, ForeignEvent) for each in gc.get_objects())
    return objects, 0 if c is None else sum(isinstance(record, bytes) for record in c._table.records)


def lines(count: int) -> bytes:
    return b"".join(b"id-%d key-%d 1\n" % (n, n) for n in range(count))


def answer_all(c: Core, outcome: Outcome) -> None:
    while (batch := c.next_batch(0.0, flush=True)) is not None:
        c.answered(batch, JoinAnswers.alike(len(batch), outcome), 0, 0.0)


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("outcome", [Outcome.JOINED, Outcome.NOT_YET])  # the latter become rows
def test_events_behind_the_offset_are_gone_without_the_garbage_collector(outcome: Outcome) -> None:
    before, _ = in_memory()
    c = core(limits=Limits(batch_events=7, hold_once_s=5.0))
    for unit in ("log1", "log2"):
        take(c, block(lines(50), identity=unit))
    assert in_memory(c) == (before + 2, 100)
    answer_all(c, outcome)
    left = 100 if outcome is Outcome.NOT_YET else 0
    assert in_memory(c) == (before + 2, left)
    changes = c.committing.changes(0, 5.0)
    assert len(changes.stored) == left
    c.committing.committed()
    del changes
    assert in_memory(c) == (before, 0)


@pytest.mark.usefixtures("no_collector")
def test_guests_are_gone_once_they_have_their_verdict() -> None:
    before, _ = in_memory()
    c = core()
    redispatcher = Redispatcher(c.intake, SystemClock(), lambda: None)
    event = ForeignEvent(b"i", b"d" * 16, 0, b"k", b"i k 0", block(b"").file, 0, 0)
    stretch = redispatcher.send(Events.of(event._replace(event_id=b"%d" % n) for n in range(10)), 0)
    del event
    assert in_memory(c) == (before + 1, 10)  # the stretch
    answer_all(c, Outcome.JOINED)
    assert stretch.left == 0
    assert in_memory(c) == (before + 1, 0)


@pytest.mark.parametrize("asked_first", [False, True])
def test_what_is_counted_is_what_it_takes(asked_first: bool) -> None:
    record = b"10.0.1.12:4021:%016d 10.7.2.12:4077:%016d 1"
    data = b"".join(record % (n, n) + b"\n" for n in range(EVENTS))
    c = core()
    backlog = Backlog(c)
    gc.collect()
    tracemalloc.start()
    try:
        what = block(data)
        for _ in (backlog if asked_first else c.intake).take(what, 0, 0.0):
            pass
        del what
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert c.waiting.open == EVENTS
    assert taken < c.logs.window_bytes < 1.25 * taken  # the interpreter rounds each object up, which is not traced
