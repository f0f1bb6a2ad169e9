"""What there is to say of one adapter or format: what it is, whence it comes, its settings, and what it reads."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import API_VERSION, Adapter, LogFile
from photon.adapters.entry_points import NAME, described_point
from photon.adapters.faults import describe
from photon.adapters.loader import CONFIGURED, adapter_class_of, load_adapter
from photon.adapters.side import ABSENT_FORMATS, CRI_FORMATS, FORMATS, SideConfig
from photon.adapters.times import rfc3339_us


@dataclass(frozen=True, slots=True)
class FormatExample:
    """``sides``: the configuration's tables; empty where the format needs another file."""

    summary: str
    sides: Mapping[str, Any] = field(default_factory=dict)
    samples: Mapping[str, bytes] = field(default_factory=dict)
    header: bytes = b""


def _sides(format_: str, time: Mapping[str, str] | None, **more: Any) -> dict[str, Any]:
    side = {"format": format_, "key": "uid", **more}
    return {"primary": side, "foreign": side if time is None else {**side, "id": "id", "time": time}}


_ISO = {"field": "ts", "format": "iso8601"}
_MS = {"field": "ts", "unit": "ms"}
_ZEEK_HEADER = b"#separator \\x09\n#fields\tts\tuid\tid\n#types\ttime\tstring\tstring"
_ACCESS = r"(?P<id>\S+) (?P<uid>\S+) \[(?P<ts>[^]]+)\]"

EXAMPLES: dict[str, FormatExample] = {
    "jsonl": FormatExample(
        "One JSON object a line.",
        _sides("jsonl", _MS),
        {"primary": b'{"uid":"u7","text":"lamp"}', "foreign": b'{"id":"c1","uid":"u7","ts":1709280000512}'},
    ),
    "csv": FormatExample(
        "Fields between delimiters, quoted where they begin with the quote; the first record names the columns.",
        _sides("csv", _ISO),
        {"primary": b"x1,u7,2024-03-01T07:59:58Z", "foreign": b"c1,u7,2024-03-01T08:00:00Z"},
        b"id,uid,ts",
    ),
    "tsv": FormatExample(
        "Fields between tabs; the first record names the columns.",
        _sides("tsv", _ISO),
        {"primary": b"x1\tu7\t2024-03-01T07:59:58Z", "foreign": b"c1\tu7\t2024-03-01T08:00:00Z"},
        b"id\tuid\tts",
    ),
    "regex": FormatExample(
        "What the named groups of a regular expression match.",
        _sides("regex", {"field": "ts", "format": "%d/%b/%Y:%H:%M:%S %z"}, pattern=_ACCESS),
        {"primary": b"x1 u7 [01/Mar/2024:07:59:58 +0000]", "foreign": b"c1 u7 [01/Mar/2024:08:00:00 +0000]"},
    ),
    "logfmt": FormatExample(
        "name=value pairs.",
        _sides("logfmt", _ISO),
        {"primary": b'uid=u7 text="two words"', "foreign": b"id=c1 uid=u7 ts=2024-03-01T08:00:00Z"},
    ),
    "zeek": FormatExample(
        "Zeek's tab-separated logs, read by the header lines in force.",
        {"primary": {"format": "zeek", "key": "uid"}, "foreign": {"format": "zeek", "key": "uid", "id": "id"}},
        {"primary": b"1709280000.5\tu7\tx1", "foreign": b"1709280001.5\tu7\tc1"},
        _ZEEK_HEADER,
    ),
    "zeek-json": FormatExample(
        "Zeek's JSON logs.",
        {
            "primary": {"format": "zeek-json", "key": "uid"},
            "foreign": {"format": "zeek-json", "key": "uid", "id": "id"},
        },
        {"primary": b'{"ts":1709280000.5,"uid":"u7"}', "foreign": b'{"ts":1709280001.5,"uid":"u7","id":"c1"}'},
    ),
    "protobuf": FormatExample(
        "Messages behind their length as a varint; needs a descriptor file (docs/adapters.md)."
    ),
}


