"""Reads a side's sample as rows of fields, in the format that fits its records.

Rows hold values that can be a key, an id or a time: text, integers, other numbers as their text. Byte-identical
records count once: re-sent lines must not hide that a field is unique.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import msgspec

from photon.adapters.contract import BadRecord
from photon.adapters.formats.json_values import parse_object
from photon.adapters.formats.logfmt import parse_pairs
from photon.adapters.formats.part_rules import KeyPart
from photon.adapters.formats.zeek import zeek_row
from photon.adapters.inference.layouts import BOM, gathered, json_objects, plain
from photon.adapters.inference.lines import pattern_of
from photon.adapters.inference.tables import Row, Table, table_of
from photon.adapters.logs.zeek_framing import after_lines
from photon.adapters.side import Key, SideConfig, TimeConfig

READABLE_SHARE = 0.8  # a format is recognised if it can read at least this share of the records
ROWS_WITH_MIN = 3  # a field of fewer rows is not even shown
TEXT = "are plain text without a common layout that has a time"
TOGETHER = "other lines belong to the record before them"
PROBED = 200  # values of a field examined to see whether it can be rewritten
FIELDS_MAX = 500
DEPTH_MAX = 16

# File name -> its records without line ends, from the start of the file, including a header record
Sample = Mapping[str, Sequence[bytes]]
# earliest and latest last write of a sample's files, in Unix time; ``None`` if unknown
Written = tuple[int, int] | None

_ABSENT = frozenset({"-", "null", "(null)", "n/a", "none", "nan", "\\n", "undefined"})  # in lower case
_ZEROS = re.compile(r"[{(]?0{8}-0{4}-0{4}-0{4}-0{12}[)}]?")
_SUFFIXES = re.compile(r"(?:\.[a-z]+|[0-9._-]+)+$")
_DATES = re.compile(r"[0-9]+(?:t[0-9]+)?z?")


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
    settings: Mapping[str, Any] = field(default_factory=dict)  # of its text, by their names in SideConfig
    notes: tuple[str, ...] = ()  # a line for each guess about its text
    _values: dict[str, list[str]] = field(default_factory=dict)
    _names: list[str] = field(default_factory=list)

    def value(self, row: Row, name: str) -> str:
        """Returns the field's text; empty if it is missing or marked as absent."""
        value = row.get(name, "")
        if type(value) is int:
            return str(value)
        return "" if is_absent(str(value)) else str(value)

    def values(self, name: str) -> list[str]:
        """Returns the field's values, in order, from the rows that have one."""
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
        """True if the logs or their directory are named after ``subject``: ``orders-2026.csv`` after ``order``."""
        parts = {part for file in self.files for part in file.lower().split("/")}
        names = (re.sub(r"[^a-z]", "", _DATES.sub("", _SUFFIXES.sub("", part))) for part in parts)
        return len(subject) > 2 and any(_singular(name) == _singular(subject) for name in names)

    def config(self, key: Key, id_field: str | None = None, time: TimeConfig | None = None) -> SideConfig:
        """Returns a configuration of this side with these fields."""
        config = SideConfig(
            format=self.format,
            key=key,
            id=id_field,
            time=time,
            delimiter=self.delimiter,
            columns=self.columns,
            pattern=self.pattern,
            **self.settings,
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
    text = plain(sample)
    if isinstance(text, str):
        return text
    files, settings, notes = text
    records = [record for each in files.values() for record in each if record.strip()]
    if not records:
        return "hold no records yet, so their format cannot be guessed"
    layout = json_objects(files, records)
    if isinstance(layout, str):
        return layout
    distinct = list(
        dict.fromkeys(record.removesuffix(b"\r") for record in (records if layout is None else layout[0]))
    )
    side = _side(files, distinct) if layout is None else _objects(files, distinct, layout[1])
    if isinstance(side, str):
        return side
    if not side.names() and not side.rare_names():
        return f"hold no field with text or a number in it (the first record is {_cut_short(records[0])})"
    header = side.columns is None and side.format in ("csv", "tsv", "blanks")  # which each file has
    repeated = len(records) - len(distinct) - (len(sample) - 1 if header else 0)
    if layout is not None:
        repeated = len(layout[0]) - len(distinct)
    given = {**settings, **side.settings}
    return replace(side, repeated=max(repeated, 0), written=written, settings=given, notes=(*notes, *side.notes))


def _objects(sample: Sample, distinct: Sequence[bytes], settings: dict[str, Any]) -> Side | str:
    rows = _rows(_json_row, distinct)
    return Side("json", rows, tuple(sample), settings=settings) if rows else "hold JSON objects that cannot be read"


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
    table = table_of(sample)
    if isinstance(table, Table) and table.columns is None:
        return _side_of(table, files)
    if (found := gathered(sample)) is not None and (side := _lines(files, list(chain(*found[1].values())))):
        return replace(side, settings={"begins": found[0]}, notes=(f"begins = {found[0]!r}: {TOGETHER}",))
    # Before CSV without header: a comma may belong to times.
    if (side := _lines(files, distinct)) is not None:
        return side
    if isinstance(table, Table):
        return _side_of(table, files)
    if table is not None:
        return table
    return f"{TEXT} (the first record begins {distinct[0][:40]!r}); write a pattern for them"


def _side_of(table: Table, files: tuple[str, ...]) -> Side:
    return Side(table.format, table.rows, files, table.delimiter, table.columns, settings=table.settings)


def _lines(files: tuple[str, ...], distinct: Sequence[bytes]) -> Side | None:
    """Returns the rows of lines that have one common shape; ``None`` if they have none."""
    pattern = pattern_of(distinct)
    if pattern is None:
        return None
    compiled = re.compile(pattern.encode())
    matches = (compiled.match(record) for record in distinct)
    rows: list[Row] = [
        {name: text.decode("utf-8", "replace") for name, text in match.groupdict().items() if text}
        for match in matches
        if match
    ]
    return Side("regex", rows, files, pattern=pattern)


def _rows(read: Callable[[bytes], Row | None], records: Sequence[bytes]) -> list[Row] | None:
    """Reads all records; ``None`` if too few are readable. Stops early if they are clearly of another format."""
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
        if records and not records[0].removeprefix(BOM).startswith((b"#separator ", b"#fields\t")):
            return None
        header = b""
        for record in records:
            record = record.removesuffix(b"\r")
            if record.startswith((b"#", BOM + b"#")):
                header = after_lines(header, record.removeprefix(BOM) + b"\n")
            elif record not in seen:
                seen.add(record)
                rows += [row] if (row := zeek_row(record, header)) else []
    return rows or None


def _logfmt_row(record: bytes) -> Row | None:
    """Reads one record; ``None`` if it is not logfmt, or hardly: plain text is valid logfmt, a row of flags."""
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
