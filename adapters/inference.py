"""Guesses the configuration of easy logs from their first records, and says what it could not decide.

A guess is only made where one reading stands out; anything else is ``Unclear`` with what to write. The event id is
the most careful guess of all: a field taken for an id that is none would drop real events as duplicates, so a field
must be unique *and* name the event (``id``, ``event_id``, the file's own name, ServerIP:ProcessID:TimestampMicros
values). For the same reason a field that is just ``id`` on both sides is never taken for the key: it may be each
side's own. Byte-identical records count once: re-sent lines must not hide that a field is unique.

Pure: records in, configuration and explanation out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from photon.adapters.contract import BadRecord
from photon.adapters.formats.delimited import DelimitedSide
from photon.adapters.formats.json_lines import parse_object
from photon.adapters.formats.logfmt import parse_pairs
from photon.adapters.formats.zeek import zeek_row
from photon.adapters.logs.zeek_framing import after_lines
from photon.adapters.side import ZEEK_TIME, SideConfig, TimeConfig
from photon.adapters.times import Iso8601Time, PatternTime

SAMPLE_RECORDS = 200
"""About how many records of each side the caller should bring (over several files, each from its beginning)."""
READABLE_SHARE = 0.8
"""A format is recognised when at least this share of the records is readable in it."""

NEITHER = "are neither JSON Lines nor CSV or TSV with a header, nor logfmt or Zeek's"
PATTERNS = r"""
[join.errors.primary]    # 10.0.0.1 - - [20/Nov/2026:09:00:00 +0100] "GET /cart HTTP/1.1" 500 rid=7f3a
format = "regex"
pattern = '(?P<client>[^ ]+) - - \[(?P<time>[^\]]+)\] "(?P<request>[^"]*)" (?P<status>[0-9]+) rid=(?P<rid>[^ ]+)'
key = "rid"

[join.errors.foreign]    # 2026-11-20 09:00:00,456 ERROR req=7f3a eid=E42 - payment declined
format = "regex"
pattern = '(?P<at>[^ ]+ [^ ]+) (?P<level>[A-Z]+) req=(?P<req>[^ ]+) eid=(?P<eid>[^ ]+) - (?P<text>.*)'
key = "req"
id = "eid"               # leave it out where an event has none of its own
time = { field = "at", format = "%Y-%m-%d %H:%M:%S,%f", zone = "Europe/Berlin" }
"""
"""What to write for lines of any shape: for each side, with a line that it reads."""

Sample = Mapping[str, Sequence[bytes]]
"""File name -> its first records without line ends, a header record included."""
Row = dict[str, str | int]
"""The fields that can be keys or times: text, integers; other numbers as their text."""

_DELIMITERS = {b",": ("csv", None), b"\t": ("tsv", None), b";": ("csv", ";"), b"|": ("csv", "|")}
_TIME_NAMES = ("event_time", "@timestamp", "timestamp", "ts", "time", "datetime", "date")
_TIME_SUFFIX = re.compile(r"(?:^|[_.@])(?:at|on|ts|time|date|datetime|timestamp)(?:_(?:s|ms|us|ns))?$", re.IGNORECASE)
_KEY_NAME = re.compile(
    r"(?i:(?:^|[_.@-])(?:id|uid|uuid|guid|key|hash|number|no|ref)$)|[a-z](?:Id|ID|Key|Uuid)$",
)
_EVENT_NAMES = frozenset(
    {"id", "_id", "event_id", "eventid", "uuid", "guid", "event_uuid", "record_id", "message_id"}
)
_EVENT_ID_VALUE = re.compile(r"[0-9.:a-fA-F]+:[0-9]+:[0-9]{13,}")
_EPOCH_DIGITS = {"s": (9, 10), "ms": (12, 13), "us": (15, 16), "ns": (18, 19)}
"""Digits before the decimal point of a time from 1973 to 2286, by unit."""
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_PATTERNS = ("%d/%b/%Y:%H:%M:%S %z", "%Y/%m/%d %H:%M:%S", "%m/%d/%Y %H:%M:%S", "%d.%m.%Y %H:%M:%S")


@dataclass(frozen=True, slots=True)
class Inferred:
    """A configuration that fits. ``explanation``: one line for each choice. ``toml``: to keep and correct."""

    primary: SideConfig
    foreign: SideConfig
    explanation: tuple[str, ...]
    toml: str


@dataclass(frozen=True, slots=True)
class Unclear:
    """No single reading stands out. ``problem`` and ``todo`` are one line each, ``example`` is a file."""

    problem: str
    todo: str
    example: str


@dataclass(frozen=True, slots=True)
class _Side:
    """One side's sample and its format."""

    format: str
    delimiter: str | None
    rows: list[Row]

    def values(self, name: str) -> list[str]:
        return [str(row[name]) for row in self.rows if row.get(name, "") != ""]

    def names(self) -> list[str]:
        """Fields that nearly all rows have, in order of appearance."""
        counts: dict[str, int] = {}
        for row in self.rows:
            for name, value in row.items():
                counts[name] = counts.get(name, 0) + (value != "")
        return [name for name, count in counts.items() if count >= READABLE_SHARE * len(self.rows)]

    def is_unique(self, name: str) -> bool:
        values = self.values(name)
        return len(set(values)) == len(values) > 0


