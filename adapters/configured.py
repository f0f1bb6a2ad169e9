"""The adapter built from configuration alone: the fields and format that give key, id and event time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import orjson

from photon.adapters.bounds import of_each
from photon.adapters.contract import (
    Adapter,
    AdapterError,
    BadRecord,
    ForeignHeader,
    Headers,
    LogFile,
    Pairs,
    Payloads,
)
from photon.adapters.formats.base import SideReader, Stop, TimeField
from photon.adapters.formats.cri import CriSide
from photon.adapters.formats.delimited import DelimitedSide
from photon.adapters.formats.encodings import UTF8, canonical
from photon.adapters.formats.json_lines import JsonLinesSide
from photon.adapters.formats.key_parts import KeyPartsSide
from photon.adapters.formats.logfmt import LogfmtSide
from photon.adapters.formats.part_rules import KeyPart
from photon.adapters.formats.regular import RegexSide
from photon.adapters.formats.skipping import SkippingSide
from photon.adapters.formats.zeek import ZeekSide
from photon.adapters.side import (
    DELIMITED,
    LINE_TIME,
    PRIMARY_TIME,
    SideConfig,
    check_side,
    side_from_table,
    side_pattern,
    time_reader,
    with_defaults,
)
from photon.adapters.times import Iso8601Time, NoTime

RULE_VERSION = 1  # increased when this code derives another id, key or time from the same record and configuration


class ConfiguredAdapter(Adapter):
    """Reads both sides as configured. Its options are the tables ``primary`` and ``foreign`` (see ``SideConfig``).

    Further options are ``where`` (shown in error messages) and ``base`` (the directory of relative paths).

    Subclass it to keep the reading and add business rules: override ``join`` (or a payload) in ``path.py:Class``. A
    subclass that overrides a method for one record gets the matching method for many from it.
    """

    base_options = frozenset(("primary", "foreign", "where", "base"))

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        where = str(options.get("where", "join"))
        self.primary_config = _side(options.get("primary", {}), f"{where}.primary", foreign=False)
        self.foreign_config = _side(options.get("foreign", {}), f"{where}.foreign", foreign=True)
        here, there = len(self.primary_config.key_parts), len(self.foreign_config.key_parts)
        if here != there:
            todo = "write the same number on both sides, in the same order"
            raise AdapterError(f"key has {here} fields in primary and {there} in foreign", where, todo)
        base = Path(str(options.get("base", ".")))
        self._primary = side_reader(self.primary_config, f"{where}.primary", base)
        self._foreign = side_reader(self.foreign_config, f"{where}.foreign", base, NoTime())
        self.has_time_of_primary = self.foreign_config.time == PRIMARY_TIME
        self.has_foreign_time = self.foreign_config.time is not None and not self.has_time_of_primary
        if self.has_time_of_primary and not self.has_primary_time:
            todo = "name the primary event's time: time = { field = …, unit = … } in the table of the primary"
            raise AdapterError('time = "primary", but the primary has no time', f"{where}.foreign", todo)
        self.several_keys = any(part.each for part in self.foreign_config.key_parts)
        self.primary_has_header = self.primary_config.has_header
        self.foreign_has_header = self.foreign_config.has_header
        self.primary_duplicates = self.primary_config.duplicates or "first"
        self.primary_framing = self.primary_config.files_framing
        self.foreign_framing = self.foreign_config.files_framing
        self.primary_links = self.primary_config.follow_links
        self.foreign_links = self.foreign_config.follow_links

    @classmethod
    def from_sides(cls, primary: SideConfig, foreign: SideConfig, where: str = "join") -> ConfiguredAdapter:
        """Builds the adapter from existing structs. ``where`` ("join.clicks") is shown in error messages."""
        return cls({"primary": primary, "foreign": foreign, "where": where})

    def foreign_header(self, record: bytes, file: LogFile) -> ForeignHeader:
        return self._foreign.header(record, file)

    def primary_key(self, record: bytes, file: LogFile) -> bytes:
        return self._primary.key(record, file)

    def primary_time(self, record: bytes, file: LogFile) -> int:
        (time,) = self.primary_times((record,), file)
        if isinstance(time, BadRecord):
            raise time
        return time

    @property
    def has_primary_time(self) -> bool:
        return self.primary_config.time is not None or type(self).primary_time is not ConfiguredAdapter.primary_time

    def foreign_payload(self, record: bytes, file: LogFile) -> bytes | None:
        return self._foreign.payload(record, file)

    def primary_payload(self, record: bytes, file: LogFile) -> bytes | None:
        if self.has_time_of_primary:
            try:
                self.primary_time(record, file)
            except BadRecord as bad:
                raise _of_primary(bad) from None
        return self._primary.payload(record, file)

    def header_columns(self, records: Sequence[bytes], file: LogFile) -> Headers:
        return self._foreign.headers(records, file)

    def primary_keys(self, block: bytes, file: LogFile) -> list[bytes | None]:
        """Returns each record's key; for an unreadable line, possibly a candidate (``formats.json_scan``)."""
        return self._primary.keys(block, file)

    def primary_keys_of(self, records: Sequence[bytes], file: LogFile) -> list[bytes | None]:
        return self._primary.keys_of(records, file)

    def primary_times(self, records: Sequence[bytes], file: LogFile) -> list[int | BadRecord]:
        found = self._primary.times(records, file)
        return [found.others.get(row, time_ns) for row, time_ns in enumerate(found.times)]

    def join_columns(self, pairs: Pairs) -> Payloads:
        foreign = self._foreign.payloads(pairs.foreign, pairs.foreign_files)
        primary = self._primary.payloads(pairs.primary, pairs.primary_files)
        # As in ``join``, a problem with the foreign record takes precedence.
        bad = {**primary.bad, **foreign.bad}
        if self.has_time_of_primary:
            times = of_each(self.primary_times, pairs.primary, pairs.primary_files)
            bad = {row: _of_primary(time) for row, time in enumerate(times) if isinstance(time, BadRecord)} | bad
        return Payloads(foreign.payloads, primary.payloads, bad)

    def located_primary_keys(
        self, block: bytes, file: LogFile
    ) -> tuple[list[bytes | None], npt.NDArray[np.int64]] | None:
        """Returns the keys and the start of each record. ``None`` means that the format does not find starts."""
        return self._primary.located_keys(block, file)

    def stops_at(self, side: str, record: bytes) -> Stop | None:
        """Returns where a rejected record of ``side`` ("primary" or "foreign") stops matching the configuration;
        ``None`` if unknown."""
        return (self._primary if side == "primary" else self._foreign).stops_at(record)

    def rule(self) -> bytes:
        """Returns the configuration of id, key and time as bytes: the same if defaults are written out."""
        rule = {
            "adapter": f"configured:{RULE_VERSION}",
            "primary": _rule_of(self.primary_config, self._primary, foreign=False),
            "foreign": _rule_of(self.foreign_config, self._foreign, foreign=True),
        }
        return orjson.dumps(rule, option=orjson.OPT_SORT_KEYS)


