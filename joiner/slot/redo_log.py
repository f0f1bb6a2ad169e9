"""The redo log: frames of opaque bytes and a column of tokens, durable before anything in them is registered.

On disk: segments ``<8 digits>.redo`` in one directory. A segment is a header (magic, version, flags, number, sealed
bytes, CRC) and frames (mark, CRC, lengths, the length of the segment known to be synced, note, tokens, body),
little-endian.

- Only the newest segment can have a torn tail: a segment is synced before its successor is created. A bad frame there
  is a torn tail, unless the header (sealed bytes were durable when the segment got its name) or a later good frame
  shows that it was synced. Any other bad frame is damage, and the slot refuses to start: continuing would lose
  records or write them twice.
- A segment written by a start has the flag REPLACES: once it has its name, all older segments are void (rule 7).
- A segment is deleted when all its frames have left.

Once an operator has accepted the damage (rule 13), ``salvage`` reads all good frames, which are redone as usual. An
event of a lost frame was either never registered: its dispatcher asks again; or registered and written: the verifier
clears it; or registered and not written: recovery by token gives it up once this start has redone the rest.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from photon.config.disk import AppendFile, Disk
from photon.config.errors import PhotonError
from photon.config.versioned_file import other_version
from photon.idregistry.api import U64

MAGIC = b"PHOTREDO"
VERSION = 1
SUFFIX = ".redo"
SEGMENT_BYTES = 4 << 20  # a start reads one or two segments, 40 us a line; a new one costs two syncs

REPLACES = 1
_SEGMENT = struct.Struct("<8sBBxxQQI")  # magic, version, flags, number, sealed bytes, CRC of the preceding fields
_FRAME = struct.Struct("<4sIIIIQ")  # mark, CRC of the rest, note bytes, tokens, body bytes, synced bytes
FRAME_MARK = b"FRM\x01"
_CRC_FROM = 8
SEGMENT_HEAD_BYTES = _SEGMENT.size


@dataclass(slots=True, eq=False)
class RedoLogDamaged(PhotonError):
    path: Path
    offset: int
    why: str

    def __str__(self) -> str:
        return (
            f"{self.path}: damaged redo log at byte {self.offset} ({self.why}); restore this file from the disk's "
            "backup; to continue without it, run `photon serve datacentre` (or joiner, if it is apart) once with "
            "--accept-damaged-log"
        )


@dataclass(frozen=True, slots=True)
class SegmentHead:
    flags: int
    sealed: int  # bytes that were durable when the segment got its name


@dataclass(frozen=True, slots=True)
class RedoFrame:
    """The unit of logging. The log does not interpret ``note`` and ``body``."""

    note: bytes
    tokens: U64
    body: Sequence[bytes]


class RedoLog:
    """The frames of one slot. The caller numbers them in ascending order. Not thread-safe."""

    def __init__(self, disk: Disk, directory: Path, *, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._disk = disk
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._file: AppendFile | None = None
        self._segment = 0
        self._synced = 0
        # True if the last read reached the last byte. A bad end is a frame that was never synced, or one corrupted
        # before a later frame recorded it as synced: the two cannot be distinguished.
        self.whole = True
        # Newest segment and its durable length in bytes; ``None`` before ``begin``. Any thread may read it.
        self.end: tuple[int, int] | None = None
        self._sizes: dict[int, int] = {}  # segment -> bytes
        self._live: dict[int, int] = {}  # segment -> number of frames that have not left
        self._segment_of: dict[int, int] = {}  # frame -> segment

    @property
    def size(self) -> int:
        return sum(self._sizes.values())

    @property
    def frames(self) -> int:
        return len(self._segment_of)

    # -- start -----------------------------------------------------------------------------------------------
    def read(self) -> list[RedoFrame]:
        """Returns all frames still in the log, oldest first. Raises RedoLogDamaged."""
        return [frame for frames in self.by_segment() for frame in frames]

    def by_segment(self) -> Iterator[list[RedoFrame]]:
        """Like ``read``, one segment at a time. Changes nothing, so observers of a slot may call it.

        Raises OSError if the slot's joiner removes a segment meanwhile.
        """
        segments = self._segments()
        for segment in segments:
            frames, self.whole = _read_segment(
                self._disk, self._path(segment), segment, newest=segment == segments[-1]
            )
            yield frames

    def lacking(self, end: tuple[int, int]) -> str:
        """Describes where the log ends if that is before its former durable end ``end``; empty if it is not."""
        newest = max(self._numbers(), default=0)
        there = self._disk.size(self._path(newest)) if newest else 0
        if (newest, there) >= end:
            return ""
        found = f"it ends at byte {there} of segment {newest}" if newest else "there is none"
        return f"{end[1]} bytes of segment {end[0]} had been durable, but {found}"

    def check_reaches(self, end: tuple[int, int]) -> None:
        """Raises RedoLogDamaged if the log ends before its former durable end ``end``."""
        if why := self.lacking(end):
            raise RedoLogDamaged(self._path(end[0]), 0, f"{why}: it was lost, or is an older copy")

    def begin(self, kept: Sequence[tuple[int, RedoFrame]], *, after: int = 0) -> None:
        """Copies the kept frames to a new segment, makes it durable, and drops all older segments (rule 7).

        ``after``: a number that the new segment must exceed, as numbers of lost segments are not reused.
        """
        older = self._numbers()
        segment = max([after, *older]) + 1
        temporary = self._path(segment).with_suffix(".tmp")
        if self._disk.exists(temporary):
            self._disk.remove(temporary)
        file = self._disk.append(temporary)
        frames = [chunk for _, frame in kept for chunk in _encode(frame, 0)]
        sealed = _SEGMENT.size + sum(map(len, frames))
        file.write(_segment_header(segment, REPLACES, sealed), *frames)
        file.sync()
        self._disk.rename(temporary, self._path(segment))
        self._disk.sync_dir(self._directory)
        for old in older:
            self._disk.remove(self._path(old))
        if older:  # they must not come back: their lost frames are given up, and must not be redone afterwards
            self._disk.sync_dir(self._directory)
        self._file, self._segment, self._synced = file, segment, file.size
        self.end = (segment, file.size)
        self._sizes = {segment: file.size}
        self._live = {segment: len(kept)}
        self._segment_of = {number: segment for number, _ in kept}

    # -- running ---------------------------------------------------------------------------------------------
    def append(self, frames: Sequence[tuple[int, RedoFrame]]) -> None:
        """Appends the frames with one write. Not durable before ``sync``."""
        assert self._file is not None, "begin comes first"
        if self._file.size >= self._segment_bytes:
            self._roll()
        chunks: list[bytes] = []
        for number, frame in frames:
            chunks += _encode(frame, self._synced)
            self._segment_of[number] = self._segment
        self._file.write(*chunks)
        self._sizes[self._segment] = self._file.size
        self._live[self._segment] += len(frames)

    def sync(self) -> None:
        assert self._file is not None, "begin comes first"
        size = self._file.size
        self._file.sync()
        self._synced = size
        self.end = (self._segment, size)

    def release(self, frames: Sequence[int]) -> None:
        """Removes frames from the log. Deletes segments without frames, the newest one only once it is full."""
        assert self._file is not None, "begin comes first"
        for number in frames:
            segment = self._segment_of.pop(number)
            self._live[segment] -= 1
            if not self._live[segment] and segment != self._segment:
                self._remove(segment)
        if not self._live[self._segment] and self._file.size >= self._segment_bytes:
            self._roll()  # if the log's size is limited, the next append may be waiting for space

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _roll(self) -> None:
        assert self._file is not None
        self.sync()
        self._file.close()
        full = self._segment
        self._segment += 1
        self._file = self._disk.append(self._path(self._segment))
        self._file.write(_segment_header(self._segment, 0, _SEGMENT.size))
        self._file.sync()
        self._disk.sync_dir(self._directory)
        self._synced = self._file.size
        self.end = (self._segment, self._synced)
        self._sizes[self._segment] = self._file.size
        self._live[self._segment] = 0
        if not self._live[full]:
            self._remove(full)  # only now, as the newest existing segment shows the log's end

    def _remove(self, segment: int) -> None:
        # The segment may reappear after a power cut; its frames are then found in the output, or answered DONE.
        self._disk.remove(self._path(segment))
        del self._sizes[segment]
        del self._live[segment]

    # -- names -----------------------------------------------------------------------------------------------
    def _path(self, segment: int) -> Path:
        return self._directory / f"{segment:08d}{SUFFIX}"

    def _numbers(self) -> list[int]:
        return [number for number, _ in segments_in(self._disk, self._directory)]

    def _segments(self) -> list[int]:
        """Returns the valid segments: from the newest one with REPLACES on."""
        numbers = self._numbers()
        for at in range(len(numbers) - 1, -1, -1):
            path = self._path(numbers[at])
            head = self._disk.read(path, 0, _SEGMENT.size)
            if at == len(numbers) - 1 and not _is_header(head, numbers[at]):
                continue  # torn at its creation; its reader reports it
            if _head_of(head, path, numbers[at]).flags & REPLACES:
                return numbers[at:]
        return numbers


def _segment_header(segment: int, flags: int, sealed: int) -> bytes:
    head = _SEGMENT.pack(MAGIC, VERSION, flags, segment, sealed, 0)[:-4]
    return head + struct.pack("<I", zlib.crc32(head))


def _is_header(head: bytes, segment: int) -> bool:
    if len(head) < _SEGMENT.size or zlib.crc32(head[:-4]) != int.from_bytes(head[-4:], "little"):
        return False
    magic, _, _, number, _, _ = _SEGMENT.unpack(head)
    return bool(magic == MAGIC and number == segment)


def segments_in(disk: Disk, directory: Path) -> list[tuple[int, Path]]:
    names = [name for name in disk.names(directory) if name.endswith(SUFFIX)]
    return sorted((int(name[: -len(SUFFIX)]), directory / name) for name in names)


def segment_head(head: bytes, path: Path, segment: int) -> SegmentHead | None:
    """Decodes a segment's header from its first bytes; ``None`` if they are not its header.

    Raises RedoLogDamaged for another version.
    """
    if not _is_header(head, segment):
        return None
    _, version, flags, _, sealed, _ = _SEGMENT.unpack(head)
    if version != VERSION:
        raise RedoLogDamaged(path, 0, other_version(version, VERSION))
    return SegmentHead(flags, sealed)


def _head_of(head: bytes, path: Path, segment: int) -> SegmentHead:
    found = segment_head(head, path, segment)
    if found is None:
        raise RedoLogDamaged(path, 0, "no segment header")
    return found


def _encode(frame: RedoFrame, synced: int) -> list[bytes]:
    tokens = frame.tokens.astype("<u8", copy=False).tobytes()
    size = sum(map(len, frame.body))
    head = _FRAME.pack(FRAME_MARK, 0, len(frame.note), len(frame.tokens), size, synced)[_CRC_FROM:]
    crc = 0
    chunks = [head, frame.note, tokens, *frame.body]
    for chunk in chunks:
        crc = zlib.crc32(chunk, crc)
    return [FRAME_MARK + crc.to_bytes(4, "little"), *chunks]


def decode_frame(data: bytes, at: int) -> tuple[RedoFrame, int, int] | None:
    """Returns the frame at ``at``, its end, and the segment's synced length when it was written; ``None`` if it is
    incomplete or bad.
    """
    if len(data) - at < _FRAME.size:
        return None
    mark, crc, note_size, count, size, synced = _FRAME.unpack_from(data, at)
    tokens_at = at + _FRAME.size + note_size
    body_at = tokens_at + 8 * count
    end = body_at + size
    if mark != FRAME_MARK or end > len(data) or zlib.crc32(memoryview(data)[at + _CRC_FROM : end]) != crc:
        return None
    tokens = np.frombuffer(data, "<u8", count, tokens_at)
    return RedoFrame(data[at + _FRAME.size : tokens_at], tokens, (data[body_at:end],)), end, synced


def _read_segment(disk: Disk, path: Path, segment: int, *, newest: bool) -> tuple[list[RedoFrame], bool]:
    """Returns a segment's frames, and True if they reach its last byte."""
    data = disk.read(path)
    frames: list[RedoFrame] = []
    if newest and not _is_header(data[: _SEGMENT.size], segment):
        if len(data) > _SEGMENT.size:  # frames come after the header was made durable
            raise RedoLogDamaged(path, 0, "no segment header")
        return frames, True
    sealed = _head_of(data[: _SEGMENT.size], path, segment).sealed
    at = _SEGMENT.size
    while at < len(data):
        decoded = decode_frame(data, at)
        if decoded is None:
            if not newest or at < sealed:
                raise RedoLogDamaged(path, at, "bad frame")
            later, synced = _good_after(data, at)
            if synced > at:
                raise RedoLogDamaged(
                    path, at, f"bad frame that had been synced, as shown by a good one at byte {later} or later"
                )
            return frames, False  # torn: never synced, so nothing of it was registered; unless it was corrupted
        frame, at, _ = decoded
        frames.append(frame)
    if at < sealed:
        raise RedoLogDamaged(path, at, f"only {at} of {sealed} sealed bytes remain")
    return frames, True


