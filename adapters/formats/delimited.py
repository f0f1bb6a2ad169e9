"""CSV and TSV: fields between delimiters, quoted where they begin with the quote character.

RFC 4180 with these readings: a quote inside a field that does not begin with one is an ordinary character; a quoted
field must end at its closing quote (doubled quotes inside mean one); a record in which a quote stays open is
rejected. A line end inside quotes belongs to the field if the side is ``multiline``. Every record must have as many
fields as there are columns. Fields are taken byte for byte, including spaces; an empty field names nothing.

Columns come from the configuration or from each file's own header, so files may order them differently.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import orjson

from photon.adapters.contract import BadRecord, LogFile
from photon.adapters.formats.base import LAYOUTS_MAX, FieldsSide, TimeField, column_places, without
from photon.adapters.formats.json_scan import I64, Mask, cut_lines
from photon.adapters.times import TimeReader

# Replaces a line end inside quotes: a record is one line of the same length. UTF-8 text never has this byte
LINE_END_MARK = b"\xfe"
_BOM = b"\xef\xbb\xbf"


def in_order(array: npt.NDArray[np.uint8], starts: I64, ends: I64, quotes: I64, delimiter: int) -> Mask:
    """Tells for each line (from ``starts`` to its newline at ``ends``) if quotes pair up, each pair around a field.

    Such a line has no line end inside quotes, no doubled quote, and no quote that is an ordinary character. False
    means unknown. ``quotes``: positions of the quotes; those after the last newline do not count.
    """
    rows = np.searchsorted(ends, quotes)
    quotes, rows = quotes[rows < len(ends)], rows[rows < len(ends)]
    counts = np.bincount(rows, minlength=len(ends))
    nth = np.arange(len(quotes)) - (np.cumsum(counts) - counts)[rows]
    before, after = array[np.maximum(quotes - 1, 0)], array[quotes + 1]
    opens = (quotes == starts[rows]) | (before == delimiter)
    returns = (after == ord("\r")) & (quotes + 2 == ends[rows])
    closes = (quotes + 1 == ends[rows]) | (after == delimiter) | returns
    good: Mask = counts % 2 == 0
    good[rows[np.where(nth % 2 == 0, ~opens, ~closes)]] = False
    return good


@dataclass(frozen=True, slots=True)
class Layout:
    """Positions of the fields in one file's records. ``fault`` says why the file cannot be read."""

    names: tuple[bytes, ...] = ()
    text_names: tuple[str, ...] | None = None  # ``None`` if not UTF-8
    places: Mapping[str, int] = field(default_factory=dict)
    fault: str = ""


