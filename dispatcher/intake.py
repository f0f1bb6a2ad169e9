"""Parses blocks of the logs into events in memory, and counts and queues the events. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from photon.adapters.contract import Adapter, LogFile, Retry
from photon.adapters.logs.api import Block
from photon.batch.columns import RowIndexes
from photon.batch.events import Events
from photon.dispatcher.counting import Counting
from photon.dispatcher.events import EVENT_BYTES, Stretch
from photon.dispatcher.limits import Limits
from photon.dispatcher.open_events import OpenEvents
from photon.dispatcher.open_logs import OpenLogs
from photon.dispatcher.queues import Queues, Shares
from photon.dispatcher.retry import Patience
from photon.dispatcher.two_clocks import FirstRead
from photon.idregistry.api import Digester
from photon.joiner.foreign_columns import EventsRead, events_of, records_of

_NO_FILE = LogFile("")


@dataclass(frozen=True, slots=True)
class LineRules:
    """Parses a block's lines into events."""

    adapter: Adapter
    digester: Digester
    patience: Patience

    def parse(self, block: Block, records: list[bytes], offsets: list[int]) -> EventsRead:
        """Parses some records of a block into events. Raises Retry if the adapter cannot read now."""
        return events_of(block, records, offsets, self.adapter, self.digester, self.patience.at_first_ns)

    def events(self, block: Block) -> Events:
        """Returns a block's readable events; unreadable lines were reported when they were first read."""
        return self.parse(block, *records_of(block)).events


@dataclass(eq=False)
class Intake:
    """Takes blocks into memory. Times: ``now_ns`` wall clock, ``now`` monotonic seconds."""

    table: OpenEvents
    logs: OpenLogs
    rules: LineRules
    counting: Counting
    queues: Queues
    shares: Shares
    first_read: FirstRead
    limits: Limits
    seen: Callable[[Events], None] | None  # called with the lines that were read, in order

    def __post_init__(self) -> None:
        self.away = ""  # why why the adapter cannot read the current block; it is retried
        self.placed = False  # lines without ids of their own were read: so equal beginnings of two logs count once

    def take(self, block: Block, now_ns: int, now: float) -> Iterable[None]:
        """Reads a block into memory, in steps: iterate to the end; other work may be done between steps."""
        stretch = self.logs.begin(block, now)
        for events in self.read(stretch, block, now_ns):
            self.queues.take(self.add(stretch, events, now_ns, now), now)
            yield
        stretch.whole = True

    def read(self, stretch: Stretch, block: Block, now_ns: int) -> Iterator[Events]:
        """Yields the events of a block, some records at a time. Rejects unreadable records."""
        records, offsets = records_of(block)
        step = self.limits.parse_records
        for at in range(0, len(records), step):
            some = slice(at, at + step)
            while True:
                try:
                    events, unreadable, placed = self.rules.parse(block, records[some], offsets[some])
                except Retry as error:  # the caller waits, then comes back or leaves the block unread
                    self.away = str(error)
                    yield Events.of(())
                else:
                    self.away = ""
                    break
            self.placed = self.placed or placed
            stretch.saw(events.times)
            if self.seen is not None:
                self.seen(events)
            stretch.unread += [(bad.offset, bad.record, bad.reason) for bad in unreadable]
            self.counting.reject_unread(stretch, now_ns)
            yield events
        for long in block.oversized:
            reason = f"the record is {long.length} bytes long, more than the limit; it begins as shown"
            stretch.unread.append((long.offset, long.head, reason))
        self.counting.reject_unread(stretch, now_ns)

    def add(self, stretch: Stretch, events: Events, now_ns: int, now: float) -> RowIndexes:
        """Adds events of a stretch that need a verdict, and counts them as read."""
        since = self.first_read.at_ns(now_ns, now)
        count = len(events)
        rows = self.table.add(events, stretch, since)
        self.table.behind[rows] = bool(count) and self.shares.is_behind(int(events.times[-1]), now_ns)
        stretch.first_read_ns = stretch.first_read_ns or since
        stretch.rows.append(rows)
        stretch.events += count
        self.counting.read(stretch, events.times)
        self.logs.weigh(stretch, EVENT_BYTES * count)
        return rows

    def redispatch(self, events: Events, first_read_ns: int, now: float) -> Stretch:
        """Adds events that were counted before, as events behind (``replay.redispatch``).

        Returns their separate stretch; its ``left`` is 0 once all have new verdicts.
        """
        stretch = Stretch("", _NO_FILE, 0, 0, 0, now, whole=True, left=len(events), redispatched=Counter())
        rows = self.table.add(events, stretch, first_read_ns)
        self.table.redispatched[rows] = True
        self.table.attempts[rows] = 1  # so their outcome is not evidence about the datacentre they are left to
        self.table.behind[rows] = not self.shares.alike
        self.queues.take(rows, now)
        return stretch

    def room(self) -> bool:
        return self.logs.window_bytes < self.limits.window_bytes and self.queues.left < self.limits.left_events
