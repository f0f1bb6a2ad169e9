"""Where events are on their way to a joiner. Pure.

``fresh``: own events just read, to be sent as they are. ``unasked``: to be looked up first. ``ready``: looked up or
tried before, to be sent. ``leaving``: left to their home for a head start; then they are ``due``, or ``waited`` for
when that was in a backlog. What is behind (``shares``) has a line of its own, ``unasked`` and ``ready`` there.

What is looked up is looked up just before it can be sent: an answer grows old in a queue, and another datacentre is
at work on the same events.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from photon.dispatcher.events import Item
from photon.dispatcher.homes import NOBODY, YIELDED, Homes
from photon.dispatcher.limits import Limits
from photon.dispatcher.shares import SMALL_EVENTS, STORED_WEIGHT, Shares
from photon.dispatcher.waiting import HeadStartQueue

READY_BATCHES = 2
"""Nothing is looked up while so many batches are being looked up or wait for a joiner."""
PROGRESS = 0.5
"""Share of the oldest events left to others that are done, above which the others are waited for in a backlog."""
PATIENT_S = 0.1
"""The oldest ones are asked about this often while they are not done, or once in a head start if that is longer."""


STOCK_EVENTS = 2 * SMALL_EVENTS
"""Rows of the retry store that are kept at hand beside fresh traffic."""


@dataclass(slots=True)
class _Line:
    """Events to be looked up, and events to be sent."""

    unasked: deque[Item] = field(default_factory=deque)
    ready: deque[Item] = field(default_factory=deque)

    def __len__(self) -> int:
        return len(self.unasked) + len(self.ready)


class Queues:
    """``homes``: None where this datacentre is the only one: nothing is left to anybody. Times: monotonic seconds."""

    def __init__(self, limits: Limits, homes: Homes | None, shares: Shares) -> None:
        self._limits = limits
        self._homes = homes
        self._shares = shares
        self._fresh: deque[Item] = deque()
        self._live = _Line()
        self._behind = _Line()
        self._due: deque[Item] = deque()
        self._waited: deque[Item] = deque()
        self._leaving = HeadStartQueue(homes.ranks + 1 if homes is not None else 0)
        self._asking = 0
        self._progress = 1.0  # share of the oldest events that we left which their home has done; of late
        self._next_patient = 0.0
        self._oldest_behind = 0.0
        self._since: float | None = None  # since when the first of those that are fresh or to be tried again waits
        self._fresh_is_next = True
        self.behind_in_flight = 0
        """Events behind that are at joiners."""
        self.batch_events = limits.batch_events
        """Events in a batch; less where joiners are slow and others are at work on the same events."""
        self.look_first = False
        """Whether events are looked up before they go to a joiner: others have probably been there before."""

    @property
    def left(self) -> int:
        """Events that are left to their home now."""
        return self._leaving.items + len(self._due) + len(self._waited)

    @property
    def long(self) -> bool:
        """Whether more is to be done than what keeps the joiners busy."""
        queued = len(self._live) + len(self._behind) + len(self._due) + len(self._waited)
        return queued > READY_BATCHES * self.batch_events

    def room_for_rows(self, now: float) -> int:
        """How many rows of the retry store that are behind may be taken up now, so that joiners have enough."""
        if not self._shares.busy(now):
            return 2 * READY_BATCHES * self._limits.batch_events - len(self._behind)
        room = STOCK_EVENTS - len(self._behind)
        return room if room >= SMALL_EVENTS else 0  # a few at a time are not worth a look

    # -- in ----------------------------------------------------------------------------------------------------------
    def read(self, items: list[Item], now: float) -> None:
        """Events that were just read; all of them behind, or none."""
        behind = bool(items) and items[0].behind
        if self._asks(now):
            (self._behind if behind else self._live).unasked.extend(items)
            return
        own = self._leave(items, now)
        if behind:
            if not self._behind.ready:
                self._oldest_behind = now
            self._behind.ready += own
            return
        self._fresh += own

    def again(self, items: list[Item], now: float, *, arrived: bool = False) -> None:
        """Events whose next try has come. They are looked up: another datacentre has had its time.

        ``arrived``: because their primary event has, so they go before the others. About now it has come to their
        home as well: rows of the retry store, tried at any time by back-off, are left to it as events in memory are.
        """
        for line, some in self._parted(items):
            if self._homes is None:
                queue, chosen = line.unasked if self._asks(now) else line.ready, some
            else:
                at_once = [] if arrived else [item for item in some if item.stretch is None]
                left = [item for item in some if arrived or item.stretch is not None]
                queue, chosen = line.unasked, some if self._asks(now) else at_once + self._leave(left, now)
            if arrived:
                queue.extendleft(reversed(chosen))
            else:
                queue.extend(chosen)

    def _parted(self, items: Sequence[Item]) -> list[tuple[_Line, Sequence[Item]]]:
        behind = [item for item in items if item.behind]
        if not behind:
            return [(self._live, items)] if items else []
        rest = [item for item in items if not item.behind]
        return [(self._behind, behind), (self._live, rest)] if rest else [(self._behind, behind)]

    def asked(self, items: Sequence[Item], count: int, now: float, *, patient: bool = False) -> None:
        """Of ``count`` events that were looked up, these have no verdict: they go on to a joiner or are left.

        ``patient``: as ``next_question`` said of them.
        """
        self._asking -= count
        homes = self._homes
        if homes is None:
            for line, some in self._parted(items):
                line.ready += some
        elif patient:
            self._progress += (1 - len(items) / count - self._progress) / 2
            self._waited.extendleft(reversed(items))
            if not items:
                self._next_patient = now
        else:
            for line, some in self._parted(items):
                line.ready += [item for item in some if item.left_to != NOBODY]
                line.ready += self._leave([item for item in some if item.left_to == NOBODY], now)

    def _leave(self, items: list[Item], now: float) -> list[Item]:
        """Leaves those of another home to it; the own ones."""
        homes = self._homes
        if homes is None or not items:
            return items
        places = homes.place(b"".join([item.event.digest for item in items]))
        own: list[Item] = []
        left: dict[int, list[Item]] = {}
        first: Counter[int] = Counter()
        for item, rank, home in zip(items, places.ranks.tolist(), places.homes.tolist(), strict=True):
            if not rank:
                item.placed_at = now
                own.append(item)
                continue
            item.left_to = home
            left.setdefault(rank if home != YIELDED else 0, []).append(item)
            if home != YIELDED and is_evidence(item):
                first[home] += 1
        for rank, some in left.items():  # 0: yielded
            due = now + homes.wait_s(rank, backlog=self.look_first)
            self._leaving.add(some, due, rank, backlog=self.look_first)
        homes.count_left(first)
        return own

    # -- out ---------------------------------------------------------------------------------------------------------
    def next_question(self, now: float) -> tuple[list[Item], bool]:
        """Events to look up now, and whether those without a verdict then wait on. Give each call's to ``asked``."""
        due, waited = self._leaving.due(now)
        self._due += due
        self._waited += waited
        if self._fresh and self._asks(now):
            self._live.unasked += self._fresh
            self._fresh.clear()
        if self._asking + len(self._live.ready) >= READY_BATCHES * self.batch_events:
            return [], False
        behind = self._behind_to_ask(now)
        if self._due and not (self.look_first and (self._live.unasked or behind)):
            items, patient = self._pull(self._due), False
        elif self._live.unasked:
            items, patient = self._pull(self._live.unasked), False
        elif behind or not self._waited or self._homes is None:
            items, patient = self._pull(self._behind.unasked, most=behind), False
        else:
            items, patient = self._pull_waited(self._homes, now)
        self._asking += len(items)
        return items, patient

    def _behind_to_ask(self, now: float) -> int:
        """How many events behind may be looked up now."""
        waits = self._asking + len(self._behind.ready)
        if not self._behind.unasked or waits + len(self._live.ready) >= READY_BATCHES * self.batch_events:
            return 0
        return self._shares.allowance(now, self.batch_events, fresh_wait=self._fresh_wait, in_flight=waits)

    @property
    def _fresh_wait(self) -> bool:
        return bool(self._fresh or self._live)

    def _pull_waited(self, homes: Homes, now: float) -> tuple[list[Item], bool]:
        """Of a backlog, and there is nothing of our own to do.

        The oldest ones show whether their home comes on; what it has done makes room to read on. If it does not, the
        newest ones are taken: it comes to those last, so the two of us meet once and not at each event.
        """
        if now >= self._next_patient:
            self._next_patient = now + self._patience_s(homes)  # one question at a time
            return self._pull(self._waited), True
        if self._progress >= PROGRESS:
            return [], False
        return [self._waited.pop() for _ in range(min(len(self._waited), self.batch_events))], False

    @staticmethod
    def _patience_s(homes: Homes) -> float:
        """Its home may have them on their way for as long as a head start."""
        return max(PATIENT_S, homes.wait_s(1, backlog=True))

    def _asks(self, now: float) -> bool:
        """Whether own events, too, are looked up before they are sent.

        At the head of the logs they need not be: this is their home, and if another datacentre took one, its
        registration says so. It would cost each of them a round trip to the nearest replica.
        """
        homes = self._homes
        if self.look_first or homes is None or homes.contested:
            return self.look_first or homes is not None
        if not self._fresh:
            return False
        stretch = self._fresh[0].stretch  # has it waited for a joiner for so long that others may not wait for us?
        return stretch is None or now - stretch.read_at > homes.head_start.seconds

    def next_batch(
        self, now: float, *, flush: bool, wait_s: float | None = None, most: int | None = None, full: bool = False
    ) -> list[Item]:
        """The next events to send: of those that are fresh or to be tried again when a batch is full, or the first
        has waited for ``wait_s``. They go together: a batch costs a machine much the same, whatever is in it.

        ``flush``: there is no more to be read now. ``wait_s`` None: as the limits say, or not at all with ``flush``.
        ``full``: memory is, so that what is fresh may wait to be read.
        """
        if wait_s is None:
            wait_s = 0.0 if flush else self._limits.batch_wait_s
        ripe = self._ripe(now, wait_s)
        fresh_first = ripe and not self._shares.busy(now)
        if self._behind.ready and not fresh_first and (items := self._next_behind(now, flush, most, full)):
            return items
        if not ripe:
            return []
        lines = (self._fresh, self._live.ready) if self._fresh_is_next else (self._live.ready, self._fresh)
        self._fresh_is_next = not self._fresh_is_next  # a storm of retries does not starve what was just read
        items = self._pull(*lines, most=most)
        self._since = now if self._fresh or self._live.ready else None
        self._shares.sent_fresh(len(items), now)
        return items

    def _ripe(self, now: float, wait_s: float) -> bool:
        count = len(self._fresh) + len(self._live.ready)
        if not count:
            self._since = None
        elif self._since is None:
            self._since = now
        return count >= self.batch_events or (self._since is not None and now >= self._since + wait_s)

    def _next_behind(self, now: float, flush: bool, most: int | None, full: bool) -> list[Item]:
        """Events behind, when it is their turn. Until ``flush`` there is more to be read, which may be fresh.

        So there is when memory is full: those behind that fill it make room, rows of the retry store do not.
        """
        more = not flush or (full and self._behind.ready[0].stretch is None)
        wait = self._fresh_wait or (self._shares.busy(now) and more)
        count = self._shares.allowance(now, self.batch_events, fresh_wait=wait, in_flight=self.behind_in_flight)
        ripe = flush or len(self._behind.ready) >= count or now - self._oldest_behind >= self._limits.batch_wait_s
        if not (count and ripe):
            return []
        self._oldest_behind = now
        items = self._pull(self._behind.ready, most=count if most is None else min(most, count))
        cost = len(items) * (STORED_WEIGHT if items[0].stretch is None else 1.0)
        self._shares.sent_behind(cost, fresh_wait=wait)
        self.behind_in_flight += len(items)
        return items

    def _pull(self, *queues: deque[Item], most: int | None = None) -> list[Item]:
        """A batch: what the first one has, then what the next one has."""
        room = self.batch_events if most is None else min(most, self.batch_events)
        items: list[Item] = []
        left = self._limits.batch_bytes
        for queue in queues:
            for _ in range(min(len(queue), room - len(items))):
                left -= len(queue[0].event.record)
                if left < 0 and items:
                    return items
                items.append(queue.popleft())
        return items

    def fresh_due(self, wait_s: float) -> float | None:
        """When fresh events, or such to be tried again, have waited for so long; monotonic seconds."""
        return None if self._since is None else self._since + wait_s

    def next_due(self, now: float) -> float | None:
        """When the next head start is over, or those that were left are to be asked about again."""
        due = self._leaving.next_due()
        if self._waited and self._next_patient > now:
            due = self._next_patient if due is None else min(due, self._next_patient)
        return due


def is_evidence(item: Item) -> bool:
    """Whether what becomes of it tells of the datacentre it is left to: only a first attempt does.

    Later ones come by back-off and chance: either datacentre may be the first to find a primary that was late.
    """
    return item.attempts == 0 and item.stretch is not None
