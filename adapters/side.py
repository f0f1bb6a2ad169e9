"""One side of a join as configured: plain frozen structs and their validation.

The deployment's TOML holds them as ``[join.NAME.primary]`` and ``[join.NAME.foreign]``. Every setting that affects a
record's id, key or time is part of the adapter's rule (see ``ConfiguredAdapter.rule``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC
from typing import Any, Literal

import msgspec

from photon.adapters import times
from photon.adapters.conditions import PATTERN_CHARS_MAX, Condition, check_condition, compiled
from photon.adapters.contract import LINES, AdapterError, Framing, check_names
from photon.adapters.formats.encodings import UTF8, canonical
from photon.adapters.formats.json_objects import JsonObjects
from photon.adapters.formats.part_rules import PARTS_MAX, KeyPart, named_part
from photon.adapters.formats.text_lines import BLANKS, LINE_END, TextLines

FORMATS = ("jsonl", "json", "csv", "tsv", "blanks", "w3c", "regex", "logfmt", "zeek", "zeek-json", "protobuf")
DELIMITED = ("csv", "tsv", "blanks", "w3c")
LINE_FORMATS = ("jsonl", "csv", "tsv", "blanks", "regex", "logfmt", "zeek-json")
CRI_FORMATS = ("jsonl", "csv", "tsv", "regex", "logfmt", "zeek-json")
ABSENT_FORMATS = (*LINE_FORMATS, "json", "w3c")
ABSENT_MAX = 64
LINED = ("jsonl", "csv", "tsv", "regex", "logfmt")  # formats of which each line of a file is a record
TIME_FIELDS_MAX = 8
COLUMNS_MAX = 4096
CONDITIONS_MAX = 256
SKIP_LINES_MAX = 1000
DELIMITER_MAX = 8
TEXT_SETTINGS = ("encoding", "skip_lines", "comment", "begins", "continues", "colours")
DELIMITED_SETTINGS = {
    "delimiter": ("csv", "tsv"),
    "quote": DELIMITED,
    "escape": ("csv", "tsv", "blanks"),
    "header": ("csv", "tsv", "blanks"),
    "columns": ("csv", "tsv", "blanks"),
    "multiline": ("csv", "tsv"),
}


Key = str | KeyPart | tuple[str | KeyPart, ...]


class TimeConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """Field and format of the event time: ``unit`` for numbers, else ``format``."""

    field: str = ""
    fields: tuple[str, ...] = ()  # instead of ``field``: several, whose texts are joined by one blank
    pattern: str | None = None  # the time is the first group, or the whole match, of this pattern
    unit: str | None = None  # s, ms, us or ns since the origin; "filetime" (Windows) or "ticks" (.NET)
    # "iso8601", a strptime-like pattern, "tai64n", "zeek" (see times.ZeekTime), or "timestamp"
    # (google.protobuf.Timestamp).
    format: str | None = None
    # For a pattern without a year: the year of each file's first line, or "name" for the date in the file's name
    year: int | Literal["name"] | None = None
    origin: str | None = None  # the local day or time in ``zone`` that numbers count from. Absent: the Unix epoch
    zone: str = "UTC"  # for the origin, and for times without a zone of their own

    @property
    def names(self) -> tuple[str, ...]:
        return self.fields or (self.field,)


ZEEK_TIME = TimeConfig(field="ts", format="zeek")
LINE_TIME = "line"
PRIMARY_TIME = "primary"
JOINED_ID = "event_id"
JOINED_TIME = TimeConfig(field="event_time_ns", unit="ns")  # for the records that a join writes


class SideConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The format of one side's records. Names are JSON field paths ("a.b"), CSV columns, or groups of the pattern."""

    # ``jsonl``, ``json``, ``csv``, ``tsv``, ``blanks``, ``w3c``, ``regex``, ``logfmt``, ``zeek``, ``zeek-json`` or
    # ``protobuf``; see docs/adapters.md#which-format-is-my-log.
    format: str
    # The key: the field on each side that identifies the primary event (JSON: ``"a.b"`` for nested fields); several
    # fields together, or normalised ones: see Kinds of join (docs/joins.md); a part of one:
    # docs/adapters.md#my-key-is-inside-the-url.
    key: Key
    # foreign: field with the event's own globally unique id; without it every line is an event, identified by its
    # place and content (docs/dispatcher.md#which-bytes-are-one-log); see docs/ids.md.
    id: str | KeyPart | None = None
    # Foreign (primary: for ``within``, ``latest`` and ``"primary"``): the event time; without it every event has the
    # same time (docs/exactly-once.md#events-without-a-time), and ``registry.retention``, ``within``,
    # ``written_within`` and ``match = "latest"`` are refused. ``{ field, unit }`` for numbers (``s``, ``ms``, ``us``,
    # ``ns``; ``filetime``, ``ticks``), or ``{ field, format }`` (``"iso8601"``, a strptime pattern, with ``year`` if
    # it has none, ``"tai64n"``, ``"zeek"``, or ``"timestamp"`` for a google.protobuf.Timestamp; Zeek formats need no
    # ``time``); ``fields`` in place of ``field``: several, joined by a blank; ``origin`` is what numbers count from
    # (a local day or time), ``zone`` the time zone (``UTC``), ``pattern`` extracts the time from the field. Or
    # ``"line"`` with ``framing = "cri"`` (the default there), or ``"primary"``: joined records have the primary
    # event's time, and ids are kept as for events without a time.
    time: TimeConfig | str | None = None
    # Records that are not events of this side and are not counted, by conditions as in a shape, such as ``[{ field =
    # "kind", differs = "flow" }]`` (docs/adapters.md#only-some-lines-are-events).
    skip: tuple[Condition, ...] = ()
    # ``"cri"``: the files are container logs of Kubernetes (docs/adapters.md#my-log-is-a-kubernetes-containers);
    # ``format`` is then the format of the lines in them.
    framing: str | None = None
    encoding: str | None = None  # of the text: ``utf-8`` (default), ``utf-16``, or a single-byte Python codec
    skip_lines: int = 0  # lines at the start of each file that are left out, such as a report's title
    comment: str | None = None  # lines that begin with this are left out
    # Line formats: a regular expression at a line's start. A line that matches begins a record, others belong to it
    # (docs/adapters.md#one-event-is-many-lines); with ``framing = "cri"`` those of one stream.
    begins: str | None = None
    continues: str | None = None  # instead of ``begins``: a line that matches belongs to the record before it
    colours: bool = False  # terminal colours are removed from the lines
    records: str | None = None  # json: the member that holds the list of records, as in ``{"Records":[…]}``
    delimiter: str | None = None  # csv, tsv: separator of the fields; default a comma, or a tab
    quote: str | None = None  # csv, tsv, blanks, w3c: the quote character, ``""`` for none; default ``"``
    escape: str | None = None  # csv, tsv, blanks: makes a quote, a delimiter or itself a character of the field
    # csv, tsv, blanks: each file's first record names the columns; default: true unless ``columns`` is set.
    header: bool | None = None
    columns: tuple[str, ...] | None = None  # csv, tsv, blanks without header: the columns' names in order
    pattern: str | None = None  # regex: a Python regular expression with named groups
    multiline: bool = False  # csv, tsv: line ends inside quotes belong to the field
    # Texts that mean an absent value, one or several, for instance ``["-", "NULL"]``: not valid as key or id, and in
    # csv, tsv, regex and logfmt such a field is left out; not for ``zeek`` and ``protobuf``.
    absent: str | tuple[str, ...] = ()
    # primary: events whose key several different primary records share are joined to the ``first`` or ``last`` in
    # file order, or ``reject``ed; unset: ``first`` (docs/joins.md#one-primary-event-per-key).
    duplicates: Literal["first", "last", "reject"] | None = None
    descriptor: str | None = None  # protobuf: the file with the FileDescriptorSet, relative to this one
    # Another join of the file: its joined records are the events of this side; ``format``, ``id`` and ``time`` may be
    # left out (docs/chains.md).
    join: str | None = None
    message: str | None = None  # protobuf: the full name of the message
    # Absolute directories that links in the log directory may lead into, as ``["/var/log/pods"]``; other links that
    # lead out of it are not read (docs/dispatcher.md#links). Not ``/``, and none that overlaps ``state``, ``output``,
    # the directory of ``[tls]`` or ``key_file``.
    follow_links: tuple[str, ...] = ()

    @property
    def key_parts(self) -> tuple[KeyPart, ...]:
        if isinstance(self.key, str):
            return (KeyPart(field=self.key),)
        parts = self.key if isinstance(self.key, tuple) else (self.key,)
        return tuple(KeyPart(field=part) if isinstance(part, str) else part for part in parts)

    @property
    def id_part(self) -> KeyPart | None:
        return KeyPart(field=self.id) if isinstance(self.id, str) else self.id

    @property
    def id_field(self) -> str | None:
        return None if self.id is None else self.id if isinstance(self.id, str) else self.id.field

    @property
    def absent_values(self) -> tuple[str, ...]:
        return (self.absent,) if isinstance(self.absent, str) else self.absent

    @property
    def has_header(self) -> bool:
        could = self.format in DELIMITED and self.format != "w3c"
        return could and (self.columns is None if self.header is None else self.header)

    @property
    def field_time(self) -> TimeConfig | None:
        """Returns the time's configuration if the time is in a field; otherwise ``None``."""
        return self.time if isinstance(self.time, TimeConfig) else None

    @property
    def files_framing(self) -> Framing:
        encoding = canonical(self.encoding or UTF8) or UTF8
        if self.format == "json":
            return JsonObjects(encoding=encoding, records=self.records or "")
        text = TextLines(
            encoding=encoding,
            skip_lines=self.skip_lines,
            comment=(self.comment or "").encode(),
            begins=(self.begins or "").encode(),
            continues=(self.continues or "").encode(),
            joint=LINE_END if self.format in (*DELIMITED, "regex") else b"\t",
            colours=self.colours,
            cri=self.framing is not None,
            before=None if self.framing is None else Framing(self.framing),
        )
        if self.framing is not None:
            return text if self.gathers or self.colours else Framing(self.framing)
        before = None if text == TextLines(joint=text.joint) else text
        if self.format in ("zeek", "w3c"):
            return Framing("zeek", before=before)
        if self.format == "protobuf":
            return Framing("varint")
        if self.multiline:
            escape = (self.escape or "").encode()
            return Framing("quoted", self.quote_byte, self.delimiter_byte, escape=escape, before=before)
        if self.field_time and isinstance(self.field_time.year, int):
            return Framing(first_line=True)
        return before or LINES

    @property
    def gathers(self) -> bool:
        return bool(self.begins or self.continues)

    @property
    def delimiter_byte(self) -> bytes:
        """Returns the delimiter between fields."""
        if self.format in ("blanks", "w3c"):
            return BLANKS
        return (self.delimiter or ("\t" if self.format == "tsv" else ",")).encode()

    @property
    def quote_byte(self) -> bytes:
        """Returns the quote character of fields; empty if there is none."""
        return ('"' if self.quote is None else self.quote).encode()


