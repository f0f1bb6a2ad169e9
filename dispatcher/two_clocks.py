"""One wrong clock makes no event unmatched early: the dispatcher's and the event store's must both say so. Pure.

Both are needed, and either may be wrong by more than S (``clock.uncertainty``), which they are allowed to differ by:

- Patience ends when both have passed its end. The store answers by its own clock; the dispatcher asks it for a final
  answer only when the reading of the primary logs has passed the end by the dispatcher's clock too. How long ago the
  store began to read is told by a clock that nothing sets, so a store whose clock is ahead cannot be behind unseen.
- Patience begins at the later of both (``FirstRead``). A dispatcher whose clock is behind would have an event wait
  since before it was there, and would still do so when its clock is right again. What was heard last is carried on by
  a clock that nothing sets, so that a clock set back between two answers changes nothing; and no block is taken
  before the first answer.

- An event was read before now. Where it says later when it is tried, the clock has gone back since, and the patience
  with it begins now (``limit``): else it would last until the clock has come there again. It does so once, for a row
  keeps what is said then.

So a clock that is wrong makes events wait for longer, at most. Where both are wrong by as much, on one machine, only
``clock.require_sync`` helps.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from photon.batch.columns import RowIndexes
from photon.config.clock import NS_PER_S
from photon.dispatcher.open_events import OpenEvents
from photon.dispatcher.retry import Patience
from photon.eventstore.api import ALL_BUT_ENDS_NS, Progress
from photon.eventstore.tiered import NOTHING_READ_NS

AHEAD_MOST_NS = 24 * 3600 * NS_PER_S  # a store whose clock is ahead by more makes an event wait by no more than this


def passed_by_both(progress: Progress, asked_ns: int) -> int:
    """How far the primary logs have been read, by both clocks. ``asked_ns``: by the dispatcher's, before it asked."""
    if progress.read_past_ns == NOTHING_READ_NS or progress.read_past_ns >= ALL_BUT_ENDS_NS:
        return progress.read_past_ns
    return min(progress.read_past_ns, asked_ns - progress.read_past_age_ns)


class Heard(NamedTuple):
    asked_ns: int  # the dispatcher's clock before it asked
    at: float  # monotonic seconds, likewise
    ahead_ns: int
    """How far the store's clock is ahead, negative when behind; too much by what the answer took at most."""


def heard(progress: Progress, asked_ns: int, at: float) -> Heard | None:
    """None: the answer tells nothing, for the store was not reached yet."""
    if progress.now_ns:
        return Heard(asked_ns, at, progress.now_ns - asked_ns)
    if progress.read_past_ns == NOTHING_READ_NS:
        return None
    if progress.read_past_ns >= ALL_BUT_ENDS_NS:
        return Heard(asked_ns, at, 0)
    return Heard(asked_ns, at, progress.read_past_ns + progress.read_past_age_ns - asked_ns)


class FirstRead:
    """The clock by which the patience with an event begins."""

    def __init__(self, slack_ns: int) -> None:
        self._slack_ns = slack_ns
        self._ahead_ns = 0
        self._at_ns, self._at = 0, 0.0  # the later of both clocks as last heard, and when

    def hear(self, told: Heard) -> None:
        self._ahead_ns = min(told.ahead_ns, AHEAD_MOST_NS) if told.ahead_ns > self._slack_ns else 0
        self._at_ns, self._at = told.asked_ns + self._ahead_ns, told.at

    def at_ns(self, now_ns: int, now: float) -> int:
        """The moment from which an event that is read now is waited for."""
        return max(now_ns + self._ahead_ns, self._at_ns + int((now - self._at) * NS_PER_S))

    def limit(self, table: OpenEvents, rows: RowIndexes, now_ns: int, now: float) -> None:
        """These were read before now, whatever the clock of that time said."""
        if self._at_ns:  # or else the store's clock is not known yet
            latest_ns = self.at_ns(now_ns, now) + self._slack_ns
            table.first_read_ns[rows] = np.minimum(table.first_read_ns[rows], latest_ns)


def ask_for_final(table: OpenEvents, rows: RowIndexes, patience: Patience, read_past_ns: int) -> None:
    """Of these, which were tried before, whoever has waited long enough is to have its verdict from a miss now."""
    tried = rows[(table.attempts[rows] > 0) | (table.row_id[rows] > 0)]
    if not len(tried):
        return
    first_reads = table.first_read_ns[tried].tolist()
    if patience.whole_sets:
        times = table.times[tried].tolist()
        finals = [patience.final_as_of_ns(*each) for each in zip(first_reads, times, strict=True)]
        table.as_of[tried] = [as_of if as_of <= read_past_ns else patience.at_first_ns for as_of in finals]
        return
    ends = {ns: patience.as_of_ns(ns) for ns in set(first_reads)}
    wanted = {ns: as_of if as_of <= read_past_ns else patience.at_first_ns for ns, as_of in ends.items()}
    table.as_of[tried] = [wanted[ns] for ns in first_reads]