def _of_primary(bad: BadRecord) -> BadRecord:
    return BadRecord(f"the primary event: {bad.reason}")


def side_reader(side: SideConfig, where: str, base: Path, no_time: NoTime | None = None) -> SideReader:
    """Returns a reader for a side that has been checked. ``no_time`` supplies event times if no time is configured.

    Raises AdapterError.
    """
    if side.framing is not None:
        return _cri_reader(side, where, base)
    return _format_reader(side, where, base, no_time)


def _cri_reader(side: SideConfig, where: str, base: Path) -> CriSide:
    inner = _format_reader(side, where, base)
    if side.time != LINE_TIME:
        return CriSide(inner)
    ids = None if side.id_part is None else _parts_reader(side, (side.id_part,), None, where, base)
    return CriSide(inner, Iso8601Time(), ids)


def _format_reader(side: SideConfig, where: str, base: Path, no_time: NoTime | None = None) -> SideReader:
    reader = _parts_reader(side, side.key_parts, side.id_part, where, base, no_time)
    if not side.skip:
        return reader
    # Only with these formats is a field's text the value in the payload.
    tested = side.format in ("jsonl", "zeek-json", "csv", "tsv", "regex", "logfmt")
    fields = [KeyPart(field=each.field) for each in side.skip]
    readers = [_reader_of(side, field, where, base, no_time) if tested else None for field in fields]
    typed = side.format in ("jsonl", "zeek-json")
    return SkippingSide(reader, side.skip, readers, f"{where}.skip", typed=typed)


