"""Compares a published line with its source records: a pure function over their bytes.

The adapter computes id, key, time and payloads again, and a line is built from its answers as documented. The
published line must have the same bytes, except for the time and the process that wrote it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import orjson

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.containment import Fault, Guard, primary_keys_of
from photon.adapters.contract import Adapter, Filtered, ForeignHeader, Joined, LogFile, Pair, Pairs, Unpaired
from photon.adapters.envelope import NONE_INLINE, Envelope
from photon.adapters.faults import payload_fault
from photon.adapters.key_lists import names
from photon.adapters.logs.place_ids import place_id
from photon.batch.columns import DIGEST_BYTES
from photon.batch.events import Events, ForeignEvent
from photon.batch.records import PrimaryRecord, Records
from photon.verifier.published_lines import PublishedLine

JOINED, FILTERED, UNMATCHED = "joined", "filtered", "unmatched"
INLINE = "inline"  # unmatched events in ``joined``: only those records have a reason there
# The adapter's required answer for a pair of records, for each kind of line.
_ANSWER_OF = {JOINED: Joined, FILTERED: Filtered, UNMATCHED: Unpaired, INLINE: Unpaired}
_NO_DIGEST = bytes(DIGEST_BYTES)
SHOWN_MAX = 60  # bytes of a value shown in a difference


@dataclass
class SourceRecord:
    """A raw record, and the place where it was read now. ``file``: the file as the published line names it."""

    record: bytes
    file: LogFile
    offset: int
    read: Callable[[int, int], bytes]  # (offset, length) -> bytes of the log with the record
    header: ForeignHeader | None = None  # as the adapter reads it, from ``are_foreign`` on; ``None`` if it cannot

    @cached_property
    def place_id(self) -> bytes:
        """The event id that a record without its own id gets from its place."""
        return place_id(self.record, self.offset, self.read)

    @property
    def event_id(self) -> bytes | None:
        """The event's id; ``None`` if the adapter cannot read the record."""
        if self.header is None:
            return None
        own = self.header.event_id
        return own if own is not None else self.place_id


def are_foreign(adapter: Adapter, sources: Sequence[SourceRecord], lines: Sequence[PublishedLine]) -> list[bool]:
    """True for each record whose event id is its line's. Stores the records' headers in ``sources``."""
    guard = Guard(adapter)
    headers: object = None
    files = {source.file for source in sources}
    if type(adapter) is ConfiguredAdapter and len(files) == 1:
        records, file = [source.record for source in sources], files.pop()
        headers = guard.many(lambda: adapter.header_columns(records, file).rows())
    if not isinstance(headers, list):
        headers = guard.each(sources, lambda source: adapter.foreign_header(source.record, source.file))
    for source, header in zip(sources, headers, strict=True):
        source.header = header if isinstance(header, ForeignHeader) else None
    return [source.event_id == line.event_id for source, line in zip(sources, lines, strict=True)]


def are_primary(adapter: Adapter, sources: Sequence[SourceRecord], lines: Sequence[PublishedLine]) -> list[bool]:
    """True for each record whose key is its line's."""
    records = Records.of([PrimaryRecord(source.record, source.file, source.offset) for source in sources])
    keys = primary_keys_of(Guard(adapter), records)
    return [names(adapter, line.key, key) for line, key in zip(lines, keys, strict=True)]


def differences(
    lines: Sequence[PublishedLine],
    kind: str,
    foreign: Sequence[SourceRecord],
    primary: Sequence[SourceRecord | None],
    adapter: Adapter,
    envelope: Envelope,
) -> list[list[str]]:
    """Returns, for each line, a short text per differing member; none if the line is right.

    ``foreign`` and ``primary``: records that passed ``are_foreign`` and ``are_primary``. ``kind``: the output's
    directory. ``envelope``: an envelope without times and tokens.
    """
    out: list[list[str]] = [[] for _ in lines]
    if kind == JOINED and any(line.reason is not None for line in lines):
        for which in (JOINED, INLINE):
            rows = [row for row, line in enumerate(lines) if (line.reason is None) == (which == JOINED)]
            some = [lines[row] for row in rows], which, [foreign[row] for row in rows], [primary[row] for row in rows]
            for row, found in zip(rows, differences(*some, adapter, envelope), strict=True):
                out[row] = found
        return out
    rows, events, primaries = list[int](), list[ForeignEvent](), list[PrimaryRecord | None]()
    for row, (line, source, named) in enumerate(zip(lines, foreign, primary, strict=True)):
        if kind != JOINED and line.reason is None:
            out[row] = ["reason: is missing"]
        elif kind in (JOINED, FILTERED) and named is None:
            out[row] = ["primary_source: is missing"]
        else:
            rows.append(row)
            events.append(_event(source))
            primaries.append(None if named is None else PrimaryRecord(named.record, named.file, named.offset))
    made: list[bytes | str] = []
    if (wanted := _ANSWER_OF.get(kind)) is not None:
        # without events that have no primary one
        paired = [at for at, each in enumerate(primaries) if each is not None]
        pairs = [Pair(e.record, e.file, p.record, p.file) for e, p in zip(events, primaries, strict=True) if p]
        results = _answers(adapter, pairs)
        bad = {at: why for at, each in zip(paired, results, strict=True) if (why := _wrong(each, wanted))}
        for at, why in bad.items():
            out[rows[at]] = [why]
        if bad:
            right = [at for at in range(len(rows)) if at not in bad]
            rows, events = [rows[at] for at in right], [events[at] for at in right]
            primaries = [primaries[at] for at in right]
        if kind == JOINED:
            known = [each for each in primaries if each is not None]
            made = _joined(events, known, [each for each in results if isinstance(each, Joined)], envelope)
            made = [_as_pair(line, lines[row].pair) for row, line in zip(rows, made, strict=True)]
    if kind != JOINED:
        reasons = [lines[row].reason or "" for row in rows]
        alone, faults = _alone(adapter, events) if kind == INLINE else (NONE_INLINE, {})
        made += envelope.undone(Events.of(events), reasons, token=None, at_ns=0, primaries=primaries, inline=alone)
        made = [faults.get(at, line) for at, line in enumerate(made)]
    for row, line_now in zip(rows, made, strict=True):
        if isinstance(line_now, str):
            out[row] = [line_now]
        elif line_now != lines[row].body:
            out[row] = _fields(lines[row].body, line_now)
    return out