def side_from_table(table: Mapping[str, Any], where: str, *, foreign: bool) -> SideConfig:
    """Returns a checked side from a TOML table at ``where`` ("join.clicks.foreign"). Raises AdapterError."""
    for given, struct, place in ((table, SideConfig, where), (table.get("time"), TimeConfig, f"{where}.time")):
        if isinstance(given, Mapping):
            check_names(given, struct.__struct_fields__, place, "a setting")
    if "join" in table:
        table = {"format": "jsonl", **table}
    try:
        side = msgspec.convert(dict(table), SideConfig)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at ")
        place = where + path.strip("`").removeprefix("$")
        raise AdapterError(f"{message[:1].lower()}{message[1:]}", place, "correct the value") from None
    side = with_defaults(side, foreign=foreign)
    check_side(side, where, foreign=foreign)
    return side


def with_defaults(side: SideConfig, *, foreign: bool) -> SideConfig:
    """Adds a side's defaults: Zeek's time field and formats, another join's id and time, a container log's time."""
    if foreign and side.join is not None:
        return msgspec.structs.replace(side, id=side.id or JOINED_ID, time=side.time or JOINED_TIME)
    if foreign and side.time is None and side.framing == "cri":
        return msgspec.structs.replace(side, time=LINE_TIME)
    if foreign and side.time is None and side.format in ("zeek", "zeek-json"):
        return msgspec.structs.replace(side, time=ZEEK_TIME)
    return side


