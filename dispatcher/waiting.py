"""Items that wait in memory: for their next try, to a time or until the primary logs are read past a point; or for
their home datacentre to take them. Pure."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable
from itertools import count, islice

from photon.dispatcher.events import Item, WaitingGroup

RECENT_KEYS = 20_000
"""Of those that arrived, the last ones: an attempt that was on its way then may have missed them."""


class WaitingRoom:
    """Groups of items, each in two heaps; taken out of the one, it is dead in the other. Each item stands under its
    key as well."""

    def __init__(self) -> None:
        self._by_time: list[tuple[float, int, WaitingGroup]] = []
        self._by_trigger: list[tuple[int, int, WaitingGroup]] = []
        self._numbers = count()
        self._by_key: dict[bytes, Item | dict[Item, None]] = {}  # mostly one, then without a dict of its own
        self.held = 0
        """Items that wait here."""

    def add(self, items: list[Item], due: float, trigger_ns: int) -> None:
        """``due``: monotonic seconds."""
        group = WaitingGroup(items, due, trigger_ns, len(items))
        self.held += len(items)
        for item in items:
            item.waiting = group
            self._enter(item)
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

    def arrived(self, keys: Iterable[bytes]) -> list[Item]:
        """Takes out what waits for these keys."""
        items: list[Item] = []
        for key in keys:
            under = self._by_key.get(key)
            for item in [under] if isinstance(under, Item) else list(under or ()):
                self.leave(item)
                items.append(item)
        return items

    def keys(self) -> list[bytes]:
        """What is waited for here."""
        return list(self._by_key)

    def _enter(self, item: Item) -> None:
        key = item.event.key
        others = self._by_key.get(key)
        if others is None:
            self._by_key[key] = item
        elif isinstance(others, Item):
            self._by_key[key] = {others: None, item: None}
        else:
            others[item] = None

    def _strike(self, item: Item) -> None:
        under = self._by_key[item.event.key]
        if not isinstance(under, Item):
            del under[item]
        if under is item or not under:
            del self._by_key[item.event.key]

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
        self._strike(item)
        self.held -= 1
        group.left -= 1
        if not group.left:
            group.items = []

    def _empty(self, group: WaitingGroup) -> list[Item]:
        items = [item for item in group.items if item.waiting is group]
        for item in items:
            item.waiting = None
            self._strike(item)
        self.held -= len(items)
        group.items, group.left = [], 0
        return items

    def _sweep(self) -> None:
        """Dead groups are light, but there is no end of them: the heap of triggers is rebuilt when most are dead."""
        if len(self._by_trigger) > 2 * len(self._by_time) + 100:
            self._by_trigger = [entry for entry in self._by_trigger if entry[2].left]
            heapq.heapify(self._by_trigger)


class ArrivedKeys:
    """Primary events that came a moment ago, numbered."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}  # in order
        self.number = 0
        """How many came so far."""
        self._lost = 0

    def add(self, keys: Iterable[bytes]) -> None:
        """These have come."""
        for key in keys:
            self._numbers.pop(key, None)
            self.number += 1
            self._numbers[key] = self.number
        for key in list(islice(self._numbers, max(0, len(self._numbers) - RECENT_KEYS))):
            del self._numbers[key]

    def lose(self) -> None:
        """Anything may have come that nobody tells of."""
        self.number += 1
        self._lost = self.number

    def since(self, items: list[Item], number: int) -> tuple[list[Item], list[Item]]:
        """Items whose primary event has come behind ``number``, or may have, and the others."""
        if number == self.number:
            return [], items
        if number < self._lost:
            return items, []
        came = [item for item in items if self._numbers.get(item.event.key, 0) > number]
        return came, [item for item in items if self._numbers.get(item.event.key, 0) <= number] if came else items


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
