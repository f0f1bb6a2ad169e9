"""Zstandard files by uncompressed offset: frames and blocks are cut here, the library inflates one block at a time.

A frame (RFC 8878) is a header and blocks of at most 128 KiB of content each, so cutting at the blocks' headers bounds
the output of one call, says exactly whether a file ends inside a frame, and keeps the content before any damage.
Several frames, including skippable ones, make one stream. A frame needs its *window* in memory to be read: larger
ones than WINDOW_BYTES_MAX are refused. So is a frame that needs a dictionary.

Reading back begins at the nearest frame seen before. A file of many frames (``zstd --seekable``, ``pzstd``, one frame
a flush) is therefore cheap to enter in its middle, while a file of one frame is read again from its start.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from pathlib import Path

import zstandard

from photon.adapters.logs.forward import READ_BYTES, ForwardSource
from photon.adapters.logs.links import LogPath

WINDOW_BYTES_MAX = 8 << 20  # Levels 1 to 19 need no larger window; RFC 8878 asks readers to support this one
BLOCK_BYTES_MAX = 128 << 10
FRAMES_MAX = 1024  # starts of frames remembered for one file, evenly spread
# Uncompressed bytes between two remembered frames at first; doubled whenever FRAMES_MAX is reached.
FRAME_SPACING_BYTES = 1 << 20
HEADER_BYTES_MAX = 18
_MAGIC = 0xFD2FB528
_SKIPPABLE = 0x184D2A50
_RLE, _RESERVED = 1, 3


class NotZstd(Exception):
    """Bytes are not a readable frame. ``str()`` says why."""


@dataclass(frozen=True, slots=True)
class FrameHeader:
    """A frame's header. ``skip``: bytes of a skippable frame's content; -1 for a frame of data."""

    length: int  # of the header itself
    skip: int = -1
    window: int = 0
    checksum: bool = False


def read_frame_header(data: bytes) -> FrameHeader | None:
    """Returns the header that ``data`` begins with; ``None`` if more bytes are needed. Raises NotZstd."""
    if len(data) < 4:
        return None
    magic = int.from_bytes(data[:4], "little")
    if magic & 0xFFFFFFF0 == _SKIPPABLE:
        return None if len(data) < 8 else FrameHeader(8, skip=int.from_bytes(data[4:8], "little"))
    if magic != _MAGIC:
        raise NotZstd("no frame begins here")
    if len(data) < 5:
        return None
    flags = data[4]
    single = bool(flags & 0x20)
    id_bytes = (0, 1, 2, 4)[flags & 3]
    size_bytes = (int(single), 2, 4, 8)[flags >> 6]
    at = 5 if single else 6
    length = at + id_bytes + size_bytes
    if len(data) < length:
        return None
    if flags & 0x08:
        raise NotZstd("the frame's header has a reserved bit")
    if any(data[at : at + id_bytes]):
        raise NotZstd("the frame needs a dictionary; compress without one")
    if single:
        window = int.from_bytes(data[at + id_bytes : length], "little") + (256 if size_bytes == 2 else 0)
    else:
        base = 1 << (10 + (data[5] >> 3))
        window = base + (base >> 3) * (data[5] & 7)
    if window > WINDOW_BYTES_MAX:
        limit = WINDOW_BYTES_MAX >> 20
        raise NotZstd(
            f"the frame needs a window of {window / (1 << 20):.0f} MiB, the limit is {limit}; "
            "compress at level 19 or below and without --long"
        )
    return FrameHeader(length, window=window, checksum=bool(flags & 0x04))


class ZstdSource(ForwardSource):
    """A Zstandard file, possibly of several frames, possibly still growing."""

    def __init__(self, path: Path | LogPath) -> None:
        self._frames: list[tuple[int, int]] = [(0, 0)]  # (uncompressed, compressed) offsets of frames' starts
        self._spacing = FRAME_SPACING_BYTES
        super().__init__(path)

    def _restart(self, offset: int) -> None:
        self.enter(*self._frames[bisect.bisect_right(self._frames, (offset, 1 << 62)) - 1])

    @property
    def reach(self) -> tuple[int, int]:
        """Returns two uncompressed offsets: reading from the first or later re-enters no frame, and reading up to the
        second inflates nothing."""
        return self._start, self._made

    def enter(self, made: int, taken: int) -> None:
        """Continues reading at a frame's start, given by its uncompressed and compressed offsets."""
        self._start, self._taken = made, taken
        self._made = made  # uncompressed offset of the next output
        self._waiting = b""  # compressed bytes not used yet
        self._at = 0  # of the first of them
        self._frame: FrameHeader | None = None
        self._skip = 0  # bytes of a skippable frame still to be skipped
        self._checksum_follows = False
        self._damage = ""
        self._buffer = bytearray()
        self._inflate = _inflater()

    def _fill(self, count: int) -> bytes:
        """Returns the next ``count`` compressed bytes without consuming them; fewer at the current end."""
        while len(self._waiting) - self._at < count:
            more = self._file.read(self._taken, max(READ_BYTES, count))
            if not more:
                break
            self._waiting = self._waiting[self._at :] + more
            self._at = 0
            self._taken += len(more)
        return self._waiting[self._at : self._at + count]

    def _more(self, limit: int) -> bytes:
        """Returns one block's content, regardless of ``limit``; empty at the current end."""
        try:
            while not self._damage:
                before = self.consumed()
                piece = self._content() if self._frame is not None else self._begin()
                if piece:
                    self._made += len(piece)
                    return piece
                if before == self.consumed():
                    return b""
        except (NotZstd, zstandard.ZstdError) as error:
            why = " ".join(str(error).split())
            self._damage = f"not valid zstd at compressed byte {self.consumed()} ({why})"
        return b""

    def _begin(self) -> bytes:
        """Skips a skippable frame, or reads a header. Returns no content."""
        if self._skip:
            passed = min(self._skip, len(self._waiting) - self._at)
            self._at += passed
            self._skip -= passed
            if self._skip:
                self._waiting, self._at = b"", 0
                passed = max(min(self._skip, self.size() - self._taken), 0)
                self._taken += passed
                self._skip -= passed
            return b""
        header = read_frame_header(self._fill(HEADER_BYTES_MAX))
        if header is None:
            return b""
        self._remember(self.consumed())
        if header.skip < 0:
            self._frame = header
            self._inflate = _inflater()
            self._inflate.decompress(self._fill(header.length))
        else:
            self._skip = header.skip
        self._at += header.length
        return b""

    def _remember(self, place: int) -> None:
        if self._made < self._frames[-1][0] + self._spacing:
            return
        self._frames.append((self._made, place))
        if len(self._frames) > FRAMES_MAX:
            self._frames = self._frames[::2]
            self._spacing *= 2

    def _content(self) -> bytes:
        """Returns the next block's content. The call after the last block verifies the checksum instead."""
        frame = self._frame
        assert frame is not None
        if self._checksum_follows:
            if len(self._fill(4)) == 4:
                self._inflate.decompress(self._fill(4))
                self._at += 4
                self._frame, self._checksum_follows = None, False
            return b""
        head = self._fill(3)
        if len(head) < 3:
            return b""
        bits = int.from_bytes(head, "little")
        last, kind, size = bits & 1, bits >> 1 & 3, bits >> 3
        if kind == _RESERVED or size > BLOCK_BYTES_MAX:
            raise NotZstd("invalid kind or size of a block")
        whole = 3 + (1 if kind == _RLE else size)
        block = self._fill(whole)
        if len(block) < whole:
            return b""
        piece = self._inflate.decompress(block)
        self._at += whole
        if last and frame.checksum:
            self._checksum_follows = True
        elif last:
            self._frame = None
        return piece

    def consumed(self) -> int:
        return self._taken - len(self._waiting) + self._at

    def damage(self) -> str:
        return self._damage

    def cut_short(self) -> bool:
        """As in Source: True if an incomplete header or block is left. Call it after a read that reached the end."""
        return not self._damage and (self._frame is not None or self._skip > 0 or len(self._waiting) > self._at)


def _inflater() -> zstandard.ZstdDecompressionObj:
    return zstandard.ZstdDecompressor(max_window_size=WINDOW_BYTES_MAX).decompressobj()
