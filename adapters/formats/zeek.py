r"""Zeek's tab-separated logs, whose own header lines name columns, types and marks.

``#separator \x09``, ``#set_separator``, ``#empty_field``, ``#unset_field``, ``#fields`` and ``#types`` come before
the records, and again in mid-file after a restart or where files were concatenated: each record is read by the header
in force at its position (``LogFile.header``; ``logs.zeek_framing`` takes header lines out of the records and keeps
it). ``#path``, ``#open`` and ``#close`` change nothing.

An unset field (``-``) is absent: left out of the payload, and not accepted as key, id or time. An empty one
(``(empty)``) is an empty string, set or vector. ``\xNN`` and ``\\`` are unescaped in values after the marks were
checked: Zeek writes a value that is itself ``-`` as ``\x2d``. The payload has numbers, booleans, and arrays for sets
and vectors according to ``#types``, with the digits of numbers unchanged; values that are not UTF-8 become
``NAME_raw_base64``.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import orjson

from photon.adapters.contract import BadRecord, LogFile
from photon.adapters.formats.base import LAYOUTS_MAX, FieldsSide, TimeField, column_places
from photon.adapters.formats.delimited import DelimitedSide
from photon.adapters.times import TimeReader

NUMBERS = frozenset({b"count", b"int", b"double", b"time", b"interval", b"port"})
_ESCAPE = re.compile(rb"\\(?:x([0-9a-fA-F]{2})|(\\))")
_JSON_NUMBER = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_OF = re.compile(rb"(?:set|vector|table)\[(.*)\]")
_BOOLEANS = {b"T": b"true", b"F": b"false"}


@dataclass(frozen=True, slots=True)
class ZeekLayout:
    """The columns and marks that a header declares. ``fault``: why its records cannot be read."""

    separator: bytes = b"\t"
    set_separator: bytes = b","
    empty: bytes = b"(empty)"
    unset: bytes = b"-"
    names: tuple[bytes, ...] = ()
    types: tuple[bytes, ...] = ()
    places: Mapping[str, int] = field(default_factory=dict)
    fault: str = ""


class ZeekSide(FieldsSide[tuple[ZeekLayout, list[bytes]]]):
    def __init__(
        self, key: str, id_field: str | None = None, time_field: TimeField = None, time: TimeReader | None = None
    ) -> None:
        super().__init__(key, id_field, time_field, time)
        self._known = lru_cache(LAYOUTS_MAX)(self._read_header)

    def payload(self, record: bytes, file: LogFile) -> bytes | None:
        layout, fields = self._fields(record, file)
        members = []
        for name, kind, text in zip(layout.names, layout.types, fields, strict=True):
            if text == layout.unset:
                continue
            value = _value(text, kind, layout)
            if value is None:
                members.append(_string(name + b"_raw_base64") + b":" + _string(b64encode(unescaped(text))))
            else:
                members.append(_string(name) + b":" + value)
        return b"{" + b",".join(members) + b"}"

    def keys(self, block: bytes, file: LogFile) -> list[bytes | None]:
        """Returns each record's key. Splits the whole block at once if the separator is one byte."""
        layout, cutter = self._known(file.header)
        if layout.fault or cutter is None:
            return super().keys(block, file)
        keys = cutter.keys(block, file)
        marks = {layout.unset, layout.empty}
        if b"\\" not in block and marks.isdisjoint(keys):
            return keys
        return [None if key is None or key in marks else (unescaped(key) or None) for key in keys]

    def _fields(self, record: bytes, file: LogFile) -> tuple[ZeekLayout, list[bytes]]:
        layout, _ = self._known(file.header)
        if layout.fault:
            raise BadRecord(layout.fault)
        fields = record.split(layout.separator)
        if len(fields) == len(layout.names):
            return layout, fields
        if not record:
            raise BadRecord("is empty")
        if record.startswith(b"#"):
            raise BadRecord("is a header line")
        raise BadRecord(f"has {len(fields)} fields, not {len(layout.names)}")

    def _value(self, fields: tuple[ZeekLayout, list[bytes]], role: str) -> bytes:
        layout, texts = fields
        text = texts[layout.places[role]]
        if text == layout.unset:
            shown = text.decode("utf-8", "backslashreplace")
            raise BadRecord(f"{role} field {self._names[role]!r} is unset ({shown})")
        if not text or text == layout.empty:
            raise BadRecord(f"{role} field {self._names[role]!r} is empty")
        return unescaped(text)

    def _read_header(self, header: bytes) -> tuple[ZeekLayout, DelimitedSide | None]:
        layout = read_layout(header, self._names)
        if layout.fault or len(layout.separator) != 1:
            return layout, None
        columns = tuple(f"{at}" for at in range(len(layout.names)))
        key = f"{layout.places['key']}"
        return layout, DelimitedSide(key, delimiter=layout.separator, quote=b"", columns=columns, ended=False)