def check_side(side: SideConfig, where: str, *, foreign: bool) -> None:
    """Refuses a side that cannot be read as configured. Raises AdapterError with a correct value."""
    if side.format not in FORMATS:
        raise _wrong(where, "format", side.format, f"write one of {', '.join(FORMATS)}")
    if side.join is not None and side.format != "jsonl":
        raise _wrong(where, "format", side.format, "remove it: the records of another join are JSON Lines")
    _check_text(side, where)
    _check_delimited(side, where)
    _check_framing(side, where, foreign=foreign)
    _check_protobuf(side, where)
    absent = side.absent_values
    if absent and (not all(absent) or len(absent) > ABSENT_MAX or side.format not in ABSENT_FORMATS):
        todo = f"write one text, or a list of at most {ABSENT_MAX}; it is for {', '.join(ABSENT_FORMATS)}"
        raise _wrong(where, "absent", side.absent, todo)
    check_links(side.follow_links, where)
    _check_names_exist(side, where)
    _check_key(side, where, foreign=foreign)
    _check_skip(side, where)
    if side.id_field == "":
        raise _wrong(where, "id", side.id, "name the field that holds the event's id, or remove this line")
    if side.id_part is not None:
        _check_part(side.id_part, f"{where}.id")
        if side.id_part.each:
            raise _wrong(f"{where}.id", "each", side.id_part.each, "remove it: an event has one id")
    if not foreign and side.id is not None:
        raise _wrong(where, "id", side.id, "remove it: only foreign events have an id; a primary event has its key")
    if foreign and side.duplicates is not None:
        raise _wrong(where, "duplicates", side.duplicates, "remove it: it is a setting of the primary side")
    if side.field_time is not None:
        _check_time(side, side.field_time, f"{where}.time")


