"""The values of a JSON record: parsing, paths to a field, and the canonical bytes of a key or id. Pure."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import orjson

from photon.adapters.contract import BadRecord
from photon.adapters.formats.encodings import UTF16, looks_utf16
from photon.adapters.formats.json_scan import escaped_spelling

REASON_CHARS_MAX = 200
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_PLAIN_NUMBER = rb"(-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)"
LEVELS = 200  # of a parsed line. It can be written within several others, as orjson writes ORJSON_LEVELS at most.
ORJSON_LEVELS = 254
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[{\]}]|-?[0-9][-+.0-9eE]*', re.DOTALL)
MISSING = object()  # the value of a field that a record does not have


class NumberText(str):
    """The text of a JSON number, distinguished from a JSON string by its type."""

    __slots__ = ()


def parse_object(record: bytes) -> dict[str, Any]:
    """Returns the record's fields, with text that is not UTF-8 as surrogate escapes. Raises BadRecord."""
    try:
        value = orjson.loads(record)
    except orjson.JSONDecodeError as error:
        value = _parse_not_utf8(record, error)
    if type(value) is dict:
        return value
    raise BadRecord(f"is {kind_of(value)}, not a JSON object")


def parse_line(line: bytes) -> Any:
    """Parses JSON that ``is_json`` accepts, or an output line that contains it. JSON and msgpack can hold the result.

    Integers beyond 64 bits become floats. Numbers beyond the range of a float (1e999), and values more than
    ``LEVELS`` deep, become the text of their JSON, because infinity could not be written back. Raises ValueError if
    ``line`` is not JSON.
    """
    try:
        value = orjson.loads(line)
        if line.count(b"[") + line.count(b"{") > LEVELS:  # otherwise it is not deep
            probe = value
            for _ in range(ORJSON_LEVELS - LEVELS):
                probe = [probe]
            orjson.dumps(probe)  # raises if it is too deep: much faster than counting here
        return value
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        return orjson.loads(_with_text(line))


def _with_text(line: bytes) -> bytes:
    """Quotes the numbers and values that ``parse_line`` returns as text. Raises ValueError."""
    out: list[bytes] = []
    level = begin = done = 0
    for token in _TOKEN.finditer(line):
        sign, (start, end) = token[0][:1], token.span()
        level += (sign in b"[{") - (sign in b"]}")
        if sign in b"[{" and level == LEVELS + 1:
            begin = start
        is_deep = sign in b"]}" and level == LEVELS
        if is_deep or (level <= LEVELS and sign not in b'"[{]}' and math.isinf(float(token[0]))):
            begin = begin if is_deep else start
            out += line[done:begin], orjson.dumps(line[begin:end].decode())
            done = end
    return b"".join((*out, line[done:]))


def find(fields: dict[str, Any], name: str, parse: Callable[[bytes], dict[str, Any]] = parse_object) -> Any:
    """Returns the value at a field path, or MISSING. A field whose own name contains the dots comes first.

    The path leads through objects, and through text that ``parse`` reads as an object.
    """
    value = fields.get(name, MISSING)
    if value is not MISSING or "." not in name:
        return value
    at: Any = fields
    for part in name.split("."):
        if type(at) is str and at.lstrip().startswith("{"):
            try:
                at = parse(encode(at))
            except BadRecord:
                return MISSING
        if not isinstance(at, dict):
            return MISSING
        at = at.get(part, MISSING)
    return at


def name_bytes(fields: dict[str, Any], name: str, role: str, record: bytes, *, decimals: bool = False) -> bytes:
    """Returns a key or id as canonical bytes; with ``decimals``, any number as written. Raises BadRecord."""
    value = fields.get(name, MISSING)
    if value is MISSING:
        value = find(fields, name)
    if type(value) is float:
        value = find(parse_slowly(record), name, parse_slowly)  # an integer beyond 64 bits was read as a float
    return _value_bytes(value, name, role, decimals=decimals)


def list_bytes(fields: dict[str, Any], name: str, record: bytes, *, decimals: bool = False) -> list[bytes]:
    """Returns the members of a list at a field path, or of lists along it, as keys. Raises BadRecord.

    A value that is in no list is the only member. Null, missing and empty members are left out.
    """
    values = list(_members(fields, name.split(".")))
    if float in map(type, values):
        values = list(_members(parse_slowly(record), name.split(".")))
    return [_value_bytes(each, name, "key", decimals=decimals) for each in values if each not in (None, "")]


def _members(at: Any, path: Sequence[str]) -> Iterator[Any]:
    """Yields the values at ``path``; a field whose own name contains the dots comes first, as in ``find``."""
    if not path:
        yield at
    elif isinstance(at, dict):
        whole = ".".join(path)
        name, rest = (whole, ()) if whole in at else (path[0], path[1:])
        found = at.get(name)
        for each in found if isinstance(found, list) else (found,):
            yield from _members(each, rest)


def _value_bytes(value: object, name: str, role: str, *, decimals: bool) -> bytes:
    if type(value) is str:
        if value:
            return encode(value)
        raise BadRecord(f"{role} field {name!r} is empty")
    text = str(value) if type(value) is int or type(value) is NumberText else ""
    if text.lstrip("-").isdigit():
        return (text if text.strip("-0") else "0").encode()
    if decimals and text:
        return text.encode()
    if value is MISSING:
        raise BadRecord(f"{role} field {name!r} is missing")
    raise BadRecord(f"{role} field {name!r} is {kind_of(value)}, not text or an integer")


def encode(text: str) -> bytes:
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
        return parse_slowly(record)
    raise BadRecord(UTF16 if looks_utf16(record) else f"is not JSON: {error}"[:REASON_CHARS_MAX])


def parse_slowly(record: bytes) -> Any:
    """Parses with the standard library: numbers as text, bytes that are not UTF-8 as surrogate escapes."""
    try:
        return json.loads(
            record.decode("utf-8", "surrogateescape"),
            parse_float=NumberText,
            parse_int=NumberText,
            parse_constant=_refuse_constant,
        )
    except ValueError as error:
        reason = str(error).encode("utf-8", "backslashreplace").decode()
        raise BadRecord(f"is not JSON: {reason}"[:REASON_CHARS_MAX]) from None
    except RecursionError:
        raise BadRecord("is not JSON: nested too deeply") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


NumberFinder = tuple[re.Pattern[bytes], bytes, re.Pattern[bytes]]


def number_finder(name: str) -> NumberFinder | None:
    """Returns (pattern of the field and its number, its quoted name, pattern of escaped spellings).

    ``None`` means that records must be parsed slowly."""
    escaped = escaped_spelling(name)
    if escaped is None or "." in name:
        return None
    quoted = b'"' + name.encode() + b'"'
    return re.compile(re.escape(quoted) + rb"[ \t\r]*:[ \t\r]*" + _PLAIN_NUMBER), quoted, escaped


def number_text(finder: NumberFinder | None, name: str, record: bytes) -> bytes:
    """Returns a number's digits as in the record, for a number that the parser turned into a float.

    The pattern's match counts only if the name occurs once in the record, and nowhere in an escaped spelling.
    """
    if finder is not None:
        pattern, quoted, escaped = finder
        if record.count(quoted) == 1 and not (b"\\u" in record and escaped.search(record)):
            match = pattern.search(record)
            if match:
                return match[1]
    return str(find(parse_slowly(record), name, parse_slowly)).encode()


_KINDS = {dict: "an object", list: "an array", bool: "a boolean", type(None): "null", str: "text", int: "a number"}


def kind_of(value: object) -> str:
    return _KINDS.get(type(value), "a number")
