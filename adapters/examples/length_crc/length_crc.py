"""Binary records, each preceded by its length and CRC: sessions (primary) and samples of their players (foreign)."""

from __future__ import annotations

import struct
import zlib
from base64 import b64decode
from typing import Any

import orjson

from photon.adapters.contract import Adapter, BadRecord, Cut, ForeignHeader, Framing, LogFile, binary_line

RECORD_BYTES_MAX = 1 << 20
WRONG = b"!"  # marks a record whose CRC is wrong
_HEAD = struct.Struct("<II")  # length, CRC-32 of what follows
_SESSION = struct.Struct("<Q16s")  # id, device
_SAMPLE = struct.Struct("<QQqd")  # id, session, time in ns UTC, buffered seconds


class LengthCrc(Framing):
    """Converts records to lines of base64. Marks a record with a wrong CRC, so that only that one is lost.

    An impossible length ends the log, because the start of the next record is unknown.
    """

    def cut(self, data: bytes, state: bytes) -> Cut:
        lines, at = [], 0
        while at + _HEAD.size <= len(data):
            length, crc = _HEAD.unpack_from(data, at)
            if length > RECORD_BYTES_MAX:
                raise ValueError(f"a record has {length} bytes; at most {RECORD_BYTES_MAX} are possible")
            end = at + _HEAD.size + length
            if end > len(data):
                break
            record = data[at + _HEAD.size : end]
            lines.append(binary_line(record) if zlib.crc32(record) == crc else WRONG + binary_line(record))
            at = end
        return Cut(b"".join(lines), at)


class PlayerSamples(Adapter):
    """Joins each sample with the session that it belongs to."""

    primary_framing = foreign_framing = LengthCrc()

    def foreign_header(self, record: bytes, file: LogFile) -> ForeignHeader:
        number, session, time_ns, _ = _fields(_SAMPLE, record)
        return ForeignHeader(b"%d" % session, time_ns, b"%d" % number)

    def primary_key(self, record: bytes, file: LogFile) -> bytes:
        return b"%d" % _fields(_SESSION, record)[0]

    def foreign_payload(self, record: bytes, file: LogFile) -> bytes:
        number, session, time_ns, buffered_s = _fields(_SAMPLE, record)
        return orjson.dumps({"id": number, "session": session, "time_ns": time_ns, "buffered_s": buffered_s})

    def primary_payload(self, record: bytes, file: LogFile) -> bytes:
        session, device = _fields(_SESSION, record)
        return orjson.dumps({"session": session, "device": device.rstrip(b"\0").decode("latin-1")})


def _fields(layout: struct.Struct, line: bytes) -> tuple[Any, ...]:
    """Returns the fields of a record. Raises BadRecord."""
    if line.startswith(WRONG):
        raise BadRecord("its CRC is wrong")
    try:
        return layout.unpack(b64decode(line, validate=True))
    except (ValueError, struct.error):
        raise BadRecord(f"not a record of {layout.size} bytes") from None
