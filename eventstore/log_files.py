"""Reads log files at any offset, counted in uncompressed bytes, with bounded memory and descriptors.

A gzip file has no index. While it is inflated forwards, copies of the inflater's state are kept as checkpoints, so
that reading back costs at most the distance between two; inflated pages are kept in one LRU cache for all files.

Zstandard's state cannot be copied, but a file of many frames can be read from the start of any frame, and
``frame_begins`` finds the starts without inflating the file. A file of one frame is read again from its start.

A file in the *seekable format* ends with a skippable frame that lists the sizes of all frames. In other files the
headers are walked: a frame's header may give its content size, and three bytes at each block locate the next block,
so the walk reads some bytes per 128 KiB of content. It ends at a frame without a size; later frames are found by
inflating up to them.
"""

from __future__ import annotations

import bisect
import os
import struct
import threading
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import zstandard
from cachetools import LRUCache

from photon.adapters.contract import LINES, Framing
from photon.adapters.logs.elsewhere import open_for_reading, open_stored
from photon.adapters.logs.framings import as_lines
from photon.adapters.logs.identity import ZSTD_SUFFIXES
from photon.adapters.logs.links import LogPath
from photon.adapters.logs.reader import GzipSource, open_source
from photon.adapters.logs.zstd_source import NotZstd, ZstdSource, read_frame_header
from photon.objects.paths import ObjectPath

FrameBegin = tuple[int, int]  # (uncompressed, compressed) offset of a frame's first byte
ReadAt = Callable[[int, int], bytes]  # (offset, length) in the compressed file -> bytes, fewer at its end

_HEADER_BYTES_MAX = 18
_SEEK_FOOTER = struct.Struct("<IBI")  # number of frames, descriptor, magic
_SEEKABLE_MAGIC = 0x8F92EAB1
_SKIPPABLE_SEEK_MAGIC = 0x184D2A5E
_CHECKSUMS, _RESERVED_BITS = 0x80, 0x7C
SEEK_FRAMES_MAX = 1 << 20  # larger seek tables are ignored
_RLE = 1


def frame_begins(read: ReadAt, size: int) -> Iterator[FrameBegin]:
    """Yields where data frames start, ascending, without (0, 0). ``size``: size of the compressed file."""
    table = _seek_table(read, size)
    yield from _walk(read) if table is None else table


def _seek_table(read: ReadAt, size: int) -> list[FrameBegin] | None:
    footer = read(size - _SEEK_FOOTER.size, _SEEK_FOOTER.size) if size > _SEEK_FOOTER.size + 8 else b""
    if len(footer) < _SEEK_FOOTER.size:
        return None
    count, descriptor, magic = _SEEK_FOOTER.unpack(footer)
    if magic != _SEEKABLE_MAGIC or descriptor & _RESERVED_BITS or count > SEEK_FRAMES_MAX:
        return None
    entry = struct.Struct("<III" if descriptor & _CHECKSUMS else "<II")
    content = count * entry.size + _SEEK_FOOTER.size
    begin = size - content - 8
    if begin < 0:
        return None
    head = read(begin, 8 + content)
    if len(head) < 8 + content or struct.unpack_from("<II", head) != (_SKIPPABLE_SEEK_MAGIC, content):
        return None
    places, made, taken = [], 0, 0
    for each in entry.iter_unpack(head[8 : 8 + count * entry.size]):
        made, taken = made + each[1], taken + each[0]
        places.append((made, taken))
    return places[:-1] if taken == begin else None


def _walk(read: ReadAt) -> Iterator[FrameBegin]:
    made = taken = 0
    while True:
        head = read(taken, _HEADER_BYTES_MAX)
        try:
            header = read_frame_header(head)
        except NotZstd:
            return
        if header is None:
            return
        if made and header.skip < 0:
            yield made, taken
        if header.skip >= 0:
            taken += header.length + header.skip
            continue
        content = zstandard.frame_content_size(head)
        end = None if content < 0 else _blocks_end(read, taken + header.length)
        if end is None:
            return
        made, taken = made + content, end + (4 if header.checksum else 0)


def _blocks_end(read: ReadAt, at: int) -> int | None:
    """Returns the offset after a frame's last block, or ``None`` if the file ends before that."""
    while True:
        head = read(at, 3)
        if len(head) < 3:
            return None
        bits = int.from_bytes(head, "little")
        at += 3 + (1 if bits >> 1 & 3 == _RLE else bits >> 3)
        if bits & 1:
            return at


