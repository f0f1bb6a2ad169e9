"""Stories of configured sides and their records; one suite of checks for every format.

``side TABLE`` configures both sides of a join (in TOML; the primary without id and time), or is refused; ``header``
is that of the file. Any other line is a record, answered by its key, ``#`` id, ``@`` event time, and by its payload
if that is not the record itself. ``‹ff›`` is a byte.

``every TABLE`` configures all text formats: its records are ``name=value``, written in each format, with one answer.
``time TABLE`` reads texts as times.
"""

from __future__ import annotations

import json
import re
import textwrap
import tomllib
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import compress
from typing import Any, NamedTuple

import orjson

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import AdapterError, BadRecord, ForeignHeader, LogFile, Skipped
from photon.adapters.key_lists import keys_named
from photon.adapters.side import TimeConfig, side_from_table, time_reader
from tests.kit.stories import INDENT, WIDTH, Story

Fields = dict[str, str]
NOW = " @1970-01-01T00:00:07.777"
CRI = b"2024-03-01T10:00:00Z stdout "


def _json(fields: Fields) -> bytes:
    return orjson.dumps(fields)


def _csv(fields: Fields) -> bytes:
    return ",".join('"' + value.replace('"', '""') + '"' for value in fields.values()).encode()


def _tsv(fields: Fields) -> bytes:
    return "\t".join(fields.values()).encode()


def _logfmt(fields: Fields) -> bytes:
    return " ".join(f"{name}={json.dumps(value)}" for name, value in fields.items()).encode()


def _nothing(fields: Fields) -> str:
    return ""


class Format(NamedTuple):
    settings: Callable[[Fields], dict[str, Any]]
    record: Callable[[Fields], bytes]
    header: Callable[[Fields], str] = _nothing


FORMATS = {
    "jsonl": Format(lambda fields: {"format": "jsonl"}, _json),
    "zeek-json": Format(lambda fields: {"format": "zeek-json"}, lambda fields: b" " + _json(fields)),
    "cri": Format(lambda fields: {"format": "jsonl", "framing": "cri"}, lambda fields: CRI + _json(fields)),
    "csv": Format(lambda fields: {"format": "csv"}, _csv, ",".join),
    "columns": Format(lambda fields: {"format": "csv", "columns": list(fields), "multiline": True}, _csv),
    "tsv": Format(lambda fields: {"format": "tsv"}, _tsv, "\t".join),
    "logfmt": Format(lambda fields: {"format": "logfmt"}, _logfmt),
    "regex": Format(
        lambda fields: {"format": "regex", "pattern": "\x1f".join(f"(?P<{name}>.*)" for name in fields)},
        lambda fields: "\x1f".join(fields.values()).encode(),
    ),
    "zeek": Format(
        lambda fields: {"format": "zeek"},
        _tsv,
        lambda fields: "#separator \\x09\n#unset_field\tunset\n#fields\t" + "\t".join(fields),
    ),
}


def raw(text: str) -> bytes:
    parts = re.split("‹(.*?)›", text)
    return b"".join(bytes.fromhex(part) if at % 2 else part.encode() for at, part in enumerate(parts))


def shown(data: bytes) -> str:
    text = data.decode("utf-8", "backslashreplace")
    text = text if text.isprintable() else text.encode("unicode_escape").decode()
    return re.sub("^ | $", "‹20›", text)


def moment(ns: int) -> str:
    seconds, rest = divmod(ns, 10**9)
    try:
        whole = datetime.fromtimestamp(seconds, UTC).isoformat().removesuffix("+00:00")
    except (OverflowError, ValueError):
        return f"{ns} ns"
    return whole + f".{rest:09d}".rstrip("0").rstrip(".")


def table_of(text: str) -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads(f"table = {{ {text} }}")["table"]
    return table


def one_line(error: AdapterError) -> str:
    assert "\n" not in str(error)
    return str(error)