DAMAGED_PREFIX = "damaged-"


@dataclass(frozen=True, slots=True)
class Lost:
    """Unreadable bytes of a segment."""

    path: Path
    offset: int
    size: int

    def __str__(self) -> str:
        return f"{self.path}: {self.size} bytes from byte {self.offset} on"


def salvage(disk: Disk, directory: Path) -> tuple[list[RedoFrame], list[Lost]]:
    """Returns all good frames of valid segments, oldest first, and the unreadable ranges between them.

    If a header cannot be read, older segments count as valid too: frames that had left are recognised as done by the
    registry or the output. Raises RedoLogDamaged for a segment of another version, which is not damage to be
    salvaged.
    """
    found = segments_in(disk, directory)
    heads = {number: segment_head(disk.read(path, 0, SEGMENT_HEAD_BYTES), path, number) for number, path in found}
    first = max((number for number, head in heads.items() if head is not None and head.flags & REPLACES), default=0)
    frames: list[RedoFrame] = []
    lost: list[Lost] = []
    for number, path in found:
        if number >= first:
            good, missing = _of_segment(disk, path, heads[number], newest=number == found[-1][0])
            frames += good
            lost += missing
    return frames, lost


def set_aside(disk: Disk, path: Path) -> Path:
    """Durably renames a damaged segment so that no start reads it, and keeps it for inspection."""
    data = disk.read(path)
    number = 0
    while True:
        kept = path.with_name(f"{DAMAGED_PREFIX}{path.stem}-{number}.bin")
        if not disk.exists(kept):
            disk.replace(kept, data)
            return kept
        if disk.read(kept) == data:
            return kept
        number += 1


