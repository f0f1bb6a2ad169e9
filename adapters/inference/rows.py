"""A side's sample as rows of fields, in the format that fits, judged by the records alone.

Rows hold values that can be a key, an id or a time: text, integers, other numbers as their text. Byte-identical
records count once: re-sent lines must not hide that a field is unique.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import orjson

from photon.adapters.contract import BadRecord
from photon.adapters.formats.delimited import DelimitedSide
from photon.adapters.formats.json_lines import parse_object
from photon.adapters.formats.key_parts import KeyPart
from photon.adapters.formats.logfmt import parse_pairs
from photon.adapters.formats.zeek import zeek_row
from photon.adapters.inference.lines import pattern_of
from photon.adapters.inference.time_texts import is_moment
from photon.adapters.logs.zeek_framing import after_lines
from photon.adapters.side import COLUMNS_MAX, Key, SideConfig, TimeConfig

READABLE_SHARE = 0.8  # a format is recognised if it can read at least this share of the records
TYPED_SHARE = 0.95  # a column has a type if at least this share of its values has it
ROWS_WITH_MIN = 3  # a field that fewer rows have is not shown to people either
NEITHER = "are neither JSON Lines nor CSV or TSV, nor logfmt or Zeek's, nor lines of one shape that begin with a time"
HEADER_ROWS = 1000  # how many records are compared with possible headers
PROBED = 200  # values of a field that tell whether it can be rewritten
FIELDS_MAX = 500
DEPTH_MAX = 16

# File name -> its records without line ends, from the start of the file, including a header record
Sample = Mapping[str, Sequence[bytes]]
Row = dict[str, str | int]
# earliest and latest last write of a sample's files, in Unix time; ``None`` if unknown
Written = tuple[int, int] | None

_BOM = b"\xef\xbb\xbf"
_UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")
_DELIMITERS = {b",": ("csv", None), b"\t": ("tsv", None), b";": ("csv", ";"), b"|": ("csv", "|")}
_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?")
_LETTERS, _DIGITS = re.compile(r"[^\W\d_]+"), re.compile(r"[0-9]+")
_ABSENT = frozenset({"-", "null", "(null)", "n/a", "none", "nan", "\\n", "undefined"})  # in lower case
_ZEROS = re.compile(r"[{(]?0{8}-0{4}-0{4}-0{4}-0{12}[)}]?")
_SUFFIXES = re.compile(r"(?:\.[a-z]+|[0-9._-]+)+$")
_DATES = re.compile(r"[0-9]+(?:t[0-9]+)?z?")
_STARTS = re.compile(rb'\{(?:\s*"[^"\\]*"\s*:\s*(?:"[^"\\]*"|[-+.0-9eE]+|true|false|null|[\[{])?,?)?')
_LISTS = re.compile(rb"\s*\{\s*\"([^\"\\]{1,80})\"\s*:\s*\[")


@dataclass(frozen=True, slots=True)
class Side:
    format: str
    rows: list[Row]
    files: tuple[str, ...]
    delimiter: str | None = None
    columns: tuple[str, ...] | None = None  # for CSV without header
    pattern: str | None = None
    repeated: int = 0  # number of sampled records that are byte for byte equal to an earlier one
    written: Written = None
    _values: dict[str, list[str]] = field(default_factory=dict)
    _names: list[str] = field(default_factory=list)

    def value(self, row: Row, name: str) -> str:
        """Returns the field's text; empty if it is missing or marked as absent."""
        value = row.get(name, "")
        if type(value) is int:
            return str(value)
        return "" if is_absent(str(value)) else str(value)

    def values(self, name: str) -> list[str]:
        """Returns the values of the rows that have one, in order."""
        known = self._values.get(name)
        if known is None:
            known = self._values[name] = [value for row in self.rows if (value := self.value(row, name))]
        return known

    def names(self) -> list[str]:
        """Returns fields that nearly all rows have, in order of appearance."""
        if not self._names:
            seen: Counter[str] = Counter()
            for row in self.rows:
                seen.update(row.keys())
            needed = READABLE_SHARE * len(self.rows)
            often = [name for name, count in seen.items() if count >= needed][:FIELDS_MAX]
            self._names.extend(name for name in often if len(self.values(name)) >= needed)
        return self._names

    def rare_names(self) -> list[str]:
        """Returns fields that some rows have and too many lack, in order of appearance."""
        seen: Counter[str] = Counter()
        for row in self.rows:
            seen.update(name for name in row if self.value(row, name))
        needed = READABLE_SHARE * len(self.rows)
        return [name for name, count in seen.items() if ROWS_WITH_MIN <= count < needed][:FIELDS_MAX]

    def all_names(self) -> list[str]:
        """Returns all fields, those that nearly all rows have first."""
        return list(dict.fromkeys([*self.names(), *(name for row in self.rows for name in row)]))[:FIELDS_MAX]

    def has(self, name: str) -> bool:
        """True if at least one row has a value in this field."""
        return bool(self.values(name))

    def is_unique(self, name: str) -> bool:
        values = self.values(name)
        return len(set(values)) == len(values) > 0

    def is_about(self, subject: str) -> bool:
        """True if the logs, or one of their directories, are named after it: ``orders-2026.csv`` after ``order``."""
        parts = {part for file in self.files for part in file.lower().split("/")}
        names = (re.sub(r"[^a-z]", "", _DATES.sub("", _SUFFIXES.sub("", part))) for part in parts)
        return len(subject) > 2 and any(_singular(name) == _singular(subject) for name in names)

    def config(self, key: Key, id_field: str | None = None, time: TimeConfig | None = None) -> SideConfig:
        """Returns the configuration that reads this side by these fields."""
        config = SideConfig(
            format=self.format,
            key=key,
            id=id_field,
            time=time,
            delimiter=self.delimiter,
            columns=self.columns,
            pattern=self.pattern,
        )
        used = [*(part.field for part in config.key_parts), id_field, *(time.names if time else ())]
        absent = self.absent_in([name for name in used if name is not None])
        return msgspec.structs.replace(config, absent=absent)

    def rewritten(self, words: Mapping[str, Any]) -> Side | None:
        """Returns the side with values normalised by these settings of a key; ``None`` if that changes no field.

        The first values of a field tell whether it changes. Values that the settings do not fit are left out.
        """
        normalised = msgspec.convert({"field": "", **words}, KeyPart).normaliser()

        def of(text: str) -> str:
            try:
                return normalised(text.encode("utf-8", "surrogateescape")).decode("utf-8", "replace")
            except (BadRecord, UnicodeEncodeError):
                return ""

        first = {name: self.values(name)[:PROBED] for name in self.names()}
        changed = {name for name, values in first.items() if any(of(value) not in (value, "") for value in values)}
        if not changed:
            return None
        rows: list[Row] = [
            {name: of(self.value(row, name)) if name in changed else row[name] for name in first if name in row}
            for row in self.rows
        ]
        return replace(self, rows=rows, _values={}, _names=[])

    def absent_in(self, names: Sequence[str]) -> tuple[str, ...]:
        """Returns the marks of absent values that occur in these fields."""
        values = (str(row.get(name, "")) for row in self.rows for name in names)
        return tuple(sorted({value for value in values if is_absent(value)}))


