"""Events that wait in memory. Pure.

They wait for their next try, until a time or until the primary logs are read past a point; or for their home
datacentre to take them.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count, islice

import numpy as np

from photon.batch.columns import Mask, RowIndexes
from photon.dispatcher.open_events import NO_GROUP, NO_ROWS, OpenEvents, rows_of

RECENT_KEYS = 20_000  # recent arrivals that are remembered: an attempt on its way at that time may have missed them


@dataclass(slots=True)
class _Group:
    """Events that are tried again together. ``left``: those still waiting in it."""

    number: int
    rows: RowIndexes
    left: int


class WaitingRoom:
    """Groups of events, each in two heaps; removed from one, it is dead in the other. Also indexes events by key."""

    def __init__(self, table: OpenEvents) -> None:
        self._table = table
        self._by_time: list[tuple[float, int, _Group]] = []
        self._by_trigger: list[tuple[int, int, _Group]] = []
        self._numbers = count(NO_GROUP + 1)
        self._groups: dict[int, _Group] = {}
        self._by_key: dict[bytes, int | dict[int, None]] = {}  # mostly one row, without a dict
        self.held = 0  # events that wait here

    def add(self, rows: RowIndexes, due: float, trigger_ns: int) -> None:
        """``due``: monotonic seconds; ``trigger_ns``: or when that is read past."""
        group = _Group(next(self._numbers), rows, len(rows))
        self._groups[group.number] = group
        self.held += len(rows)
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
            return NO_ROWS  # called twice a turn, mostly in vain
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
        """Monotonic seconds."""
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
        self.held -= len(rows)
        self._table.group[rows] = NO_GROUP
        by_key = self._by_key
        for row, key in zip(rows.tolist(), self._table.keys[rows].tolist(), strict=True):
            under = by_key[key]
            if isinstance(under, dict):
                del under[row]
            if under == row or not under:
                del by_key[key]

    def _sweep(self) -> None:
        """Rebuilds the heap of triggers when most groups in it are dead: they are small, but unlimited in number."""
        if len(self._by_trigger) > 2 * len(self._by_time) + 100:
            self._by_trigger = [entry for entry in self._by_trigger if entry[2].left]
            heapq.heapify(self._by_trigger)


class ArrivedKeys:
    """Numbered primary events that arrived a moment ago."""

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
        """Notes that arrivals may have gone unreported."""
        self.number += 1
        self._lost = self.number

    def since(self, keys: Sequence[bytes], number: int) -> Mask:
        """Returns which keys' primary events have arrived after ``number``, or may have."""
        if number == self.number or number < self._lost:
            return np.full(len(keys), number < self._lost)
        return np.array([self._numbers.get(key, 0) > number for key in keys], np.bool_)


class RowQueue:
    """Rows in the order in which they came, a run of them at a time."""

    def __init__(self) -> None:
        self._runs: deque[RowIndexes] = deque()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def first(self) -> int:
        return int(self._runs[0][0])

    def add(self, rows: RowIndexes) -> None:
        if len(rows):
            self._runs.append(rows)
            self._count += len(rows)

    def put_first(self, rows: RowIndexes) -> None:
        if len(rows):
            self._runs.appendleft(rows)
            self._count += len(rows)

    def take(self, most: int) -> RowIndexes:
        taken = [NO_ROWS]
        while most > 0 and self._runs:
            run = self._runs.popleft()
            if len(run) > most:
                self._runs.appendleft(run[most:])
            taken.append(run[:most])
            most -= len(taken[-1])
        return self._out(taken)

    def take_last(self, most: int) -> RowIndexes:
        """Takes the most recent ones first."""
        taken = [NO_ROWS]
        while most > 0 and self._runs:
            run = self._runs.pop()[::-1]
            if len(run) > most:
                self._runs.append(run[most:][::-1])
            taken.append(run[:most])
            most -= len(taken[-1])
        return self._out(taken)

    def _out(self, taken: list[RowIndexes]) -> RowIndexes:
        rows = np.concatenate(taken)
        self._count -= len(rows)
        return rows


class HeadStartQueue:
    """Events left to other datacentres for a while. Delays hardly change: the queue of each is in order."""

    def __init__(self, delays: int) -> None:
        """``delays``: number of different delays at a time."""
        self._queues: list[deque[tuple[float, RowIndexes, bool]]] = [deque() for _ in range(delays)]
        self.events = 0

    def add(self, rows: RowIndexes, due: float, delay: int, *, backlog: bool) -> None:
        """``due``: monotonic seconds, hardly earlier than that of the last events with the same delay number."""
        self._queues[delay].append((due, rows, backlog))
        self.events += len(rows)

    def due(self, now: float) -> tuple[RowIndexes, RowIndexes]:
        """Takes out events whose wait is over: those left at the head of the logs, and those left in a backlog."""
        live, backlog = [NO_ROWS], [NO_ROWS]
        for queue in self._queues:
            while queue and queue[0][0] <= now:
                _, rows, of_backlog = queue.popleft()
                self.events -= len(rows)
                (backlog if of_backlog else live).append(rows)
        return np.concatenate(live), np.concatenate(backlog)

    def next_due(self) -> float | None:
        """Monotonic seconds."""
        return min((queue[0][0] for queue in self._queues if queue), default=None)
