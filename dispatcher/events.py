"""Events on their way to a verdict, and the stretches of the logs that they stand in. Pure.

An ``Item`` is an event on its way to a verdict; a ``Stretch`` is a part of a log whose events are on their way
together, and over which the log's offset advances only when each of them has a verdict or stands in the retry store.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

from photon.adapters.contract import Adapter, LogFile
from photon.adapters.logs.api import Block
from photon.dispatcher.columns import Columns, Unreadable, columns_of
from photon.dispatcher.homes import NOBODY
from photon.dispatcher.ledger import Verdict, unknown_cell
from photon.dispatcher.replay.coverage import MAX_NS, MIN_NS, Span
from photon.idregistry.api import Digester
from photon.joiner.api import ForeignEvent, Outcome, TakenBy

REJECTED, LATE = "rejected", "late"
ITEM_BYTES = 600
"""Counted for each event in memory beside its record. Measured, with ids and keys of 31 bytes: 590."""


class Item:
    """An event without a verdict. ``stretch`` is None once it stands in the retry store, as ``row_id``."""

    __slots__ = (
        "attempts",
        "behind",
        "done",
        "event",
        "failed",
        "first_read_ns",
        "last",
        "left_to",
        "next_try_ns",
        "placed_at",
        "row_id",
        "settled",
        "stretch",
        "trigger_ns",
        "waiting",
    )

    def __init__(self, event: ForeignEvent, stretch: Stretch | None, first_read_ns: int) -> None:
        self.event = event
        self.stretch = stretch
        self.first_read_ns = first_read_ns  # wall clock; patience counts from here
        self.attempts = 0
        self.failed = 0  # tries in a row, the last ones, that gave no verdict though a primary event may be there
        self.behind = False  # fresh ones go before it
        self.done = False
        self.last: Outcome | None = None  # of its last attempt, which gave no verdict
        self.row_id = 0
        self.settled = False  # nothing in this run will give it a verdict
        self.waiting: WaitingGroup | None = None  # None: on its way, settled or done
        self.next_try_ns = 0
        self.trigger_ns = 0
        self.left_to = NOBODY  # the datacentre whose head start this attempt waits or has waited for
        self.placed_at = 0.0  # monotonic seconds; when it was an own event's turn


@dataclass(slots=True)
class Batch:
    """What goes to a joiner in one call. ``read_past_ns``: the primary's progress known when it was made."""

    items: list[Item]
    read_past_ns: int
    patient: bool = False
    """Of a question: what has no verdict waits on, for its home."""
    arrivals: int = 0
    """How many keys had arrived when it was made (``arrivals``)."""


@dataclass(slots=True)
class WaitingGroup:
    """Items that are tried again together. ``due``: monotonic seconds; ``trigger_ns``: or when that is read past."""

    items: list[Item]
    due: float
    trigger_ns: int
    left: int


@dataclass(frozen=True, slots=True)
class Retimed:
    """A line whose id was registered ``by`` somebody with another event time."""

    event_id: bytes
    file: str
    offset: int
    event_time_ns: int
    by: TakenBy


@dataclass(frozen=True, slots=True)
class Export:
    """A line for the rejected or the late log."""

    log: str
    line: bytes


@dataclass(slots=True)
class Stretch:
    """A part of a log, from ``begin`` to ``end``. ``cells``: ledger counts of what has a verdict here."""

    identity: str
    file: LogFile
    begin: int
    end: int
    seen_to: int  # lines before this offset were read before, and are counted
    read_at: float  # monotonic seconds
    proof: bytes = b""  # of a position at its end
    items: list[Item] = field(default_factory=list)
    left: int = 0  # items without a verdict
    settled: int = 0  # of them, those that get none in this run
    parked: int = 0  # of them, those that wait for their next try
    parked_at: float | None = None  # monotonic seconds; when the first one had to
    whole: bool = False  # all of its records have been added
    cells: Counter[int] = field(default_factory=Counter)
    exports: list[Export] = field(default_factory=list)
    weight: int = 0  # bytes of memory
    oldest_ns: int = MAX_NS  # event times of its records, if it has any
    newest_ns: int = MIN_NS
    back: bool = False  # it begins before the place up to which its log was read already
    anew: bool = False  # of a log that is another one than was counted; it is not known yet from where on
    spill: bool = False  # what is read again waits for it: what has no verdict becomes rows at once
    unread: list[tuple[int, bytes, str]] = field(default_factory=list)
    """While ``anew``: offset, bytes and reason of what is no record, to be rejected if it was not counted before."""
    again: Counter[int] | None = None
    """Of a stretch whose events were read and counted before, and which no log waits for: what became of them now."""

    def counted(self, verdict: int) -> int:
        """What the ledger says of an event of this stretch that has this verdict."""
        if self.again is None:
            return verdict
        self.again[verdict] += 1
        return Verdict.REREAD

    def overlaps(self, other: Stretch) -> bool:
        """Some of their lines stand at the same offsets."""
        return self.begin < other.end and other.begin < self.end

    def saw(self, columns: Columns) -> None:
        """These records stand here."""
        if len(columns):
            self.oldest_ns = min(self.oldest_ns, *columns.event_times)
            self.newest_ns = max(self.newest_ns, *columns.event_times)

    def passed(self) -> Span:
        """The log's offset is behind it. For the state's record of which chunk holds which times; a log that is read
        in parts is one log there."""
        self.items = []  # they name it and it names them, and the garbage collector, which would free them, is rare
        return Span(self.identity.partition("@")[0], self.begin, self.end, self.oldest_ns, self.newest_ns)


@dataclass(slots=True)
class OpenLog:
    """The stretches of one log that are not behind its offset, in order."""

    stretches: deque[Stretch] = field(default_factory=deque)
    end: int = 0  # the highest offset this log was ever read up to
    anew: bool = False
    """Its bytes before ``end`` are not those that were read then, at least not all of them."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """The records of a block. ``events`` in the order of the log."""

    events: list[ForeignEvent]
    unreadable: list[Unreadable]


def parse(
    block: Block, records: list[bytes], offsets: list[int], adapter: Adapter, digester: Digester, as_of_ns: int
) -> Parsed:
    """Events of some records of a block. Never raises for a record: what cannot be read is listed with its reason."""
    columns, unreadable = columns_of(block, records, offsets, adapter, digester)
    return Parsed(columns.events(as_of_ns), unreadable)


def stretch_of(block: Block, read_at: float, seen_to: int) -> Stretch:
    """The whole block's stretch, its records still to be added."""
    weight = len(block.data) + sum(len(o.head) for o in block.oversized)
    back = block.offset < seen_to
    if back:
        seen_to = _whole_to(block, seen_to)
    return Stretch(
        block.identity, block.file, block.offset, block.end, seen_to, read_at, block.proof, weight=weight, back=back
    )


def _whole_to(block: Block, seen_to: int) -> int:
    """Where the record begins within which ``seen_to`` lies: as it stands now, it was not seen."""
    at = seen_to - block.offset
    ends = block.data[at - 1 : at + 1]
    if at >= len(block.data) or b"\n" in ends or block.data[at : at + 2] == b"\r\n":
        return seen_to
    return block.offset + block.data.rfind(b"\n", 0, at) + 1


def add_rejected(stretch: Stretch, line: bytes) -> None:
    """Counts and exports a record that has no id or time: it is rejected by the dispatcher itself."""
    stretch.cells[unknown_cell(Verdict.REJECTED)] += 1
    stretch.cells[unknown_cell(Verdict.READ)] += 1
    stretch.exports.append(Export(REJECTED, line))