def infer(primary: Sample, foreign: Sample) -> Inferred | Unclear:
    """The two sides' configuration, or why it cannot be guessed."""
    sides = []
    for role, sample in (("primary", primary), ("foreign", foreign)):
        side = _read_side(sample)
        if isinstance(side, str):
            return _unclear(f"the {role} logs {side}", lines=side.startswith(NEITHER))
        sides.append(side)
    first, second = sides
    time = _find_time(second)
    if isinstance(time, str):
        return _unclear(time)
    key = _find_key(first, second, time.field)
    if isinstance(key, Unclear):
        return key
    name, why = key
    event_id, id_why = _find_id(second, foreign, name, time.field)
    primary_config = SideConfig(format=first.format, delimiter=first.delimiter, key=name)
    foreign_config = SideConfig(format=second.format, delimiter=second.delimiter, key=name, id=event_id, time=time)
    lines = (
        f"primary: {first.format}, foreign: {second.format}",
        why,
        id_why,
        f"event time = {time.field!r} ({time.format or 'unit ' + str(time.unit)}, UTC where no zone is given)",
    )
    return Inferred(primary_config, foreign_config, lines, toml_of(primary_config, foreign_config))


def describe(sample: Sample, told: Mapping[str, Any], *, foreign: bool) -> dict[str, Any] | str:
    """One side's table: what is told of it, its key at least, and what its records say of the rest. ``told["time"]``
    may be a field's name alone. A text: why it is unclear."""
    table = dict(told)
    delimiter = None
    if foreign and table.get("format") in ("zeek", "zeek-json") and "time" not in table:
        return table
    side = _read_side(sample)
    if "format" not in table:
        if isinstance(side, str):
            return side
        table["format"], delimiter = side.format, side.delimiter
        if delimiter is not None:
            table.setdefault("delimiter", delimiter)
    time = table.get("time")
    if not foreign or isinstance(time, Mapping):
        return table
    if isinstance(side, str):
        return f"{side}; give time a unit or a format"
    if isinstance(time, str) and time not in side.names():
        return f"have no field {time!r} for the event time; they have {', '.join(side.names()[:12])}"
    found = _time_of(time, side.values(time)) if isinstance(time, str) else _find_time(side)
    if found is None:
        return f"have values of no known unit or format in {time!r}; give time a unit or a format"
    if isinstance(found, str):
        return found.removeprefix("the foreign logs ")
    table["time"] = {"field": found.field, "unit" if found.unit else "format": found.unit or found.format}
    if "id" not in table:
        event_id, _ = _find_id(side, sample, str(table["key"]), found.field)
        table |= {} if event_id is None else {"id": event_id}
    return table


def toml_of(primary: SideConfig, foreign: SideConfig, name: str = "join") -> str:
    out = []
    for role, side in (("primary", primary), ("foreign", foreign)):
        out.append(f"[join.{name}.{role}]")
        for field in ("format", "delimiter", "key", "id"):
            value = getattr(side, field)
            if value is not None:
                out.append(f"{field} = {_quoted(value)}")
        if side.time is not None:
            kind = "unit" if side.time.unit else "format"
            value = _quoted(side.time.unit or side.time.format or "")
            out.append(f"time = {{ field = {_quoted(side.time.field)}, {kind} = {value} }}")
        out.append("")
    return "\n".join(out)


def _quoted(text: str) -> str:
    return orjson.dumps(text).decode()  # a JSON string is a TOML basic string


def _unclear(problem: str, *, lines: bool = False) -> Unclear:
    """``lines``: of a side that only a pattern can take apart."""
    todo = (
        "write a configuration file, try it with photon adapter test, and name it with --config, for instance as "
        "below (format: jsonl, csv, tsv, regex, logfmt, zeek, zeek-json or protobuf; examples of each stand on the "
        "documentation's page Adapters)"
    )
    plain = toml_of(
        SideConfig(format="jsonl", key="query_id"),
        SideConfig(format="jsonl", key="query_id", id="click_id", time=TimeConfig(field="ts", unit="ms")),
    )
    return Unclear(problem, todo, PATTERNS if lines else plain)