def _check_time(side: SideConfig, time: TimeConfig, where: str) -> None:
    time_reader(time, where)
    if time.fields and side.format == "protobuf":
        raise _wrong(where, "fields", time.fields, "name one field: a message has its time in one field")
    plain = side.format in LINED and not any(getattr(side, name) for name in TEXT_SETTINGS)
    if isinstance(time.year, int) and (side.has_header or side.multiline or side.framing or not plain):
        known = f"{', '.join(LINED)} without a header and {', '.join(TEXT_SETTINGS)}"
        todo = f'write "name" for the date in the files\' names; a first line is known for {known}'
        raise _wrong(where, "year", time.year, todo)


def check_links(directories: Sequence[str], where: str) -> None:
    """Refuses ``follow_links`` that allow everything or depend on the working directory. Raises AdapterError."""
    for each in directories:
        if not each.startswith("/") or not each.strip("/."):
            raise _wrong(where, "follow_links", each, 'write absolute directories, as ["/var/log/pods"], and not "/"')


def time_reader(time: TimeConfig, where: str) -> times.TimeReader:
    """Returns the reader that a time table describes. Raises AdapterError."""
    if bool(time.field) == bool(time.fields) or "" in time.fields:
        raise _wrong(where, "field", time.field, "name the field that holds the event time, or several as fields")
    if len(time.fields) > TIME_FIELDS_MAX or (time.fields and time.format in (None, "zeek", "timestamp")):
        todo = f"write at most {TIME_FIELDS_MAX}, with the format of their texts joined by one blank"
        raise _wrong(where, "fields", time.fields, todo)
    if time.pattern is not None:
        pattern = compiled_bytes(time.pattern, f"{where}.pattern")
        return times.FoundTime(pattern, time_reader(msgspec.structs.replace(time, pattern=None), where))
    if (time.unit is None) == (time.format is None):
        raise AdapterError(
            "unit and format are both missing" if time.unit is None else "unit and format are both given",
            where,
            'write either unit = "s" (ms, us, ns) for numbers or format = "iso8601" (or %Y-%m-%d %H:%M:%S) for text',
        )
    try:
        zone = times.zone_named(time.zone)
    except ValueError as error:
        raise AdapterError(f"zone = {error}", where, "see the list of tz database names") from None
    if time.year is not None and (time.format is None or "%" not in time.format):
        raise _wrong(where, "year", time.year, 'remove it: it is for a pattern without a year, as "%b %e %H:%M:%S"')
    if time.format is not None:
        if time.origin is not None:
            raise _wrong(where, "origin", time.origin, "remove it: an origin is for a unit, not for a format")
        if time.format == "zeek":
            if zone is not UTC:
                raise _wrong(where, "zone", time.zone, "remove it: Zeek's times are UTC")
            return times.ZeekTime()
        if time.format == "timestamp":
            return times.NumberTime("ns")
        if time.format == "iso8601":
            return times.Iso8601Time(zone)
        if time.format == "tai64n":
            return times.Tai64nTime()
        try:
            if time.year is not None:
                return times.YearlessTime(time.format, zone, None if time.year == "name" else time.year)
            return times.PatternTime(time.format, zone)
        except ValueError as error:
            raise AdapterError(f"format = {error}", where, 'write "iso8601" or a pattern of these parts') from None
    if time.unit not in times.UNIT_EXPONENTS:
        raise _wrong(where, "unit", time.unit, f"write one of {', '.join(times.UNIT_EXPONENTS)}")
    if time.origin is not None and time.unit in times.UNIT_ORIGINS_NS:
        raise _wrong(where, "origin", time.origin, f"remove it: unit = {time.unit!r} has its own origin")
    if time.origin is None:
        if zone is not UTC:
            raise _wrong(where, "zone", time.zone, "remove it: numbers since the epoch are UTC (or give an origin)")
        return times.NumberTime(time.unit)
    try:
        return times.NumberTime(time.unit, times.origin_ns(time.origin, zone))
    except ValueError as error:
        raise AdapterError(f"origin = {error}", where, "correct the value") from None