def _singular(name: str) -> str:
    return re.sub(r"ies$", "y", name).removesuffix("s")


def is_absent(text: str) -> bool:
    """True for the usual marks of an absent value."""
    return text.lower() in _ABSENT or _ZEROS.fullmatch(text) is not None


def read_side(sample: Sample, written: Written = None) -> Side | str:
    """Returns the sample's rows in the format that fits, or why none does."""
    records = [record for each in sample.values() for record in each if record.strip()]
    if not records:
        return "hold no records yet, so their format cannot be guessed"
    if records[0].startswith(_UTF16_BOMS) or 3 * records[0].count(b"\0") > len(records[0]):
        return "hold UTF-16 text; UTF-8 is read: write them so, for instance with iconv -f UTF-16 -t UTF-8"
    if (seen := _other_json(records)) is not None:
        return seen
    distinct = list(dict.fromkeys(record.removesuffix(b"\r") for record in records))
    side = _side(sample, distinct)
    if isinstance(side, str):
        return side
    if not side.names() and not side.rare_names():
        return f"hold no field with text or a number in it (the first record is {_cut_short(records[0])})"
    header = side.columns is None and side.format in ("csv", "tsv")  # which each file has
    repeated = len(records) - len(distinct) - (len(sample) - 1 if header else 0)
    return replace(side, repeated=max(repeated, 0), written=written)


