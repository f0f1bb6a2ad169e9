"""Stores the rows of a part durably before they are registered (rule 1).

A file is little-endian. It has a magic number, version, CRCs, token, and the lengths of its two halves, which are the
columns of ``Rows`` and the lines. A file gets its name only once it is durable, so an unreadable file is damaged,
never unfinished.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from photon.batch.columns import RowIndexes
from photon.config.disk import Disk
from photon.config.errors import PhotonError
from photon.config.versioned_file import other_version
from photon.idregistry.api import DIGEST_BYTES, I64
from photon.joiner.rows import Rows

MAGIC = b"PHOTBACK"
VERSION = 1
_HEAD = struct.Struct("<8sBxxxI")  # magic, version, CRC of the rest except the lines
_SAID = struct.Struct("<IQQQ")  # CRC of the lines, token, bytes of the columns, bytes of the lines
HEAD_BYTES = _HEAD.size + _SAID.size
_COUNT = struct.Struct("<I")


@dataclass(slots=True, eq=False)
class StagingDamaged(PhotonError):
    """A durably written file cannot be read."""

    path: Path
    why: str

    def __str__(self) -> str:
        return (
            f"{self.path}: unreadable ({self.why}); restore it from the file system's backup: without it, ids "
            "without a written record may stay registered"
        )


def winner_bits(rows: int, winners: RowIndexes) -> bytes:
    """Returns a bit for each row, set if the row won; the first row is the lowest bit."""
    bits = np.zeros(rows, np.uint8)
    bits[winners] = 1
    return np.packbits(bits, bitorder="little").tobytes()


def winners_in(bits: bytes, rows: int) -> RowIndexes:
    """The inverse of ``winner_bits``."""
    return np.flatnonzero(np.unpackbits(np.frombuffer(bits, np.uint8), count=rows, bitorder="little"))


@dataclass(frozen=True, slots=True)
class StagedIds:
    """The ids of a part without its lines."""

    digests: bytes
    times: I64
    token: int


def stage(disk: Disk, path: Path, rows: Rows, token: int) -> None:
    """Writes the rows durably to ``path``. A failure ends the attempt (rule 7)."""
    *columns, lines = rows.encode()
    said = _SAID.pack(zlib.crc32(lines), token, sum(map(len, columns)), len(lines))
    crc = zlib.crc32(b"".join((said, *columns)))
    disk.replace(path, b"".join((_HEAD.pack(MAGIC, VERSION, crc), said, *columns, lines)))


def read_staged(disk: Disk, path: Path) -> Rows:
    """Reads the rows. Raises StagingDamaged."""
    data = disk.read(path)
    token, lines_crc, columns, lines = _said(path, data)
    body = data[HEAD_BYTES:]
    (n,) = _COUNT.unpack_from(body)
    if len(body) != columns + lines or zlib.crc32(body[columns:]) != lines_crc:
        raise StagingDamaged(path, "its lines have changed since they were written")
    try:
        return Rows.decode(np.full(n, token, np.uint64), body)
    except ValueError as bad:
        raise StagingDamaged(path, str(bad)) from None


def read_ids(disk: Disk, path: Path) -> StagedIds:
    """Reads the ids, without the lines. Raises StagingDamaged."""
    head = disk.read(path, 0, HEAD_BYTES)
    length = _SAID.unpack_from(head, _HEAD.size)[2] if len(head) == HEAD_BYTES else 0
    data = head + disk.read(path, HEAD_BYTES, min(length, disk.size(path)))
    token, _, _, _ = _said(path, data)
    (n,) = _COUNT.unpack_from(data, HEAD_BYTES)
    at = HEAD_BYTES + _COUNT.size
    times = at + n * DIGEST_BYTES
    return StagedIds(data[at:times], np.frombuffer(data, "<i8", n, times).astype(np.int64), token)


def _said(path: Path, data: bytes) -> tuple[int, int, int, int]:
    """Checks the columns. Returns the token, the CRC of the lines, and the lengths of both halves."""
    if len(data) < HEAD_BYTES:
        raise StagingDamaged(path, f"{len(data)} bytes")
    magic, version, crc = _HEAD.unpack_from(data)
    if magic != MAGIC or version != VERSION:
        raise StagingDamaged(path, f"magic {magic!r}, {other_version(version, VERSION)}")
    lines_crc, token, columns, lines = _SAID.unpack_from(data, _HEAD.size)
    if columns < _COUNT.size or zlib.crc32(data[_HEAD.size : HEAD_BYTES + columns]) != crc:
        raise StagingDamaged(path, "its columns have changed since they were written")
    return token, lines_crc, columns, lines
