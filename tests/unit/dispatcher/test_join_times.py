"""How long joins took: only what was joined counts."""

from __future__ import annotations

from photon.adapters.contract import LogFile
from photon.dispatcher.events import Item
from photon.dispatcher.join_times import JoinTimes
from photon.joiner.api import ForeignEvent, Outcome

S = 10**9


def _item(read_s: int, event_s: int) -> Item:
    event = ForeignEvent(b"e", b"d" * 16, event_s * S, b"k", b"r", LogFile("a.log"), 0, 0)
    return Item(event, None, read_s * S)


def test_only_what_was_joined_counts() -> None:
    times = JoinTimes()
    items = [_item(99, 90), _item(50, 40), _item(98, 60)]
    times.joined(items, [Outcome.JOINED, Outcome.RETRY, Outcome.JOINED], 100 * S)
    assert (times.since_read.count, times.since_read.sum_s) == (2, 3.0)
    assert (times.since_event.count, times.since_event.sum_s) == (2, 50.0)
    times.joined(items, [Outcome.RETRY] * 3, 100 * S)
    assert times.since_read.count == 2