def read_layout(header: bytes, wanted: Mapping[str, str]) -> ZeekLayout:
    """Returns the layout described by header lines (``#…``, separated by newlines). ``wanted``: role -> its field."""
    separator, marks = b"\t", {b"set_separator": b",", b"empty_field": b"(empty)", b"unset_field": b"-"}
    names: tuple[bytes, ...] = ()
    types: tuple[bytes, ...] = ()
    for line in header.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        line = line.removesuffix(b"\r")
        if line.startswith(b"#separator "):
            separator = unescaped(line.removeprefix(b"#separator "))
            if not separator:
                break
            continue
        directive, _, rest = line[1:].partition(separator)
        if directive == b"fields":
            names = tuple(rest.split(separator))
        elif directive == b"types":
            types = tuple(rest.split(separator))
        elif directive in marks:
            marks[directive] = unescaped(rest) if directive == b"set_separator" else rest
    places = column_places(names, wanted)
    fault = ""
    if not separator or b"\n" in separator:
        fault = "header: #separator is empty, or is a line end"
    elif not names:
        fault = "no #fields line comes before this record"
    elif types and len(types) != len(names):
        fault = f"header: #types has {len(types)} columns, #fields {len(names)}"
    elif isinstance(places, str):
        fault = places
    return ZeekLayout(
        separator,
        marks[b"set_separator"],
        marks[b"empty_field"],
        marks[b"unset_field"],
        names,
        types or (b"string",) * len(names),
        {} if isinstance(places, str) else places,
        fault,
    )


def zeek_row(record: bytes, header: bytes) -> dict[str, str | int]:
    """Returns the set fields of a record, as text; empty if the record does not fit the header."""
    layout = read_layout(header, {})
    fields = [] if layout.fault else record.split(layout.separator)
    if layout.fault or len(fields) != len(layout.names):
        return {}
    return {
        name.decode("utf-8", "replace"): unescaped(text).decode("utf-8", "replace")
        for name, text in zip(layout.names, fields, strict=True)
        if text not in (layout.unset, layout.empty)
    }


def unescaped(text: bytes) -> bytes:
    r"""Unescapes ``\xNN`` and ``\\``; any other backslash is literal."""
    if b"\\" not in text:
        return text
    return _ESCAPE.sub(lambda m: bytes([int(m[1], 16)]) if m[1] else b"\\", text)


def _value(text: bytes, kind: bytes, layout: ZeekLayout) -> bytes | None:
    """Returns the value as JSON; ``None`` if it is not UTF-8."""
    of = _OF.fullmatch(kind)
    if of is None:
        return _scalar(text, kind, layout)
    if text == layout.empty:
        return b"[]"
    parts = []
    for each in text.split(layout.set_separator):
        part = b"null" if each == layout.unset else _scalar(each, of[1], layout)
        if part is None:
            return None
        parts.append(part)
    return b"[" + b",".join(parts) + b"]"


def _scalar(text: bytes, kind: bytes, layout: ZeekLayout) -> bytes | None:
    if text == layout.empty:
        return b'""'
    if kind in NUMBERS and _JSON_NUMBER.fullmatch(text):
        return text
    if kind == b"bool" and text in _BOOLEANS:
        return _BOOLEANS[text]
    try:
        return orjson.dumps(unescaped(text).decode())
    except UnicodeDecodeError:
        return None


def _string(text: bytes) -> bytes:
    return orjson.dumps(text.decode("utf-8", "backslashreplace"))
