"""Keeps a single wrong clock, the dispatcher's or the event store's, from making events unmatched early. Pure.

Both clocks are needed, and either may be off by more than S (``clock.uncertainty``), the permitted difference:

- Patience ends when both clocks have passed its end. The store answers by its own clock; the dispatcher requests a
  final answer only when the primary logs have been read past the end by the dispatcher's clock too. A monotonic clock
  tells how long ago the store began to read, so its lag is known even if its clock is ahead.
- Patience begins at the later of both clocks (``FirstRead``). Otherwise a dispatcher whose clock is behind would
  count an event's wait from before it existed, even after the clock is corrected. The last answer is extrapolated by
  a monotonic clock, so setting a clock back between two answers changes nothing; and no block is read before the
  first answer.
- An event was read before now. If its time of reading is later than now when it is tried, the clock has gone back
  since, and its patience begins now (``limit``): otherwise it would last until the clock catches up. This happens
  once per event, since its row keeps the corrected time.

So one wrong clock can only make events wait longer. If both are wrong by the same amount, as on one machine, only
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

AHEAD_MOST_NS = 24 * 3600 * NS_PER_S  # longest extra wait of an event because of a store whose clock is ahead


def passed_by_both(progress: Progress, asked_ns: int) -> int:
    """Returns how far the primary logs have been read, by both clocks. ``asked_ns``: our time before asking."""
    if progress.read_past_ns == NOTHING_READ_NS or progress.read_past_ns >= ALL_BUT_ENDS_NS:
        return progress.read_past_ns
    return min(progress.read_past_ns, asked_ns - progress.read_past_age_ns)


class Heard(NamedTuple):
    asked_ns: int  # the dispatcher's clock before it asked
    at: float  # monotonic seconds, likewise
    # How far the store's clock is ahead, negative if behind; overestimated by at most the duration of the answer.
    ahead_ns: int


def heard(progress: Progress, asked_ns: int, at: float) -> Heard | None:
    """Compares the clocks by the store's answer. Returns ``None`` if the store had not been reached yet."""
    if progress.now_ns:
        return Heard(asked_ns, at, progress.now_ns - asked_ns)
    if progress.read_past_ns == NOTHING_READ_NS:
        return None
    if progress.read_past_ns >= ALL_BUT_ENDS_NS:
        return Heard(asked_ns, at, 0)
    return Heard(asked_ns, at, progress.read_past_ns + progress.read_past_age_ns - asked_ns)


class FirstRead:
    """The clock that decides when an event's patience begins."""

    def __init__(self, slack_ns: int) -> None:
        self._slack_ns = slack_ns
        self._ahead_ns = 0
        self._at_ns, self._at = 0, 0.0  # the later of both clocks at the last answer, and its monotonic time

    def hear(self, told: Heard) -> None:
        self._ahead_ns = min(told.ahead_ns, AHEAD_MOST_NS) if told.ahead_ns > self._slack_ns else 0
        self._at_ns, self._at = told.asked_ns + self._ahead_ns, told.at

    def at_ns(self, now_ns: int, now: float) -> int:
        """Returns when the patience for an event read now begins."""
        return max(now_ns + self._ahead_ns, self._at_ns + int((now - self._at) * NS_PER_S))

    def limit(self, table: OpenEvents, rows: RowIndexes, now_ns: int, now: float) -> None:
        """Corrects first reads that are later than now, which a wrong clock caused."""
        if self._at_ns:  # else the store's clock is unknown
            latest_ns = self.at_ns(now_ns, now) + self._slack_ns
            table.first_read_ns[rows] = np.minimum(table.first_read_ns[rows], latest_ns)


def ask_for_final(table: OpenEvents, rows: RowIndexes, patience: Patience, read_past_ns: int) -> None:
    """Requests a final answer for events that have waited long enough: a miss then makes them unmatched."""
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
