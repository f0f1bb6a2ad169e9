"""What output lines say, as columns with one row a line."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec


@dataclass(slots=True)
class OutputRecords:
    """Columns of one length. None: the line has no such member."""

    offset: list[int] = field(default_factory=list)
    """Where the line begins, uncompressed bytes."""
    event_id: list[bytes | None] = field(default_factory=list)
    key: list[bytes | None] = field(default_factory=list)
    event_time_ns: list[int | None] = field(default_factory=list)
    foreign: list[bytes | None] = field(default_factory=list)
    """The payload's JSON text as it stands in the line; of a payload that is not UTF-8 a JSON string, its base64."""
    primary: list[bytes | None] = field(default_factory=list)
    reason: list[str | None] = field(default_factory=list)
    record: list[bytes | None] = field(default_factory=list)
    """The original record, of lines that are no join, without what is redacted; None too where it is withheld."""
    source_file: list[str | None] = field(default_factory=list)
    source_offset: list[int | None] = field(default_factory=list)
    primary_file: list[str | None] = field(default_factory=list)
    primary_offset: list[int | None] = field(default_factory=list)
    pair: list[int | None] = field(default_factory=list)
    """Of an event with a record for each primary event of its key: which one this is, from 1 on."""
    pairs: list[int | None] = field(default_factory=list)
    """How many it has. So the rows where both are the same, or neither is there, are one an event."""
    written_at: list[str | None] = field(default_factory=list)
    """joined_at or decided_at."""
    token: list[str | None] = field(default_factory=list)
    line: list[bytes | None] = field(default_factory=list)
    """The bytes of a line that is no output record, else None."""
    torn: list[str | None] = field(default_factory=list)
    """Why it is none; then all that it says is None."""


_ABSENT = msgspec.Raw()


class _Source(msgspec.Struct, frozen=True):
    file: str
    offset: int


class _Line(msgspec.Struct, frozen=True):
    source: _Source
    event_id: str | None = None
    event_id_raw_base64: str | None = None
    key: str | None = None
    key_raw_base64: str | None = None
    event_time_ns: int | None = None
    foreign: msgspec.Raw = _ABSENT
    foreign_raw_base64: msgspec.Raw = _ABSENT
    primary: msgspec.Raw = _ABSENT
    primary_raw_base64: msgspec.Raw = _ABSENT
    reason: str | None = None
    record: str | None = None
    record_raw_base64: str | None = None
    primary_source: _Source | None = None
    pair: int | None = None
    pairs: int | None = None
    joined_at: str | None = None
    decided_at: str | None = None
    token: str | None = None


_DECODER = msgspec.json.Decoder(_Line)


def decode(block: bytes, offset: int = 0) -> OutputRecords:
    """The rows of whole lines that begin at ``offset``. A bad line is a row, with ``torn``."""
    records = OutputRecords()
    for line in _lines(block):
        records.offset.append(offset)
        offset += len(line)
        try:
            _add(records, _DECODER.decode(line))
        except (msgspec.MsgspecError, ValueError, RecursionError) as bad:
            _add_torn(records, line, str(bad))
    return records


def _lines(block: bytes) -> Iterator[bytes]:
    lines = block.split(b"\n")
    last = lines.pop()
    for line in lines:
        yield line + b"\n"
    if last:
        yield last


def _add(records: OutputRecords, line: _Line) -> None:
    event_id, key, record = (
        _bytes(line.event_id, line.event_id_raw_base64),
        _bytes(line.key, line.key_raw_base64),
        _bytes(line.record, line.record_raw_base64),
    )
    found = line.primary_source
    records.event_id.append(event_id)
    records.key.append(key)
    records.record.append(record)
    records.event_time_ns.append(line.event_time_ns)
    records.foreign.append(_text(line.foreign, line.foreign_raw_base64))
    joined = line.reason is None  # an unmatched event among the joined ones has no primary record, not one of null
    records.primary.append(_text(line.primary, line.primary_raw_base64) if joined else None)
    records.reason.append(line.reason)
    records.source_file.append(line.source.file)
    records.source_offset.append(line.source.offset)
    records.primary_file.append(None if found is None else found.file)
    records.primary_offset.append(None if found is None else found.offset)
    records.pair.append(line.pair)
    records.pairs.append(line.pairs)
    records.written_at.append(line.joined_at or line.decided_at)
    records.token.append(line.token)
    records.line.append(None)
    records.torn.append(None)


def _add_torn(records: OutputRecords, line: bytes, why: str) -> None:
    said = (
        records.event_id, records.key, records.record, records.event_time_ns, records.foreign, records.primary,
        records.reason, records.source_file, records.source_offset, records.primary_file, records.primary_offset,
        records.pair, records.pairs, records.written_at, records.token,
    )  # fmt: skip
    for column in said:
        column.append(None)
    records.line.append(line)
    records.torn.append(why)


def _bytes(text: str | None, raw: str | None) -> bytes | None:
    if text is not None:
        return text.encode()
    return None if raw is None else b64decode(raw, validate=True)


def _text(plain: msgspec.Raw, raw: msgspec.Raw) -> bytes | None:
    return bytes(plain) or bytes(raw) or None
