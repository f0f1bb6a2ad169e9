"""Parses blocks of a foreign log into columns of events. Pure.

Dispatchers and Spark jobs both use it, so that ids are derived in one place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple, cast

import numpy as np

from photon.adapters.computed_twice import compare, rows_due
from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.containment import Fault, Guard
from photon.adapters.contract import Adapter, BadRecord, ForeignHeader, Headers, LogFile, Retry, Skipped
from photon.adapters.faults import KEY_BYTES_MAX, key_fault, printed
from photon.adapters.logs.api import Block
from photon.adapters.logs.place_ids import place_ids
from photon.batch.events import Events
from photon.idregistry.api import Digester

_INT64 = 2**63


@dataclass(frozen=True, slots=True)
class Unreadable:
    offset: int
    record: bytes
    reason: str


class EventsRead(NamedTuple):
    """The result of ``events_of``."""

    events: Events
    unreadable: list[Unreadable]
    placed: bool  # True if some have no id of their own (``place_ids``)


def records_of(block: Block) -> tuple[list[bytes], list[int]]:
    """Returns the records without line ends, and their offsets. Blank lines are skipped."""
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
) -> EventsRead:
    """Parses some records of a block into events.

    Never raises for a record: unreadable ones are listed with their reasons. Raises Retry if the machine cannot
    answer now, and AdapterError if the adapter's answers for the same bytes differ (``adapters.computed_twice``) or
    if there is none.

    ``as_of_ns``: one time for all events (``Events.as_of``).
    """
    keys, times, ids, others = headers_of(records, block.file, adapter)
    unreadable = []
    if others:
        bad = [(at, other) for at, other in sorted(others.items()) if not isinstance(other, Skipped)]
        unreadable = [Unreadable(offsets[at], records[at], other.reason) for at, other in bad]
        kept = [at for at in range(len(records)) if at not in others]
        records, offsets = [records[at] for at in kept], [offsets[at] for at in kept]
        keys, times, ids = [keys[at] for at in kept], [times[at] for at in kept], [ids[at] for at in kept]
    placed = None in ids
    if placed:
        ids = _with_places(block, records, offsets, ids)
    own = cast("list[bytes]", ids)
    count = len(own)
    events = Events(
        files=(block.file,),
        file_index=np.zeros(count, np.uint32),
        offsets=np.array(offsets, np.int64),
        times=np.array(times, np.int64),
        digests=digester.digests(own),
        keys=keys,
        ids=own,
        records=records,
        as_of=np.full(count, as_of_ns, np.int64),
        generations=np.zeros(count, np.uint32),
    )
    return EventsRead(events, unreadable, placed)


def headers_of(records: list[bytes], file: LogFile, adapter: Adapter) -> Headers:
    """Returns the adapter's keys, times and ids. Records that violate the adapter's contract are in ``others``.

    Raises Retry.
    """
    headers = _headers(adapter, records, file)
    if type(adapter) is not ConfiguredAdapter:  # its headers are right by construction
        headers = _checked(headers)
    times = headers.times
    if times and not -_INT64 <= min(times) <= max(times) < _INT64:
        late = "the event time is out of range"
        beyond = (at for at, time_ns in enumerate(times) if not -_INT64 <= time_ns < _INT64)
        headers = headers._replace(others={**dict.fromkeys(beyond, BadRecord(late)), **headers.others})
    return headers


def _with_places(
    block: Block, records: list[bytes], offsets: list[int], ids: Sequence[bytes | None]
) -> list[bytes | None]:
    """Returns the ids; a record without one gets its place as id."""
    rows = [row for row, event_id in enumerate(ids) if event_id is None]
    made = place_ids(
        block.data, block.offset, block.before, [records[row] for row in rows], [offsets[row] for row in rows]
    )
    filled = list(ids)
    for row, event_id in zip(rows, made, strict=True):
        filled[row] = event_id
    return filled


def _headers(adapter: Adapter, records: list[bytes], file: LogFile) -> Headers:
    guard, count = Guard(adapter), len(records)
    columns: object = None
    if type(adapter) is ConfiguredAdapter:
        columns = guard.many(lambda: adapter.header_columns(records, file))
    elif adapter.defines("header_columns"):  # otherwise this equals the loop below
        columns = guard.many(lambda own: adapter.header_columns(own, file), records)
    if isinstance(columns, Headers) and _fits(columns, count):
        if type(adapter) is not ConfiguredAdapter:
            _compare_forms(guard, adapter, records, file, "header_columns", columns)
        return columns

    # tells which record was at fault
    alone = guard.each(records, lambda record: _alone(adapter, record, file), ends=True)
    faults = {at: each for at, each in enumerate(alone) if isinstance(each, Fault)}
    if away := next((each.reason for each in faults.values() if each.retry), ""):
        raise Retry(away)
    # A slow machine must not cost an event.
    late = [at for at, each in faults.items() if each.hung]
    again = guard.each([records[at] for at in late], lambda record: _alone(adapter, record, file))
    for at, answer in (*faults.items(), *zip(late, again, strict=True)):
        alone[at] = BadRecord(answer.reason) if isinstance(answer, Fault) else answer
    made = _in_columns(alone)
    if type(adapter) is not ConfiguredAdapter and not faults:
        _compare_forms(guard, adapter, records, file, "foreign_header", made)
    return made


def _compare_forms(
    guard: Guard, adapter: Adapter, records: list[bytes], file: LogFile, form: str, columns: Headers
) -> None:
    """Raises AdapterError if a record's header differs when it is computed for that record alone."""
    rows = rows_due(adapter, "foreign", len(records))
    alone = guard.each([records[at] for at in rows], lambda record: _alone(adapter, record, file))
    for at, answer in zip(rows, alone, strict=True):
        if isinstance(answer, ForeignHeader | BadRecord):  # others were rejected as invalid
            one = columns.others.get(at) or ForeignHeader(columns.keys[at], columns.times[at], columns.ids[at])
            compare(adapter, file, form, one, answer)


