"""Formats and parses a log's segment file. Pure.

Layout, little-endian:

    header   magic "PHOTJRNL", version u8, 7 zero bytes, segment u64, sealed u64, crc32 of these u32
    frame    mark "PJF2", length u32, crc32(segment, number, synced, payload) u32, number u64, synced u64,
             payload of `length` bytes

A frame is one write followed by one fdatasync, with all records that a step of the group appended: ENTRY
(index, term, command), TERM (term, vote), CUT (entries from index on are gone). Frames are numbered from 0. The first
``sealed`` bytes were written whole and synced before the file got its name; the first ``synced`` bytes were durable
when the frame was written. If nothing follows a synced frame at once, an empty frame records the sync; it is not
synced itself.

Reading: if any good frame shows that a bad frame was durable, this is damage and stops the replica. After the durable
part nothing was acknowledged: the file is cut at the first bad frame, except at an empty one,
whose content the next frame repeats. (Undetectable: a flipped bit in the last frame *and* a power cut that removes
the empty frame after it look like a torn write.)
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

from photon.config.versioned_file import other_version

MAGIC = b"PHOTJRNL"
VERSION = 2
MARK = b"PJF2"
FRAME_TARGET = 1 << 20  # size at which a rewrite starts a new frame
HEADER = struct.Struct("<8sB7xQQ")
CRC = struct.Struct("<I")
FRAME = struct.Struct("<4sIIQQ")
_CHECKED = struct.Struct("<QQQ")
ENTRY = struct.Struct("<BQQI")
TERM = struct.Struct("<BQH")
CUT = struct.Struct("<BQ")
KIND_ENTRY, KIND_TERM, KIND_CUT = 1, 2, 3
NO_VOTE = 0xFFFF
HEADER_BYTES = HEADER.size + CRC.size


class Damaged(Exception):
    """A segment file is damaged; ``str()`` names the fault."""


def header(segment: int, sealed: int) -> bytes:
    data = HEADER.pack(MAGIC, VERSION, segment, sealed)
    return data + CRC.pack(zlib.crc32(data))


def frame(segment: int, number: int, synced: int, payload: bytes) -> bytes:
    crc = zlib.crc32(payload, zlib.crc32(_CHECKED.pack(segment, number, synced)))
    return FRAME.pack(MARK, len(payload), crc, number, synced) + payload


def parse(data: bytes, at: int, segment: int) -> tuple[int, int, bytes] | None:
    """Returns (number, synced, payload) of the frame at an offset; ``None`` if there is no good frame."""
    if at + FRAME.size > len(data):
        return None
    mark, length, crc, number, synced = FRAME.unpack_from(data, at)
    payload = data[at + FRAME.size : at + FRAME.size + length]
    if mark != MARK or len(payload) != length:
        return None
    if zlib.crc32(payload, zlib.crc32(_CHECKED.pack(segment, number, synced))) != crc:
        return None
    return number, synced, payload


def frames(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields (offset, payload) of a segment's frames, without a torn tail. Raises Damaged."""
    if len(data) < HEADER_BYTES or zlib.crc32(data[: HEADER.size]) != CRC.unpack_from(data, HEADER.size)[0]:
        raise Damaged("its header is bad")
    magic, version, segment, durable = HEADER.unpack_from(data)
    if magic != MAGIC or version != VERSION:
        raise Damaged(f"not a journal, or {other_version(version, VERSION)}")
    if len(data) < durable:
        raise Damaged(f"it has {len(data)} bytes, but {durable} were sealed")
    at, expected = HEADER_BYTES, 0
    while at < len(data):
        parsed = parse(data, at, segment)
        if parsed is None:
            if at < max(durable, _durable_after(data, at, segment)):
                raise Damaged(f"frame {expected} at byte {at} is bad, but was durable")
            behind = parse(data, at + FRAME.size, segment)
            if behind is None or behind[0] != expected + 1:
                return
            at += FRAME.size  # an empty frame was here: it loses nothing, but the frames after it would be lost
            expected += 1
            continue
        number, synced, payload = parsed
        if number != expected:
            raise Damaged(f"frame {number} at byte {at} is in the place of frame {expected}")
        durable = max(durable, synced)
        yield at + FRAME.size, payload
        at += FRAME.size + len(payload)
        expected += 1
    if at < durable:
        raise Damaged(f"it has {at} bytes, but {durable} were durable")


def _durable_after(data: bytes, at: int, segment: int) -> int:
    """Returns how many bytes of the file were durable, according to good frames after an offset."""
    durable = 0
    found = data.find(MARK, at + 1)
    while found >= 0:
        parsed = parse(data, found, segment)
        if parsed is not None:
            durable = max(durable, parsed[1])
        found = data.find(MARK, found + 1)
    return durable


def term_record(term: int, vote: str | None) -> bytes:
    if vote is None:
        return TERM.pack(KIND_TERM, term, NO_VOTE)
    name = vote.encode()
    return TERM.pack(KIND_TERM, term, len(name)) + name