def _parts_reader(
    side: SideConfig,
    parts: Sequence[KeyPart],
    own: KeyPart | None,
    where: str,
    base: Path,
    no_time: NoTime | None = None,
) -> SideReader:
    """Returns a reader of records whose key has these parts. ``own``: the rules of the event's id."""
    readers = [_reader_of(side, part, where, base, no_time) for part in parts]
    if len(parts) == 1 and parts[0].plain and (own is None or own.plain):
        return readers[0]
    return KeyPartsSide(parts, readers, own, [each.encode() for each in side.absent_values])


def _reader_of(side: SideConfig, part: KeyPart, where: str, base: Path, no_time: NoTime | None = None) -> SideReader:
    key = part.field
    time = no_time if side.field_time is None else time_reader(side.field_time, f"{where}.time")
    time_field: TimeField = None if no_time is None else () if part.each is True else key
    if side.field_time is not None:
        time_field = side.field_time.fields or side.field_time.field
    absent = frozenset(each.encode() for each in side.absent_values)
    if side.format in ("jsonl", "json", "zeek-json"):
        return JsonLinesSide(
            key,
            side.id_field,
            time_field,
            time,
            decimals=part.kind == "number",
            lists=part.each is True,
            absent=absent,
        )
    if side.format == "zeek":
        return ZeekSide(key, side.id_field, time_field, time)
    if side.format == "logfmt":
        return LogfmtSide(key, side.id_field, time_field, time, absent=absent)
    if side.format == "protobuf":
        # Imported only where needed: protobuf's JSON would slow every other process's start.
        from photon.adapters.formats.protobuf import ProtobufSide, message_type, read_descriptor

        data = read_descriptor(base / str(side.descriptor), where)
        message = message_type(data, str(side.message), where)
        assert not isinstance(time_field, tuple)
        return ProtobufSide(message, key, side.id_field, time_field, time, where=where)
    if side.format == "regex":
        pattern = side_pattern(side, where)
        return RegexSide(pattern, key, side.id_field, time_field, time, gathered=side.gathers, absent=absent)
    if side.format == "w3c":
        absent |= {b"-"}
    return DelimitedSide(
        key,
        side.id_field,
        time_field,
        time,
        delimiter=side.delimiter_byte,
        quote=side.quote_byte,
        escape=(side.escape or "").encode(),
        columns=side.columns,
        multiline=side.multiline,
        gathered=side.gathers,
        absent=absent,
    )


def _side(given: SideConfig | Mapping[str, Any], where: str, *, foreign: bool) -> SideConfig:
    if not isinstance(given, SideConfig):
        return side_from_table(given, where, foreign=foreign)
    given = with_defaults(given, foreign=foreign)
    check_side(given, where, foreign=foreign)
    return given


def _rule_of(side: SideConfig, reader: SideReader, *, foreign: bool) -> dict[str, Any]:
    kind = "jsonl" if side.format in ("zeek-json", "json") else side.format
    parts = [part.field if part.plain else msgspec.to_builtins(part) for part in side.key_parts]
    rule: dict[str, Any] = {"format": kind, "key": parts[0] if len(parts) == 1 else parts}
    if side.format in DELIMITED:
        rule |= {
            "format": "delimited" if side.format in ("csv", "tsv") else side.format,
            "delimiter": side.delimiter_byte.decode(),
            "quote": side.quote_byte.decode(),
            "columns": side.columns,
        }
        if side.multiline:
            rule["multiline"] = True
        if side.escape:
            rule["escape"] = side.escape
    if side.encoding and (encoding := canonical(side.encoding)) != UTF8:
        rule["encoding"] = encoding
    for name in ("skip_lines", "comment", "begins", "continues", "colours", "records"):
        if value := getattr(side, name):
            rule[name] = value
    if side.framing is not None:
        rule["framing"] = side.framing
    if side.skip:
        rule["skip"] = msgspec.to_builtins(side.skip)
    if side.absent:
        rule["absent"] = sorted(set(side.absent_values))
    if side.format == "protobuf":
        rule |= {"message": side.message, "numbers": reader.numbers}  # type: ignore[attr-defined]
    if side.pattern is not None:
        rule["pattern"] = side.pattern
    if foreign:
        own = side.id_part
        rule["id"] = side.id_field if own is None or own.plain else msgspec.to_builtins(own)
        rule["time"] = None if side.time is None else msgspec.to_builtins(side.time)
    return rule