def _alone(adapter: Adapter, record: bytes, file: LogFile) -> ForeignHeader | BadRecord:
    try:
        return adapter.foreign_header(record, file)
    except BadRecord as bad:
        return bad


def _in_columns(made: Sequence[object]) -> Headers:
    """Returns the headers as columns. An invalid value is replaced by its fault."""
    if set(map(type, made)) == {ForeignHeader}:
        return Headers.columns(cast("Sequence[ForeignHeader]", made), {})
    return Headers.of(
        [
            each
            if isinstance(each, ForeignHeader | BadRecord)
            else BadRecord(f"the adapter's foreign_header gave a {type(each).__name__}, not a ForeignHeader")
            for each in made
        ]
    )


def _fits(headers: Headers, count: int) -> bool:
    others = headers.others
    rows = isinstance(others, Mapping) and all(type(at) is int and 0 <= at < count for at in others)
    aligned = all(isinstance(column, list | tuple) and len(column) == count for column in headers[:3])
    return rows and aligned and all(isinstance(other, BadRecord) for other in others.values())


def _checked(headers: Headers) -> Headers:
    """Returns the headers without values that violate the adapter's contract; their records are rejected."""
    keys, times, ids, others = headers
    right = set(map(type, keys)) <= {bytes} and b"" not in keys and set(map(type, times)) <= {int}
    right = right and max(map(len, keys), default=0) <= KEY_BYTES_MAX
    if right and not others and set(map(type, ids)) <= {bytes, type(None)} and b"" not in ids:
        return headers
    found = {}
    for at, header in enumerate(zip(keys, times, ids, strict=True)):
        if at in others:
            bad = others[at]
            found[at] = bad if isinstance(bad, Skipped) else BadRecord(printed(bad.reason))
        elif fault := _fault(*header):
            found[at] = BadRecord(fault)
    times = [0 if at in found else time_ns for at, time_ns in enumerate(times)]
    return Headers(keys, times, ids, found)


def _fault(key: object, event_time_ns: object, event_id: object) -> str:
    if fault := key_fault(key):
        return fault
    own = b"-" if event_id is None else event_id
    fields: tuple[tuple[str, object, type], ...]
    fields = (("event_time_ns", event_time_ns, int), ("event_id", own, bytes))
    for name, value, kind in fields:
        if type(value) is not kind:
            return f"the adapter's {name} is {type(value).__name__}, not {kind.__name__}"
    return "" if event_id != b"" else "the adapter's event_id is empty; an event without an id of its own has None"
