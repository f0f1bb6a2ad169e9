"""Decodes output lines into columns, with one row per line."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any

import msgspec

from photon.config.decoding import Int64


@dataclass(slots=True)
class OutputRecords:
    """Columns of equal length. ``None`` means that the line has no such member."""

    offset: list[int] = field(default_factory=list)  # the line's first byte, in uncompressed bytes
    event_id: list[bytes | None] = field(default_factory=list)
    key: list[bytes | None] = field(default_factory=list)
    event_time_ns: list[int | None] = field(default_factory=list)
    # The payload's JSON text as in the line; if the payload is not UTF-8, a JSON string with its base64.
    foreign: list[bytes | None] = field(default_factory=list)
    primary: list[bytes | None] = field(default_factory=list)
    reason: list[str | None] = field(default_factory=list)
    # The original record of unjoined lines, without redacted parts; None also if it is withheld.
    record: list[bytes | None] = field(default_factory=list)
    source_file: list[str | None] = field(default_factory=list)
    source_offset: list[int | None] = field(default_factory=list)
    primary_file: list[str | None] = field(default_factory=list)
    primary_offset: list[int | None] = field(default_factory=list)
    # If an event has a record per primary event of its key: this record's number, from 1 on.
    pair: list[int | None] = field(default_factory=list)
    # The number of such records. Rows where both are equal, or both missing, are one per event.
    pairs: list[int | None] = field(default_factory=list)
    written_at: list[str | None] = field(default_factory=list)  # joined_at or decided_at
    token: list[str | None] = field(default_factory=list)
    line: list[bytes | None] = field(
        default_factory=list
    )  # the bytes of a line that is not an output record, else None
    torn: list[str | None] = field(default_factory=list)  # why it is not a record; then all other members are None


_ABSENT = msgspec.Raw()


class _Source(msgspec.Struct, frozen=True):
    file: str
    offset: Int64


class _Line(msgspec.Struct, frozen=True):
    source: _Source
    event_id: str | None = None
    event_id_raw_base64: str | None = None
    key: str | None = None
    key_raw_base64: str | None = None
    event_time_ns: Int64 | None = None
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
_SAYS_NOTHING = (None,) * (len(fields(OutputRecords)) - len(("offset", "line", "torn")))


def decode(block: bytes, offset: int = 0) -> OutputRecords:
    """Decodes whole lines, of which the first is at ``offset``. A bad line is a row with ``torn``."""
    rows: list[tuple[Any, ...]] = []
    for line in _lines(block):
        try:
            rows.append(_row(offset, _DECODER.decode(line)))
        except (msgspec.MsgspecError, ValueError, RecursionError) as bad:
            rows.append((offset, *_SAYS_NOTHING, line, str(bad)))
        offset += len(line)
    return OutputRecords(*map(list, zip(*rows, strict=True)))


def _lines(block: bytes) -> Iterator[bytes]:
    lines = block.split(b"\n")
    last = lines.pop()
    for line in lines:
        yield line + b"\n"
    if last:
        yield last


def _row(offset: int, line: _Line) -> tuple[Any, ...]:
    """Returns a row, in the order of the columns."""
    found = line.primary_source
    joined = line.reason is None  # an unmatched event among joined ones has no primary record, rather than null
    return (
        offset,
        _bytes(line.event_id, line.event_id_raw_base64),
        _bytes(line.key, line.key_raw_base64),
        line.event_time_ns,
        _text(line.foreign, line.foreign_raw_base64),
        _text(line.primary, line.primary_raw_base64) if joined else None,
        line.reason,
        _bytes(line.record, line.record_raw_base64),
        line.source.file,
        line.source.offset,
        None if found is None else found.file,
        None if found is None else found.offset,
        line.pair,
        line.pairs,
        line.joined_at or line.decided_at,
        line.token,
        None,
        None,
    )


def _bytes(text: str | None, raw: str | None) -> bytes | None:
    if text is not None:
        return text.encode()
    return None if raw is None else b64decode(raw, validate=True)


def _text(plain: msgspec.Raw, raw: msgspec.Raw) -> bytes | None:
    return bytes(plain) or bytes(raw) or None
