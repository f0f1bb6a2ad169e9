"""Reads (event id, token, event time) back from output lines: for redo at start, and for the verifier.

Independent of the builder's code; the two share only the documented order of members: a line begins with
``{"event_id":…,"key":…,"event_time_ns":…`` and ends with ``,"token":"<16 hex digits>"}``. If ``registered_ns``
follows the event time, it is used instead: it is the registry's time.
"""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import orjson

from photon.adapters.formats.json_check import are_json, is_json
from photon.config.decoding import INT64

_NEWLINE = 10
_TEXT = rb'[^"\\]*+(?:(?>\\.[^"\\]*+))*+'
_STRING = rb'"(' + _TEXT + rb')"'
_LINE = re.compile(
    rb'\{"event_id(_raw_base64)?":' + _STRING + rb',"key(?:_raw_base64)?":"' + _TEXT + rb'","event_time_ns":'
    rb'(?:-?[0-9]{1,19},"registered_ns":)?(-?[0-9]{1,19}),("reason":)?.*[}"]\}\n'
)
_TAIL = re.compile(rb',"token":"([0-9a-f]{16})"\}\n')
_PAIR_NAME = b',"pair":'
_PAIR = re.compile(
    _PAIR_NAME + rb'([0-9]{1,9}),"pairs":([0-9]{1,9})(?:,"joined_at":"[^"\\]*+")?(?:,"token":"[0-9a-f]{16}")?\}\n?'
)
_TAIL_BYTES = len(b',"token":"0123456789abcdef"}\n')
_PLAIN_LINE = re.compile(
    rb'^\{"event_id":"([^"\\\n]*+)","key(?:_raw_base64)?":"[^"\\\n]*+","event_time_ns":'
    rb'(?:-?[0-9]{1,19},"registered_ns":)?(-?[0-9]{1,19}),'
    rb'("reason":)?.*\}(?:,"(?:joined_at|decided_at)":"[^"\\\n]*+")?,"token":"([0-9a-f]{16})"\}\n',
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class OutputRef:
    """The event of a line. ``token`` is ``None`` if the line has none (late, or tokens not configured)."""

    event_id: bytes
    token: int | None
    event_time_ns: int
    reasoned: bool = field(default=False, compare=False)


class PairOf(NamedTuple):
    """A record's position among the records of its event, which has one record per primary event."""

    number: int  # from 1
    of: int


@dataclass(slots=True)
class OutputRefs:
    """Columns for the event lines of a block, in order. Tokens are 0 where a line has none.

    An event that has several records, one per primary event, has one row: that of its last record.
    """

    event_ids: list[bytes]
    tokens: list[int]
    event_times_ns: list[int]
    # True if the line has a reason: a line in ``joined`` with one is an unmatched event
    reasoned: list[bool] = field(default_factory=list)


@dataclass(slots=True)
class EnvelopeError(Exception):
    """A line that is not an output record. ``line`` is its beginning."""

    line: bytes

    def __str__(self) -> str:
        return f"not an output record: {self.line[:120]!r}"


def read_line(line: bytes) -> OutputRef | None:
    """Returns the event of one line with its newline; ``None`` for a line about an unreadable record.

    Raises EnvelopeError, also for a line without its newline (torn).
    """
    match = _LINE.fullmatch(line)
    if match is None:
        if line.startswith(b'{"reason":') and line.endswith(b"}\n"):
            return None
        raise EnvelopeError(line)
    raw, event_id, time, reason = match.groups()
    if int(time) not in INT64:
        raise EnvelopeError(line)
    token = _TAIL.fullmatch(line, len(line) - _TAIL_BYTES)
    event = _decoded(event_id, raw is not None, line)
    return OutputRef(event, int(token[1], 16) if token else None, int(time), reason is not None)


def pair_of(line: bytes) -> PairOf | None:
    """Returns a record's position; ``None`` if it is its event's only one. ``line``: with or without its newline."""
    match = _PAIR.fullmatch(line, max(line.rfind(_PAIR_NAME), 0))
    return None if match is None else PairOf(int(match[1]), int(match[2]))


def closes(line: bytes) -> bool:
    """True if no further record of the line's event follows."""
    pair = pair_of(line)
    return pair is None or pair.number == pair.of


def lacking_pairs(data: bytes) -> int | None:
    """Returns where the last event's first record begins, if that event's last record is missing; else ``None``.

    ``data``: whole lines. -1: the first record precedes them. An event's records are adjacent and in order.
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
    """Returns the length of ``data``, less its last event if that event's last record is missing.

    ``data``: whole lines. 0 if that event's first record precedes them.
    """
    lacking = lacking_pairs(data) if data else None
    return len(data) if lacking is None else max(lacking, 0)


def read_block(block: bytes, *, parse: bool = False) -> OutputRefs:
    """Returns the events in a block of whole lines. Lines about unreadable records have no row. Raises EnvelopeError.

    ``parse``: each line must also be valid JSON. Without it a line that was torn and overwritten from its middle
    could pass; callers that clear tokens permanently should set it, those that only search for (token, id) need not.
    """
    count = int(np.count_nonzero(np.frombuffer(block, np.uint8) == _NEWLINE))  # three times as fast as block.count
    if parse and not are_json(block, count):
        for line in lines_of(block):
            if not is_json(line):
                raise EnvelopeError(line)
    found = _PLAIN_LINE.findall(block)  # of no line of several pairs: these end in a number before the time
    if len(found) == count and block.endswith(b"\n"):
        ids, times, reasons, tokens = zip(*found, strict=True) if found else ((), (), (), ())
        number_of = {token: int(token, 16) for token in set(tokens)}  # the lines of a batch have the same
        numbers, times_ns = list(map(number_of.__getitem__, tokens)), list(map(int, times))
        if not times_ns or (min(times_ns) in INT64 and max(times_ns) in INT64):
            return OutputRefs(list(ids), numbers, times_ns, list(map(bool, reasons)))
    refs, several = OutputRefs([], [], []), _PAIR_NAME in block  # possibly
    for line in lines_of(block):
        ref = read_line(line + b"\n")
        if ref is not None and (not several or closes(line)):
            refs.event_ids.append(ref.event_id)
            refs.tokens.append(ref.token or 0)
            refs.event_times_ns.append(ref.event_time_ns)
            refs.reasoned.append(ref.reasoned)
    return refs


def lines_of(block: bytes) -> Iterator[bytes]:
    """Yields lines without their newlines. Raises EnvelopeError if the last one has none."""
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
