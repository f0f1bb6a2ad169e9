"""How long joins took: only what was joined counts."""

from __future__ import annotations

from photon.dispatcher.core import Core
from photon.joiner.api import Outcome
from tests.unit.dispatcher.world import HOUR, block, core, take
from tests.unit.joiner.told import answers_of


def _answered(c: Core, now: float, *outcomes: Outcome) -> None:
    batch = c.next_batch(now, flush=True)
    assert batch is not None
    c.answered(batch, answers_of(list(outcomes)), 100 * HOUR, now)


def test_only_what_was_joined_counts() -> None:
    c = core()
    for name, read_h, event_h in (("a", 99, 90), ("b", 50, 40), ("c", 98, 60)):
        take(c, block(b"%b k %d\n" % (name.encode(), event_h), identity=name), now_ns=read_h * HOUR)
    _answered(c, 0.0, Outcome.JOINED, Outcome.RETRY, Outcome.JOINED)
    assert (c.times.since_read.count, c.times.since_read.sum_s) == (2, 3 * 3600.0)
    assert (c.times.since_event.count, c.times.since_event.sum_s) == (2, 50 * 3600.0)
    _answered(c, 1e6, Outcome.RETRY)
    assert c.times.since_read.count == 2
