"""Reads (event id, token, event time) back from output lines: for redo at start, and for the verifier.

Independent of the builder's code; what they share is the documented order of members: a line begins with
``{"event_id":…,"key":…,"event_time_ns":…`` and ends with ``,"token":"<16 hex digits>"}``.
"""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import orjson

from photon.adapters.formats.json_check import are_json, is_json

_TEXT = rb'[^"\\]*+(?:(?>\\.[^"\\]*+))*+'
_STRING = rb'"(' + _TEXT + rb')"'
_LINE = re.compile(
    rb'\{"event_id(_raw_base64)?":' + _STRING + rb',"key(?:_raw_base64)?":"' + _TEXT + rb'","event_time_ns":'
    rb'(-?[0-9]{1,19}),("reason":)?.*[}"]\}\n'
)
_TAIL = re.compile(rb',"token":"([0-9a-f]{16})"\}\n')
_PAIR_NAME = b',"pair":'
_PAIR = re.compile(
    _PAIR_NAME + rb'([0-9]{1,9}),"pairs":([0-9]{1,9})(?:,"joined_at":"[^"\\]*+")?(?:,"token":"[0-9a-f]{16}")?\}\n?'
)
_TAIL_BYTES = len(b',"token":"0123456789abcdef"}\n')
_PLAIN_LINE = re.compile(
    rb'^\{"event_id":"([^"\\\n]*+)","key(?:_raw_base64)?":"[^"\\\n]*+","event_time_ns":(-?[0-9]{1,19}),'
    rb'("reason":)?.*,"token":"([0-9a-f]{16})"\}\n',
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class OutputRef:
    """Whose line it is. ``token`` None: the line carries none (late, or left out by configuration)."""

    event_id: bytes
    token: int | None
    event_time_ns: int
    reasoned: bool = field(default=False, compare=False)


class PairOf(NamedTuple):
    """Of an event with several records, one for each primary event: which one this is."""

    number: int  # from 1 on
    of: int


@dataclass(slots=True)
class OutputRefs:
    """Columns for the event lines of a block, in order. Tokens are 0 where a line carries none. An event that has a
    record for each of its pairs is there once, with the last of them."""

    event_ids: list[bytes]
    tokens: list[int]
    event_times_ns: list[int]
    reasoned: list[bool] = field(default_factory=list)
    """Whether the line has a reason: in ``joined`` it is that of an unmatched event."""


@dataclass(slots=True)
class EnvelopeError(Exception):
    """A line that is no output record. ``line`` is its beginning."""

    line: bytes

    def __str__(self) -> str:
        return f"not an output record: {self.line[:120]!r}"


def read_line(line: bytes) -> OutputRef | None:
    """The event of one line with its newline; None for a line about an unreadable record.

    Raises EnvelopeError, for a line without its newline (torn) too.
    """
    match = _LINE.fullmatch(line)
    if match is None:
        if line.startswith(b'{"reason":') and line.endswith(b"}\n"):
            return None
        raise EnvelopeError(line)
    raw, event_id, time, reason = match.groups()
    token = _TAIL.fullmatch(line, len(line) - _TAIL_BYTES)
    event = _decoded(event_id, raw is not None, line)
    return OutputRef(event, int(token[1], 16) if token else None, int(time), reason is not None)


def pair_of(line: bytes) -> PairOf | None:
    """Of a whole line, with its newline or without it; None: its event has no other record."""
    match = _PAIR.fullmatch(line, max(line.rfind(_PAIR_NAME), 0))
    return None if match is None else PairOf(int(match[1]), int(match[2]))


def closes(line: bytes) -> bool:
    """Whether no further record of its event comes behind this line."""
    pair = pair_of(line)
    return pair is None or pair.number == pair.of


def lacking_pairs(data: bytes) -> int | None:
    """Of whole lines: where the last event's records begin, if the last of them is not there; None: it is.

    Less than 0: before these lines. The records of an event stand together, in order.
    """
    begin = data.rfind(b"\n", 0, -1) + 1
    pair = pair_of(data[begin:])
    if pair is None or pair.number == pair.of:
        return None
    for _ in range(pair.number - 1):
        if not begin:
            return -1
        begin = data.rfind(b"\n", 0, begin - 1) + 1
    return begin


def whole_events(data: bytes) -> int:
    """Of whole lines that begin with an event's first one: how many of their bytes are events with all their records;
    none where they begin with another one."""
    lacking = lacking_pairs(data) if data else None
    return len(data) if lacking is None else max(lacking, 0)


def read_block(block: bytes, *, parse: bool = False) -> OutputRefs:
    """The events of many whole lines. Lines about unreadable records have no row. Raises EnvelopeError.

    ``parse``: each line must also be a JSON text. Without it a line that was torn and written over from its
    middle could pass; what clears tokens for good should ask for it, what only looks for (token, id) need not.
    """
    count = block.count(b"\n")
    if parse and not are_json(block, count):
        for line in lines_of(block):
            if not is_json(line):
                raise EnvelopeError(line)
    several = _PAIR_NAME in block  # or so it seems
    found = [] if several else _PLAIN_LINE.findall(block)
    if len(found) == count and block.endswith(b"\n"):
        ids, times, reasons, tokens = zip(*found, strict=True) if found else ((), (), (), ())
        return OutputRefs(
            list(ids), [int(token, 16) for token in tokens], [int(time) for time in times], list(map(bool, reasons))
        )
    refs = OutputRefs([], [], [])
    for line in lines_of(block):
        ref = read_line(line + b"\n")
        if ref is not None and (not several or closes(line)):
            refs.event_ids.append(ref.event_id)
            refs.tokens.append(ref.token or 0)
            refs.event_times_ns.append(ref.event_time_ns)
            refs.reasoned.append(ref.reasoned)
    return refs


def lines_of(block: bytes) -> Iterator[bytes]:
    """Lines without their newlines. Raises EnvelopeError when the last one has none."""
    lines = block.split(b"\n")
    if lines.pop():
        raise EnvelopeError(block[block.rfind(b"\n") + 1 :])
    yield from lines


def _decoded(event_id: bytes, raw: bool, line: bytes) -> bytes:
    try:
        if raw:
            return b64decode(event_id, validate=True)
        if b"\\" in event_id:
            text: str = orjson.loads(b'"' + event_id + b'"')
            return text.encode()
    except (Base64Error, orjson.JSONDecodeError):
        raise EnvelopeError(line) from None
    return event_id
