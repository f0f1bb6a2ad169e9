"""The ids of a shard as columns in a file: written by ``photon registry export`` and read by the nightly
verification.

Little-endian:

    header  magic "PHOTIDS1", version u8, 7 zero bytes, shard u64, index u64 (the last entry in it), boundary i64 (ns;
            the least number: none), crc32 u32 of all this
    block   rows u32 (at most BLOCK_ROWS), crc32 u32 of the columns, then the columns, each of `rows` values:
            digest 16 bytes · time i64 (ns UTC) · token u64 (incarnation << 40 | batch) · tag u32 · generation u32 ·
            kind u8 (1 joined, 2 filtered, 3 unmatched, 4 rejected) · state u8 (1 owned, 2 cleared, 3 reopened)
    end     rows 0xFFFFFFFF, crc32 u32 of the number of ids, number of ids u64
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from photon.batch.columns import RowIndexes, take_digests
from photon.config.disk import AppendFile, Disk
from photon.config.errors import PhotonError
from photon.config.versioned_file import other_version
from photon.idregistry.api import DIGEST_BYTES, I64, U8, U32, U64
from photon.idregistry.core.id_bucket import KIND_SHIFT, STATE_MASK, Rows, times_in
from photon.idregistry.core.id_table import IdTable
from photon.idregistry.core.shard_snapshot import ShardImage, SnapshotError, read_shard

MAGIC = b"PHOTIDS1"
VERSION = 1
BLOCK_ROWS = 65_536
_FIELDS = (
    *(("times", "<i8"), ("tokens", "<u8"), ("tags", "<u4")),
    *(("generations", "<u4"), ("kinds", "u1"), ("states", "u1")),
)
"""The columns of IdColumns after the digests, in this order."""
ROW_BYTES = DIGEST_BYTES + sum(np.dtype(kind).itemsize for _, kind in _FIELDS)
_HEADER = struct.Struct("<8sB7xQQq")
_CRC = struct.Struct("<I")
_BLOCK = struct.Struct("<II")
_COUNT = struct.Struct("<Q")
_END = 0xFFFFFFFF
HEADER_BYTES = _HEADER.size + _CRC.size


class ColumnsRefused(PhotonError):
    """The file cannot be written there, or is not a whole export. One line."""


@dataclass(frozen=True, slots=True)
class IdColumns:
    """n ids."""

    digests: bytes  # n x 16
    times: I64
    tokens: U64
    tags: U32
    generations: U32
    kinds: U8
    states: U8

    def __len__(self) -> int:
        return len(self.times)

    def take(self, rows: RowIndexes) -> IdColumns:
        return IdColumns(
            take_digests(self.digests, rows), self.times[rows], self.tokens[rows], self.tags[rows],
            self.generations[rows], self.kinds[rows], self.states[rows],
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Written:
    shard: int
    index: int
    ids: int
    bytes: int


def write_columns(disk: Disk, path: Path, chunks: Iterable[bytes]) -> Written:
    """Writes a shard's snapshot chunks; the file appears once it is whole.

    Raises ColumnsRefused, OSError, and the errors of reading the chunks.
    """
    if disk.exists(path):
        raise ColumnsRefused(f"{path}: exists already: name a new file")
    if not disk.exists(path.parent):
        raise ColumnsRefused(f"{path.parent}: no such directory")
    try:
        image = read_shard(chunks)
    except SnapshotError as error:
        raise ColumnsRefused(f"{path}: nothing written: {error}") from None
    temporary = path.with_name(path.name + ".partial")
    if disk.exists(temporary):
        disk.remove(temporary)
    with closing(disk.append(temporary)) as file:
        ids = _write(file, image)
        file.sync()
        size = file.size
    disk.rename(temporary, path)
    disk.sync_dir(path.parent)
    return Written(image.state.sharding.number, image.applied, ids, size)


def _write(file: AppendFile, image: ShardImage) -> int:
    header = _HEADER.pack(MAGIC, VERSION, image.state.sharding.number, image.applied, image.state.boundary)
    file.write(header, _CRC.pack(zlib.crc32(header)))
    ids = 0
    for block in blocks_of(image.table):
        rest = (getattr(block, name).astype(kind).tobytes() for name, kind in _FIELDS)
        columns = b"".join((block.digests, *rest))
        file.write(_BLOCK.pack(len(block), zlib.crc32(columns)), columns)
        ids += len(block)
    count = _COUNT.pack(ids)
    file.write(_BLOCK.pack(_END, zlib.crc32(count)), count)
    return ids


def blocks_of(table: IdTable) -> Iterator[IdColumns]:
    """All ids of a table, by time bucket, at most BLOCK_ROWS at a time."""
    for number in table.bucket_numbers():
        bucket = table.bucket(number)
        base = number << table.bucket_bits
        generations = np.zeros(bucket.count, np.uint32)
        for row, generation in bucket.generations.items():
            generations[row] = generation
        for start in range(0, bucket.count, BLOCK_ROWS):
            rows = table.bucket_rows(number)[start : start + BLOCK_ROWS]
            yield columns_of_rows(rows, base, generations[start : start + BLOCK_ROWS])


def columns_of_rows(rows: Rows, base_ns: int, generations: U32) -> IdColumns:
    """Converts packed rows of a bucket, whose event times count from ``base_ns``."""
    pairs = np.stack((rows["lo"], rows["hi"]), axis=1).astype("<u8")
    return IdColumns(
        pairs.tobytes(),
        times_in(rows) + base_ns,
        rows["token"].astype(np.uint64),
        rows["tag"].astype(np.uint32),
        generations,
        (rows["what"] >> KIND_SHIFT).astype(np.uint8),
        (rows["what"] & STATE_MASK).astype(np.uint8),
    )


def read_columns(disk: Disk, path: Path) -> Iterator[IdColumns]:
    """Reads block by block, each checked; the file is whole once the iterator has ended. Raises ColumnsRefused."""
    _read_header(disk, path)
    at, ids = HEADER_BYTES, 0
    while True:
        head = disk.read(path, at, _BLOCK.size)
        if len(head) < _BLOCK.size:
            raise ColumnsRefused(f"{path}: ends early, at byte {at}")
        rows, crc = _BLOCK.unpack(head)
        at += _BLOCK.size
        if rows == _END:
            count = disk.read(path, at, _COUNT.size)
            if zlib.crc32(count) != crc or count != _COUNT.pack(ids):
                raise ColumnsRefused(f"{path}: its end is bad")
            return
        if rows > BLOCK_ROWS:
            raise ColumnsRefused(f"{path}: the block at byte {at} claims {rows} rows")
        columns = disk.read(path, at, rows * ROW_BYTES)
        if len(columns) != rows * ROW_BYTES or zlib.crc32(columns) != crc:
            raise ColumnsRefused(f"{path}: the block at byte {at} is bad")
        yield _columns(columns, rows)
        at += len(columns)
        ids += rows


def _read_header(disk: Disk, path: Path) -> None:
    data = disk.read(path, 0, HEADER_BYTES)
    if len(data) < HEADER_BYTES or zlib.crc32(data[: _HEADER.size]) != _CRC.unpack_from(data, _HEADER.size)[0]:
        raise ColumnsRefused(f"{path}: is no export of ids, or its header is bad")
    magic, version, _, _, _ = _HEADER.unpack_from(data)
    if magic != MAGIC or version != VERSION:
        raise ColumnsRefused(f"{path}: not an export of ids, or {other_version(version, VERSION)}")


def _columns(data: bytes, rows: int) -> IdColumns:
    at = DIGEST_BYTES * rows
    columns = {}
    for name, kind in _FIELDS:
        columns[name] = np.frombuffer(data, kind, rows, at)
        at += columns[name].nbytes
    return IdColumns(data[: DIGEST_BYTES * rows], **columns)
