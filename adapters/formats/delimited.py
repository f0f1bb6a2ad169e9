"""CSV, TSV and fields between blanks: quoted where they begin with the quote character.

RFC 4180 with these readings: a quote inside a field that does not begin with one is an ordinary character; a quoted
field must end at its closing quote (doubled quotes inside mean one); a record in which a quote stays open is
rejected. An ``escape`` before a quote, a delimiter or itself makes that literal; before others it is text. A
line end inside quotes belongs to the field if the side is ``multiline``. Every record must have as many fields as
there are columns; it may end with a delimiter. Fields are taken byte for byte, including spaces; an empty field is no
key or id.

Columns come from the configuration or from each file's own header, so files may order them differently. W3C's logs
(IIS, CloudFront) name theirs in ``#Fields`` lines, each valid up to the next (``logs.zeek_framing``). A name that
occurs twice in a header is ``NAME_2`` the second time in the payload, and cannot be a key, id or time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import orjson

from photon.adapters.contract import BadRecord, Framing, LogFile
from photon.adapters.formats.base import LAYOUTS_MAX, FieldsSide, TimeField, column_places, without
from photon.adapters.formats.cut_lines import I64, Mask, cut_lines
from photon.adapters.formats.encodings import UTF16, looks_utf16
from photon.adapters.formats.field_text import escaped, field_pattern
from photon.adapters.formats.text_lines import BLANKS, LINE_END
from photon.adapters.times import TimeReader

# Replaces a line end inside quotes: a record is one line of the same length. UTF-8 text never has this byte; if a log
# has it, NO_MARK replaces it, and the record is refused.
LINE_END_MARK, NO_MARK = b"\xfe", b"\xff"
_ALIKE = bytes.maketrans(LINE_END_MARK + NO_MARK, b"\n\n")
FIELDS = b"#Fields:"
_BLANKS = re.compile(rb"[ \t]++")
_BOM = b"\xef\xbb\xbf"


def unmarked(data: bytes) -> bytes:
    """Returns a log's bytes for a digest: the same whether line ends inside fields are marked or not."""
    return data.translate(_ALIKE) if LINE_END_MARK in data or NO_MARK in data else data


def as_in_log(record: bytes, framing: Framing) -> bytes:
    """Returns a record as it is in the log, with the line ends inside its fields restored."""
    return record.replace(LINE_END_MARK, b"\n") if framing.kind == "quoted" else record


