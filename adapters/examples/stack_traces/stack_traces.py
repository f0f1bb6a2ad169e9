"""Errors with their stack traces: lines that belong together are one record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import BadRecord, Cut, Framing, LogFile

LINE_END = b"\x0b"  # replaces a line end in a record
_SIDES: Mapping[str, Any] = {
    "primary": {
        "format": "regex",
        "key": "request",
        "pattern": r"(?P<time>\S+) (?P<request>\S+) (?P<method>[A-Z]+) (?P<path>\S+) (?P<status>\d{3})",
    },
    "foreign": {
        "format": "regex",
        "key": "request",
        "pattern": r"(?P<time>\S+) (?P<level>[A-Z]+) \[(?P<request>[^\]]+)\] (?P<text>(?s:.*))",
        "time": {"field": "time", "format": "iso8601"},
    },
}


class Traces(Framing):
    """A record begins with a line that starts with a digit (its date); the lines after it, up to the next such line,
    belong to it.

    A record is complete only when the next one starts, so its line end is returned then; until then ``state`` holds
    the line end.
    """

    def cut(self, data: bytes, state: bytes) -> Cut:
        first, *others = (state + data).split(b"\n")
        waits = b"\n" if others and not others[-1] else b""
        if waits:
            others.pop()
        text = [first]
        for line in others:
            text += (b"\n" if line[:1].isdigit() else LINE_END, line)
        return Cut(b"".join(text), len(data), waits)


class StackTraces(ConfiguredAdapter):
    """Joins each error, which spans several lines, with the request that it names (one line)."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__({**_SIDES, **options})
        self.foreign_framing = Traces()

    def foreign_payload(self, record: bytes, file: LogFile) -> bytes | None:
        payload = super().foreign_payload(record, file)
        if payload is None:
            raise BadRecord("not UTF-8")
        fields = orjson.loads(payload)
        first, *trace = fields.pop("text").split(LINE_END.decode())
        return orjson.dumps({**fields, "message": first, "trace": trace})
