"""JSON Lines: one JSON object a record.

A valid record is strict RFC 8259, UTF-8, at most 1,024 deep; the last of several equal names counts. A record whose
only fault is bytes inside strings that are not UTF-8 is readable too: its names and values are then the raw bytes,
and its payload is written as base64. Such a record must not hold escaped surrogates (they could not be told from raw
bytes). Most records are not parsed: their syntax is checked and the needed fields are extracted (msgspec), five times
as fast; the others are parsed (orjson). A number too big for a double harms no record unless its field is needed.

Keys and ids are strings, or integers of any size (canonical bytes: their decimal text, so ``12`` and ``"12"`` are the
same key). Floats, booleans, null, arrays, objects and the empty string name nothing: BadRecord.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, NoReturn

import msgspec
import orjson

from photon.adapters.contract import BadRecord, ForeignHeader, Headers, LogFile
from photon.adapters.formats.base import SidePayloads, SideReader, TimeField, without
from photon.adapters.formats.encodings import UTF16, looks_utf16
from photon.adapters.formats.json_check import are_bare, is_json
from photon.adapters.formats.json_scan import I64, KeyScan, escaped_spelling
from photon.adapters.times import TimeReader

REASON_CHARS_MAX = 200
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_PLAIN_NUMBER = rb"(-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)"
_QUICK_NAME = re.compile(r'[^"\\\x00-\x1f]+')
MISSING = object()  # the value of a field that a record does not have


class _NumberText(str):
    """The text of a JSON number, distinguished from a JSON string by its type."""

    __slots__ = ()


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
        absent: frozenset[bytes] = frozenset(),
    ) -> None:
        """``decimals``: a key may be any number; its text is taken as written.

        ``absent``: texts that are not accepted as key or id.
        """
        self._key = key
        self._decimals = decimals
        self._absent = absent
        self._id = id_field
        self._time_field = time_field
        self._time = time
        self._scan = KeyScan.for_field(key)
        one = time_field if isinstance(time_field, str) else None
        self._number = _number_finder(one) if one else None
        self._quick = _quick_reader(key, one, id_field) if time is not None and one else None
        self._quick_key = _quick_key_reader(key)

    def key(self, record: bytes, file: LogFile) -> bytes:
        if self._quick_key is not None and record.isascii():
            try:
                name: str = self._quick_key(record).key
                if name and not self._absent:
                    return name.encode()
            except (ValueError, RecursionError):
                pass  # no text, or no such record
        return self._present(
            name_bytes(parse_object(record), self._key, "key", record, decimals=self._decimals), "key"
        )

    def _present(self, value: bytes, role: str) -> bytes:
        """Raises BadRecord."""
        if value in self._absent:
            raise BadRecord(f"{role} field {(self._key if role == 'key' else self._id)!r} is absent")
        return value

    def header(self, record: bytes, file: LogFile) -> ForeignHeader:
        (header,) = self.headers((record,), file).rows()
        if isinstance(header, BadRecord):
            raise header
        return header

    def headers(self, records: Sequence[bytes], file: LogFile) -> Headers:
        """Extracts the headers of most records without parsing them whole; parses the others."""
        time = None if self._time is None else self._time.of_file(file)
        return self._quick_headers(records, time) or self._headers_one_by_one(records, time)

    def _quick_headers(self, records: Sequence[bytes], time: TimeReader | None) -> Headers | None:
        """Returns ``None`` if one of the records needs parsing."""
        if self._quick is None or time is None or not records or not all(map(bytes.isascii, records)):
            return None
        decode, get = self._quick
        try:
            keys, times, ids = zip(*map(get, map(decode, records)), strict=True)
            if not (all(keys) and all(ids)):
                return None
            own: list[bytes | None] = [None] * len(ids) if self._id is None else list(map(str.encode, ids))
            named = list(map(str.encode, keys))
            if self._absent and not (self._absent.isdisjoint(named) and self._absent.isdisjoint(own)):
                return None
            return Headers(named, time.many(times), own, {})
        except (ValueError, RecursionError):
            return None

    def _headers_one_by_one(self, records: Sequence[bytes], time: TimeReader | None) -> Headers:
        made: list[tuple[bytes, int, bytes | None]] = []
        others: dict[int, BadRecord] = {}
        quick = self._quick
        if quick is not None and time is not None:
            (decode, get), numbers, from_int, from_text = quick, time.accepts_numbers, time.from_int, time.from_text
            without_id = self._id is None
        for row, record in enumerate(records):
            if quick is not None:
                try:
                    key, at, event_id = get(decode(record))
                    if record.isascii() and key and event_id and (numbers or type(at) is str):
                        time_ns = from_int(at) if type(at) is int else from_text(at.encode())
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
        key_bytes = self._present(name_bytes(fields, self._key, "key", record, decimals=self._decimals), "key")
        time_ns = self._time_ns(fields, record, time)
        if self._id is None:
            return ForeignHeader(key_bytes, time_ns)
        own = self._present(name_bytes(fields, self._id, "id", record), "id")
        return ForeignHeader(key_bytes, time_ns, own)

    def payload(self, record: bytes, file: LogFile) -> bytes | None:
        if not is_json(record):
            parse_object(record)  # raises, unless bytes that are not UTF-8 are the only fault
            return None
        text = record.strip(b" \t\r\n")
        # Between tokens a carriage return is white space, but some readers of the output take it for a line end.
        return text.replace(b"\r", b" ") if b"\r" in text else text

    def payloads(self, records: Sequence[bytes], files: Sequence[LogFile]) -> SidePayloads:
        return SidePayloads(records, {}) if are_bare(records) else super().payloads(records, files)

    def keys_of(self, records: Sequence[bytes], file: LogFile) -> list[bytes | None]:
        quick, out = self._quick_key, list[bytes | None]()
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
                return time.from_text(_encode(value))
            if time.accepts_numbers:
                if kind is int:
                    return time.from_int(value)
                if kind is float:
                    return time.from_text(self._number_text(name, record))
                if kind is _NumberText:
                    return time.from_text(value.encode())
        except ValueError as error:
            raise BadRecord(f"time field {name!r} {error}") from None
        if value is MISSING:
            raise BadRecord(f"time field {name!r} is missing")
        wanted = "a number or text" if time.accepts_numbers else "text"
        raise BadRecord(f"time field {name!r} is {_kind_of(value)}, not {wanted}")

    def _number_text(self, name: str, record: bytes) -> bytes:
        """Returns the digits, as they are in the record, of a number that the parser made a float of.

        The pattern's match is right if the field's name occurs in the record once, and not even escaped elsewhere.
        """
        if self._number is not None:
            pattern, quoted, escaped = self._number
            if record.count(quoted) == 1 and not (b"\\u" in record and escaped.search(record)):
                match = pattern.search(record)
                if match:
                    return match[1]
        return str(find(_parse_slowly(record), name, _parse_slowly)).encode()


Quick = tuple[Callable[[bytes], object], Callable[[object], tuple[str, Any, str]]]


def _quick_reader(key: str, time: str, event_id: str | None) -> Quick | None:
    """Returns (decoder of a record, getter of key, time and id). Without an id the key takes its place.

    ``None`` if a name has characters that this fast path does not support.

    Reads records with text in these fields; the time may be an integer. Raises ValueError or RecursionError for all
    others. As everywhere, the last of several equal names counts.
    """
    kinds: dict[str, Any] = {key: str, event_id or key: str}
    kinds[time] = str if time in kinds else str | int
    if not all(_QUICK_NAME.fullmatch(name) for name in kinds):
        return None
    places = {name: f"f{at}" for at, name in enumerate(kinds)}
    fields = [(places[name], kind) for name, kind in kinds.items()]
    rename = {place: name for name, place in places.items()}
    record = msgspec.defstruct("Record", fields, rename=rename, gc=False)
    return msgspec.json.Decoder(record).decode, attrgetter(places[key], places[time], places[event_id or key])


def _quick_key_reader(key: str) -> Callable[[bytes], Any] | None:
    """Reads the text of the field ``key``, from the same records as ``_quick_reader``."""
    if not _QUICK_NAME.fullmatch(key):
        return None
    record = msgspec.defstruct("Record", [("key", str)], rename={"key": key}, gc=False)
    return msgspec.json.Decoder(record).decode


def parse_object(record: bytes) -> dict[str, Any]:
    """Returns the record's fields, with text that is not UTF-8 as surrogate escapes. Raises BadRecord."""
    try:
        value = orjson.loads(record)
    except orjson.JSONDecodeError as error:
        value = _parse_not_utf8(record, error)
    if type(value) is dict:
        return value
    raise BadRecord(f"is {_kind_of(value)}, not a JSON object")


