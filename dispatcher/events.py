"""Stretches of the logs whose events are processed together, and batches for joiners. Pure.

The log's offset advances over a ``Stretch`` only when each of its events has a verdict or is in the retry store.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from photon.adapters.contract import LogFile
from photon.adapters.logs.api import Block
from photon.batch.columns import I64, U8, RowIndexes
from photon.batch.events import Events
from photon.dispatcher.ledger import Verdict, unknown_cell
from photon.dispatcher.limits import Limits
from photon.dispatcher.replay.coverage import MAX_NS, MIN_NS, Span
from photon.idregistry.api import Kind

REJECTED, LATE = "rejected", "late"
LATE_REASON = "its event time is older than what the registry still remembers"
EVENT_BYTES = 600  # counted for each event in memory, in addition to its record


@dataclass(slots=True, eq=False)
class Batch:
    """Events sent to a joiner in one call, or looked up together: ``rows`` of ``OpenEvents``, which are ``events``.

    ``read_past_ns``: the primary's progress known when it was made.
    """

    rows: RowIndexes
    events: Events
    read_past_ns: int
    patient: bool = False  # of a question: events without a verdict go on waiting for their home
    arrivals: int = 0  # number of keys that had arrived when it was made (``arrivals``)
    stretches: Sequence[Stretch] = ()  # of a question about a whole reading: its stretches

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def repeated(self) -> bool:
        """True if the events of its stretches may be counted, or be waiting in the retry store."""
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
    counted_to: int  # lines before this offset were read before, and are counted
    read_at: float  # monotonic seconds
    proof: bytes = b""  # of a position at its end
    number: int = 0  # greater than those of all stretches begun before
    rows: list[RowIndexes] = field(default_factory=list)  # rows of its events; a finished event no longer has its row
    first_read_ns: int = 0  # of its events
    events: int = 0
    left: int = 0  # events without a verdict
    settled: int = 0  # of these, events that get none in this run
    parked: int = 0  # of these, events that wait for their next try
    parked_at: float | None = None  # monotonic seconds; when the first one began to wait
    whole: bool = False  # all of its records have been added, and may be processed
    cells: Counter[int] = field(default_factory=Counter)
    exports: list[Export] = field(default_factory=list)
    weight: int = 0  # bytes of memory
    oldest_ns: int = MAX_NS  # least event time of its records, if it has any
    newest_ns: int = MIN_NS
    repeated: bool = False  # it begins before the offset up to which its log was already read
    rewritten: bool = False  # its log differs from the counted one; it is not known yet from where on
    diverged: bool = False  # such a log diverges from the counted one here, or before
    store_now: bool = False  # a reread log waits for it: events without a verdict become rows at once
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
        """Returns the stretch for the record of chunks and times, after the log's offset moved past it.

        A log that is read in parts is one log there.
        """
        return Span(self.identity.partition("@")[0], self.begin, self.end, self.oldest_ns, self.newest_ns)


@dataclass(slots=True)
class OpenLog:
    """The stretches of one log that are not before its offset, in order."""

    stretches: deque[Stretch] = field(default_factory=deque)
    end: int = 0  # the highest offset this log was ever read up to
    rewritten: bool = False  # the bytes before ``end`` are no longer, or not all, those that were read


def stretch_of(block: Block, read_at: float, counted_to: int, number: int) -> Stretch:
    """Returns a stretch for the whole block, with its records still to be added."""
    weight = len(block.data) + sum(len(o.head) for o in block.oversized)
    repeated = block.offset < counted_to
    if repeated:
        counted_to = _whole_to(block, counted_to)
    return Stretch(
        block.identity,
        block.file,
        block.offset,
        block.end,
        counted_to,
        read_at,
        block.proof,
        number,
        weight=weight,
        repeated=repeated,
    )


def _whole_to(block: Block, counted_to: int) -> int:
    """Returns the start of the record that contains ``counted_to``: in its present form it was not seen."""
    at = counted_to - block.offset
    ends = block.data[at - 1 : at + 1]
    if at >= len(block.data) or b"\n" in ends or block.data[at : at + 2] == b"\r\n":
        return counted_to
    return block.offset + block.data.rfind(b"\n", 0, at) + 1


def add_rejected(stretch: Stretch, line: bytes) -> None:
    """Counts and exports a record that has no id or time: the dispatcher itself rejects it."""
    stretch.cells[unknown_cell(Verdict.REJECTED)] += 1
    stretch.cells[unknown_cell(Verdict.READ)] += 1
    stretch.exports.append(Export(REJECTED, line))


HELD_LONG = 10  # factor for how much longer a stretch with events on their way is held before they become rows too
# Share of a stretch's events that is not waited for if finished work waits for it and memory is short.
STRAGGLERS = 0.25


class Storing:
    """Decides when events become rows. ``once``: the run ends with the logs, so reading pauses instead."""

    def __init__(self, limits: Limits, *, once: bool) -> None:
        self._limits = limits
        self._once = once
        self._hold_s = limits.hold_once_s if once else limits.hold_s

    def may(self, stretch: Stretch, behind: Iterable[Stretch], window_bytes: int, now: float) -> bool:
        """True if the first stretch of a log is held no longer. ``behind``: the log's later ones, in order."""
        pressed = not self._once and window_bytes > self._limits.hold_bytes
        if pressed and now - stretch.read_at >= self._hold_s and _holds_back(stretch, behind):
            return True
        if stretch.parked_at is None:
            return False  # all of it is on its way: rows would cost more than the remaining work
        held = now - stretch.parked_at
        if stretch.left == stretch.settled + stretch.parked:
            return not stretch.parked or pressed or held >= self._hold_s
        return held >= HELD_LONG * self._hold_s


def _holds_back(stretch: Stretch, behind: Iterable[Stretch]) -> bool:
    """True if a few stragglers block more finished work than there is in this stretch itself."""
    if stretch.left > stretch.events * STRAGGLERS:
        return False
    done = 0
    for later in behind:
        if later.whole and not later.left:
            done += later.weight
            if done > stretch.weight:
                return True
    return False
