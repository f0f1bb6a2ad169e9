"""For each format that needs no code: what it is, and a record of each side that shows how it is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class FormatExample:
    """``sides``: the configuration's tables; none where a file beside the configuration is needed."""

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
        {
            "primary": b"x1 u7 [01/Mar/2024:07:59:58 +0000]",
            "foreign": b"c1 u7 [01/Mar/2024:08:00:00 +0000]",
        },
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