class DelimitedSide(FieldsSide[tuple[Layout, list[bytes]]]):
    """Reads one side of CSV or TSV. Without ``columns`` each file's header names them."""

    def __init__(
        self,
        key: str,
        id_field: str | None = None,
        time_field: TimeField = None,
        time: TimeReader | None = None,
        *,
        delimiter: bytes = b",",
        quote: bytes = b'"',
        columns: tuple[str, ...] | None = None,
        multiline: bool = False,
        absent: frozenset[bytes] = frozenset(),
    ) -> None:
        """``multiline``: LINE_END_MARK replaces each line end inside quotes (``logs.quoted_framing``)."""
        super().__init__(key, id_field, time_field, time, absent=absent)
        self._delimiter, self._quote = delimiter, quote
        self._field = _field_pattern(delimiter, quote) if quote else None
        self._multiline = multiline
        self._hint = "" if multiline else " (if a line end belongs to the field: multiline = true)"
        self._layout_of_header = lru_cache(LAYOUTS_MAX)(self._read_header)
        self._fixed = None if columns is None else self._layout(tuple(name.encode() for name in columns))

    def payload(self, record: bytes, file: LogFile) -> bytes | None:
        layout, fields = self._fields(record, file)
        if layout.text_names is None:
            return None
        try:
            named = zip(layout.text_names, fields, strict=True)
            return orjson.dumps({name: field.decode() for name, field in named if field not in self._absent})
        except UnicodeDecodeError:
            return None

    def keys(self, block: bytes, file: LogFile) -> list[bytes | None]:
        return without(self._cut_keys(block, file), self._absent)

    def _cut_keys(self, block: bytes, file: LogFile) -> list[bytes | None]:
        """Cuts lines with simple quotes at the delimiters, all at once; the others one by one."""
        layout = self._fixed or self._layout_of_header(file.header)
        count = block.count(b"\n")
        if layout.fault or not count:
            return [None] * count
        array, starts, ends = cut_lines(block)
        cuts = np.flatnonzero(array == self._delimiter[0])
        first = np.searchsorted(cuts, starts)
        plain = np.searchsorted(cuts, ends) - first == len(layout.names) - 1
        quoted = bool(self._quote) and self._quote in block
        if quoted:
            quotes = np.flatnonzero(array == self._quote[0])
            plain &= in_order(array, starts, ends, quotes, self._delimiter[0])
            rows = np.searchsorted(ends, cuts)
            inside = (np.searchsorted(quotes, cuts) - np.searchsorted(quotes, starts)[rows]) % 2 == 1
            plain[rows[inside]] = False  # this delimiter separates nothing
            if self._multiline and LINE_END_MARK in block:
                plain[np.searchsorted(ends, np.flatnonzero(array == LINE_END_MARK[0]))] = False
        if not len(cuts):
            cuts = np.zeros(1, np.int64)
        last = len(cuts) - 1
        place = layout.places["key"]
        left = starts if place == 0 else cuts[np.minimum(first + place - 1, last)] + 1
        if place == len(layout.names) - 1:
            right = ends - (array[np.maximum(ends - 1, 0)] == ord("\r"))
        else:
            right = cuts[np.minimum(first + place, last)]
        if quoted:
            begins = plain & (array[left] == self._quote[0])
            left, right = left + begins, right - begins
        plain &= right > left
        if plain.all():
            return [block[a:b] for a, b in zip(left.tolist(), right.tolist(), strict=True)]
        out: list[bytes | None] = []
        columns = (plain.tolist(), left.tolist(), right.tolist(), starts.tolist(), ends.tolist())
        for ok, a, b, start, end in zip(*columns, strict=True):
            out.append(block[a:b] if ok else self._key_or_none(block[start:end].removesuffix(b"\r"), file))
        return out

    def _fields(self, record: bytes, file: LogFile) -> tuple[Layout, list[bytes]]:
        layout = self._fixed or self._layout_of_header(file.header)
        if layout.fault:
            raise BadRecord(layout.fault)
        fields = self._split(record)
        if len(fields) == len(layout.names):
            return layout, fields
        if not record:
            raise BadRecord("is empty")
        raise BadRecord(f"has {len(fields)} fields, not {len(layout.names)}")

    def _value(self, fields: tuple[Layout, list[bytes]], role: str) -> bytes:
        layout, values = fields
        value = values[layout.places[role]]
        if value and value not in self._absent:
            return value
        raise BadRecord(f"{role} field {self._names[role]!r} is {'absent' if value else 'empty'}")

    def _split(self, record: bytes) -> list[bytes]:
        if self._field is None or self._quote not in record:
            return record.split(self._delimiter)
        fields: list[bytes] = []
        at = 0
        while True:
            match = self._field.match(record, at)
            # A field that begins with a quote must not be read as a plain one.
            if match is None or (match[1] is None and record.startswith(self._quote, at)):
                place = len(fields) + 1
                raise BadRecord(f"field {place} has unbalanced quotes{self._hint}")
            quoted = match[1]
            fields.append(match[2] if quoted is None else self._unquoted(quoted))
            if match[3] is None:
                return fields
            at = match.end()

    def _unquoted(self, text: bytes) -> bytes:
        text = text.replace(self._quote * 2, self._quote)
        return text.replace(LINE_END_MARK, b"\n") if self._multiline else text

    def _read_header(self, header: bytes) -> Layout:
        text = header.removeprefix(_BOM).removesuffix(b"\r")
        if not text:
            return Layout(fault="its file has no header record")
        try:
            return self._layout(tuple(self._split(text)))
        except BadRecord as bad:
            return Layout(fault=f"header: {bad.reason}")

    def _layout(self, names: tuple[bytes, ...]) -> Layout:
        places = column_places(names, self._names)
        if isinstance(places, str):
            return Layout(fault=places)
        try:
            return Layout(names, tuple(name.decode() for name in names), places)
        except UnicodeDecodeError:
            return Layout(names, None, places)


def _field_pattern(delimiter: bytes, quote: bytes) -> re.Pattern[bytes]:
    """Matches one field from its start: group 1 quoted, or 2 plain; group 3 the delimiter, absent after the last."""
    d, q = re.escape(delimiter), re.escape(quote)
    return re.compile(rb"(?:%b(%b)%b|([^%b]*+))(?:(%b)|\Z)" % (q, quoted_text(q), q, d, d))


def quoted_text(quote: bytes, never: bytes = b"") -> bytes:
    """Matches the text between two quotes; doubled quotes are text. Arguments are patterns; excludes ``never``."""
    return rb"[^%b%b]*+(?:(?>%b%b[^%b%b]*+))*+" % (quote, never, quote, quote, quote, never)
