"""Queues of events on their way to a joiner. Pure.

``fresh``: own events just read, sent without a look-up. ``unasked``: events to look up first. ``ready``: events
looked up or tried before, to be sent. ``leaving``: events left to their home for a head start; they then go to
``due``, or to ``waited`` if they were read in catch-up. Events behind (``Shares``) have their own ``unasked`` and
``ready``.

Events are looked up just before they are sent: in a queue, answers would become stale while another datacentre works
on the same events.

Catch-up shares joiners and registry with fresh events, which must keep their latency (paper, 3.2.2). An event is
*behind* if it was old when read, or has waited in the retry store for long; others are *fresh*. If no fresh events
were sent for a moment, events behind get all capacity. Otherwise

- they get small batches, few of them in flight, whenever nothing fresh waits;
- while fresh events wait, they are not starved: fresh events sent earn them credit in the ratio of ``share``, and
  without credit a few are still sent now and then.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

import numpy as np

from photon.adapters.times import NO_TIME_NS
from photon.batch.columns import RowIndexes
from photon.config.clock import NS_PER_S
from photon.dispatcher.homes import NOBODY, YIELDED, Homes
from photon.dispatcher.limits import Limits
from photon.dispatcher.open_events import NO_ROWS, OpenEvents

BEHIND_S = 120.0  # an older event is behind
CALM_S = 1.0  # fresh traffic has ended when nothing fresh was sent for this time
SMALL_EVENTS = 250  # batch size of events behind during fresh traffic: a fresh event waits for few of them
TRICKLE_EVENTS, TRICKLE_S = 25, 1.0  # number and interval of events sent while fresh ones wait, regardless of credit
IDLE_PART = 8  # they get one in this many places in flight while nothing fresh waits
# A row of the retry store is read from disk, tried and written again: three times the cost of a fresh event.
STORED_WEIGHT = 3.0


class Shares:
    """Gives events behind a ``share`` of the work while fresh events wait; 1 treats all alike. Times: monotonic s.

    ``capacity``: events in flight at all joiners together.
    """

    def __init__(self, share: float, capacity: int) -> None:
        if not 0 < share <= 1:
            raise ValueError("the share of catch-up must be above 0 and at most 1")
        self.alike = share == 1  # nothing is behind
        self._ratio = share / (1 - share) if share < 1 else 0.0
        self.resize(capacity)
        self._credit = 0.0
        self._fresh_at = -CALM_S
        self._behind_at = -TRICKLE_S

    def resize(self, capacity: int) -> None:
        self._most_in_flight = max(SMALL_EVENTS, capacity // IDLE_PART)

    def is_behind(self, time_ns: int, now_ns: int) -> bool:
        return not self.alike and time_ns != NO_TIME_NS and now_ns - time_ns > BEHIND_S * NS_PER_S

    def busy(self, now: float) -> bool:
        return now - self._fresh_at < CALM_S

    def sent_fresh(self, events: int, now: float) -> None:
        self._fresh_at = now
        self._credit = min(self._credit, 2.0 * SMALL_EVENTS) + events * self._ratio

    def allowance(self, now: float, batch_events: int, *, fresh_wait: bool, in_flight: int) -> int:
        """Returns how many events behind may go to a joiner now; ``in_flight`` are already there."""
        if not self.busy(now):
            return batch_events
        small = min(SMALL_EVENTS, batch_events)
        if in_flight + small > self._most_in_flight:
            return 0
        if not fresh_wait or self._credit >= small:
            return small
        return min(small, TRICKLE_EVENTS) if now - self._behind_at >= TRICKLE_S else 0

    def sent_behind(self, cost: float, now: float, *, fresh_wait: bool) -> None:
        """Charges events behind for a batch sent: ``cost`` fresh events, or nothing while no fresh event waits."""
        self._behind_at = now
        if fresh_wait:
            self._credit -= cost


READY_BATCHES = 2  # nothing is looked up while this many batches are being looked up or wait for a joiner
PROGRESS = 0.5  # in a backlog: share of the oldest left events that must be done to keep waiting for them
PATIENT_S = 0.1  # interval of look-ups of the oldest ones while they are not done, or a head start if that is longer
STOCK_EVENTS = 2 * SMALL_EVENTS  # rows of the retry store kept ready during fresh traffic


class RowQueue:
    """A first-in, first-out queue of rows, which are added in runs."""

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
        """Takes at most ``most`` rows, the most recent ones first."""
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
    """Events left to other datacentres for a while. One queue per delay, nearly in order, as delays hardly change."""

    def __init__(self, delays: int) -> None:
        """``delays``: number of different delays in use at a time."""
        self._queues: list[deque[tuple[float, RowIndexes, bool]]] = [deque() for _ in range(delays)]
        self.events = 0

    def add(self, rows: RowIndexes, due: float, delay: int, *, backlog: bool) -> None:
        """Queues events until ``due`` (monotonic seconds), which roughly ascends for each ``delay``, a number."""
        self._queues[delay].append((due, rows, backlog))
        self.events += len(rows)

    def due(self, now: float) -> tuple[RowIndexes, RowIndexes]:
        """Removes and returns events whose wait is over: (events from the head of the logs, events of a backlog)."""
        live, backlog = [NO_ROWS], [NO_ROWS]
        for queue in self._queues:
            while queue and queue[0][0] <= now:
                _, rows, of_backlog = queue.popleft()
                self.events -= len(rows)
                (backlog if of_backlog else live).append(rows)
        return np.concatenate(live), np.concatenate(backlog)

    def next_due(self) -> float | None:
        """Returns when the next wait is over; monotonic seconds."""
        return min((queue[0][0] for queue in self._queues if queue), default=None)


@dataclass(slots=True)
class _Line:
    """Events to look up, and events to send."""

    unasked: RowQueue = field(default_factory=RowQueue)
    ready: RowQueue = field(default_factory=RowQueue)

    def __len__(self) -> int:
        return len(self.unasked) + len(self.ready)


class Queues:
    """Events by next step. ``homes`` is ``None`` if nothing is left to other datacentres. Times: monotonic s."""

    def __init__(self, table: OpenEvents, limits: Limits, homes: Homes | None, shares: Shares) -> None:
        self._table = table
        self._limits = limits
        self._homes = homes
        self._shares = shares
        self._fresh = RowQueue()
        self._live = _Line()
        self._behind = _Line()
        self._due = RowQueue()
        self._waited = RowQueue()
        self._leaving = HeadStartQueue(homes.ranks + 1 if homes is not None else 0)
        self._asking = 0
        self._progress = 1.0  # recent share of the oldest events left to others that their home has done
        self._next_patient = 0.0
        self._oldest_behind = 0.0
        self._since: float | None = None  # since when the first fresh or retried event has waited
        self._fresh_is_next = True
        self.gathered_at = float("-inf")  # when a batch that is not full was last sent
        self.behind_in_flight = 0  # events behind that are at joiners
        # Events in a batch; fewer if joiners are slow and others work on the same events.
        self.batch_events = limits.batch_events
        self.look_first = False  # look up events before they go to a joiner: others have probably been there before

    @property
    def left(self) -> int:
        return self._leaving.events + len(self._due) + len(self._waited)

    @property
    def long(self) -> bool:
        """True if there is more work than keeps the joiners busy."""
        queued = len(self._live) + len(self._behind) + len(self._due) + len(self._waited)
        return queued > READY_BATCHES * self.batch_events

    def room_for_rows(self, now: float) -> int:
        """Returns how many rows of the retry store to load, so that enough events behind are ready for joiners."""
        if not self._shares.busy(now):
            return 2 * READY_BATCHES * self._limits.batch_events - len(self._behind)
        room = STOCK_EVENTS - len(self._behind)
        return room if room >= SMALL_EVENTS else 0  # a few are not worth a query

    # -- in ----------------------------------------------------------------------------------------------------------
    def take(self, rows: RowIndexes, now: float, *, asked: bool = False) -> None:
        """Queues new events. ``asked``: they were just looked up; another datacentre may still take them first."""
        if asked and self._homes is None:
            self.asked(rows, 0, now)
            return
        for line, some in self._parted(rows):
            if self._asks(now):
                line.unasked.add(some)
                continue
            own = self._leave(some, now)
            if line is self._live:
                self._fresh.add(own)
                continue
            if not line.ready:
                self._oldest_behind = now
            line.ready.add(own)

    def requeue(self, rows: RowIndexes, now: float, *, arrived: bool = False) -> None:
        """Queues events that are due again. They are looked up, as another datacentre may have taken them.

        ``arrived``: their primary event has arrived, so they go first. It has reached their home too, so even rows of
        the retry store are left to the home; otherwise random back-off decides which datacentre tries those first.
        """
        for line, some in self._parted(rows):
            if self._homes is None:
                queue = line.unasked if self._asks(now) else line.ready
            else:
                queue = line.unasked
                if not self._asks(now):
                    at_once = NO_ROWS if arrived else some[self._table.row_id[some] > 0]
                    left = some if arrived else some[self._table.row_id[some] == 0]
                    some = np.concatenate([at_once, self._leave(left, now)])
            if arrived:
                queue.put_first(some)
            else:
                queue.add(some)

    def _parted(self, rows: RowIndexes) -> list[tuple[_Line, RowIndexes]]:
        behind = self._table.behind[rows]
        parts = ((self._behind, rows[behind]), (self._live, rows[~behind]))
        return [(line, some) for line, some in parts if len(some)]

    def asked(self, rows: RowIndexes, count: int, now: float, *, patient: bool = False) -> None:
        """Handles an answered look-up of ``count`` events: ``rows``, without a verdict, are sent or left to their
        home.

        ``patient``: as returned by ``next_question``.
        """
        self._asking -= count
        if self._homes is None:
            for line, some in self._parted(rows):
                line.ready.add(some)
        elif patient:
            self._progress += (1 - len(rows) / count - self._progress) / 2
            self._waited.put_first(rows)
            if not len(rows):
                self._next_patient = now
        else:
            for line, some in self._parted(rows):
                placed = self._table.left_to[some] != NOBODY
                line.ready.add(some[placed])
                line.ready.add(self._leave(some[~placed], now))

    def _leave(self, rows: RowIndexes, now: float) -> RowIndexes:
        homes, table = self._homes, self._table
        if homes is None or not len(rows):
            return rows
        places = homes.place(table.digests[rows].tobytes())
        is_left = places.ranks > 0
        own = rows[~is_left]
        table.placed_at[own] = now
        if len(own) == len(rows):
            return own
        left, to = rows[is_left], places.homes[is_left]
        table.left_to[left] = to
        homes.count_left(Counter(to[(to != YIELDED) & table.counts_as_evidence(left)].tolist()))
        ranks = np.where(to == YIELDED, 0, places.ranks[is_left])
        for rank in np.unique(ranks).tolist():
            due = now + homes.wait_s(rank, backlog=self.look_first)
            self._leaving.add(left[ranks == rank], due, rank, backlog=self.look_first)
        return own

    # -- out ---------------------------------------------------------------------------------------------------------
    def next_question(self, now: float) -> tuple[RowIndexes, bool]:
        """Returns (events to look up now, whether those without a verdict keep waiting). Pass both to ``asked``."""
        due, waited = self._leaving.due(now)
        self._due.add(due)
        self._waited.add(waited)
        if self._homes is None and not self.look_first:
            for line in (self._live, self._behind):
                line.ready.add(line.unasked.take(len(line.unasked)))
        if self._fresh and self._asks(now):
            self._live.unasked.add(self._fresh.take(len(self._fresh)))
        if self._asking + len(self._live.ready) >= READY_BATCHES * self.batch_events:
            return NO_ROWS, False
        behind = self._behind_to_ask(now)
        if self._due and not (self.look_first and (self._live.unasked or behind)):
            rows, patient = self._pull(self._due), False
        elif self._live.unasked:
            rows, patient = self._pull(self._live.unasked), False
        elif behind or not self._waited or self._homes is None:
            rows, patient = self._pull(self._behind.unasked, most=behind), False
        else:
            rows, patient = self._pull_waited(self._homes, now)
        self._asking += len(rows)
        return rows, patient

    def _behind_to_ask(self, now: float) -> int:
        waits = self._asking + len(self._behind.ready)
        if not self._behind.unasked or waits + len(self._live.ready) >= READY_BATCHES * self.batch_events:
            return 0
        return self._shares.allowance(now, self.batch_events, fresh_wait=self._fresh_wait, in_flight=waits)

    @property
    def _fresh_wait(self) -> bool:
        return bool(self._fresh or self._live)

    def _pull_waited(self, homes: Homes, now: float) -> tuple[RowIndexes, bool]:
        """Takes events of a backlog that are left to other datacentres, when our own queues are empty.

        Looking up the oldest shows if their home makes progress, and makes room for reading. If it makes none, the
        newest are joined here: the home reaches those last, so the two datacentres collide once, not at each event.
        """
        if now >= self._next_patient:
            self._next_patient = now + self._patience_s(homes)  # one look-up at a time
            return self._pull(self._waited), True
        if self._progress >= PROGRESS:
            return NO_ROWS, False
        return self._waited.take_last(self.batch_events), False

    @staticmethod
    def _patience_s(homes: Homes) -> float:
        """Returns the seconds between look-ups of the oldest left events: a head start, at least PATIENT_S."""
        return max(PATIENT_S, homes.wait_s(1, backlog=True))

    def _asks(self, now: float) -> bool:
        """True if events that are ours are also looked up before they are sent.

        At the head of the logs that is unnecessary, and would cost each event a round trip to the nearest replica:
        this is their home, and the registration finds out if another datacentre took one.
        """
        homes = self._homes
        if self.look_first or homes is None or homes.contested:
            return self.look_first or homes is not None
        if not self._fresh:
            return False
        stretch = self._table.stretch[self._fresh.first]
        # It may have waited so long for a joiner that others no longer wait for us.
        return stretch is None or now - stretch.read_at > homes.head_start.seconds

    def next_batch(
        self, now: float, *, flush: bool, wait_s: float | None = None, most: int | None = None, full: bool = False
    ) -> RowIndexes:
        """Returns the next events to send: events behind in their turn; others once a batch is full or waited
        ``wait_s``.

        A batch costs much the same regardless of its size, so a batch that is not full is sent no sooner than
        ``Limits.gather_s`` after the last. ``flush``: nothing more can be read now. ``wait_s``: default from the
        limits, or 0 with ``flush``. ``full``: memory is full, so fresh events may be unread.
        """
        if wait_s is None:
            wait_s = 0.0 if flush else self._limits.batch_wait_s
        ripe = self._ripe(now, wait_s)
        fresh_first = ripe and not self._shares.busy(now)
        if self._behind.ready and not fresh_first and len(rows := self._next_behind(now, flush, most, full)):
            return rows
        if not ripe:
            return NO_ROWS
        lines = (self._fresh, self._live.ready) if self._fresh_is_next else (self._live.ready, self._fresh)
        self._fresh_is_next = not self._fresh_is_next  # a storm of retries must not starve newly read events
        rows = self._pull(*lines, most=most)
        self._since = now if self._fresh or self._live.ready else None
        self.gathered_at = now + self._limits.gather_s
        self._shares.sent_fresh(len(rows), now)
        return rows

    def _ripe(self, now: float, wait_s: float) -> bool:
        count = len(self._fresh) + len(self._live.ready)
        if not count:
            self._since = None
        elif self._since is None:
            self._since = now
        return count >= self.batch_events or (
            self._since is not None and now >= self._since + wait_s and now >= self.gathered_at
        )

    def _next_behind(self, now: float, flush: bool, most: int | None, full: bool) -> RowIndexes:
        """Returns events behind, if it is their turn: not while more can be read (no ``flush``), which may be fresh.
        If memory is full, events in memory need not wait for that, as sending them makes room; rows of the retry
        store do.
        """
        more = not flush or (full and self._is_stored(self._behind.ready.first))
        wait = self._fresh_wait or (self._shares.busy(now) and more)
        count = self._shares.allowance(now, self.batch_events, fresh_wait=wait, in_flight=self.behind_in_flight)
        ripe = flush or len(self._behind.ready) >= count or now - self._oldest_behind >= self._limits.batch_wait_s
        if not (count and ripe):
            return NO_ROWS
        self._oldest_behind = now
        rows = self._pull(self._behind.ready, most=count if most is None else min(most, count))
        cost = len(rows) * (STORED_WEIGHT if self._is_stored(int(rows[0])) else 1.0)
        self._shares.sent_behind(cost, now, fresh_wait=wait)
        self.behind_in_flight += len(rows)
        return rows

    def _is_stored(self, row: int) -> bool:
        return bool(self._table.row_id[row])

    def _pull(self, *queues: RowQueue, most: int | None = None) -> RowIndexes:
        """Takes a batch from the first queue, filled up from the next one."""
        room = self.batch_events if most is None else min(most, self.batch_events)
        left = self._limits.batch_bytes
        taken: list[RowIndexes] = []
        for queue in queues:
            rows = queue.take(room)
            if not len(rows):
                continue
            ends = np.cumsum(self._table.sizes[rows])
            fit = max(int(np.searchsorted(ends, left, "right")), 0 if taken else 1)
            taken.append(rows[:fit])
            if fit < len(rows):
                queue.put_first(rows[fit:])
                break
            room, left = room - fit, left - int(ends[-1])
        return np.concatenate(taken) if taken else NO_ROWS

    def fresh_due(self, wait_s: float) -> float | None:
        """Returns when the next batch of events that are not behind is due; monotonic seconds."""
        return None if self._since is None else max(self._since + wait_s, self.gathered_at)

    def next_due(self, now: float) -> float | None:
        """Returns when the next head start ends, or left events are looked up again."""
        due = self._leaving.next_due()
        if self._waited and self._next_patient > now:
            due = self._next_patient if due is None else min(due, self._next_patient)
        return due