def in_order(array: npt.NDArray[np.uint8], starts: I64, ends: I64, quotes: I64, delimiter: int) -> Mask:
    """Returns, for each line (from ``starts`` to its newline at ``ends``), whether its quotes pair up and each pair
    encloses a field.

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
        escape: bytes = b"",
        columns: tuple[str, ...] | None = None,
        multiline: bool = False,
        gathered: bool = False,
        ended: bool = True,
        absent: frozenset[bytes] = frozenset(),
    ) -> None:
        """If ``delimiter`` is BLANKS, runs of blanks and tabs separate fields.

        ``multiline``: LINE_END_MARK replaces each line end inside quotes (``logs.quoted_framing``). ``gathered``:
        LINE_END replaces each line end inside a record (``formats.text_lines``). ``ended``: a delimiter may end a
        record.
        """
        super().__init__(key, id_field, time_field, time, absent=absent)
        self._delimiter, self._quote, self._escape = delimiter, quote, escape
        self._is_simple = len(delimiter) == 1 and delimiter != BLANKS
        self._is_plain = not escape and delimiter != BLANKS
        self._field = field_pattern(delimiter, quote, escape) if quote or escape else None
        self._doubled = quote if escape else quote * 2
        self._escaped = escaped(delimiter, quote, escape)
        self._multiline, self._gathered, self._ended = multiline, gathered, ended
        self._hint = "" if multiline else " (if a line end belongs to the field: multiline = true)"
        self._layout_of_header = lru_cache(LAYOUTS_MAX)(self._read_header)
        self._fixed = None if columns is None else self._layout(tuple(name.encode() for name in columns))

    def payload(self, record: bytes, file: LogFile) -> bytes | None:
        layout, fields = self._fields(record, file)
        if layout.text_names is None:
            return None
        try:
            if self._gathered:
                fields = [field.replace(LINE_END, b"\n") for field in fields]
            named = zip(layout.text_names, fields, strict=True)
            return orjson.dumps({name: field.decode() for name, field in named if field not in self._absent})
        except UnicodeDecodeError:
            return None

    def keys(self, block: bytes, file: LogFile) -> list[bytes | None]:
        return without(self._cut_keys(block, file), self._absent) if self._is_simple else super().keys(block, file)

    def _cut_keys(self, block: bytes, file: LogFile) -> list[bytes | None]:
        """Returns each line's key. Cuts lines with simple quotes all at once, and other lines one by one."""
        layout = self._fixed or self._layout_of_header(file.header)
        array, starts, ends = cut_lines(block)
        if layout.fault or not len(ends):
            return [None] * len(ends)
        cuts = np.flatnonzero(array == self._delimiter[0])
        first = np.searchsorted(cuts, starts)
        plain = np.searchsorted(cuts, ends) - first == len(layout.names) - 1
        quoted = bool(self._quote) and self._quote in block
        if quoted:
            quotes = np.flatnonzero(array == self._quote[0])
            plain &= in_order(array, starts, ends, quotes, self._delimiter[0])
            rows = np.searchsorted(ends, cuts)
            inside = (np.searchsorted(quotes, cuts) - np.searchsorted(quotes, starts)[rows]) % 2 == 1
            plain[rows[inside]] = False  # this delimiter is inside a field
        if self._multiline and (LINE_END_MARK in block or NO_MARK in block):
            plain[np.searchsorted(ends, np.flatnonzero(array >= LINE_END_MARK[0]))] = False
        if self._escape and self._escape in block:
            plain[np.searchsorted(ends, np.flatnonzero(array == self._escape[0]))] = False
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
        if len(fields) == len(layout.names) + 1 and self._ended and not fields[-1]:
            return layout, fields[:-1]
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
        if self._multiline and NO_MARK in record:
            raise BadRecord("has a byte 0xFE or 0xFF, never used in UTF-8: name the encoding, or remove multiline")
        if self._is_plain and (self._field is None or self._quote not in record):
            return record.split(self._delimiter)
        if self._delimiter == BLANKS:
            record = record.strip(BLANKS)
        if self._field is None:
            return _BLANKS.split(record)
        fields: list[bytes] = []
        at = 0
        while True:
            match = self._field.match(record, at)
            # A field that begins with a quote must not be read as a plain one.
            if match is None or (match[1] is None and record.startswith(self._quote, at) and self._quote):
                place = len(fields) + 1
                raise BadRecord(f"field {place} has unbalanced quotes{self._hint}")
            quoted = match[1]
            fields.append(match[2] if quoted is None else self._unquoted(quoted))
            if match[3] is None:
                return fields if self._escaped is None else [self._escaped.sub(rb"\1", each) for each in fields]
            at = match.end()

    def _unquoted(self, text: bytes) -> bytes:
        text = text.replace(self._doubled, self._quote)
        return text.replace(LINE_END_MARK, b"\n") if self._multiline else text

    def _read_header(self, header: bytes) -> Layout:
        text = header.removeprefix(_BOM).removesuffix(b"\r")
        if not text:
            return Layout(fault="its file has no header record")
        if looks_utf16(text):
            return Layout(fault=UTF16)
        if text.startswith(FIELDS):
            return self._layout(tuple(text.removeprefix(FIELDS).split()))
        if text[:-1] == b"sep=":
            told = repr(text[-1:].decode("utf-8", "replace"))
            return Layout(fault=f"header: declares the delimiter {told}: write skip_lines = 1, delimiter = {told}")
        try:
            return self._layout(tuple(self._split(text)))
        except BadRecord as bad:
            return Layout(fault=f"header: {bad.reason}")

    def _layout(self, names: tuple[bytes, ...]) -> Layout:
        places = column_places(names, self._names)
        if isinstance(places, str):
            return Layout(fault=places)
        try:
            return Layout(names, each_once([name.decode() for name in names]), places)
        except UnicodeDecodeError:
            return Layout(names, None, places)


def each_once(names: Sequence[str]) -> tuple[str, ...]:
    """Makes names unique by appending a number to repeated ones."""
    found: dict[str, None] = {}
    for name in names:
        number, once = 2, name
        while once in found or (once != name and once in names):
            number, once = number + 1, f"{name}_{number}"
        found[once] = None
    return tuple(found)