def _read_side(sample: Sample) -> _Side | str:
    """The sample's rows in the format that fits, or why none does."""
    records = [record for each in sample.values() for record in each if record.strip()]
    if not records:
        return "hold no records yet, so their format cannot be guessed"
    rows = [row for row in map(_json_row, dict.fromkeys(records)) if row is not None]
    if len(rows) >= READABLE_SHARE * len(set(records)):
        return _Side("jsonl", None, rows)
    zeek = _zeek_rows(sample)
    if zeek is not None:
        return _Side("zeek", None, zeek)
    rows = [row for row in map(_logfmt_row, dict.fromkeys(records)) if row is not None]
    if len(rows) >= READABLE_SHARE * len(set(records)):
        return _Side("logfmt", None, rows)
    for delimiter, (kind, setting) in _DELIMITERS.items():
        found = _delimited_rows(sample, delimiter)
        if found:
            return _Side(kind, setting, found)
    return (
        f"{NEITHER} "
        f"(the first record begins {records[0][:40]!r}); "
        "columns without a header, or a pattern, have to be named"
    )


def _json_row(record: bytes) -> Row | None:
    try:
        fields = parse_object(record)
    except BadRecord:
        return None
    row: Row = {}
    _flatten(fields, "", row)
    return row


def _zeek_rows(sample: Sample) -> list[Row] | None:
    """Rows of files that all begin with Zeek's header lines; None when they do not."""
    rows: list[Row] = []
    seen: set[bytes] = set()
    for records in sample.values():
        if records and not records[0].removeprefix(b"\xef\xbb\xbf").startswith((b"#separator ", b"#fields\t")):
            return None
        header = b""
        for record in records:
            record = record.removesuffix(b"\r")
            if record.startswith((b"#", b"\xef\xbb\xbf#")):
                header = after_lines(header, record.removeprefix(b"\xef\xbb\xbf") + b"\n")
            elif record not in seen:
                seen.add(record)
                rows += [row] if (row := zeek_row(record, header)) else []
    return rows or None


def _logfmt_row(record: bytes) -> Row | None:
    """None for a record that is no logfmt, or hardly: text is flags to logfmt."""
    try:
        fields = parse_pairs(record.removesuffix(b"\r"))
    except BadRecord:
        return None
    row: Row = {
        name.decode("utf-8", "replace"): value.decode("utf-8", "replace")
        for name, value in fields.items()
        if value is not None
    }
    return row if len(row) >= max(2, len(fields) / 2) else None


def _flatten(fields: Mapping[str, Any], prefix: str, row: Row) -> None:
    for name, value in fields.items():
        kind = type(value)
        if kind is dict and not prefix:  # one level of nesting is easy; deeper is not guessed
            _flatten(value, f"{name}.", row)
        elif kind is float:
            row.setdefault(prefix + name, f"{value:.6f}" if abs(value) < 1e15 else str(value))
        elif kind is int or isinstance(value, str):
            row.setdefault(prefix + name, value)


def _delimited_rows(sample: Sample, delimiter: bytes) -> list[Row]:
    """Rows of files that all begin with a header, as text; empty when they do not."""
    rows: list[Row] = []
    seen: set[bytes] = set()
    bad = 0
    split: Callable[[bytes], list[bytes]] = DelimitedSide("-", delimiter=delimiter)._split
    for records in sample.values():
        if not records:
            continue
        try:
            names = [name.decode() for name in split(records[0].removeprefix(b"\xef\xbb\xbf").removesuffix(b"\r"))]
        except (BadRecord, UnicodeDecodeError):
            return []
        if len(names) < 2 or len(set(names)) != len(names) or not all(map(_is_column_name, names)):
            return []
        for record in records[1:]:
            if not record.strip() or record in seen:
                continue
            seen.add(record)
            try:
                fields = split(record.removesuffix(b"\r"))
                rows.append(dict(zip(names, [field.decode("utf-8", "replace") for field in fields], strict=True)))
            except (BadRecord, ValueError):
                bad += 1
    return rows if rows and len(rows) >= READABLE_SHARE * (len(rows) + bad) else []


def _is_column_name(name: str) -> bool:
    return bool(name.strip()) and not _NUMBER.fullmatch(name.lstrip("-")) and len(name) <= 100


