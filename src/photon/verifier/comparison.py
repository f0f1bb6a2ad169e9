"""Whether a published line is what its source records make of it: a pure function over their bytes.

The adapter is asked again for id, key, time and payloads, and the documented line is put together from its answers;
the published one must have the same bytes, but for when it was made and by whom.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from photon.adapters.containment import Fault, Guard
from photon.adapters.contract import Adapter, Filtered, ForeignHeader, Joined, LogFile, Pair
from photon.adapters.envelope import Envelope
from photon.batch.columns import DIGEST_BYTES
from photon.batch.events import Events, ForeignEvent
from photon.batch.records import PrimaryRecord, Records
from photon.verifier.published_lines import PublishedLine

JOINED, FILTERED = "joined", "filtered"
_NO_DIGEST = bytes(DIGEST_BYTES)
SHOWN_MAX = 60
"""Bytes of a value that a difference shows."""


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """A raw record and where it was read now. The file has the name that the line gives it."""

    record: bytes
    file: LogFile
    offset: int
    identity: str
    """Of the log that holds it."""


def header_of(adapter: Adapter, source: SourceRecord) -> ForeignHeader | None:
    """What the adapter reads in a foreign record; None when it cannot."""
    try:
        header = adapter.foreign_header(source.record, source.file)
    except (Exception, SystemExit):  # whatever a user's code raises is about this record only
        return None
    return header if isinstance(header, ForeignHeader) else None


def id_of(header: ForeignHeader, source: SourceRecord) -> bytes:
    """An event without an id of its own has its log's identity and its offset."""
    own = header.event_id
    return own if own is not None else b"%b:%d" % (source.identity.encode(), source.offset)


def is_foreign(adapter: Adapter, source: SourceRecord, line: PublishedLine) -> bool:
    """Whether this record is the event that the line is about."""
    header = header_of(adapter, source)
    return header is not None and id_of(header, source) == line.event_id


def is_primary(adapter: Adapter, source: SourceRecord, line: PublishedLine) -> bool:
    """Whether this record is what the line's key names."""
    try:
        return adapter.primary_key(source.record, source.file) == line.key
    except (Exception, SystemExit):
        return False


def differences(
    line: PublishedLine,
    kind: str,
    foreign: SourceRecord,
    primary: SourceRecord | None,
    adapter: Adapter,
    envelope: Envelope,
) -> list[str]:
    """One short text for each member that differs; none: the line is right.

    ``foreign`` and ``primary`` are what ``is_foreign`` and ``is_primary`` hold of. ``kind``: the output's directory.
    ``envelope``: one that leaves out times and tokens.
    """
    header = header_of(adapter, foreign)
    if header is None:
        return ["the adapter cannot read the foreign record"]
    event = ForeignEvent(
        event_id=id_of(header, foreign),
        digest=_NO_DIGEST,
        event_time_ns=header.event_time_ns,
        key=header.key,
        record=foreign.record,
        file=foreign.file,
        offset=foreign.offset,
        unmatched_as_of_ns=0,
    )
    if kind == JOINED:
        if primary is None:
            return ["primary_source: is missing"]
        made = _joined(event, primary, adapter, envelope)
        if isinstance(made, str):
            return [made]
    else:
        if line.reason is None:
            return ["reason: is missing"]
        if kind == FILTERED and (why := _not_filtered(event, primary, adapter)):
            return [why]
        found = None if primary is None else _record(primary)
        (made,) = envelope.undone(Events.of([event]), [line.reason], token=None, at_ns=0, primaries=[found])
    return [] if made == line.body else _fields(line.body, made)


def _joined(event: ForeignEvent, primary: SourceRecord, adapter: Adapter, envelope: Envelope) -> bytes | str:
    """The line, or why there should be none."""
    result = _asked_to_join(event, primary, adapter)
    if isinstance(result, Fault):
        return _now(result)
    if not isinstance(result, Joined):
        return f"the adapter's answer now is {type(result).__name__}, not Joined"
    try:
        records = Records.of([_record(primary)])
        return envelope.joined(Events.of([event]), records, [result.foreign], [result.primary], token=0, at_ns=0)[0]
    except (TypeError, ValueError) as error:
        return f"the adapter's answer now cannot be written ({type(error).__name__})"


def _record(source: SourceRecord) -> PrimaryRecord:
    return PrimaryRecord(source.record, source.file, source.offset)


def _not_filtered(event: ForeignEvent, primary: SourceRecord | None, adapter: Adapter) -> str:
    if primary is None:
        return "primary_source: is missing"
    result = _asked_to_join(event, primary, adapter)
    if isinstance(result, Fault):
        return _now(result)
    return (
        "" if isinstance(result, Filtered) else f"the adapter's answer now is {type(result).__name__}, not Filtered"
    )


def _asked_to_join(event: ForeignEvent, primary: SourceRecord, adapter: Adapter) -> object:
    pair = Pair(event.record, event.file, primary.record, primary.file)
    (result,) = Guard(adapter).each([pair], lambda each: adapter.join(*each))
    return result


def _now(fault: Fault) -> str:
    return f"the adapter has no answer now: {fault.reason}"


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
