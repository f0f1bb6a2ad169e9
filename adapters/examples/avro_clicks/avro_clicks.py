"""Clicks and searches in Avro container files: each record becomes a line of JSON, which Photon reads natively."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import fastavro
import orjson

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import Cut, Framing

MAGIC = b"Obj\x01"
SYNC_BYTES = 16
_HEADER = fastavro.parse_schema(
    {
        "type": "record",
        "name": "header",
        "fields": [
            {"name": "magic", "type": {"type": "fixed", "name": "magic", "size": len(MAGIC)}},
            {"name": "meta", "type": {"type": "map", "values": "bytes"}},
            {"name": "sync", "type": {"type": "fixed", "name": "sync", "size": SYNC_BYTES}},
        ],
    }
)
_SIDES: Mapping[str, Any] = {
    "primary": {"format": "jsonl", "key": "search"},
    "foreign": {"format": "jsonl", "key": "search", "id": "click", "time": {"field": "time_ms", "unit": "ms"}},
}


class Avro(Framing):
    """Converts whole blocks of a container file, with any codec that fastavro reads. ``state``: the file's header."""

    def cut(self, data: bytes, state: bytes) -> Cut:
        begin = 0
        if not state:
            begin = _header_bytes(data)
            state = data[:begin]
            if not begin:
                return Cut(b"", 0)
        end = begin
        while (after := _block_end(data, end, state[-SYNC_BYTES:])) is not None:
            end = after
        if end == begin:
            return Cut(b"", begin, state)
        records = fastavro.reader(io.BytesIO(state + data[begin:end]))
        return Cut(b"".join(orjson.dumps(each, default=_plain) + b"\n" for each in records), end, state)


class AvroClicks(ConfiguredAdapter):
    """Joins each click with the search that it names. Set the options of both sides if your fields differ."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__({**_SIDES, **options})
        self.primary_framing = self.foreign_framing = Avro()


def _header_bytes(data: bytes) -> int:
    """Returns the length of the header; 0 if it is incomplete."""
    if not MAGIC.startswith(data[: len(MAGIC)]):
        raise ValueError("not an Avro container file: it does not begin with Obj 1")
    stream = io.BytesIO(data)
    try:
        header: Any = fastavro.schemaless_reader(stream, _HEADER, None)
    except (EOFError, IndexError):
        return 0
    return stream.tell() if len(header["sync"]) == SYNC_BYTES and stream.tell() <= len(data) else 0


def _block_end(data: bytes, at: int, sync: bytes) -> int | None:
    """Returns the end of the block that begins at ``at``; ``None`` if it is incomplete."""
    for _ in range(2):  # the number of records, then the number of bytes
        found = _long(data, at)
        if found is None:
            return None
        value, at = found
    end = at + value + SYNC_BYTES
    if value < 0:
        raise ValueError(f"a block has {value} bytes")
    if end > len(data):
        return None
    if data[end - SYNC_BYTES : end] != sync:
        raise ValueError("a block does not end with the file's sync marker")
    return end


def _long(data: bytes, at: int) -> tuple[int, int] | None:
    """Reads a zigzag varint. Returns the number and the offset after it."""
    value = shift = 0
    while at < len(data):
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        if shift > 63:
            raise ValueError("a number is longer than 64 bits")
    return None


def _plain(value: object) -> str:
    """Converts a value for JSON: bytes in Avro's JSON form, decimals as text."""
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)
