"""How catch-up shares joiners and registry with fresh events, which are to keep their latency (paper, 3.2.2). Pure.

An event is *behind* when it is old as it is read, or waits in the retry store since longer; the others are *fresh*.
Where no fresh events were sent for a moment, those behind get everything. Else

- they get small batches, few of them in flight, whenever nothing fresh waits;
- where fresh events wait they are still not starved: for what was sent of those they have a credit of ``share``; and
  where so little is sent that it lasts, a few of them go now and then without.
"""

from __future__ import annotations

BEHIND_S = 120.0
"""An event that is older is behind."""
CALM_S = 1.0
"""Fresh traffic has ended when nothing fresh was sent for so long."""
SMALL_EVENTS = 250
"""Events behind go in batches of so many beside fresh traffic: a fresh one waits for few of them."""
TRICKLE_EVENTS, TRICKLE_S = 25, 1.0
"""So few go so often while fresh ones wait, whatever the credit."""
IDLE_PART = 8
"""Of the places in flight, one in so many is theirs while nothing fresh waits."""
STORED_WEIGHT = 3.0
"""A row of the retry store is read from disk, tried and written again: three times the cost of a fresh event."""


class Shares:
    """``share``: of the work while fresh events wait, below 1; 1: nothing goes before anything. Times: monotonic s.

    ``capacity``: events in flight at all joiners together.
    """

    def __init__(self, share: float, capacity: int) -> None:
        if not 0 < share <= 1:
            raise ValueError("the share of catch-up is above 0 and at most 1")
        self.alike = share == 1
        """Nothing is behind."""
        self._ratio = share / (1 - share) if share < 1 else 0.0
        self.resize(capacity)
        self._credit = 0.0
        self._fresh_at = -CALM_S
        self._behind_at = -TRICKLE_S

    def resize(self, capacity: int) -> None:
        self._most_in_flight = max(SMALL_EVENTS, capacity // IDLE_PART)

    def busy(self, now: float) -> bool:
        return now - self._fresh_at < CALM_S

    def sent_fresh(self, events: int, now: float) -> None:
        """So many fresh events go to a joiner."""
        self._fresh_at = now
        self._credit = min(self._credit, 2.0 * SMALL_EVENTS) + events * self._ratio

    def allowance(self, now: float, batch_events: int, *, fresh_wait: bool, in_flight: int) -> int:
        """How many events behind may go to a joiner now, ``in_flight`` of them being there."""
        if not self.busy(now):
            return batch_events
        small = min(SMALL_EVENTS, batch_events)
        if in_flight + small > self._most_in_flight:
            return 0
        if not fresh_wait or self._credit >= small:
            return small
        return min(small, TRICKLE_EVENTS) if now - self._behind_at >= TRICKLE_S else 0

    def sent_behind(self, cost: float, now: float, *, fresh_wait: bool) -> None:
        """``cost``: of what goes, in fresh events. What goes while nothing fresh waits is free."""
        self._behind_at = now
        if fresh_wait:
            self._credit -= cost