def side_pattern(side: SideConfig, where: str) -> re.Pattern[bytes]:
    """Returns the compiled pattern of a regex side. Raises AdapterError."""
    if not side.pattern:
        raise AdapterError("pattern is missing", where, "write a regular expression with named groups, (?P<name>…)")
    return compiled_bytes(side.pattern, where)


def compiled_bytes(pattern: str, where: str) -> re.Pattern[bytes]:
    """Compiles a pattern over bytes. Raises AdapterError."""
    compiled(pattern, where)
    try:
        return re.compile(pattern.encode())
    except re.error as error:
        raise AdapterError(f"pattern {pattern!r}: {error}", where, "correct the regular expression") from None


def _check_delimited(side: SideConfig, where: str) -> None:
    for name, formats in DELIMITED_SETTINGS.items():
        if getattr(side, name) not in (None, False) and side.format not in formats:
            raise _wrong(where, name, getattr(side, name), f"remove it: format = {side.format!r} has none")
    if side.format not in DELIMITED:
        return
    for name, value in (("delimiter", side.delimiter), ("quote", side.quote), ("escape", side.escape)):
        if value is None or (name == "quote" and not value):
            continue
        single = len(value) == 1 or (name == "delimiter" and 1 < len(value) <= DELIMITER_MAX)
        if not single or not value.isascii() or set(value) & set("\r\n\v"):
            raise _wrong(where, name, value, "write one ASCII character (delimiter: one or more)")
    if side.multiline and len(side.delimiter_byte) > 1:
        raise _wrong(where, "multiline", True, "remove it: it needs a delimiter of one character")
    if side.format == "w3c":
        return
    if side.multiline and not side.quote_byte:
        raise _wrong(where, "multiline", True, "remove it: without quotes a field cannot contain a line end")
    if side.escape and side.escape == side.quote_byte.decode():
        raise _wrong(where, "escape", side.escape, "remove it: doubled quotes are always accepted")
    if side.quote_byte == side.delimiter_byte:
        raise _wrong(where, "quote", side.quote, "quote and delimiter must differ")
    columns = side.columns
    if side.has_header == (columns is not None):
        raise AdapterError(
            "header = true and columns are both given"
            if side.has_header
            else "header is false and there are no columns",
            where,
            'set either header = true, or columns = ["time", "key", …] in field order',
        )
    if columns is not None:
        if not 0 < len(columns) <= COLUMNS_MAX:
            raise _wrong(where, "columns", f"{len(columns)} names", f"write 1 to {COLUMNS_MAX} names")
        twice = sorted({name for name in columns if columns.count(name) > 1})
        if twice:
            raise _wrong(where, "columns", twice[0], "each name may occur only once")