def _other_json(records: Sequence[bytes]) -> str | None:
    """Describes JSON that is not one object a line. ``None`` if the records are no such JSON."""
    first = records[0].removeprefix(_BOM).strip()
    if first.startswith(b"["):
        return _array(first)
    if match := _LISTS.match(first):
        name = match[1].decode("utf-8", "replace")
        lists = [found for record in records[:100] if (found := _list_of(record, name)) is not None]
        if len(lists) == len(records[:100]) and any(map(len, lists)):
            many = "one JSON object" if len(records) == 1 else f"{len(records):,} JSON objects"
            return f"hold {many} with a list `{name}` of {sum(map(len, lists)):,} objects; {_one_a_line(f'.{name}')}"
        if not lists and records[0].count(b"{") > ROWS_WITH_MIN:
            where = f"with a list `{name}`, over several lines or in a very long one"
            return f"hold one JSON object {where}; {_one_a_line(f'.{name}')}"
    if first.startswith(b"{") and _STARTS.fullmatch(first):
        return f"hold JSON objects of several lines each; {_one_a_line('.', all_of_it=True)}"
    return None


def _array(first: bytes) -> str | None:
    """Describes one JSON array, on one line or over many; not lines that begin with a time in brackets."""
    rest = first[1:].strip()
    if rest and rest[:1] not in b'{[]"':
        return None
    try:
        items = orjson.loads(first)
    except orjson.JSONDecodeError:
        several = "hold one JSON array over several lines or in a very long one"
        return f"{several}; {_one_a_line('.')}" if not rest or rest[:1] in b"{" else None
    return f"hold a JSON array of {len(items):,} members in one line; {_one_a_line('.')}"


def _list_of(record: bytes, name: str) -> list[Any] | None:
    """Returns the objects of the list that a JSON object consists of; ``None`` if there is more in it."""
    try:
        fields = parse_object(record)
    except BadRecord:
        return None
    found = fields.get(name)
    named = any(type(value) in (str, int) for other, value in fields.items() if other != name)
    if not isinstance(found, list) or named or not all(isinstance(each, dict) for each in found):
        return None
    return found


def _one_a_line(path: str, *, all_of_it: bool = False) -> str:
    """Returns the advice for JSON that must be split first."""
    jq = "." if all_of_it else f"{path}[]"
    return f"one object a line is read: write them so, for instance with jq -c '{jq}'"


def _cut_short(record: bytes) -> str:
    return repr(record[:40].decode("utf-8", "backslashreplace"))


def _side(sample: Sample, distinct: Sequence[bytes]) -> Side | str:
    files = tuple(sample)
    if (rows := _rows(_json_row, distinct)) is not None:
        return Side("jsonl", rows, files)
    zeek = _zeek_rows(sample)
    if zeek is not None:
        return Side("zeek", zeek, files)
    if (rows := _rows(_logfmt_row, distinct)) is not None:
        return Side("logfmt", rows, files)
    delimited = _delimited(sample, files)
    if delimited is not None and delimited.columns is None:
        return delimited
    pattern = pattern_of(distinct)  # before CSV without header: a comma may belong to times
    if pattern is not None:
        compiled = re.compile(pattern.encode())
        matches = (compiled.match(record) for record in distinct)
        rows = [
            {name: text.decode("utf-8", "replace") for name, text in match.groupdict().items() if text}
            for match in matches
            if match
        ]
        return Side("regex", rows, files, pattern=pattern)
    if delimited is not None:
        return delimited
    return f"{NEITHER} (the first record begins {distinct[0][:40]!r}); a pattern has to take them apart"


def _rows(read: Callable[[bytes], Row | None], records: Sequence[bytes]) -> list[Row] | None:
    """Returns ``None`` if too few are readable. Stops early if they are clearly of another format."""
    few = records[:100]
    if sum(read(record) is not None for record in few) < READABLE_SHARE * len(few):
        return None
    rows = [row for row in map(read, records) if row is not None]
    return rows if len(rows) >= READABLE_SHARE * len(records) else None


def _json_row(record: bytes) -> Row | None:
    try:
        fields = parse_object(record)
    except BadRecord:
        return None
    row: Row = {}
    _flatten(fields, "", row, 0)
    return row


def _flatten(fields: Mapping[str, Any], prefix: str, row: Row, depth: int) -> None:
    for name, value in fields.items():
        kind = type(value)
        if kind is dict:
            if depth < DEPTH_MAX:
                _flatten(value, f"{prefix}{name}.", row, depth + 1)
        elif kind is float:
            row.setdefault(prefix + name, f"{value:.6f}" if abs(value) < 1e15 else str(value))
        elif kind is int or isinstance(value, str):
            row.setdefault(prefix + name, value)
            if kind is str and value.lstrip().startswith("{") and depth < DEPTH_MAX:
                with suppress(BadRecord, UnicodeEncodeError):  # text that is no JSON
                    _flatten(parse_object(value.encode()), f"{prefix}{name}.", row, depth + 1)


