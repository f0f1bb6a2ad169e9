"""Recognises tables: fields between delimiters or blanks, with the lines above and below them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from photon.adapters.contract import BadRecord
from photon.adapters.formats.delimited import FIELDS, DelimitedSide, each_once
from photon.adapters.formats.text_lines import BLANKS
from photon.adapters.inference.layouts import BOM
from photon.adapters.inference.time_texts import is_moment
from photon.adapters.side import COLUMNS_MAX

READABLE_SHARE = 0.8  # least share of records with as many fields as columns
SEEN_SHARE = 0.4  # least share of records for a table to be named in a refusal
TYPED_SHARE = 0.95  # a column has a type if at least this share of its values has it
TITLE_MAX = 20  # lines above a header
HEADER_ROWS = 1000  # how many records are compared with possible headers
W3C_LINES = 20  # at the start of a file, of which one names the fields

Row = dict[str, str | int]
Fields = tuple[str, ...]
_DELIMITERS = {b",": "csv", b"\t": "tsv", b";": "csv", b"|": "csv", b"::": "csv", b"||": "csv", b"\x01": "csv",
               b"~": "csv", b"^": "csv", BLANKS: "blanks"}  # fmt: skip
_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?")
_LETTERS, _DIGITS = re.compile(r"[^\W\d_]+"), re.compile(r"[0-9]+")
_SEP = re.compile(rb"sep=(.)\r?")


@dataclass(frozen=True, slots=True)
class Table:
    format: str
    rows: list[Row]
    delimiter: str | None = None
    columns: tuple[str, ...] | None = None  # without header
    settings: Mapping[str, Any] = field(default_factory=dict)
    share: float = 1.0  # of the records that have as many fields


def table_of(sample: Mapping[str, Sequence[bytes]]) -> Table | str | None:
    """Returns the table with most columns; a text that describes a near miss; or ``None``."""
    files = [list(records) for records in sample.values() if any(map(bytes.strip, records))]
    for records in files:
        records[0] = records[0].removeprefix(BOM)
    if all(any(each.startswith(FIELDS) for each in records[:W3C_LINES]) for records in files):
        return Table("w3c", list(_w3c_rows(files)))
    told = [_SEP.fullmatch(records[0]) for records in files]
    delimiters, skip = list(_DELIMITERS), 0
    if all(told) and len({match[1] for match in told if match}) == 1 and told[0]:
        delimiters, skip = [told[0][1]], 1
    best: Table | None = None
    seen, width = "", 1
    for delimiter in delimiters:
        found = _table(files, delimiter, skip)
        if isinstance(found, Table) and len(found.columns or found.rows[0]) > width:
            best, width = found, len(found.columns or found.rows[0])
        elif isinstance(found, str) and not seen:
            seen = found
    return best or seen or None


def _table(files: Sequence[Sequence[bytes]], delimiter: bytes, skip: int) -> Table | str | None:
    kind = _DELIMITERS.get(delimiter, "csv")
    escape = b"\\" if kind != "blanks" and any(b'\\"' in each for records in files for each in records) else b""
    cut = [[_fields(each, delimiter, escape) for each in records[skip:]] for records in files]
    ends = [row[-1] == "" for rows in cut for row in rows if len(row) > 1]
    if sum(ends) >= READABLE_SHARE * len(ends) > 0:  # a delimiter at the end of lines
        cut = [[row[:-1] if len(row) > 2 and row[-1] == "" else row for row in rows] for rows in cut]
    widths = Counter(len(row) for rows in cut for row in rows if row)
    columns, count = widths.most_common(1)[0]
    if not 1 < columns <= COLUMNS_MAX:
        return None
    settings: dict[str, Any] = {"escape": "\\"} if escape else {}
    if kind == "blanks" and columns < 3:
        return None
    shown = delimiter.decode()
    named = {"csv": f"CSV with {shown!r}", "tsv": "TSV", "blanks": "text between blanks"}[kind]
    comments = [row for records, rows in zip(files, cut, strict=True)
                for each, row in zip(records[skip:], rows, strict=True) if each.startswith(b"#")]  # fmt: skip
    if comments and all(len(row) != columns for row in comments):
        settings["comment"] = "#"
        cut = [[row for each, row in zip(records[skip:], rows, strict=True) if not each.startswith(b"#")]
               for records, rows in zip(files, cut, strict=True)]  # fmt: skip
        widths = Counter(len(row) for rows in cut for row in rows if row)
        count = widths[columns]
    above = {next((place for place, row in enumerate(rows) if len(row) == columns), len(rows)) for rows in cut}
    title = above.pop() if len(above) == 1 else 0
    if 0 < title <= TITLE_MAX:
        widths.subtract(len(row) for rows in cut for row in rows[:title] if row)
        cut = [rows[title:] for rows in cut]
        skip += title
    total = widths.total()
    if count < READABLE_SHARE * total:
        (other, many), *_ = [each for each in widths.most_common(2) if each[0] != columns]
        most = f"{columns} columns, but {many / total:.0%} of the lines have {other or 'unbalanced quotes'}"
        return f"hold {named} and {most}" if kind != "blanks" and count >= SEEN_SHARE * total else None
    settings |= {"skip_lines": skip} if skip else {}
    tables = [[row for row in rows if row] for rows in cut]
    header = has_header(tables, columns)
    if title and not header:  # lines above data are a header of other columns
        return None
    if header is None or (kind == "blanks" and not (header and count >= TYPED_SHARE * total)):
        unclear = "it is unclear whether the first line names them: set columns = […], or header = true with names"
        return f"hold {named} and {columns} columns, and {unclear}" if kind != "blanks" else None
    rows = list(_named(tables, columns, header=header))
    if not rows:
        return None
    setting = None if delimiter in (b",", b"\t", BLANKS) else shown
    return Table(kind, rows, setting, None if header else _numbered(columns), settings)


BLANK: Fields = ()  # of a blank line
BROKEN: Fields = ("",)  # of a line that cannot be cut


def _fields(record: bytes, delimiter: bytes, escape: bytes) -> Fields:
    text = record.removesuffix(b"\r")
    if not text.strip():
        return BLANK
    try:
        cut = DelimitedSide("-", delimiter=delimiter, escape=escape)._split(text)
        return tuple(each.decode("utf-8", "replace") for each in cut)
    except BadRecord:
        return BROKEN


def _w3c_rows(files: Sequence[Sequence[bytes]]) -> Iterator[Row]:
    for records in files:
        names: Fields = ()
        for record in records:
            if record.startswith(FIELDS):
                names = tuple(record.decode("utf-8", "replace").split()[1:])
            elif not record.startswith(b"#") and len(row := _fields(record, BLANKS, b"")) == len(names):
                yield {name: text for name, text in zip(names, row, strict=True) if text != "-"}


def has_header(files: Sequence[Sequence[tuple[str, ...]]], width: int) -> bool | None:
    """True if each file's first record names the columns; ``None`` if that is unclear or the files disagree.

    Evidence for a header: a cell of the first record that, unlike all others in its column, is not a number, time or
    code; the same first record in all files. Evidence against: a number or a time in it, a cell that occurs again
    below, files that begin differently.
    """
    firsts = [rows[0] for rows in files]
    if any(len(first) != width for first in firsts):
        return None
    header = set(firsts)
    below = [row for rows in files for row in rows[1:] if len(row) == width and row not in header][:HEADER_ROWS]
    named = all(all(cell.strip() for cell in first) for first in firsts)
    data = any(_is_number(cell) or is_moment(cell) for first in firsts for cell in first)
    contrast = again = False
    for column in range(width):
        values = [row[column] for row in below if row[column]]
        kind = next((kind for kind in (_is_number, is_moment) if _all_are(kind, values)), None)
        for first in firsts:
            cell = first[column]
            again = again or (cell != "" and cell in values)
            if not values or not cell:
                continue
            if kind is not None:
                contrast = contrast or not kind(cell)
            elif (shape := _common_shape(values)) is not None:
                contrast, data = contrast or _shape(cell) != shape, data or _shape(cell) == shape
    same = len(files) > 1 and len(header) == 1
    differ = len(header) > 1
    for_it, against = contrast or (same and not data), data or again or differ
    if for_it == against:
        return None
    return None if for_it and not named else for_it


def _named(files: Sequence[Sequence[tuple[str, ...]]], width: int, *, header: bool) -> Iterator[Row]:
    seen: set[tuple[str, ...]] = set()
    for rows in files:
        names = each_once(rows[0]) if header else _numbered(width)
        for row in rows[1:] if header else rows:
            if len(row) == width and row not in seen:
                seen.add(row)
                yield dict(zip(names, row, strict=True))


def _numbered(width: int) -> tuple[str, ...]:
    return tuple(f"c{number}" for number in range(1, width + 1))


def _is_number(text: str) -> bool:
    return _NUMBER.fullmatch(text) is not None


def _all_are(kind: Callable[[str], bool], values: Sequence[str]) -> bool:
    return bool(values) and sum(map(kind, values)) >= TYPED_SHARE * len(values)


def _common_shape(values: Sequence[str]) -> tuple[str, int] | None:
    """Returns the common shape of codes with digits, such as hex digests or ``ord-17``; ``None`` if there is none."""
    shape, count = Counter(map(_shape, values)).most_common(1)[0]
    return shape if count >= TYPED_SHARE * len(values) and ("9" in shape[0] or "#" in shape[0]) else None


def _shape(text: str) -> tuple[str, int]:
    """Replaces letters and digits by their kinds; long hex and base-64 text by its length alone."""
    if len(text) >= 16 and any(map(str.isdigit, text)):
        return "#", len(text)
    return _DIGITS.sub("9", _LETTERS.sub("a", text)), 0