def _check_text(side: SideConfig, where: str) -> None:
    """Checks the settings that apply to text before it is split into records."""
    if side.encoding is not None and canonical(side.encoding) is None:
        todo = "write utf-8, utf-16 or a single-byte codec, such as cp1252: line ends cannot be found in others"
        raise _wrong(where, "encoding", side.encoding, todo)
    if not 0 <= side.skip_lines <= SKIP_LINES_MAX:
        raise _wrong(where, "skip_lines", side.skip_lines, f"write 0 to {SKIP_LINES_MAX}")
    for name in ("comment", "begins", "continues", "records"):
        value = getattr(side, name)
        if value is not None and not 0 < len(value) <= PATTERN_CHARS_MAX:
            raise _wrong(where, name, value[:20], f"write 1 to {PATTERN_CHARS_MAX} characters")
    if side.begins and side.continues:
        raise _wrong(where, "continues", side.continues, "write begins or continues, not both")
    for name, value in (("begins", side.begins), ("continues", side.continues)):
        try:
            re.compile((value or "").encode())
        except re.error as error:
            raise AdapterError(f"{name} = {value!r}: {error}", where, "correct the regular expression") from None
    given = [name for name in TEXT_SETTINGS if getattr(side, name)]
    allowed: tuple[str, ...] = TEXT_SETTINGS if side.format in LINE_FORMATS else ("encoding",)
    if side.framing is not None:
        allowed = ("begins", "continues", "colours")
    elif side.join is not None or side.format == "protobuf":
        allowed = ()
    if side.multiline:
        allowed = tuple(name for name in allowed if name not in ("begins", "continues"))
    for name in given:
        if name not in allowed:
            what = "multiline = true" if side.multiline else side.framing or f"format = {side.format!r}"
            raise _wrong(where, name, getattr(side, name), f"remove it: it cannot be combined with {what}")
    if side.records and side.format != "json":
        raise _wrong(where, "records", side.records, 'remove it, or write format = "json"')


def _check_framing(side: SideConfig, where: str, *, foreign: bool) -> None:
    cri = side.framing == "cri"
    if isinstance(side.time, str) and side.time != (LINE_TIME if cri else PRIMARY_TIME if foreign else None):
        todo = (
            'name a field, as in { field = "ts", unit = "ms" }; framing = "cri" has the time "line", and '
            'foreign records without a time may take that of "primary"'
        )
        raise _wrong(where, "time", side.time, todo)
    if side.framing is None:
        return
    if not cri:
        raise _wrong(where, "framing", side.framing, 'write "cri" (container logs of Kubernetes), or remove it')
    if side.join is not None:
        raise _wrong(where, "framing", side.framing, "remove it: the records of another join are JSON Lines")
    if side.format not in CRI_FORMATS:
        raise _wrong(where, "framing", side.framing, f"remove it: format = {side.format!r} has its own framing")
    if side.multiline:
        raise _wrong(where, "multiline", True, 'remove it: with framing = "cri" each line is a record')
    if side.has_header:
        todo = 'write columns = ["time", "key", …]: with framing = "cri" no file begins with a header'
        raise _wrong(where, "header", True, todo)


