"""Reads lines of output logs into columns, with payloads copied byte for byte. Pure; needs no pyspark."""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as Base64Error
from dataclasses import dataclass
from itertools import accumulate

import msgspec

from photon.config.decoding import Int64

TORN_BYTES_MAX = 1 << 20  # bytes shown of a line that is not an output record
NUMBER_MAX = 1 << 31  # bound of pair numbers: more than any event has
NOTHING = msgspec.Raw()


class _Place(msgspec.Struct, frozen=True, gc=False):
    file: str
    offset: Int64


class _Line(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    event_id: str | None = None
    event_id_raw_base64: str | None = None
    key: str | None = None
    key_raw_base64: str | None = None
    event_time_ns: Int64 | None = None
    registered_ns: Int64 | None = None  # replaces the event time in all decisions of the registry
    foreign: msgspec.Raw = NOTHING
    foreign_raw_base64: msgspec.Raw = NOTHING
    primary: msgspec.Raw = NOTHING
    primary_raw_base64: msgspec.Raw = NOTHING
    reason: str | None = None
    # null means withheld, as its redacted parts cannot be located
    record: str | msgspec.UnsetType | None = msgspec.UNSET
    record_raw_base64: str | None = None
    source: _Place | None = None
    primary_source: _Place | None = None
    pair: int | None = None
    pairs: int | None = None
    joined_at: str | None = None
    decided_at: str | None = None
    token: str | None = None


class _LineWithMore(_Line, frozen=True, gc=False, forbid_unknown_fields=False):
    """A line with members that Photon never writes."""


_decode = msgspec.json.Decoder(_Line).decode
_decode_with_more = msgspec.json.Decoder(_LineWithMore).decode
_TOKEN = re.compile("[0-9a-f]{16}")


class NoRecord(ValueError):
    """A line that is not an output record. ``str()`` gives the reason."""


class OutputLine(msgspec.Struct, frozen=True, gc=False):
    """The content of a line; ``None`` for members that it lacks."""

    event_id: bytes | None
    key: bytes | None
    event_time_ns: int | None
    registered_ns: int | None  # its time in the registry, which is another one with ``time = "primary"``
    foreign: bytes | None  # JSON text as in the line; if the record is not UTF-8 its base64, with the quotes
    primary: bytes | None
    record: bytes | None  # the original record of unjoined lines; None also if it is withheld
    reason: str | None
    source: tuple[str, int] | None
    primary_source: tuple[str, int] | None
    written_at: str | None
    token: str | None
    # Which of the ``pairs`` records it is, of an event that is joined with all primary events of its key
    pair: int | None = None
    pairs: int | None = None
    added: bool = False  # True if it has unexpected members


def read_output_line(line: bytes, kind: str) -> OutputLine:
    """Reads one line without its newline, from a log of this kind. Raises NoRecord."""
    try:
        try:
            said = _decode(line)
        except msgspec.ValidationError:
            said = _decode_with_more(line)
        event_id = _bytes(said.event_id, said.event_id_raw_base64)
        key = _bytes(said.key, said.key_raw_base64)
        record = _bytes(None if said.record is msgspec.UNSET else said.record, said.record_raw_base64)
        foreign = bytes(said.foreign) or bytes(said.foreign_raw_base64) or None
        primary = bytes(said.primary) or bytes(said.primary_raw_base64) or None
    except (msgspec.MsgspecError, Base64Error, ValueError, RecursionError) as error:
        raise NoRecord(str(error)) from None
    known = (event_id is not None) + (key is not None) + (said.event_time_ns is not None)
    if said.source is None:
        raise NoRecord("has no source")
    if kind == "joined" and not _is_production(said):
        if said.reason is not None and bytes(said.primary) == b"null":  # an unmatched event, written by a left join
            primary = None
        elif primary is None or said.primary_source is None:
            foreign = None
        if known < 3 or foreign is None:
            raise NoRecord("lacks members of a joined record")
    elif kind != "joined" and (
        said.reason is None or (record is None and said.record is not None) or known not in (0, 3)
    ):
        raise NoRecord(f"lacks members of a record in {kind}")
    if said.token is not None and not _TOKEN.fullmatch(said.token):
        raise NoRecord("its token is invalid")
    if (said.pair, said.pairs) != (None, None) and not 1 <= (said.pair or 0) <= (said.pairs or 0) < NUMBER_MAX:
        raise NoRecord(f"is pair {said.pair} of {said.pairs}")
    return OutputLine(
        event_id,
        key,
        said.event_time_ns,
        said.event_time_ns if said.registered_ns is None else said.registered_ns,
        foreign,
        primary,
        record,
        said.reason,
        (said.source.file, said.source.offset),
        None if said.primary_source is None else (said.primary_source.file, said.primary_source.offset),
        said.joined_at or said.decided_at,
        said.token,
        said.pair,
        said.pairs,
        isinstance(said, _LineWithMore) or _is_of_another_kind(said, kind),
    )


def _is_of_another_kind(said: _Line, kind: str) -> bool:
    """True if the line has members that only lines of another kind have."""
    if kind == "joined":
        return said.decided_at is not None or said.record is not msgspec.UNSET or said.record_raw_base64 is not None
    payloads = (said.foreign, said.foreign_raw_base64, said.primary, said.primary_raw_base64)
    return said.joined_at is not None or said.pairs is not None or any(map(bytes, payloads))


def _is_production(said: _Line) -> bool:
    """True if the line is from a stream that computations publish: it has a value and its time, and its id names its
    source."""
    source = said.source
    known = (
        source is not None and said.event_id == f"{source.file}:{source.offset}" and said.event_time_ns is not None
    )
    joined = (said.key, said.key_raw_base64, said.primary_source, said.token) != (None, None, None, None)
    return known and not joined and bool(bytes(said.foreign)) and not bytes(said.primary)


def _bytes(text: str | None, base64: str | None) -> bytes | None:
    if text is not None:
        return text.encode()
    return None if base64 is None else b64decode(base64, validate=True)


@dataclass(slots=True)
class OutputColumns:
    """Lines of one file, in order; a torn line has only an offset, ``line`` and ``torn``."""

    offsets: list[int]
    lines: list[OutputLine | None]
    torn: list[str | None]
    raw: list[
        bytes | None
    ]  # each line without its newline; a row without a line has the reason why the file is incomplete


def read_output_lines(data: bytes, offset: int, kind: str) -> OutputColumns:
    """Reads whole lines; the first one begins at ``offset``."""
    raw = data.split(b"\n")
    raw.pop()
    offsets = list(accumulate((len(line) + 1 for line in raw), initial=offset))[:-1]
    try:
        return OutputColumns(offsets, [read_output_line(line, kind) for line in raw], [None] * len(raw), [*raw])
    except NoRecord:
        read = [_line_or_why(line, kind) for line in raw]
        lines = [each if isinstance(each, OutputLine) else None for each in read]
        return OutputColumns(offsets, lines, [each if isinstance(each, str) else None for each in read], [*raw])


def _line_or_why(line: bytes, kind: str) -> OutputLine | str:
    try:
        return read_output_line(line, kind)
    except NoRecord as why:
        return str(why)