def _of_segment(
    disk: Disk, path: Path, head: SegmentHead | None, *, newest: bool
) -> tuple[list[RedoFrame], list[Lost]]:
    data = disk.read(path)
    if head is None and newest and len(data) <= SEGMENT_HEAD_BYTES:
        return [], []  # torn at its creation
    sealed = head.sealed if head is not None else SEGMENT_HEAD_BYTES
    frames: list[RedoFrame] = []
    lost = [] if head is not None else [Lost(path, 0, SEGMENT_HEAD_BYTES)]
    at = min(SEGMENT_HEAD_BYTES, len(data))
    while at < len(data):
        decoded = decode_frame(data, at)
        if decoded is not None:
            frame, at, _ = decoded
            frames.append(frame)
            continue
        later, synced = _good_after(data, at)
        if newest and at >= sealed and synced <= at:
            break  # a torn tail: never synced, so nothing of it was registered
        end = later if later >= 0 else len(data)
        lost.append(Lost(path, at, end - at))
        at = end
    if at < sealed:
        lost.append(Lost(path, at, sealed - at))
    return frames, lost


def _good_after(data: bytes, bad: int) -> tuple[int, int]:
    """Returns the next good frame's offset, or -1, and the largest synced length in any later good frame."""
    first, synced = -1, 0
    at = data.find(FRAME_MARK, bad + 1)
    while at >= 0:
        decoded = decode_frame(data, at)
        if decoded is not None and decoded[2] <= at:
            first = at if first < 0 else first
            synced = max(synced, decoded[2])
            at = data.find(FRAME_MARK, decoded[1])
        else:
            at = data.find(FRAME_MARK, at + 1)
    return first, synced