def _check_protobuf(side: SideConfig, where: str) -> None:
    for name in ("descriptor", "message"):
        value = getattr(side, name)
        if side.format != "protobuf" and value is not None:
            raise _wrong(where, name, value, 'remove it, or write format = "protobuf"')
        if side.format == "protobuf" and not value:
            todo = 'write descriptor = "events.pb" (a FileDescriptorSet) and message = "package.Message"'
            raise AdapterError(f"{name} is missing", where, todo)
    if side.field_time is not None and side.field_time.format == "timestamp" and side.format != "protobuf":
        raise _wrong(where, "time.format", "timestamp", 'remove it, or write format = "protobuf"')


def _check_key(side: SideConfig, where: str, *, foreign: bool) -> None:
    if side.key and isinstance(side.key, str):
        return
    fields = [part.field for part in side.key_parts]
    if not fields or "" in fields:
        raise _wrong(where, "key", side.key, "name the field that holds the primary event's key")
    if len(fields) > PARTS_MAX:
        raise _wrong(where, "key", fields, f"a key has at most {PARTS_MAX} fields")
    parts = [(part.field, part.pattern, part.part) for part in side.key_parts]
    twice = next((part[0] for part in parts if parts.count(part) > 1), None)
    if twice is not None:
        raise _wrong(where, "key", fields, f"{twice!r} occurs twice; name each field once")
    for part in side.key_parts:
        _check_part(part, f"{where}.key")
    _check_each(side, where, foreign=foreign)


def _check_each(side: SideConfig, where: str, *, foreign: bool) -> None:
    lists = [part for part in side.key_parts if part.each]
    for part in lists:
        if not foreign or len(lists) > 1:
            todo = "remove it: one field of the foreign side may hold several keys"
        elif part.each is True and side.format not in ("jsonl", "json", "zeek-json"):
            todo = 'write the text that separates them, as each = ","; true is for lists in JSON'
        else:
            continue
        raise _wrong(f"{where}.key", "each", part.each, todo)


def _check_part(part: KeyPart, where: str) -> None:
    if part.kind is not None and part.case is not None:
        raise _wrong(where, "case", part.case, f"remove it: {part.field!r} is compared as a {part.kind}")
    if part.pattern is not None and part.part is not None:
        raise AdapterError(f"{part.field!r} has both a pattern and a part", where, "write one of the two")
    if part.pattern is not None:
        compiled_bytes(part.pattern, f"{where}.pattern")
    if part.part is not None:
        try:
            named_part(part.part)
        except ValueError as error:
            raise _wrong(where, "part", part.part, str(error)) from None


def _check_skip(side: SideConfig, where: str) -> None:
    if len(side.skip) > CONDITIONS_MAX:
        raise AdapterError(f"more than {CONDITIONS_MAX} conditions", f"{where}.skip", "shorten it")
    for each in side.skip:
        check_condition(each, f"{where}.skip")
        if not each.field or each.reason is not None:
            todo = "name the field without a side; a reason is for filter, as skipped records leave no line"
            raise _wrong(where, "skip", msgspec.to_builtins(each), todo)


def _check_names_exist(side: SideConfig, where: str) -> None:
    """Checks that names are columns or groups. With a header, only the files can show that."""
    known: tuple[str, ...]
    if side.format == "regex":
        known, kind = tuple(side_pattern(side, where).groupindex), "group of the pattern"
    elif side.pattern is not None:
        raise _wrong(where, "pattern", side.pattern, 'remove it, or write format = "regex"')
    elif side.columns is not None:
        known, kind = side.columns, "column"
    else:
        return
    used = [("key", part.field) for part in side.key_parts]
    used += [("skip", each.field) for each in side.skip]
    used += [("id", side.id_field or "")]
    used += [("time.field", name) for name in (side.field_time.names if side.field_time else ())]
    for name, value in used:
        if value and value not in known:
            raise _wrong(where, name, value, f"no {kind} has this name; there are {', '.join(known) or 'none'}")


def _wrong(where: str, key: str, value: object, todo: str) -> AdapterError:
    return AdapterError(f"{key} = {value!r} is not possible", where, todo)
