"""One wrong clock makes no event unmatched early: the dispatcher's and the event store's must both say so. Pure.

Both are needed, and either may be wrong by more than S (``clock.uncertainty``), which they are allowed to differ by:

- Patience ends when both have passed its end. The store answers by its own clock; the dispatcher asks it for a final
  answer only when the reading of the primary logs has passed the end by the dispatcher's clock too. How long ago the
  store began to read is told by a clock that nothing sets, so a store whose clock is ahead cannot be behind unseen.
- Patience begins at the later of both. A dispatcher whose clock is behind would have an event wait since before it
  was there, and would still do so when its clock is right again.

So a clock that is wrong makes events wait for longer, at most. Where both are wrong by as much, on one machine, only
``clock.require_sync`` helps.
"""

from __future__ import annotations

from collections.abc import Iterable

from photon.config.clock import NEVER_NS, NS_PER_S
from photon.dispatcher.events import Item
from photon.dispatcher.retry import Patience
from photon.eventstore.api import Progress
from photon.eventstore.tiered import NOTHING_READ_NS

AHEAD_MOST_NS = 24 * 3600 * NS_PER_S
"""A store whose clock is ahead by more makes an event wait by no more than this."""


def passed_by_both(progress: Progress, asked_ns: int) -> int:
    """How far the primary logs have been read, by both clocks. ``asked_ns``: by the dispatcher's, before it asked."""
    if progress.read_past_ns in (NOTHING_READ_NS, NEVER_NS):
        return progress.read_past_ns
    return min(progress.read_past_ns, asked_ns - progress.read_past_age_ns)


def ahead_ns(progress: Progress, asked_ns: int) -> int:
    """How far the store's clock is ahead of the dispatcher's, negative when behind; too much by what the answer took
    at most. 0 when it is not known."""
    if progress.read_past_ns in (NOTHING_READ_NS, NEVER_NS):
        return 0
    return progress.read_past_ns + progress.read_past_age_ns - asked_ns


def first_read_ns(now_ns: int, ahead_by_ns: int, patience: Patience) -> int:
    """From when on an event that is read now is waited for."""
    return now_ns if ahead_by_ns <= patience.slack_ns else now_ns + min(ahead_by_ns, AHEAD_MOST_NS)


def ask_for_final(items: Iterable[Item], patience: Patience, read_past_ns: int) -> None:
    """Of these, which were tried before, whoever has waited long enough is to have its verdict from a miss now."""
    for item in items:
        if item.attempts or item.row_id:
            as_of = patience.as_of_ns(item.first_read_ns)
            wanted = as_of if as_of <= read_past_ns else patience.at_first_ns
            if item.event.unmatched_as_of_ns != wanted:
                item.event = item.event._replace(unmatched_as_of_ns=wanted)