def _zeek_rows(sample: Sample) -> list[Row] | None:
    """Returns rows of files that all begin with Zeek's header lines; ``None`` if they do not."""
    rows: list[Row] = []
    seen: set[bytes] = set()
    for records in sample.values():
        if records and not records[0].removeprefix(_BOM).startswith((b"#separator ", b"#fields\t")):
            return None
        header = b""
        for record in records:
            record = record.removesuffix(b"\r")
            if record.startswith((b"#", _BOM + b"#")):
                header = after_lines(header, record.removeprefix(_BOM) + b"\n")
            elif record not in seen:
                seen.add(record)
                rows += [row] if (row := zeek_row(record, header)) else []
    return rows or None


def _logfmt_row(record: bytes) -> Row | None:
    """Returns ``None`` for a record that is not logfmt, or hardly: logfmt takes plain text for flags."""
    try:
        fields = parse_pairs(record)
    except BadRecord:
        return None
    row: Row = {
        name.decode("utf-8", "replace"): value.decode("utf-8", "replace")
        for name, value in fields.items()
        if value is not None
    }
    return row if len(row) >= max(2, len(fields) / 2) else None


def _delimited(sample: Sample, files: tuple[str, ...]) -> Side | None:
    """Returns CSV or TSV with the delimiter that gives most columns; ``None`` if none fits or no header is clear."""
    best: Side | None = None
    width = 1
    for delimiter, (kind, setting) in _DELIMITERS.items():
        cut = list(_cut(sample, delimiter))
        widths = Counter(len(row) for rows in cut for row in rows)
        if not widths:
            continue
        columns, count = widths.most_common(1)[0]
        if columns <= width or columns > COLUMNS_MAX or count < READABLE_SHARE * widths.total():
            continue
        header = has_header(cut, columns)
        if header is None:
            continue
        rows = list(_named(cut, columns, header=header))
        if rows:
            width = columns
            names = None if header else _numbered(columns)
            best = Side(kind, rows, files, delimiter=setting, columns=names)
    return best


def _cut(sample: Sample, delimiter: bytes) -> Iterator[list[tuple[str, ...]]]:
    """Yields the fields of each file's records; () for one that cannot be split."""
    split: Callable[[bytes], list[bytes]] = DelimitedSide("-", delimiter=delimiter)._split
    for records in sample.values():
        rows = []
        for place, record in enumerate(records):
            text = (record.removeprefix(_BOM) if place == 0 else record).removesuffix(b"\r")
            if not text.strip():
                continue
            try:
                rows.append(tuple(field.decode("utf-8", "replace") for field in split(text)))
            except BadRecord:
                rows.append(())
        if rows:
            yield rows


def has_header(files: Sequence[Sequence[tuple[str, ...]]], width: int) -> bool | None:
    """True if each file's first record names the columns; ``None`` if that is unclear or the files disagree.

    Evidence for a header: a first record with a cell that is not a number, time or code like all others of its
    column; files that all begin with the same record. Against it: a number or a time in it, a cell that occurs again
    below, files that begin differently.
    """
    firsts = [rows[0] for rows in files]
    if any(len(first) != width for first in firsts):
        return None
    header = set(firsts)
    below = [row for rows in files for row in rows[1:] if len(row) == width and row not in header][:HEADER_ROWS]
    named = all(len(set(first)) == width and all(cell.strip() for cell in first) for first in firsts)
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
        names = rows[0] if header else _numbered(width)
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
    """Returns the common shape of codes that contain digits, such as hex digests or ``ord-17``; ``None`` if none."""
    shape, count = Counter(map(_shape, values)).most_common(1)[0]
    return shape if count >= TYPED_SHARE * len(values) and ("9" in shape[0] or "#" in shape[0]) else None


def _shape(text: str) -> tuple[str, int]:
    """Replaces letters and digits by their kinds; long hex and base-64 text by its length alone."""
    if len(text) >= 16 and any(map(str.isdigit, text)):
        return "#", len(text)
    return _DIGITS.sub("9", _LETTERS.sub("a", text)), 0
