"""Stretches of logs, whose events are committed together, and batches for joiners. Pure.

The log's offset advances over a ``Stretch`` only when each of its events has a verdict or is in the retry store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from photon.adapters.contract import LogFile
from photon.batch.columns import I64, U8, RowIndexes
from photon.batch.events import Events
from photon.dispatcher.ledger import Verdict
from photon.dispatcher.replay.coverage import MAX_NS, MIN_NS, Span
from photon.idregistry.api import Kind

REJECTED, LATE = "rejected", "late"
LATE_REASON = "its event time is older than what the registry still remembers"
EVENT_BYTES = 600  # counted for each event in memory, in addition to its record


@dataclass(slots=True, eq=False)
class Batch:
    """Events sent to a joiner in one call, or looked up together: the ``events`` in these ``rows`` of ``OpenEvents``.

    ``read_past_ns``: how far the primary logs were known to be read when the batch was made.
    """

    rows: RowIndexes
    events: Events
    read_past_ns: int
    patient: bool = False  # in a look-up: events without a verdict keep waiting for their home
    arrivals: int = 0  # number of keys that had arrived when it was made (``arrivals``)
    stretches: Sequence[Stretch] = ()  # of a look-up of a whole reading

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def repeated(self) -> bool:
        """True if this rereads a log: its events may have been counted, or wait in the retry store."""
        return bool(self.stretches) and self.stretches[0].repeated


@dataclass(frozen=True, slots=True)
class Retimed:
    event_id: bytes
    file: str
    offset: int
    event_time_ns: int
    registered_ns: int
    datacentre: str
    kind: Kind
    token: int  # 0 if unknown


@dataclass(frozen=True, slots=True)
class Export:
    """A line for the rejected or the late log."""

    log: str
    line: bytes


@dataclass(slots=True, eq=False)
class Stretch:
    """A part of a log, from ``begin`` to ``end``. ``cells``: its counts for the ledger."""

    identity: str
    file: LogFile
    begin: int
    end: int
    counted_to: int  # lines before this offset were read before and are already counted
    read_at: float  # monotonic seconds
    proof: bytes = b""  # of a position at its end
    number: int = 0  # greater than those of all stretches begun before
    rows: list[RowIndexes] = field(default_factory=list)  # rows of its events; a finished event no longer has its row
    first_read_ns: int = 0  # first read of its events, wall clock
    events: int = 0
    left: int = 0  # events without a verdict
    settled: int = 0  # of these, events that will get none in this run
    waiting: int = 0  # of these, events that wait for their next try
    waiting_since: float | None = None  # monotonic seconds; when the first one began to wait
    whole: bool = False  # all of its records are added and may be processed
    cells: Counter[int] = field(default_factory=Counter)
    exports: list[Export] = field(default_factory=list)
    weight: int = 0  # bytes of memory
    oldest_ns: int = MAX_NS  # least event time of its records, if it has any
    newest_ns: int = MIN_NS
    repeated: bool = False  # it begins before the offset up to which its log was already read
    rewritten: bool = False  # its log differs from the counted one, from a place not yet known
    diverged: bool = False  # such a log diverges from the counted one here, or before
    store_now: bool = False  # a repeated log waits for it: events without a verdict become rows at once
    # While ``rewritten``: offset, bytes and reason of invalid lines, to be rejected if they were not counted before.
    unread: list[tuple[int, bytes, str]] = field(default_factory=list)
    # For events that were read and counted before, and that no log waits for: their new outcomes.
    redispatched: Counter[int] | None = None

    def counted(self, verdicts: U8) -> U8:
        """Returns the ledger's columns for events of this stretch with these verdicts."""
        if self.redispatched is None:
            return verdicts
        self.redispatched.update(verdicts.tolist())
        return np.full_like(verdicts, Verdict.REREAD)

    def overlaps(self, other: Stretch) -> bool:
        return self.begin < other.end and other.begin < self.end

    def saw(self, times: I64) -> None:
        if len(times):
            self.oldest_ns = min(self.oldest_ns, int(times.min()))
            self.newest_ns = max(self.newest_ns, int(times.max()))

    def passed(self) -> Span:
        """Returns the span that ``replay.coverage`` records for a passed stretch. Parts of one log have one identity
        there.
        """
        return Span(self.identity.partition("@")[0], self.begin, self.end, self.oldest_ns, self.newest_ns)
