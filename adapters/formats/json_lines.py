"""JSON Lines: one JSON object a record.

A valid record is strict RFC 8259, UTF-8, at most 1,024 deep; the last of several equal names counts. A record whose
only fault is bytes inside strings that are not UTF-8 is readable too: its names and values are then the raw bytes,
and its payload is written as base64. Such a record must not hold escaped surrogates (they could not be told from raw
bytes). Most records are not parsed: their syntax is checked and the needed fields are extracted (msgspec), five times
as fast; the others are parsed (orjson). A number too big for a double matters only if its field is needed.

Keys and ids are strings, or integers of any size (canonical bytes: their decimal text, so ``12`` and ``"12"`` are the
same key). Floats, booleans, null, arrays, objects and the empty string cannot be keys or ids: BadRecord.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import msgspec

from photon.adapters.contract import BadRecord, ForeignHeader, Headers, LogFile
from photon.adapters.formats.base import SidePayloads, SideReader, TimeField, without
from photon.adapters.formats.cut_lines import I64
from photon.adapters.formats.json_check import are_bare, is_deep, is_json
from photon.adapters.formats.json_scan import KeyScan
from photon.adapters.formats.json_values import (
    MISSING,
    NumberText,
    encode,
    find,
    kind_of,
    list_bytes,
    name_bytes,
    number_finder,
    number_text,
    parse_object,
)
from photon.adapters.key_lists import list_of_keys
from photon.adapters.times import TimeReader

_QUICK_NAME = re.compile(r'[^"\\\x00-\x1f]+')
SCANNED_MIN = 16  # records from which on they are read as one block: fewer are faster one by one


class JsonLinesSide(SideReader):
    """Reads one side of JSON Lines. Only foreign headers need ``time`` and ``time_field``."""

    def __init__(
        self,
        key: str,
        id_field: str | None = None,
        time_field: TimeField = None,
        time: TimeReader | None = None,
        *,
        decimals: bool = False,
        lists: bool = False,
        absent: frozenset[bytes] = frozenset(),
    ) -> None:
        """``decimals``: a key may be any number, as written. ``lists``: a key is a list. ``absent``: values that
        mean that there is no key or id."""
        self._key = key
        self._decimals = decimals
        self._lists = lists
        self._absent = absent
        self._id = id_field
        self._time_field = time_field
        self._time = time
        self._scan = None if lists else KeyScan.for_field(key)
        one = time_field if isinstance(time_field, str) else None
        self._number = number_finder(one) if one else None
        self._quick = self._quick_raw = None
        if one and time is not None and not lists:
            self._quick = _quick_reader(key, one, id_field, str | int)
            self._quick_raw = _quick_reader(key, one, id_field, msgspec.Raw) if time.accepts_numbers else None
        self._quick_key = None if lists else _quick_key_reader(key)

    def key(self, record: bytes, file: LogFile) -> bytes:
        if self._quick_key is not None and record.isascii():
            try:
                name: str = self._quick_key(record).key
                if name and not self._absent:
                    return name.encode()
            except (ValueError, RecursionError):
                pass  # not text, or no such record
        return self._key_of(parse_object(record), record)

    def _key_of(self, fields: dict[str, Any], record: bytes) -> bytes:
        if self._lists:
            return list_of_keys(list_bytes(fields, self._key, record, decimals=self._decimals))
        return self._present(name_bytes(fields, self._key, "key", record, decimals=self._decimals), "key")

    def _present(self, value: bytes, role: str) -> bytes:
        """Returns ``value``. Raises BadRecord if it is configured to mean an absent value."""
        if value in self._absent:
            raise BadRecord(f"{role} field {(self._key if role == 'key' else self._id)!r} is absent")
        return value

    def header(self, record: bytes, file: LogFile) -> ForeignHeader:
        (header,) = self.headers((record,), file).rows()
        if isinstance(header, BadRecord):
            raise header
        return header

    def headers(self, records: Sequence[bytes], file: LogFile) -> Headers:
        """Extracts headers without parsing the whole record where possible; parses the other records."""
        time = None if self._time is None else self._time.of_file(file)
        return (
            self._quick_headers(records, time, self._quick)
            or self._quick_headers(records, time, self._quick_raw)
            or self._headers_one_by_one(records, time)
        )

    def _quick_headers(
        self, records: Sequence[bytes], time: TimeReader | None, quick: Quick | None
    ) -> Headers | None:
        """Extracts all headers without parsing whole records; returns ``None`` if a record must be parsed."""
        if quick is None or time is None or not records or not all(map(bytes.isascii, records)):
            return None
        decode, get = quick
        try:
            keys, times, ids = zip(*map(get, map(decode, records)), strict=True)
            if not (all(keys) and all(ids)):
                return None
            own: list[bytes | None] = [None] * len(ids) if self._id is None else list(map(str.encode, ids))
            named = list(map(str.encode, keys))
            if self._absent and not (self._absent.isdisjoint(named) and self._absent.isdisjoint(own)):
                return None
            read = time.many(times) if quick is self._quick else [time.from_text(_text_of(each)) for each in times]
            return Headers(named, read, own, {})
        except (ValueError, RecursionError):
            return None

    def _headers_one_by_one(self, records: Sequence[bytes], time: TimeReader | None) -> Headers:
        made: list[tuple[bytes, int, bytes | None]] = []
        others: dict[int, BadRecord] = {}
        quick = self._quick_raw or self._quick
        if quick is not None and time is not None:
            (decode, get), from_text = quick, time.from_text
            without_id = self._id is None
        for row, record in enumerate(records):
            if quick is not None:
                try:
                    key, at, event_id = get(decode(record))
                    if record.isascii() and key and event_id and type(at) is not int:
                        time_ns = from_text(at.encode() if type(at) is str else _text_of(at))
                        named, own = key.encode(), None if without_id else event_id.encode()
                        if not self._absent or (named not in self._absent and own not in self._absent):
                            made.append((named, time_ns, own))
                            continue
                except (ValueError, RecursionError):  # needs parsing, or has an invalid time
                    pass
            try:
                made.append(self._parsed_header(record, time))
            except BadRecord as bad:
                others[row] = bad
                made.append((b"", 0, None))
        return Headers.columns(made, others)

    def _parsed_header(self, record: bytes, time: TimeReader | None) -> ForeignHeader:
        fields = parse_object(record)
        key_bytes = self._key_of(fields, record)
        time_ns = self._time_ns(fields, record, time)
        if self._id is None:
            return ForeignHeader(key_bytes, time_ns)
        own = self._present(name_bytes(fields, self._id, "id", record), "id")
        return ForeignHeader(key_bytes, time_ns, own)

    def payload(self, record: bytes, file: LogFile) -> bytes | None:
        if not is_json(record):
            parse_object(record)  # raises, unless bytes that are not UTF-8 are the only fault
            return None
        if is_deep(record):
            return None
        text = record.strip(b" \t\r\n")
        # Between tokens a carriage return is white space, but some readers of the output take it for a line end.
        return text.replace(b"\r", b" ") if b"\r" in text else text

    def payloads(self, records: Sequence[bytes], files: Sequence[LogFile]) -> SidePayloads:
        return SidePayloads(records, {}) if are_bare(records) else super().payloads(records, files)

    def keys_of(self, records: Sequence[bytes], file: LogFile) -> list[bytes | None]:
        quick, out = self._quick_key, list[bytes | None]()
        # Of records that are JSON the scan's keys are more than candidates.
        if self._scan is not None and len(records) >= SCANNED_MIN and are_bare(records):
            return self.keys(b"\n".join(records) + b"\n", file)
        if quick is None:
            return super().keys_of(records, file)
        for record in records:  # like key()
            try:
                name: str = quick(record).key if record.isascii() else ""
            except (ValueError, RecursionError):
                name = ""
            out.append(name.encode() if name else self._key_or_none(record, file))
        return without(out, self._absent)

    def keys(self, block: bytes, file: LogFile) -> list[bytes | None]:
        if self._scan is None:
            return super().keys(block, file)
        return without(self._scan.keys(block, lambda record: self._key_or_none(record, file)), self._absent)

    def located_keys(self, block: bytes, file: LogFile) -> tuple[list[bytes | None], I64] | None:
        if self._scan is None:
            return None
        keys, places = self._scan.located(block, lambda record: self._key_or_none(record, file))
        return without(keys, self._absent), places

    def _time_ns(self, fields: dict[str, Any], record: bytes, time: TimeReader | None) -> int:
        name = self._time_field
        if time is None or name is None:
            raise BadRecord("no time field is configured for this side")
        if isinstance(name, tuple):
            try:
                return time.from_text(b" ".join([name_bytes(fields, each, "time", record) for each in name]))
            except ValueError as error:
                raise BadRecord(f"time field {', '.join(map(repr, name))} {error}") from None
        value = fields.get(name, MISSING)
        if value is MISSING:
            value = find(fields, name)
        kind = type(value)
        try:
            if kind is str:
                return time.from_text(encode(value))
            if time.accepts_numbers:
                if kind is int:
                    return time.from_int(value)
                if kind is float:
                    return time.from_text(number_text(self._number, name, record))
                if kind is NumberText:
                    return time.from_text(value.encode())
        except ValueError as error:
            raise BadRecord(f"time field {name!r} {error}") from None
        if value is MISSING:
            raise BadRecord(f"time field {name!r} is missing")
        wanted = "a number or text" if time.accepts_numbers else "text"
        raise BadRecord(f"time field {name!r} is {kind_of(value)}, not {wanted}")


Quick = tuple[Callable[[bytes], object], Callable[[object], tuple[str, Any, str]]]


def _text_of(raw: msgspec.Raw) -> bytes:
    """Returns a number's digits, or the text of a string without escapes, as in the record. Raises ValueError."""
    text = bytes(raw)
    if text[:1] != b'"':
        if text[:1] in b"-0123456789":
            return text
    elif b"\\" not in text:
        return text[1:-1]
    raise ValueError