def _event(source: SourceRecord) -> ForeignEvent:
    header, own = source.header, source.event_id
    if header is None or own is None:
        raise ValueError("a record without a header")
    return ForeignEvent(
        own, _NO_DIGEST, header.event_time_ns, header.key, source.record, source.file, source.offset, 0
    )


def _answers(adapter: Adapter, pairs: list[Pair]) -> Sequence[object]:
    """Returns the adapter's present answer for each pair, or its fault."""
    guard = Guard(adapter)
    if type(adapter) is ConfiguredAdapter and pairs:
        made = guard.many(lambda: adapter.join_columns(Pairs(*zip(*pairs, strict=True))).rows())
        if isinstance(made, list):
            return made
    return guard.each(pairs, lambda each: adapter.join(*each))


def _joined(
    events: list[ForeignEvent], primaries: list[PrimaryRecord], results: list[Joined], envelope: Envelope
) -> list[bytes | str]:
    """Builds the lines; for one that cannot be built, returns the reason."""
    foreign, primary = [each.foreign for each in results], [each.primary for each in results]
    try:
        return [*envelope.joined(Events.of(events), Records.of(primaries), foreign, primary, token=0, at_ns=0)]
    except (TypeError, ValueError) as error:
        if len(events) == 1:
            return [f"the adapter's answer now cannot be written ({type(error).__name__})"]
    alone = zip(events, primaries, results, strict=True)  # so that one that cannot be written does not affect others
    return [line for event, found, result in alone for line in _joined([event], [found], [result], envelope)]


def _alone(adapter: Adapter, events: list[ForeignEvent]) -> tuple[dict[int, bytes | None], dict[int, str]]:
    """Returns the payloads of events without a primary event, and why some are unavailable, both by row."""
    given: Sequence[object] = Guard(adapter).each(
        events, lambda each: adapter.unmatched_payload(each.record, each.file)
    )
    faults = {
        at: f"the adapter has no payload now: {why}"
        for at, each in enumerate(given)
        if (why := each.reason if isinstance(each, Fault) else payload_fault(each)) is not None
    }
    return {at: each for at, each in enumerate(given) if at not in faults}, faults  # type: ignore[misc]


def _as_pair(line: bytes | str, pair: tuple[int, int] | None) -> bytes | str:
    """Adds an event's pair number to a built line: it cannot be computed from a single pair's records."""
    if pair is None or isinstance(line, str):
        return line
    return b'%b,"pair":%d,"pairs":%d}\n' % (line[:-2], *pair)


def _wrong(result: object, wanted: type[Joined] | type[Filtered] | type[Unpaired]) -> str:
    if isinstance(result, Fault):
        return f"the adapter has no answer now: {result.reason}"
    right = isinstance(result, wanted)
    return "" if right else f"the adapter's answer now is {type(result).__name__}, not {wanted.__name__}"


def _fields(published: bytes, made: bytes) -> list[str]:
    try:
        have, want = orjson.loads(published), orjson.loads(made)
    except orjson.JSONDecodeError:
        return ["the line is not JSON"]
    out = []
    for name in [*want, *(name for name in have if name not in want)]:
        if name not in have or name not in want or have[name] != want[name]:
            out += _value(name, have.get(name), want.get(name))
    return out or ["its bytes, though all values are alike"]


def _value(name: str, have: Any, want: Any) -> list[str]:
    if isinstance(have, dict) and isinstance(want, dict):
        names = [each for each in {**want, **have} if have.get(each) != want.get(each)]
        if names:
            return [f"{name}.{each} {_both(have.get(each), want.get(each))}" for each in names]
    return [f"{name} {_both(have, want)}"]


def _both(have: Any, want: Any) -> str:
    return f"is {_shown(have)}, its source gives {_shown(want)}"


def _shown(value: Any) -> str:
    text = orjson.dumps(value)
    return (text if len(text) <= SHOWN_MAX else text[:SHOWN_MAX] + b"...").decode("utf-8", "replace")
