"""Stores a group's snapshot, the state after one entry: writes it in slices, replaces it atomically, sends pieces.

File ``snapshot``, little-endian: magic "PHOTSNAP", version u8, 7 zero bytes, index u64, term u64, crc32 u32; then
frames (length u32, crc32 u32, bytes), one for each chunk of the state machine; then an end frame of length 0xFFFFFFFF
whose crc32 covers the number of chunks (u64) that follows it. A damaged snapshot stops the replica: the log before
it is gone, so there is nothing to fall back to.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from photon.config.disk import AppendFile, Disk
from photon.config.versioned_file import other_version
from photon.idregistry.raft.api import Frozen
from photon.idregistry.raft.codec import Chunk
from photon.idregistry.raft.options import (
    SNAPSHOT_CHUNK_BYTES_MAX,
    SNAPSHOT_SLICE_BYTES,
    TRANSFER_BYTES,
    DiskFull,
    RaftStopped,
    no_space,
)

MAGIC = b"PHOTSNAP"
VERSION = 1
_HEADER = struct.Struct("<8sB7xQQ")
_CRC = struct.Struct("<I")
_FRAME = struct.Struct("<II")
_COUNT = struct.Struct("<Q")
_END = 0xFFFFFFFF  # as length: marks the end
_HEADER_BYTES = _HEADER.size + _CRC.size


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """A complete snapshot: the state after entry ``index`` of ``term``, in a file of ``size`` bytes."""

    index: int
    term: int
    size: int


@dataclass(frozen=True, slots=True)
class Key:
    """Identifies a snapshot being received, and its sender."""

    sender: str
    term: int
    index: int
    index_term: int
    total: int


@dataclass(slots=True)
class _Incoming:
    key: Key
    file: AppendFile


@dataclass(slots=True)
class _Writing:
    index: int
    term: int
    chunks: Iterator[bytes]
    count: int
    file: AppendFile


class SnapshotStore:
    """Holds a group's snapshot in place, one being written, and one being received. Not thread-safe.

    Raises RaftStopped for damaged files and OSError; after either the replica must stop. After DiskFull the snapshot
    being written or received is abandoned; the one in place is unchanged.
    """

    def __init__(self, directory: Path, disk: Disk) -> None:
        self._disk = disk
        self._path = directory / "snapshot"
        self._writing_path = directory / "snapshot.tmp"
        self._incoming_path = directory / "snapshot.incoming"
        self._directory = directory
        self._writing: _Writing | None = None
        self._incoming: _Incoming | None = None
        for left in (self._writing_path, self._incoming_path):
            self._remove(left)
        self.info: SnapshotInfo | None = None
        if disk.exists(self._path):
            index, term = self._read_header(self._path)
            self.info = SnapshotInfo(index, term, disk.size(self._path))

    def chunks(self) -> Iterator[bytes]:
        """Yields the snapshot's chunks after checking each. Raises RaftStopped."""
        return self._read_chunks(self._path)

    def read(self, offset: int) -> bytes:
        return self._disk.read(self._path, offset, TRANSFER_BYTES)

    def damage(self) -> str:
        """Reads the whole snapshot in place; returns the fault, or an empty string if there is none."""
        try:
            for _ in self.chunks():
                pass
        except RaftStopped as e:
            return str(e)
        return ""

    def close(self) -> None:
        self._give_up_writing()
        self.give_up_incoming()

    # --- writing our own --------------------------------------------------------------------------------------

    @property
    def writing(self) -> bool:
        return self._writing is not None

    def begin(self, index: int, term: int, chunks: Iterable[bytes]) -> None:
        """Starts to write a snapshot. Draws all chunks now, before the state changes; ``step`` draws Frozen ones."""
        drawn = chunks if isinstance(chunks, Frozen) else iter(list(chunks))
        header = _HEADER.pack(MAGIC, VERSION, index, term)
        with self._kept_or_removed(self._writing_path, self._give_up_writing):
            self._writing = _Writing(index, term, drawn, 0, self._create(self._writing_path))
            self._writing.file.write(header, _CRC.pack(zlib.crc32(header)))

    def step(self) -> bool:
        """Writes and syncs one slice; True when the snapshot is complete, durable and in place."""
        writing = self._writing
        assert writing is not None
        with self._kept_or_removed(self._writing_path, self._give_up_writing):
            complete = self._write_slice(writing)
        if complete:
            self._writing = None
            self._put(writing.file, self._writing_path, writing.index, writing.term)
        return complete

    def _write_slice(self, writing: _Writing) -> bool:
        parts: list[bytes] = []
        size = 0
        for chunk in writing.chunks:
            if len(chunk) > SNAPSHOT_CHUNK_BYTES_MAX:
                raise RaftStopped(
                    f"a snapshot chunk has {len(chunk)} bytes; at most {SNAPSHOT_CHUNK_BYTES_MAX} are allowed"
                )
            writing.count += 1
            parts += (_FRAME.pack(len(chunk), zlib.crc32(chunk)), chunk)
            size += len(chunk)
            if size >= SNAPSHOT_SLICE_BYTES:
                complete = False
                break
        else:
            complete = True
            count = _COUNT.pack(writing.count)
            parts += (_FRAME.pack(_END, zlib.crc32(count)), count)
        writing.file.write(*parts)
        writing.file.sync()
        return complete

    # --- receiving a leader's ---------------------------------------------------------------------------------

    def receive(self, sender: str, chunk: Chunk) -> int:
        """Stores a piece if it is the next one; returns the next offset needed, or ``total`` after the last piece.

        A piece from another sender, term or snapshot starts the transfer again at 0.
        """
        incoming = self._incoming
        key = Key(sender, chunk.term, chunk.index, chunk.index_term, chunk.total)
        with self._kept_or_removed(self._incoming_path, self.give_up_incoming):
            if incoming is None or key != incoming.key:
                if chunk.offset != 0:
                    return 0
                self.give_up_incoming()
                incoming = self._incoming = _Incoming(key, self._create(self._incoming_path))
            if chunk.data and chunk.offset == incoming.file.size and chunk.offset + len(chunk.data) <= chunk.total:
                incoming.file.write(chunk.data)
                incoming.file.sync()
            return incoming.file.size

    @property
    def incoming(self) -> Key | None:
        return self._incoming.key if self._incoming is not None else None

    def incoming_chunks(self) -> Iterator[bytes]:
        """Yields the received snapshot's chunks after checking each. Raises RaftStopped if it is damaged."""
        incoming = self._incoming
        assert incoming is not None
        if self._read_header(self._incoming_path) != (incoming.key.index, incoming.key.index_term):
            raise _damaged(self._incoming_path, "its header belongs to another snapshot")
        yield from self._read_chunks(self._incoming_path)

    def put_incoming(self) -> SnapshotInfo:
        """Puts the received and checked snapshot in place, durably."""
        incoming = self._incoming
        assert incoming is not None
        self._incoming = None
        self._give_up_writing()  # abandoned: it would be older than the received one
        return self._put(incoming.file, self._incoming_path, incoming.key.index, incoming.key.index_term)

    def give_up_incoming(self) -> None:
        if self._incoming is not None:
            self._incoming.file.close()
            self._incoming = None

    # --- files ------------------------------------------------------------------------------------------------

    def _give_up_writing(self) -> None:
        if self._writing is not None:
            self._writing.file.close()
            self._writing = None

    @contextmanager
    def _kept_or_removed(self, path: Path, give_up: Callable[[], None]) -> Iterator[None]:
        """On a full disk, gives up and removes the file, as a partial one is useless. Raises DiskFull."""
        try:
            with no_space(path):
                yield
        except DiskFull:
            give_up()
            self._remove(path)
            raise

    def _create(self, path: Path) -> AppendFile:
        self._remove(path)
        return self._disk.append(path)

    def _remove(self, path: Path) -> None:
        if self._disk.exists(path):
            self._disk.remove(path)

    def _put(self, file: AppendFile, path: Path, index: int, term: int) -> SnapshotInfo:
        size = file.size
        file.close()
        self._disk.rename(path, self._path)
        # before the log is cut: the library cuts first, and would lose everything
        self._disk.sync_dir(self._directory)
        self.info = SnapshotInfo(index, term, size)
        return self.info

    def _read_header(self, path: Path) -> tuple[int, int]:
        data = self._disk.read(path, 0, _HEADER_BYTES)
        if len(data) < _HEADER_BYTES or zlib.crc32(data[: _HEADER.size]) != _CRC.unpack_from(data, _HEADER.size)[0]:
            raise _damaged(path, "its header is bad")
        magic, version, index, term = _HEADER.unpack_from(data)
        if magic != MAGIC or version != VERSION:
            raise _damaged(path, f"not a snapshot, or {other_version(version, VERSION)}")
        return index, term

    def _read_chunks(self, path: Path) -> Iterator[bytes]:
        return (read_chunk(self._disk, path, at, length) for at, length, _ in frames(self._disk, path))


