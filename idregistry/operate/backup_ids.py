"""Reads a backup's ids in parallel: plans parts from the places of their chunks, and reads each part as columns.

Planning reads only some bytes of each chunk, so it is cheap for any number of ids. Each reader reads its part one
chunk at a time, and checks each chunk's CRC.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from photon.batch.columns import RowIndexes, take_digests
from photon.config.disk import Disk
from photon.idregistry.api import I64, U8, U32, U64
from photon.idregistry.core.id_bucket import KIND_SHIFT, STATE_MASK, Rows, times_in
from photon.idregistry.core.shard_snapshot import PEEK_BYTES, HeadFacts, generations_of, head_facts, ids_of, peek_ids
from photon.idregistry.operate.backup import BackupDamaged, Manifest, damage_in
from photon.idregistry.raft.snapshot import frames, read_chunk

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class IdColumns:
    """n ids, as columns."""

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
class Chunk:
    """A chunk in a snapshot file. ``offset``: where its frame starts."""

    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class IdsChunk:
    """A chunk with some ids of one bucket. ``first_row``: number of the bucket's rows in earlier chunks."""

    chunk: Chunk
    bucket: int
    first_row: int
    rows: int


@dataclass(frozen=True, slots=True)
class IdsPart:
    """One reader's share: ids of one bucket of a shard, and the chunks with the bucket's generations."""

    shard: int
    file: str  # relative to the backup
    bucket_bits: int
    chunks: list[IdsChunk]
    generations: list[Chunk]

    @property
    def size(self) -> int:
        """Bytes to read."""
        return sum(each.chunk.length for each in self.chunks)


def columns_of_rows(rows: Rows, base_ns: int, generations: U32) -> IdColumns:
    """Converts packed rows of a bucket to columns. The rows' event times count from ``base_ns``."""
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


def plan_ids(disk: Disk, directory: Path, manifest: Manifest, part_bytes: int) -> Iterator[IdsPart]:
    """Yields all ids of a backup in parts of about ``part_bytes``. Raises BackupDamaged, OSError."""
    for entry in manifest.groups:
        if entry.group == 0:
            continue
        path = directory / entry.file
        if not disk.exists(path) or disk.size(path) != entry.bytes:
            raise BackupDamaged(f"{path}: is not the file named by the manifest")
        yield from _plan_shard(disk, path, entry.file, entry.group, entry.chunks, part_bytes)


def _plan_shard(disk: Disk, path: Path, file: str, group: int, chunks: int, part_bytes: int) -> Iterator[IdsPart]:
    facts: HeadFacts | None = None
    ids: list[IdsChunk] = []
    generations: list[Chunk] = []
    count = 0
    for offset, length, begin in _frames(disk, path):
        chunk = Chunk(offset, length)
        count += 1
        if facts is None:
            facts = _read(disk, path, chunk, head_facts)
            continue
        peeked = peek_ids(begin, length)
        if peeked is None:
            other = _read(disk, path, chunk, generations_of)
            if other is not None:
                generations.append(chunk)
            continue
        bucket, rows = peeked
        if ids and ids[-1].bucket != bucket:
            yield from _cut(group, file, facts, ids, generations, part_bytes)
            ids, generations = [], []
        ids.append(IdsChunk(chunk, bucket, ids[-1].first_row + ids[-1].rows if ids else 0, rows))
    if facts is None or count != chunks:
        raise BackupDamaged(f"{path}: has {count} chunks, but the manifest says {chunks}")
    yield from _cut(group, file, facts, ids, generations, part_bytes)


def _cut(
    group: int, file: str, facts: HeadFacts, ids: list[IdsChunk], generations: list[Chunk], part_bytes: int
) -> Iterator[IdsPart]:
    part: list[IdsChunk] = []
    size = 0
    for each in ids:
        if part and size + each.chunk.length > part_bytes:
            yield IdsPart(group, file, facts.bucket_bits, part, list(generations))
            part, size = [], 0
        part.append(each)
        size += each.chunk.length
    if part:
        yield IdsPart(group, file, facts.bucket_bits, part, list(generations))


def _frames(disk: Disk, path: Path) -> Iterator[tuple[int, int, bytes]]:
    with damage_in(path):
        yield from frames(disk, path, PEEK_BYTES)


def _read(disk: Disk, path: Path, chunk: Chunk, read: Callable[[bytes], T]) -> T:
    with damage_in(path):
        return read(read_chunk(disk, path, chunk.offset, chunk.length))


def read_part(disk: Disk, directory: Path, part: IdsPart, *, given_back: bool = False) -> Iterator[IdColumns]:
    """Yields a part's ids, one chunk at a time. With ``given_back``, skips chunks without given-back ids.

    Raises BackupDamaged, OSError.
    """
    path = directory / part.file
    for each in part.chunks:
        generations = _generations(disk, path, part, each)
        if given_back and not generations.any():
            continue
        bucket, rows = _read(disk, path, each.chunk, ids_of)
        if (bucket, len(rows)) != (each.bucket, each.rows):
            raise BackupDamaged(f"{path}: the chunk at byte {each.chunk.offset} has changed")
        yield columns_of_rows(rows, bucket << part.bucket_bits, generations)


def _generations(disk: Disk, path: Path, part: IdsPart, ids: IdsChunk) -> U32:
    column = np.zeros(ids.rows, np.uint32)
    for chunk in part.generations:
        found = _read(disk, path, chunk, generations_of)
        for row, generation in found[1] if found is not None else ():
            if ids.first_row <= row < ids.first_row + ids.rows:
                column[row - ids.first_row] = generation
    return column
