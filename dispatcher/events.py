"""From blocks of a log to events: records, offsets, headers, ids, digests. Pure.

An ``Item`` is an event on its way to a verdict; a ``Stretch`` is a part of a log whose events are on their way
together, and over which the log's offset advances only when each of them has a verdict or stands in the retry store.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import accumulate

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import Adapter, BadRecord, ForeignHeader, LogFile
from photon.adapters.logs.api import Block
from photon.dispatcher.homes import NOBODY
from photon.dispatcher.ledger import Verdict, unknown_cell
from photon.idregistry.api import DIGEST_BYTES, Digester
from photon.joiner.api import ForeignEvent
from photon.joiner.verdicts import describe

REJECTED, LATE = "rejected", "late"
ITEM_BYTES = 400
"""Counted for each event in memory beside its record."""
_INT64 = 2**63


class Item:
    """An event without a verdict. ``stretch`` is None once it stands in the retry store, as ``row_id``."""

    __slots__ = (
        "attempts",
        "done",
        "event",
        "first_read_ns",
        "left_to",
        "next_try_ns",
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
        self.done = False
        self.row_id = 0
        self.settled = False  # nothing in this run will give it a verdict
        self.waiting: WaitingGroup | None = None  # None: on its way, settled or done
        self.next_try_ns = 0
        self.trigger_ns = 0
        self.left_to = NOBODY  # the datacentre whose head start this attempt waits or has waited for


@dataclass(slots=True)
class WaitingGroup:
    """Items that are tried again together. ``due``: monotonic seconds; ``trigger_ns``: or when that is read past."""

    items: list[Item]
    due: float
    trigger_ns: int
    left: int


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
    items: list[Item] = field(default_factory=list)
    left: int = 0  # items without a verdict
    settled: int = 0  # of them, those that get none in this run
    parked: int = 0  # of them, those that wait for their next try
    parked_at: float | None = None  # monotonic seconds; when the first one had to
    whole: bool = False  # all of its records have been added
    cells: Counter[int] = field(default_factory=Counter)
    exports: list[Export] = field(default_factory=list)
    weight: int = 0  # bytes of memory


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A record without id, key or time."""

    offset: int
    record: bytes
    reason: str


@dataclass(frozen=True, slots=True)
class Parsed:
    """The records of a block. ``events`` in the order of the log."""

    events: list[ForeignEvent]
    unreadable: list[Unreadable]


def records_of(block: Block) -> tuple[list[bytes], list[int]]:
    """Records without line ends, and their offsets. Blank lines are no records."""
    lines = block.data.split(b"\n")
    lines.pop()
    ends = accumulate(map(len, lines))
    offsets = [block.offset]
    offsets += [block.offset + end + i for i, end in enumerate(ends, 1)]
    offsets.pop()
    if b"\r" in block.data:
        lines = [line.removesuffix(b"\r") for line in lines]
    if b"" in lines:
        kept = [i for i, line in enumerate(lines) if line]
        return [lines[i] for i in kept], [offsets[i] for i in kept]
    return lines, offsets


def parse(
    block: Block, records: list[bytes], offsets: list[int], adapter: Adapter, digester: Digester, as_of_ns: int
) -> Parsed:
    """Events of some records of a block. Never raises for a record: what cannot be read is listed with its reason."""
    file, identity = block.file, block.identity
    headers = _headers(adapter, records, file)
    if type(adapter) is not ConfiguredAdapter:  # its headers are right by construction
        headers = list(map(_checked, headers))
    unreadable: list[Unreadable] = []
    if set(map(type, headers)) != {ForeignHeader}:
        good = []
        for at, header in enumerate(headers):
            if isinstance(header, ForeignHeader):
                good.append(at)
            else:
                unreadable.append(Unreadable(offsets[at], records[at], header.reason))
        records, offsets = [records[i] for i in good], [offsets[i] for i in good]
        headers = [headers[i] for i in good]
    known: list[ForeignHeader] = headers  # type: ignore[assignment]  # all others were taken out
    bad = [at for at, h in enumerate(known) if not -_INT64 <= h.event_time_ns < _INT64]
    if bad:
        unreadable += [Unreadable(offsets[at], records[at], "the event time is out of range") for at in bad]
        gone = set(bad)
        keep = [at for at in range(len(known)) if at not in gone]
        records, offsets, known = ([column[at] for at in keep] for column in (records, offsets, known))  # type: ignore[assignment]
    ids = [
        h.event_id if h.event_id is not None else b"%b:%d" % (identity.encode(), offset)
        for h, offset in zip(known, offsets, strict=True)
    ]
    digests = digester.digests(ids)
    events = [
        ForeignEvent(
            event_id, digests[at : at + DIGEST_BYTES], h.event_time_ns, h.key, record, file, offset, as_of_ns
        )
        for event_id, at, h, record, offset in zip(
            ids, range(0, len(digests), DIGEST_BYTES), known, records, offsets, strict=True
        )
    ]
    return Parsed(events, unreadable)


def _headers(adapter: Adapter, records: list[bytes], file: LogFile) -> list[ForeignHeader | BadRecord]:
    try:
        headers = adapter.foreign_headers(records, file)
        if len(headers) == len(records):
            return headers
    except (Exception, SystemExit):  # user code: one record at a time tells which one it was
        pass
    return [_header(adapter, record, file) for record in records]


def _header(adapter: Adapter, record: bytes, file: LogFile) -> ForeignHeader | BadRecord:
    try:
        return adapter.foreign_header(record, file)
    except (Exception, SystemExit) as error:
        return BadRecord(describe(error))


def _checked(answer: object) -> ForeignHeader | BadRecord:
    """What an adapter gave for a record, if it is what the contract says; else why this record is rejected."""
    if isinstance(answer, BadRecord):
        return BadRecord(str(answer.reason))
    if not isinstance(answer, ForeignHeader):
        return BadRecord(f"the adapter's foreign_headers gave a {type(answer).__name__}, not a ForeignHeader")
    event_id = b"-" if answer.event_id is None else answer.event_id
    fields: tuple[tuple[str, object, type], ...]
    fields = (("key", answer.key, bytes), ("event_time_ns", answer.event_time_ns, int), ("event_id", event_id, bytes))
    for name, value, kind in fields:
        if type(value) is not kind:
            return BadRecord(f"the adapter's {name} is {type(value).__name__}, not {kind.__name__}")
    if answer.event_id == b"":
        return BadRecord("the adapter's event_id is empty; an event without an id of its own has None")
    return answer


def stretch_of(block: Block, read_at: float, seen_to: int) -> Stretch:
    """The whole block's stretch, its records still to be added."""
    weight = len(block.data) + sum(len(o.head) for o in block.oversized)
    return Stretch(block.identity, block.file, block.offset, block.end, seen_to, read_at, weight=weight)


def add_rejected(stretch: Stretch, line: bytes) -> None:
    """Counts and exports a record that has no id or time: it is rejected by the dispatcher itself."""
    stretch.cells[unknown_cell(Verdict.REJECTED)] += 1
    stretch.cells[unknown_cell(Verdict.READ)] += 1
    stretch.exports.append(Export(REJECTED, line))
