"""Keeps events that got no verdict until their next try. Pure.

They wait until a time, until the primary logs are read past a point, or until their primary event arrives: first in
memory, later as rows of the retry store. (Events left to their home datacentre are in ``queues``.)
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice

import numpy as np

from photon.batch.columns import U8, Mask, RowIndexes
from photon.config.clock import NS_PER_S
from photon.dispatcher.events import Batch, Stretch
from photon.dispatcher.homes import NOBODY
from photon.dispatcher.open_events import (
    NO_GROUP,
    NO_ROWS,
    NOTHING_STORED,
    LoadedRows,
    OpenEvents,
    StoredEvents,
    rows_of,
)
from photon.dispatcher.queues import Queues, Shares
from photon.dispatcher.retry import FAILED_HELD, SETTLED_NS, Attempt, NextTries
from photon.dispatcher.two_clocks import FirstRead
from photon.joiner.api import Outcome

RECENT_KEYS = 20_000  # recent arrivals that are remembered: attempts in flight may have missed them


@dataclass(slots=True)
class _Group:
    """Events that are tried again together. ``left``: events still waiting."""

    number: int
    rows: RowIndexes
    left: int


class WaitingRoom:
    """Groups of events, each in two heaps: by time and by trigger. A group removed from one is dead in the other.

    Also indexes events by key.
    """

    def __init__(self, table: OpenEvents) -> None:
        self._table = table
        self._by_time: list[tuple[float, int, _Group]] = []
        self._by_trigger: list[tuple[int, int, _Group]] = []
        self._numbers = count(NO_GROUP + 1)
        self._groups: dict[int, _Group] = {}
        self._by_key: dict[bytes, int | dict[int, None]] = {}  # mostly one row, without a dict

    def add(self, rows: RowIndexes, due: float, trigger_ns: int) -> None:
        """Adds a group, due at ``due`` (monotonic seconds) or once the primary logs are read past ``trigger_ns``."""
        group = _Group(next(self._numbers), rows, len(rows))
        self._groups[group.number] = group
        self._table.group[rows] = group.number
        by_key = self._by_key
        for row, key in zip(rows.tolist(), self._table.keys[rows].tolist(), strict=True):
            others = by_key.setdefault(key, row)
            if isinstance(others, dict):
                others[row] = None
            elif others != row:
                by_key[key] = {others: None, row: None}
        heapq.heappush(self._by_time, (due, group.number, group))
        heapq.heappush(self._by_trigger, (trigger_ns, group.number, group))

    def due(self, now: float) -> RowIndexes:
        self._sweep()
        if not self._by_time or (self._by_time[0][0] > now and self._by_time[0][2].left):
            return NO_ROWS  # called twice a turn, mostly without a result
        taken = [NO_ROWS]
        while self._by_time and (self._by_time[0][0] <= now or not self._by_time[0][2].left):
            taken.append(self._empty(heapq.heappop(self._by_time)[2]))
        return np.concatenate(taken)

    def triggered(self, read_past_ns: int) -> RowIndexes:
        taken = [NO_ROWS]
        while self._by_trigger and (self._by_trigger[0][0] <= read_past_ns or not self._by_trigger[0][2].left):
            taken.append(self._empty(heapq.heappop(self._by_trigger)[2]))
        return np.concatenate(taken)

    def arrived(self, keys: Iterable[bytes]) -> RowIndexes:
        taken: list[int] = []
        for key in keys:
            under = self._by_key.get(key)
            if under is not None:
                taken += under if isinstance(under, dict) else (under,)
        rows = rows_of(list(dict.fromkeys(taken)))
        self.leave(rows)
        return rows

    def keys(self) -> list[bytes]:
        return list(self._by_key)

    def next_due(self) -> float | None:
        """Returns when the next group is due; monotonic seconds."""
        while self._by_time and not self._by_time[0][2].left:
            heapq.heappop(self._by_time)
        return self._by_time[0][0] if self._by_time else None

    def next_trigger_ns(self) -> int | None:
        while self._by_trigger and not self._by_trigger[0][2].left:
            heapq.heappop(self._by_trigger)
        return self._by_trigger[0][0] if self._by_trigger else None

    def leave(self, rows: RowIndexes) -> None:
        for number, left in Counter(self._table.group[rows].tolist()).items():
            group = self._groups[number]
            group.left -= left
            if not group.left:
                self._forget(group)
        self._strike(rows)

    def _empty(self, group: _Group) -> RowIndexes:
        rows: RowIndexes = group.rows[self._table.group[group.rows] == group.number]
        if group.left:
            self._forget(group)
            self._strike(rows)
        return rows

    def _forget(self, group: _Group) -> None:
        del self._groups[group.number]
        group.rows, group.left = NO_ROWS, 0

    def _strike(self, rows: RowIndexes) -> None:
        self._table.group[rows] = NO_GROUP
        by_key = self._by_key
        for row, key in zip(rows.tolist(), self._table.keys[rows].tolist(), strict=True):
            under = by_key[key]
            if isinstance(under, dict):
                del under[row]
            if under == row or not under:
                del by_key[key]

    def _sweep(self) -> None:
        """Rebuilds the heap of triggers if most groups in it are dead, as dead groups would pile up without limit."""
        if len(self._by_trigger) > 2 * len(self._by_time) + 100:
            self._by_trigger = [entry for entry in self._by_trigger if entry[2].left]
            heapq.heapify(self._by_trigger)


class ArrivedKeys:
    """Numbers the keys of primary events that arrived recently."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}  # in order
        self.number = 0  # number of arrivals so far
        self._lost = 0

    def add(self, keys: Iterable[bytes]) -> None:
        for key in keys:
            self._numbers.pop(key, None)
            self.number += 1
            self._numbers[key] = self.number
        for key in list(islice(self._numbers, max(0, len(self._numbers) - RECENT_KEYS))):
            del self._numbers[key]

    def lose(self) -> None:
        """Notes that reports of arrivals may have been missed."""
        self.number += 1
        self._lost = self.number

    def since(self, keys: Sequence[bytes], number: int) -> Mask:
        """Returns a mask of the keys whose primary events have, or may have, arrived after ``number``."""
        if number == self.number or number < self._lost:
            return np.full(len(keys), number < self._lost)
        return np.array([self._numbers.get(key, 0) > number for key in keys], np.bool_)