def frames(disk: Disk, path: Path, peek: int = 0) -> Iterator[tuple[int, int, bytes]]:
    """Yields (offset of its frame, length, its first ``peek`` bytes) of each chunk in a file. Raises RaftStopped."""
    at, count = _HEADER_BYTES, 0
    while True:
        head = disk.read(path, at, _FRAME.size + peek)
        if len(head) < _FRAME.size:
            raise _damaged(path, "it ends early")
        length, crc = _FRAME.unpack_from(head)
        if length == _END:
            end = disk.read(path, at + _FRAME.size, _COUNT.size)
            if zlib.crc32(end) != crc or end != _COUNT.pack(count):
                raise _damaged(path, "its end is bad")
            return
        if length > SNAPSHOT_CHUNK_BYTES_MAX:
            raise _damaged(path, f"chunk {count} at byte {at} claims {length} bytes")
        yield at, length, head[_FRAME.size : _FRAME.size + length]
        at += _FRAME.size + length
        count += 1


def read_chunk(disk: Disk, path: Path, at: int, length: int) -> bytes:
    """Reads and checks the chunk whose frame is at an offset. Raises RaftStopped."""
    data = disk.read(path, at, _FRAME.size + length)
    found, crc = _FRAME.unpack_from(data) if len(data) >= _FRAME.size else (0, 0)
    chunk = data[_FRAME.size :]
    if found != length or len(chunk) != length or zlib.crc32(chunk) != crc:
        raise _damaged(path, f"the chunk at byte {at} is bad")
    return chunk


def _damaged(path: Path, what: str) -> RaftStopped:
    return RaftStopped(
        f"snapshot {path} is damaged: {what}; do not delete it: replace this replica or restore its disk"
    )