def _find_key(primary: _Side, foreign: _Side, time_field: str) -> tuple[str, str] | Unclear:
    """(field, why): on both sides, unique among primaries, most of the foreign values known there."""
    shared = [name for name in foreign.names() if name in set(primary.names())]
    fit = [
        name
        for name in shared
        if name != time_field
        and name.lower() not in _EVENT_NAMES
        and not _TIME_SUFFIX.search(name)
        and primary.is_unique(name)
        and _nameable(primary, name)
    ]
    overlap = {name: _overlap(primary, foreign, name) for name in fit}
    if not fit:
        there = f"both have {', '.join(shared[:12])}" if shared else "they share no field name"
        return _unclear(f"no field on both sides is unique among the primary records ({there}); name the key")
    best = sorted(fit, key=lambda name: (-overlap[name], not _KEY_NAME.search(name)))
    top = best[0]
    rivals = [
        name for name in best[1:] if overlap[name] >= overlap[top] and _is_named_key(name) >= _is_named_key(top)
    ]
    if rivals:
        return _unclear(f"the key may be {', '.join([top, *rivals][:6])}: each is unique among the primary records")
    if not overlap[top] and not _is_named_key(top):
        return _unclear(f"only {top!r} could be the key, but no foreign record names a sampled primary by it")
    share = f"{overlap[top]:.0%} of the sampled foreign values are among the sampled primaries"
    return top, f"key = {top!r}: on both sides, unique among primaries, {share}"


def _is_named_key(name: str) -> bool:
    return _KEY_NAME.search(name) is not None


def _nameable(side: _Side, name: str) -> bool:
    """False for fractions: they are no keys."""
    return not all("." in value and _NUMBER.fullmatch(value) for value in side.values(name))


def _overlap(primary: _Side, foreign: _Side, name: str) -> float:
    known = set(primary.values(name))
    values = set(foreign.values(name))
    return len(values & known) / len(values) if values else 0.0


def _find_id(side: _Side, sample: Sample, key: str, time_field: str) -> tuple[str | None, str]:
    """(the field that is the event's own id or None, why)."""
    files = "".join(re.sub(r"[^a-z]", "", name.lower()) for name in sample)
    unique = [
        name
        for name in side.names()
        if name not in (key, time_field) and _is_named_key(name) and side.is_unique(name) and len(side.rows) > 1
    ]
    sure = [name for name in unique if _names_the_event(name, files) or _looks_like_event_ids(side, name)]
    if len(sure) == 1:
        return sure[0], f"event id = {sure[0]!r}: unique, and named as the event's own"
    what = (
        f"; unique in the sample are {', '.join(unique[:6])}: write id = … if one is the event's own"
        if unique
        else ""
    )
    return None, f"event id = the log's identity and byte offset{what}"


def _names_the_event(name: str, files: str) -> bool:
    stem = re.sub(r"[^a-z]", "", re.sub(r"(?i)[_.-]?(?:uuid|guid|uid|id)$", "", name).lower())
    return name.lower() in _EVENT_NAMES or (len(stem) > 2 and stem in files)


def _looks_like_event_ids(side: _Side, name: str) -> bool:
    return all(_EVENT_ID_VALUE.fullmatch(value) for value in side.values(name))


def _find_time(side: _Side) -> TimeConfig | str:
    """The foreign event time, or the problem."""
    if side.format == "zeek" and ZEEK_TIME.field in side.names():
        return ZEEK_TIME
    found: list[TimeConfig] = []
    named = [name for name in side.names() if name.lower() in _TIME_NAMES or _TIME_SUFFIX.search(name)]
    for name in named:
        time = _time_of(name, side.values(name))
        if time is not None:
            found.append(time)
    if not found:
        which = (
            f"{', '.join(named[:6])} could be it but have no known unit or format"
            if named
            else "no field is named so"
        )
        return f"the foreign logs have no field that is clearly the event time ({which}); name field, unit or format"
    exact = sorted((time for time in found if time.field.lower() in _TIME_NAMES), key=_rank)
    if exact:
        return exact[0]
    if len(found) > 1:
        names = ", ".join(time.field for time in found[:6])
        return f"the event time may be {names}; name the field, and its unit or format"
    return found[0]


def _rank(time: TimeConfig) -> int:
    return _TIME_NAMES.index(time.field.lower())


def _time_of(name: str, values: Sequence[str]) -> TimeConfig | None:
    if all(map(_NUMBER.fullmatch, values)):
        digits = {len(value.partition(".")[0].lstrip("0")) for value in values}
        for unit, (low, high) in _EPOCH_DIGITS.items():
            if all(low <= count <= high for count in digits):
                return TimeConfig(field=name, unit=unit)
        return None
    if _all_read(Iso8601Time().from_text, values):
        return TimeConfig(field=name, format="iso8601")
    for pattern in _PATTERNS:
        if _all_read(PatternTime(pattern).from_text, values):
            return TimeConfig(field=name, format=pattern)
    return None


def _all_read(read: Callable[[bytes], int], values: Sequence[str]) -> bool:
    try:
        for value in values:
            read(value.encode("utf-8", "surrogateescape"))
    except ValueError:
        return False
    return True
