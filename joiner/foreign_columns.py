"""From blocks of a foreign log to events in columns. Pure.

Dispatchers read with it, and Spark's jobs: an id is derived in one place.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.containment import Fault, Guard
from photon.adapters.contract import Adapter, BadRecord, ForeignHeader, LogFile, Skipped
from photon.adapters.logs.api import Block
from photon.batch.events import Events
from photon.idregistry.api import Digester

_INT64 = 2**63


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A record without id, key or time."""

    offset: int
    record: bytes
    reason: str


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


def events_of(
    block: Block, records: list[bytes], offsets: list[int], adapter: Adapter, digester: Digester, as_of_ns: int = 0
) -> tuple[Events, list[Unreadable]]:
    """Some records of a block. Never raises for a record: what cannot be read is listed with its reason.

    ``as_of_ns``: of all of them (``Events.as_of``).
    """
    file = block.file
    headers = _headers(adapter, records, file)
    if type(adapter) is not ConfiguredAdapter:  # its headers are right by construction
        headers = list(map(_checked, headers))
    unreadable: list[Unreadable] = []
    if set(map(type, headers)) != {ForeignHeader}:
        good = []
        for at, header in enumerate(headers):
            if isinstance(header, ForeignHeader):
                good.append(at)
            elif not isinstance(header, Skipped):
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
    identity = block.identity.encode()
    ids = [
        h.event_id if h.event_id is not None else b"%b:%d" % (identity, offset)
        for h, offset in zip(known, offsets, strict=True)
    ]
    count = len(ids)
    events = Events(
        files=(file,),
        file_index=np.zeros(count, np.uint32),
        offsets=np.array(offsets, np.int64),
        times=np.array([header.event_time_ns for header in known], np.int64),
        digests=digester.digests(ids),
        keys=[header.key for header in known],
        ids=ids,
        records=records,
        as_of=np.full(count, as_of_ns, np.int64),
        generations=np.zeros(count, np.uint32),
    )
    return events, unreadable


def _headers(adapter: Adapter, records: list[bytes], file: LogFile) -> list[ForeignHeader | BadRecord]:
    guard = Guard(adapter)
    headers = guard.many(lambda: adapter.foreign_headers(records, file))
    if isinstance(headers, list) and len(headers) == len(records):
        return headers

    def ask(record: bytes) -> ForeignHeader | BadRecord:
        try:
            return adapter.foreign_header(record, file)
        except BadRecord as bad:
            return bad

    alone = guard.each(records, ask)  # tells which record it was
    late = [at for at, each in enumerate(alone) if isinstance(each, Fault) and each.hung]
    again = guard.each([records[at] for at in late], ask)  # a slow machine must not cost an event
    for at, answer in zip(late, again, strict=True):
        alone[at] = answer
    return [BadRecord(each.reason) if isinstance(each, Fault) else each for each in alone]


def _checked(answer: object) -> ForeignHeader | BadRecord:
    """What an adapter gave for a record, if it is what the contract says; else why this record is rejected."""
    if isinstance(answer, Skipped):
        return answer
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
