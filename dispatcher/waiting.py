"""Items that wait in memory: for their next try, to a time or until the primary logs are read past a point; or for
their home datacentre to take them. Pure."""

from __future__ import annotations

import heapq
from collections import deque
from itertools import count

from photon.dispatcher.events import Item, WaitingGroup


class WaitingRoom:
    """Groups of items, each in two heaps; taken out of the one, it is dead in the other."""

    def __init__(self) -> None:
        self._by_time: list[tuple[float, int, WaitingGroup]] = []
        self._by_trigger: list[tuple[int, int, WaitingGroup]] = []
        self._numbers = count()
        self.held = 0
        """Items that wait here."""

    def add(self, items: list[Item], due: float, trigger_ns: int) -> None:
        """``due``: monotonic seconds."""
        group = WaitingGroup(items, due, trigger_ns, len(items))
        self.held += len(items)
        for item in items:
            item.waiting = group
        number = next(self._numbers)
        heapq.heappush(self._by_time, (due, number, group))
        heapq.heappush(self._by_trigger, (trigger_ns, number, group))

    def due(self, now: float) -> list[Item]:
        """Takes out what is due."""
        items: list[Item] = []
        while self._by_time and (self._by_time[0][0] <= now or not self._by_time[0][2].left):
            items += self._empty(heapq.heappop(self._by_time)[2])
        self._sweep()
        return items

    def triggered(self, read_past_ns: int) -> list[Item]:
        """Takes out what waited for this point or an earlier one."""
        items: list[Item] = []
        while self._by_trigger and (self._by_trigger[0][0] <= read_past_ns or not self._by_trigger[0][2].left):
            items += self._empty(heapq.heappop(self._by_trigger)[2])
        return items

    def next_due(self) -> float | None:
        """Monotonic seconds."""
        while self._by_time and not self._by_time[0][2].left:
            heapq.heappop(self._by_time)
        return self._by_time[0][0] if self._by_time else None

    def leave(self, item: Item) -> None:
        """One item waits no longer here."""
        group = item.waiting
        assert group is not None
        item.waiting = None
        self.held -= 1
        group.left -= 1
        if not group.left:
            group.items = []

    def _empty(self, group: WaitingGroup) -> list[Item]:
        items = [item for item in group.items if item.waiting is group]
        for item in items:
            item.waiting = None
        self.held -= len(items)
        group.items, group.left = [], 0
        return items

    def _sweep(self) -> None:
        """Dead groups are light, but there is no end of them: the heap of triggers is rebuilt when most are dead."""
        if len(self._by_trigger) > 2 * len(self._by_time) + 100:
            self._by_trigger = [entry for entry in self._by_trigger if entry[2].left]
            heapq.heapify(self._by_trigger)


class HeadStartQueue:
    """Items that are left to other datacentres for a while. Delays hardly change: a queue for each is in order."""

    def __init__(self, delays: int) -> None:
        """``delays``: how many different ones there are at a time."""
        self._queues: list[deque[tuple[float, list[Item], bool]]] = [deque() for _ in range(delays)]
        self.items = 0

    def add(self, items: list[Item], due: float, delay: int, *, backlog: bool) -> None:
        """``due``: monotonic seconds, hardly before that of the last ones with this number of a delay."""
        self._queues[delay].append((due, items, backlog))
        self.items += len(items)

    def due(self, now: float) -> tuple[list[Item], list[Item]]:
        """Takes out those whose wait is over: those left at the head of the logs, those left in a backlog."""
        live: list[Item] = []
        backlog: list[Item] = []
        for queue in self._queues:
            while queue and queue[0][0] <= now:
                _, items, of_backlog = queue.popleft()
                self.items -= len(items)
                (backlog if of_backlog else live).extend(items)
        return live, backlog

    def next_due(self) -> float | None:
        """Monotonic seconds."""
        return min((queue[0][0] for queue in self._queues if queue), default=None)