@dataclass(frozen=True, slots=True)
class Shown:
    """A sample record and what is read of it. ``fault``: why it cannot be read; empty when it can."""

    side: str
    record: bytes
    key: bytes = b""
    event_id: bytes | None = None
    time: str = ""
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Card:
    """All that ``photon adapter show`` tells. ``settings``: (name, default as it is written)."""

    name: str
    kind: str  # format, installed, file
    target: str
    source: str
    """The package and its version, or the file with the class's line."""
    api_version: int
    summary: str
    settings: list[tuple[str, str]] = field(default_factory=list)
    samples: list[Shown] = field(default_factory=list)


def card_of(name: str, base: Path) -> Card:
    """Of a format, an installed adapter or ``path.py:Class`` below ``base``. Raises AdapterError."""
    if name in FORMATS:
        return _format_card(name)
    cls = ConfiguredAdapter if name == CONFIGURED else adapter_class_of(name, base)
    file, line = inspect.getsourcefile(cls) or "", _line_of(cls)
    kind, source = "file", f"{file}:{line}"
    if name == CONFIGURED:
        kind, source = "format", "Photon's own; photon adapter show names the formats"
    elif NAME.fullmatch(name):
        package, version = described_point(name)
        kind, source = "installed", f"{package} {version}, {file}:{line}"
    own = name == CONFIGURED or issubclass(cls, ConfiguredAdapter)
    settings = _side_settings() if own else [(each, repr(value)) for each, value in cls.SETTINGS.items()]
    samples = [_shown(load_adapter(name, {}, base), *each) for each in cls.SAMPLES.items()] if cls.SAMPLES else []
    target, summary = f"{cls.__module__}:{cls.__qualname__}", (inspect.getdoc(cls) or "").partition("\n")[0]
    return Card(name, kind, target, source, cls.api_version, summary, settings, samples)


def _format_card(name: str) -> Card:
    example = EXAMPLES[name]
    samples = []
    if example.sides:
        adapter = load_adapter(CONFIGURED, {**example.sides, "where": f"format {name}"}, Path())
        samples = [_shown(adapter, side, record, example.header) for side, record in example.samples.items()]
    target = "photon.adapters.configured:ConfiguredAdapter"
    return Card(name, "format", target, "Photon's own", API_VERSION, example.summary, _side_settings(name), samples)


def _shown(adapter: Adapter, side: str, record: bytes, header: bytes = b"") -> Shown:
    file = LogFile(f"{side}.log", header)
    try:
        if side == "primary":
            return Shown(side, record, adapter.primary_key(record, file))
        found = adapter.foreign_header(record, file)
        return Shown(side, record, found.key, found.event_id, rfc3339_us(found.event_time_ns))
    except (Exception, SystemExit) as error:  # whatever the adapter raises is what is shown
        return Shown(side, record, fault=describe(error, adapter))


_ONLY_FOR = {
    "delimiter": ("csv", "tsv"), "quote": ("csv", "tsv"), "header": ("csv", "tsv"), "columns": ("csv", "tsv"),
    "multiline": ("csv", "tsv"), "pattern": ("regex",), "absent": ABSENT_FORMATS,
    "framing": CRI_FORMATS, "descriptor": ("protobuf",), "message": ("protobuf",),
}  # fmt: skip
"""Settings of a side that only these formats have."""


def _side_settings(name: str | None = None) -> list[tuple[str, str]]:
    found = []
    for each in msgspec.structs.fields(SideConfig):
        if name is not None and name not in _ONLY_FOR.get(each.name, (name,)):
            continue
        default = "must be written" if each.default is msgspec.NODEFAULT else repr(each.default)
        found.append((each.name, "not set" if default == "None" else default))
    return found


def _line_of(cls: type[Adapter]) -> int:
    try:
        return inspect.getsourcelines(cls)[1]
    except (OSError, TypeError):
        return 1
