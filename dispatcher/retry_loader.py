"""Loads rows of the retry store that may be tried now, as many as joiners can take.

- *Triggered* rows waited for a point of the primary logs that has been passed. The newest of them are fresh
  (``queues``): most likely their primary event has just arrived.
- Older triggered rows, and rows whose back-off is over, are behind: a few at a time during fresh traffic, longest due
  first.
- *Arrived* rows are those whose primary event the event store has reported (``arrivals``): they are loaded at once,
  and tried before others of their age.
- Rows of an earlier process are behind too. With --once each is tried once; otherwise only those due later than any
  back-off allows (settled in an earlier run, or delayed by a wrong clock).
- When the clock has gone back (``clock_went_back``), all rows that are not due by the new clock, including new rows
  of this process: either the clock was ahead when their next tries were computed, or it is behind now.

The cost of one query does not depend on the number of rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import islice

from photon.config.clock import NS_PER_S
from photon.dispatcher.queues import BEHIND_S, CALM_S
from photon.dispatcher.retry import LONGEST_S, SETTLED_NS
from photon.dispatcher.state import State
from photon.dispatcher.waiting import Waiting

LOOK_S = 0.05  # interval of queries of the store
FEW_S = 0.25  # the same after a query that found all due rows, and few
FEW_ROWS = 100
ROWS_MAX = 10_000
BYTES_MAX = 16 << 20  # rows in memory at a time, and their bytes (plus one query)
LOOK_ROWS = 2000  # rows loaded in one query, which blocks the loop
ARRIVED_MAX = 200_000  # most arrived keys whose rows are still to be looked up; others wait for their back-off
ARRIVED_AT_ONCE = 500
_FIRST_NS = -(2**63)


class RetryLoader:
    """Loads one dispatcher's rows into its memory. Times: ``now_ns`` wall clock, ``now`` monotonic seconds."""

    def __init__(self, waiting: Waiting, state: State, *, once: bool, now_ns: int) -> None:
        self._waiting = waiting
        self._state = state
        self._once = once
        self._next_look: float | None = None
        self._last_row = state.last_row_at_open
        self._arrived: deque[bytes] = deque(maxlen=ARRIVED_MAX)
        self._swept_to = (_FIRST_NS, 0) if once else (now_ns + int(LONGEST_S * NS_PER_S), 0)
        self.swept = not state.retry_rows  # all rows of earlier processes have been tried, if necessary

    def arrived(self, keys: Iterable[bytes]) -> None:
        if self._state.retry_rows:
            self._arrived.extend(keys)

    @property
    def pending(self) -> bool:
        """True if there are rows to load at the next query."""
        return bool(self._arrived)

    def clock_went_back(self, now_ns: int) -> None:
        """Makes rows due although the clock was set back to ``now_ns``: none waits until it catches up."""
        self._waiting.table.clock_went_back(now_ns)
        self._swept_to, self.swept = min(self._swept_to, (now_ns, 0)), False
        self._last_row = self._state.last_row()

    def look(self, now_ns: int, now: float) -> None:
        """Loads rows to try now. May be called often: it limits its queries itself."""
        waiting, loaded, state = self._waiting, self._waiting.loaded, self._state
        self._look_for_arrived(now_ns, now)
        room = min(LOOK_ROWS, ROWS_MAX - len(loaded))
        if self._next_look is None:  # fresh events come first, but have not been read yet
            self._next_look = now + (0.0 if self._once else CALM_S)
        if not state.retry_rows or now < self._next_look or room <= 0 or loaded.bytes >= BYTES_MAX:
            return
        self._next_look = now + LOOK_S
        passed_ns = min(waiting.read_past_ns, SETTLED_NS - 1)
        old_ns = now_ns - int(BEHIND_S * NS_PER_S)
        held = len(loaded)  # rows in memory are unchanged in the store
        ids = loaded.without(state.triggered_ids(passed_ns, room + held, after_ns=old_ns))[:room]
        room = min(room - len(ids), waiting.room_for_rows(now))
        if room > 0:
            seen = room + held
            behind = state.triggered_ids(min(passed_ns, old_ns), seen) + state.due_ids(now_ns, seen)
            known = set(ids)
            ids += [row_id for row_id in loaded.without(dict.fromkeys(behind)) if row_id not in known][:room]
        waiting.load(state.rows(ids), now_ns, now)
        if self.swept and not self._once and len(ids) < FEW_ROWS and room > 0:
            self._next_look = now + FEW_S
        if not self.swept and (room := min(room, waiting.room_for_rows(now))) > 0:
            self._sweep(room, now_ns, now)

    def _look_for_arrived(self, now_ns: int, now: float) -> None:
        waiting, loaded, state = self._waiting, self._waiting.loaded, self._state
        room = min(LOOK_ROWS, ROWS_MAX - len(loaded))
        while self._arrived and room > 0 and loaded.bytes < BYTES_MAX:
            keys = list(islice(self._arrived, ARRIVED_AT_ONCE))
            seen = room + len(loaded)
            found = state.ids_of_keys(keys, seen)
            loaded.arrived(found)
            ids = loaded.without(found)[:room]
            waiting.load(state.rows(ids), now_ns, now, arrived=True)
            if len(found) == seen:
                return  # there may be more of them
            for _ in keys:
                self._arrived.popleft()
            room -= len(ids)

    def _sweep(self, room: int, now_ns: int, now: float) -> None:
        found = self._state.far_ids(self._swept_to, self._last_row, room)
        ids = self._waiting.loaded.without([row_id for _, row_id in found])
        self._waiting.load(self._state.rows(ids), now_ns, now, inherited=True)
        if found:
            self._swept_to = found[-1]
        self.swept = len(found) < room