PAGE_BYTES = 1 << 17
PAGES_BYTES_MAX = 64 << 20  # kept over all compressed files
CHECKPOINTS_MAX = 32  # inflater states kept per file, about 45 KiB each
# Initial distance of two in uncompressed bytes; doubles whenever CHECKPOINTS_MAX is reached.
CHECKPOINT_BYTES = 1 << 20
INPUT_BYTES = 1 << 16
PLACES_MAX = 1 << 14  # frames of one file whose starts are kept, evenly spread


class Pages:
    """A least-recently-used cache of pages. Thread-safe."""

    def __init__(self, bytes_max: int = PAGES_BYTES_MAX) -> None:
        self._lru: LRUCache[tuple[int, int], bytes] = LRUCache(bytes_max, getsizeof=len)
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        return int(self._lru.currsize)

    def get(self, file_number: int, page: int) -> bytes | None:
        with self._lock:
            return self._lru.get((file_number, page))

    def put(self, file_number: int, page: int, data: bytes) -> None:
        """Stores a page, unless it alone exceeds the cache's limit."""
        if len(data) <= self._lru.maxsize:
            with self._lock:
                self._lru[file_number, page] = data


class PagedBytes(ABC):
    """A compressed file, read by pages that a subclass inflates. Not thread-safe."""

    def __init__(self, pages: Pages, number: int, page_bytes: int = PAGE_BYTES) -> None:
        """``number`` identifies this opening of the file in ``pages``."""
        self._pages = pages
        self._number = number
        self._page_bytes = page_bytes

    @abstractmethod
    def _inflated(self, offset: int) -> bytes:
        """Returns the page at ``offset``, which is shorter at the end of the content."""

    def read_pages(self, offset: int, length: int) -> bytes:
        """Returns ``length`` bytes from ``offset``, fewer at the end."""
        size = self._page_bytes
        parts = []
        for number in range(offset // size, (offset + length - 1) // size + 1):
            page = self._page(number)
            begin = number * size
            parts.append(page[max(0, offset - begin) : offset + length - begin])
            if len(page) < size:
                break
        return b"".join(parts)

    def _page(self, number: int) -> bytes:
        page = self._pages.get(self._number, number)
        if page is None:
            page = self._inflated(number * self._page_bytes)
            if len(page) == self._page_bytes:  # the last page of a file may still grow
                self._pages.put(self._number, number, page)
        return page


class LogBytes(Protocol):
    def read(self, offset: int, length: int) -> bytes:
        """Returns ``length`` bytes; fewer only at the end of the file or if gzip is damaged. Raises OSError."""

    def unlinked(self) -> bool: ...

    def close(self) -> None: ...


def open_log(path: Path | LogPath, pages: Pages, file_number: int, framing: Framing = LINES) -> LogBytes:
    """Opens a log. ``file_number`` identifies this opening of the file in ``pages``. Raises OSError."""
    if framing.forward or path.name.endswith((".bz2", ".xz")):
        return ForwardLines(path, pages, file_number, framing)
    if path.name.endswith(ZSTD_SUFFIXES):
        return ZstdBytes(path, pages, file_number)
    if path.name.endswith(".gz"):
        return GzipBytes(path, pages, file_number)
    return open_stored(path, places=True) if isinstance(path, ObjectPath) else PlainBytes(path)


class PlainBytes:
    def __init__(self, path: Path | LogPath) -> None:
        self._fd, _ = open_for_reading(path)

    def read(self, offset: int, length: int) -> bytes:
        data = os.pread(self._fd, length, offset)
        while 0 < len(data) < length and (more := os.pread(self._fd, length - len(data), offset + len(data))):
            data += more
        return data

    def unlinked(self) -> bool:
        return os.fstat(self._fd).st_nlink == 0

    def close(self) -> None:
        os.close(self._fd)


@dataclass(slots=True)
class _Inflation:
    """An inflater and its position: ``at`` in uncompressed bytes, ``taken`` in compressed ones."""

    inflate: Any
    at: int
    taken: int

    def copy(self) -> _Inflation:
        return _Inflation(self.inflate.copy(), self.at, self.taken)


class GzipBytes(PagedBytes):
    def __init__(self, path: Path | LogPath, pages: Pages, number: int) -> None:
        super().__init__(pages, number, PAGE_BYTES)
        self._path = path
        self._file = open_stored(path, places=True)
        self._state = _Inflation(zlib.decompressobj(31), 0, 0)
        self._checkpoints = [self._state.copy()]
        self._spacing = CHECKPOINT_BYTES
        self._damaged: GzipSource | None = None

    def read(self, offset: int, length: int) -> bytes:
        if self._damaged is None:
            try:
                return self.read_pages(offset, length)
            except zlib.error:
                # The follower's reader returns the content before the damage: so those records are in the map.
                self._damaged = GzipSource(self._path)
        return self._damaged.read(offset, length)

    def _inflated(self, offset: int) -> bytes:
        if self._state.at != offset:
            nearest = self._checkpoints[bisect.bisect_right(self._checkpoints, offset, key=lambda c: c.at) - 1]
            if not nearest.at <= self._state.at <= offset:
                self._state = nearest.copy()
        while self._state.at < offset:
            if not self._more(offset - self._state.at):
                return b""
        parts = []
        missing = self._page_bytes
        while missing and (part := self._more(missing)):
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)

    def _checkpoint(self) -> None:
        if self._state.at >= self._checkpoints[-1].at + self._spacing:
            self._checkpoints.append(self._state.copy())
            if len(self._checkpoints) > CHECKPOINTS_MAX:
                self._checkpoints = self._checkpoints[::2]
                self._spacing *= 2

    def _more(self, limit: int) -> bytes:
        """Returns the next bytes, at most PAGE_BYTES; none at the end of the content. Raises zlib.error."""
        state = self._state
        while True:
            if state.inflate.eof:  # padding of zeros may come between members
                data = self._file.read(state.taken, INPUT_BYTES)
                state.taken += len(data) - len(data.lstrip(b"\0"))
                if data and not data.strip(b"\0"):
                    continue
                state.inflate = zlib.decompressobj(31)
            data = self._file.read(state.taken, INPUT_BYTES)
            piece: bytes = state.inflate.decompress(data, min(limit, PAGE_BYTES))
            inflate = state.inflate
            state.taken += len(data) - len(inflate.unused_data if inflate.eof else inflate.unconsumed_tail)
            if piece or not data:
                state.at += len(piece)
                self._checkpoint()
                return piece

    def unlinked(self) -> bool:
        return self._file.unlinked()

    def close(self) -> None:
        if self._damaged is not None:
            self._damaged.close()
        self._file.close()