def find(fields: dict[str, Any], name: str, parse: Callable[[bytes], dict[str, Any]] = parse_object) -> Any:
    """Returns the value at a field path, or MISSING. A field whose own name contains the dots comes first.

    The path goes through objects, and with ``parse`` through text that is a JSON object.
    """
    value = fields.get(name, MISSING)
    if value is not MISSING or "." not in name:
        return value
    at: Any = fields
    for part in name.split("."):
        if type(at) is str and at.lstrip().startswith("{"):
            try:
                at = parse(_encode(at))
            except BadRecord:
                return MISSING
        if not isinstance(at, dict):
            return MISSING
        at = at.get(part, MISSING)
    return at


def name_bytes(fields: dict[str, Any], name: str, role: str, record: bytes, *, decimals: bool = False) -> bytes:
    """Returns a key or id as canonical bytes; with ``decimals`` any number as written. Raises BadRecord."""
    value = fields.get(name, MISSING)
    if value is MISSING:
        value = find(fields, name)
    if type(value) is str:
        if value:
            return _encode(value)
        raise BadRecord(f"{role} field {name!r} is empty")
    if type(value) is int or type(value) is _NumberText:
        text = str(value)
    elif type(value) is float:
        text = str(find(_parse_slowly(record), name, _parse_slowly))  # an integer beyond 64 bits was read as a float
    else:
        text = ""
    if text.lstrip("-").isdigit():
        return (text if text.strip("-0") else "0").encode()
    if decimals and text:
        return text.encode()
    if value is MISSING:
        raise BadRecord(f"{role} field {name!r} is missing")
    raise BadRecord(f"{role} field {name!r} is {_kind_of(value)}, not text or an integer")