def _quick_reader(key: str, time: str, event_id: str | None, kind: Any) -> Quick | None:
    """Returns (decoder of a record, getter of key, time and id). Without an id the key takes its place.

    ``None`` if a name has characters that this fast path does not support.

    Reads records with text in these fields, and a time of this kind: ``Raw`` keeps the digits of a number that is not
    whole. Raises ValueError or RecursionError for all others. As everywhere, the last of several equal names counts.
    """
    kinds: dict[str, Any] = {key: str, event_id or key: str}
    if time in kinds and kind is msgspec.Raw:
        return None
    kinds[time] = str if time in kinds else kind
    if not all(_QUICK_NAME.fullmatch(name) for name in kinds):
        return None
    places = {name: f"f{at}" for at, name in enumerate(kinds)}
    fields = [(places[name], kind) for name, kind in kinds.items()]
    rename = {place: name for name, place in places.items()}
    record = msgspec.defstruct("Record", fields, rename=rename, gc=False)
    return msgspec.json.Decoder(record).decode, attrgetter(places[key], places[time], places[event_id or key])


def _quick_key_reader(key: str) -> Callable[[bytes], Any] | None:
    """Returns a function that reads the text of the field ``key`` of the records that ``_quick_reader`` reads."""
    if not _QUICK_NAME.fullmatch(key):
        return None
    record = msgspec.defstruct("Record", [("key", str)], rename={"key": key}, gc=False)
    return msgspec.json.Decoder(record).decode