class Sides:
    """Both sides of a join; methods for many records must answer like those for one."""

    def __init__(self, table: dict[str, Any], file: LogFile) -> None:
        primary = {name: value for name, value in table.items() if name not in ("id", "time")}
        primary["key"] = table.get("primary", primary.get("key"))
        primary.pop("primary", None)
        foreign = {name: value for name, value in table.items() if name != "primary"}
        self.foreign_only = "primary" in table
        self.adapter = ConfiguredAdapter({"primary": primary, "foreign": foreign, "where": "join.x"})
        self.file = file

    def answer(self, record: bytes) -> str:
        header = self._asked(self.adapter.foreign_header, record)
        key = None if self.foreign_only else self._asked(self.adapter.primary_key, record)
        if isinstance(header, BadRecord):
            said = "skipped" if isinstance(header, Skipped) else f"bad: {header.reason}"
            if isinstance(key, bytes):
                return f"{shown(key)}, {said}"
            return said if key is None or key.reason == header.reason else f"bad: {key.reason}; {said}"
        assert isinstance(header, ForeignHeader)
        assert self.foreign_only or header.key == key
        named = list(keys_named(self.adapter, header.key)) if self.adapter.several_keys else [header.key]
        parts = [" and ".join(shown(each) for each in named)]
        if header.event_id is not None:
            parts.append(f"#{shown(header.event_id)}")
        if self.adapter.has_foreign_time:
            parts.append(f"@{moment(header.event_time_ns)}")
        return " ".join([*parts, *self._payload(record)])

    def _payload(self, record: bytes) -> list[str]:
        payload = self._asked(self.adapter.foreign_payload, record)
        if payload is None:
            return ["as text"]
        if isinstance(payload, BadRecord):
            return [f"and no payload: {payload.reason}"]
        assert isinstance(json.loads(payload), dict)
        assert b"\n" not in payload
        return [] if payload == record.strip() else [shown(payload)]

    def _asked(self, method: Callable[[bytes, LogFile], Any], record: bytes) -> Any:
        try:
            return method(record, self.file)
        except BadRecord as error:
            bad = error
        assert "\n" not in bad.reason
        assert len(bad.reason) < 300
        return bad

    def check(self, records: Sequence[bytes]) -> None:
        it, file = self.adapter, self.file
        headers = [self._asked(it.foreign_header, record) for record in records]
        assert [repr(each) for each in it.header_columns(records, file).rows()] == [repr(each) for each in headers]
        if self.foreign_only:
            return
        asked = [self._asked(it.primary_key, record) for record in records]
        keys = [b"" if isinstance(each, Skipped) else None if isinstance(each, BadRecord) else each for each in asked]
        assert it.primary_keys_of(records, file) == keys
        # A record that cannot be parsed may have a key for those that scan a block.
        broken = [isinstance(each, BadRecord) and each.reason.startswith(("is no", "no logfmt")) for each in asked]
        assert all(isinstance(self._asked(it.foreign_payload, each), BadRecord) for each in compress(records, broken))
        lines = [at for at, record in enumerate(records) if record[-1:] != b"\r"]
        for end in (b"\n", b"\r\n"):
            block = b"".join(records[at] + end for at in lines)
            located = it.located_primary_keys(block, file)
            for found in (it.primary_keys(block, file), *([] if located is None else [located[0]])):
                assert [(at, key) for at, key in zip(lines, found, strict=True) if not broken[at]] == [
                    (at, keys[at]) for at in lines if not broken[at]
                ]


class Machine:
    def __init__(self) -> None:
        self._answer: Callable[[str], str] = self._no_side
        self._sides: list[Sides] = []
        self._records: list[list[bytes]] = []
        self._table: dict[str, Any] = {}
        self._header = b""

    def line(self, text: str) -> str:
        command, _, rest = text.partition(" ")
        if command not in ("side", "header", "every", "time"):
            return self._answer(text)
        if command == "header":
            self._header = raw(rest).replace(b"|n", b"\n")
            rest, command = "", "again"
        else:
            self._table = table_of(rest)
        self.end()
        return {"side": self._side, "again": self._side, "every": self._every, "time": self._time}[command]()

    def end(self) -> None:
        for sides, records in zip(self._sides, self._records, strict=True):
            sides.check(records)
        self._sides, self._records = [], []

    def _no_side(self, text: str) -> str:
        raise AssertionError(f"no side before the record {text!r}")

    def _side(self) -> str:
        self._answer = self._one
        try:
            self._sides, self._records = [Sides(self._table, LogFile("a.log", self._header))], [[]]
        except AdapterError as error:
            return f"refused: {one_line(error).removeprefix('join.x.')}"
        return ""

    def _one(self, text: str) -> str:
        record = raw(text)
        self._records[0].append(record)
        return self._sides[0].answer(record)

    def _every(self) -> str:
        self._answer = self._all
        self._table = {"time": {"field": "now", "unit": "ms"}, **self._table}
        return ""

    def _all(self, text: str) -> str:
        fields = {name: raw(value).decode() for name, _, value in (each.partition("=") for each in text.split(" "))}
        fields = {"now": "7777", **fields}
        if not self._sides:
            for each in FORMATS.values():
                file = LogFile("a.log", each.header(fields).encode())
                self._sides.append(Sides({**each.settings(fields), **self._table}, file))
                self._records.append([])
        said: dict[str, list[str]] = {}
        for (name, format_), sides, records in zip(FORMATS.items(), self._sides, self._records, strict=True):
            records.append(format_.record(fields))
            answer = re.sub(r" (\{.*|as text)$", "", sides.answer(records[-1]))
            answer = re.sub(r"\b(key|id) group", r"\1 field", answer).removesuffix(NOW)
            said.setdefault(answer, []).append(name)
        if len(said) == 1:
            return next(iter(said))
        return " / ".join(f"{answer} ({', '.join(names)})" for answer, names in said.items())

    def _time(self) -> str:
        self._answer = self._at
        try:
            side_from_table({"format": "jsonl", "key": "k", "time": {"field": "t", **self._table}}, "x", foreign=True)
        except AdapterError as error:
            return f"refused: {one_line(error).removeprefix('x.time: ')}"
        self._reader = time_reader(TimeConfig(field="t", **self._table), "x")
        return ""

    def _at(self, text: str) -> str:
        try:
            ns = self._reader.from_text(raw(text))
        except ValueError as error:
            return f"bad: {error}"
        assert self._reader.from_text(raw(text)) == ns, "now from the cache"
        return moment(ns)


def told(story: Story) -> str:
    machine, lines = Machine(), list[str]()
    for line in story.text.splitlines():
        if line.startswith(INDENT):
            continue
        step = line.partition(" =>")[0]
        answer = machine.line(step) if line and not line.startswith(("==", "# ")) else ""
        together = f"{step} => {answer}" if answer else step
        if len(together) <= WIDTH or not answer:
            lines.append(together)
        else:
            lines += [f"{step} =>", *textwrap.wrap(answer, WIDTH, initial_indent=INDENT, subsequent_indent=INDENT)]
    machine.end()
    return "\n".join(lines) + "\n"