class ForwardLines(PagedBytes):
    """A log that can only be read forwards: lines derived from its bytes (``Framing.forward``), or bz2 or xz."""

    def __init__(self, path: Path | LogPath, pages: Pages, number: int, framing: Framing) -> None:
        super().__init__(pages, number)
        self._source = as_lines(open_source(path), framing, settled=True)

    def read(self, offset: int, length: int) -> bytes:
        return self.read_pages(offset, length)

    def _inflated(self, offset: int) -> bytes:
        return self._source.read(offset, self._page_bytes)

    def unlinked(self) -> bool:
        return self._source.unlinked()

    def close(self) -> None:
        self._source.close()


class ZstdBytes(PagedBytes):
    """A Zstandard file of one or several frames. Of a damaged one, returns as much as the follower did."""

    def __init__(self, path: Path | LogPath, pages: Pages, number: int) -> None:
        super().__init__(pages, number, PAGE_BYTES)
        self._source = ZstdSource(path)
        self._file = open_stored(path, places=True)
        self._walk = frame_begins(self._file.read, self._file.size())
        self._walked = False
        self._places: list[FrameBegin] = [(0, 0)]
        self._spacing = PAGE_BYTES

    def read(self, offset: int, length: int) -> bytes:
        return self.read_pages(offset, length)

    def _inflated(self, offset: int) -> bytes:
        start, made = self._source.reach
        if not start <= offset <= made:
            self._learn(offset)
            place = self._places[bisect.bisect_right(self._places, (offset, 1 << 62)) - 1]
            if offset < start or place[0] > made:
                self._source.enter(*place)
        return self._source.read(offset, self._page_bytes)

    def _learn(self, offset: int) -> None:
        """Walks headers until a frame begins after ``offset``."""
        while not self._walked and self._places[-1][0] <= offset:
            place = next(self._walk, None)
            if place is None:
                self._walked = True
            elif place[0] >= self._places[-1][0] + self._spacing:
                self._places.append(place)
                if len(self._places) > PLACES_MAX:
                    self._places = self._places[::2]
                    self._spacing *= 2

    def unlinked(self) -> bool:
        return self._source.unlinked()

    def close(self) -> None:
        self._file.close()
        self._source.close()