def _encode(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogateescape")


def _parse_not_utf8(record: bytes, error: orjson.JSONDecodeError) -> Any:
    """Parses a record that orjson refused, if its only fault is text that is not UTF-8. Raises BadRecord."""
    if not record.strip(b" \t\r\n"):
        raise BadRecord("is empty")
    try:
        record.decode()
    except UnicodeDecodeError:
        if looks_utf16(record):
            raise BadRecord(UTF16) from None
        if _SURROGATE.search(record):
            raise BadRecord("is not UTF-8 and has escaped surrogates") from None
        return _parse_slowly(record)
    raise BadRecord(UTF16 if looks_utf16(record) else f"is not JSON: {error}"[:REASON_CHARS_MAX])


def _parse_slowly(record: bytes) -> Any:
    """Parses with the standard library: numbers as text, bytes that are not UTF-8 as surrogate escapes."""
    try:
        return json.loads(
            record.decode("utf-8", "surrogateescape"),
            parse_float=_NumberText,
            parse_int=_NumberText,
            parse_constant=_refuse_constant,
        )
    except ValueError as error:
        reason = str(error).encode("utf-8", "backslashreplace").decode()
        raise BadRecord(f"is not JSON: {reason}"[:REASON_CHARS_MAX]) from None
    except RecursionError:
        raise BadRecord("is not JSON: nested too deeply") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")


def _number_finder(name: str) -> tuple[re.Pattern[bytes], bytes, re.Pattern[bytes]] | None:
    """Returns (pattern of the field with a number, quoted name, escaped spellings); ``None``: parse it slowly."""
    escaped = escaped_spelling(name)
    if escaped is None or "." in name:
        return None
    quoted = b'"' + name.encode() + b'"'
    return re.compile(re.escape(quoted) + rb"[ \t\r]*:[ \t\r]*" + _PLAIN_NUMBER), quoted, escaped


_KINDS = {dict: "an object", list: "an array", bool: "a boolean", type(None): "null", str: "text", int: "a number"}


def _kind_of(value: object) -> str:
    return _KINDS.get(type(value), "a number")


__all__ = ["MISSING", "JsonLinesSide", "find", "name_bytes", "parse_object"]