@dataclass(eq=False)
class Waiting:
    """Keeps events without a verdict until their next try, in memory or as ``loaded`` rows of the retry store."""

    table: OpenEvents
    loaded: LoadedRows
    queues: Queues
    shares: Shares
    next_tries: NextTries
    first_read: FirstRead

    def __post_init__(self) -> None:
        self.room = WaitingRoom(self.table)
        self._due: list[int] = []  # rows of events whose next try has come
        self._arrived: list[int] = []  # rows of events whose primary event has arrived
        self.recent = ArrivedKeys()
        self._to_update: dict[bytes, list[int]] = {}  # rows of the retry store to be changed there, by key
        self.read_past_ns = -(2**63)
        self.followed = False  # the event store reports when a primary event arrives (``arrivals``)
        self.arrivals = 0  # events tried because their primary event had arrived
        self.given_up = 0  # events that wait for the next run because they could not be decided in this one

    @property
    def open(self) -> int:
        """The number of events in memory that may still get a verdict in this run."""
        return self.table.open

    # -- in ----------------------------------------------------------------------------------------------------------
    def wait(
        self,
        batch: Batch,
        outcomes: U8,
        waits: Mask,
        overloaded: bool,
        now_ns: int,
        now: float,
        *,
        gone: bool = False,
    ) -> None:
        """Plans the next tries of events without a verdict (``waits``). ``gone``: their primary logs are gone."""
        table = self.table
        for outcome in map(Outcome, dict.fromkeys(outcomes[waits].tolist())):
            tried = batch.rows[waits & (outcomes == outcome)]
            self.first_read.limit(table, tried, now_ns, now)
            attempt = Attempt(outcome, batch.read_past_ns, overloaded, self.loaded.stored_rows, gone)
            arrived = self.recent.since(table.keys[tried].tolist(), batch.arrivals)
            if arrived.any():
                table.failed[tried[arrived]] = 0
                if outcome == Outcome.NOT_YET:
                    self._try_again(tried[arrived])
                    tried = tried[~arrived]
            for rows, plan in self.next_tries.plans(attempt, table, tried, now_ns):
                self.given_up += len(rows) * plan.given_up
                trigger, settled = plan.trigger_ns, plan.settled
                if not overloaded:
                    table.attempts[rows] += 1
                table.failed[rows] = 0 if outcome == Outcome.NOT_YET else table.failed[rows] + (not overloaded)
                table.next_try_ns[rows] = SETTLED_NS if settled else now_ns + int(plan.delay_s * NS_PER_S)
                table.settled[rows], table.left_to[rows], table.last[rows] = settled, NOBODY, outcome
                table.trigger_ns[rows] = SETTLED_NS if settled else trigger
                if settled:
                    self._settle(rows, now)
                    continue
                passed = batch.read_past_ns < trigger <= self.read_past_ns  # passed during the attempt
                self._park(rows, now, now if passed else now + plan.delay_s, trigger)

    def _try_again(self, rows: RowIndexes) -> None:
        self.table.attempts[rows] += 1
        self.table.left_to[rows], self.table.last[rows] = NOBODY, Outcome.NOT_YET
        self._arrived += rows.tolist()
        self.arrivals += len(rows)

    def _park(self, rows: RowIndexes, now: float, due: float, trigger_ns: int) -> None:
        """Events that are not in the store wait in memory; stored ones wait in the store. After their first
        FAILED_HELD failures stored events also wait in memory, because in the store they would queue behind all due
        rows.
        """
        table = self.table
        hold = table.row_id[rows] == 0
        hold |= (table.last[rows] == Outcome.RETRY) & (table.failed[rows] <= FAILED_HELD)
        held = rows[hold]
        for stretch, which in self._of_stretches(held, now):
            stretch.waiting += len(which)
        stored = rows[~hold]
        self._update(stored)
        table.open -= len(stored)
        if len(held):
            self.room.add(held, due, trigger_ns)

    def _settle(self, rows: RowIndexes, now: float) -> None:
        """Leaves events to the next run. Drops redispatched ones, which their sender has on record."""
        table = self.table
        table.open -= len(rows)
        hold = table.row_id[rows] == 0
        held = rows[hold]
        for stretch, which in self._of_stretches(held, now):
            stretch.settled += len(which)
        self._update(rows[~hold])
        table.release(held[table.redispatched[held]])

    def _of_stretches(self, rows: RowIndexes, now: float) -> Iterator[tuple[Stretch, RowIndexes]]:
        for stretch, which in self.table.by_stretch(rows):
            if stretch is not None:
                if stretch.waiting_since is None:
                    stretch.waiting_since = now
                yield stretch, which

    def _update(self, rows: RowIndexes) -> None:
        for row, key in zip(rows.tolist(), self.table.keys[rows].tolist(), strict=True):
            self._to_update.setdefault(key, []).append(row)

    def load(
        self, stored: StoredEvents, now_ns: int, now: float, *, inherited: bool = False, arrived: bool = False
    ) -> None:
        """Adds rows of the retry store that are to be tried now and are not yet ``loaded``.

        ``inherited``: they are from an earlier process; ``arrived``: their primary event has arrived.
        """
        table = self.table
        rows = table.add(stored.events, None, stored.first_read_ns)
        table.as_of[rows] = self.next_tries.patience.at_first_ns
        table.row_id[rows] = stored.row_ids
        table.attempts[rows] = 0 if inherited else stored.attempts
        table.failed[rows] = 0 if arrived else table.attempts[rows]  # not stored; arrived ones start from zero
        # As at intake, by the event's own time: a row of a backlog is not fresh because it was read a moment ago.
        both = zip(stored.events.times.tolist(), stored.first_read_ns.tolist(), strict=True)
        table.behind[rows] = [any(self.shares.is_behind(ns, now_ns) for ns in each) for each in both]
        self.first_read.limit(table, rows, now_ns, now)
        (self._arrived if arrived else self._due).extend(rows.tolist())
        self.loaded.add(rows)
        self.arrivals += len(rows) * arrived

    def room_for_rows(self, now: float) -> int:
        behind = self.table.behind[rows_of(self._due + self._arrived)]
        return self.queues.room_for_rows(now) - int(np.count_nonzero(behind))

    # -- news --------------------------------------------------------------------------------------------------------
    def progressed(self, read_past_ns: int) -> None:
        """Notes that all primary bytes before this time, by both clocks (``two_clocks``), have been read."""
        self.read_past_ns = read_past_ns  # may decrease if the store has restarted
        self._due += self.room.triggered(read_past_ns).tolist()

    def arrived(self, keys: Sequence[bytes]) -> None:
        """Makes events in memory that wait for these keys due now, as the event store has the keys.

        This includes rows whose last try is not committed yet; they still count as loaded.
        """
        self.recent.add(keys)
        waited = self.room.arrived(keys)
        self._leave_stretches(waited)
        stored = [row for key in keys for row in self._to_update.pop(key, ())]
        self.table.open += len(stored)
        rows = [*waited.tolist(), *stored]
        self.table.failed[rows_of(rows)] = 0
        self._arrived += rows
        self.arrivals += len(rows)

    # -- out ---------------------------------------------------------------------------------------------------------
    def requeue(self, now: float) -> None:
        """Queues the events that are due for their next try."""
        if self._arrived:
            arrived, self._arrived = self._arrived, []
            self.queues.requeue(rows_of(arrived), now, arrived=True)
        due = self.room.due(now)
        if len(due) or self._due:
            rows = np.concatenate([due, rows_of(self._due)])
            self._due = []
            self._leave_stretches(rows)
            self.queues.requeue(rows, now)

    def _leave_stretches(self, rows: RowIndexes) -> None:
        for stretch, which in self.table.by_stretch(rows):
            if stretch is not None:
                stretch.waiting -= len(which)

    def store(self, rows: RowIndexes) -> None:
        """Removes events from memory that become rows of the retry store."""
        self.room.leave(rows)
        self.table.end(rows)

    def updates(self) -> StoredEvents:
        """Returns changed rows of the retry store to commit, and removes them from memory."""
        if not self._to_update:
            return NOTHING_STORED
        rows = rows_of([row for rows in self._to_update.values() for row in rows])
        self._to_update.clear()
        updated = StoredEvents.of(self.table, rows)
        self.loaded.remove(updated.row_ids.tolist())
        self.table.release(rows)
        return updated
