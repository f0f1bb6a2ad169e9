"""Reads the id, key, time and source places from a published line. Pure.

Independent of the code that built the line: both rely only on the documented order of members (docs/output.md).
"""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as Base64Error
from dataclasses import dataclass
from datetime import datetime

import orjson

from photon.config.decoding import INT64

_STRING = rb'("[^"\\]*+(?:(?>\\.[^"\\]*+))*+")'
_HEAD = re.compile(
    rb'\{"event_id(_raw_base64)?":' + _STRING + rb',"key(_raw_base64)?":' + _STRING + rb',"event_time_ns":'
    rb'(?:-?[0-9]{1,19},"registered_ns":)?(-?[0-9]{1,19}),(?:"reason":' + _STRING + rb",)?"
)
_SOURCE = b',"source":{"file":'
_TAIL = re.compile(
    rb',"source":\{"file":' + _STRING + rb',"offset":([0-9]{1,19})\}'
    rb'(?:,"primary_source":\{"file":' + _STRING + rb',"offset":([0-9]{1,19})\})?'
    rb'(?:,"pair":([0-9]{1,9}),"pairs":([0-9]{1,9}))?'
    rb'((?:,"(?:joined_at|decided_at)":"([^"\\]*+)")?(?:,"token":"[0-9a-f]{16}")?\}\n)'
)


@dataclass(frozen=True, slots=True)
class RecordPlace:
    """Where a record begins: uncompressed offset, and the file's name at that time, relative to its directory."""

    file: str
    offset: int


@dataclass(frozen=True, slots=True)
class PublishedLine:
    event_id: bytes
    key: bytes
    event_time_ns: int
    reason: str | None  # ``None`` in ``joined``
    source: RecordPlace
    primary: RecordPlace | None
    body: bytes  # the line without its token and the time it was made, with a line end
    # for an event with several records: which one this is, from 1 on, and how many there are
    pair: tuple[int, int] | None
    written: str  # the time it was made, as written there; empty if left out

    @property
    def written_ns(self) -> int | None:
        """When the line was written, ns UTC; ``None`` if it does not say."""
        try:
            return int(datetime.fromisoformat(self.written).timestamp() * 1e9)
        except ValueError:
            return None


@dataclass(slots=True)
class NotPublished(Exception):
    """A line without places, or not in the documented order."""

    line: bytes

    def __str__(self) -> str:
        return f"not an output record: {self.line[:120]!r}"


def read_published(line: bytes) -> PublishedLine:
    """Reads one line with its newline. Raises NotPublished."""
    head = _HEAD.match(line)
    # Payloads come before it, and in a JSON string the quotes of these bytes would be escaped: the last match counts.
    tail = _TAIL.fullmatch(line, line.rfind(_SOURCE))
    if head is None or tail is None:
        raise NotPublished(line)
    raw_id, event_id, raw_key, key, time, reason = head.groups()
    file, offset, primary_file, primary_offset, pair, pairs, end, written = tail.groups()
    if any(int(number) not in INT64 for number in (time, offset, primary_offset or 0)):
        raise NotPublished(line)
    try:
        primary = None if primary_file is None else RecordPlace(orjson.loads(primary_file), int(primary_offset))
        return PublishedLine(
            _bytes(event_id, raw_id is not None),
            _bytes(key, raw_key is not None),
            int(time),
            None if reason is None else orjson.loads(reason),
            RecordPlace(orjson.loads(file), int(offset)),
            primary,
            line[: -len(end)] + b"}\n",
            None if pair is None else (int(pair), int(pairs)),
            (written or b"").decode("ascii", "replace"),
        )
    except (orjson.JSONDecodeError, Base64Error):
        raise NotPublished(line) from None


def _bytes(text: bytes, raw: bool) -> bytes:
    if b"\\" in text:
        value: str = orjson.loads(text)
        return value.encode()
    return b64decode(text[1:-1], validate=True) if raw else text[1:-1]
