"""Random access to the bytes of log files, by offsets that count uncompressed bytes; bounded memory and descriptors.

A gzip file has no index. While it is inflated forwards, copies of the inflater's state are kept as check-points, so
that reading back costs at most the distance between two; inflated pages are kept in one LRU over all files.
"""

from __future__ import annotations

import bisect
import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from photon.adapters.contract import LINES, Framing
from photon.adapters.logs.reader import GzipSource
from photon.eventstore.pages import PAGE_BYTES, PAGES_BYTES_MAX, PagedBytes, Pages
from photon.eventstore.varint_bytes import VarintBytes
from photon.eventstore.zstd_bytes import ZstdBytes

CHECKPOINTS_MAX = 32
"""Inflater states kept of one file, about 45 KiB each."""
CHECKPOINT_BYTES = 1 << 20
"""Uncompressed bytes between two at first; twice as many whenever CHECKPOINTS_MAX is reached."""
INPUT_BYTES = 1 << 16


class LogBytes(Protocol):
    """One open log file."""

    def read(self, offset: int, length: int) -> bytes:
        """Fewer than ``length`` bytes only at the end of the file, or where gzip is damaged. Raises OSError."""
        ...

    def unlinked(self) -> bool:
        """Its file has no name any more."""
        ...

    def close(self) -> None: ...


def new_pages(bytes_max: int = PAGES_BYTES_MAX) -> Pages:
    """The LRU of inflated pages that compressed files share."""
    return Pages(bytes_max)


def open_log(path: Path, pages: Pages, file_number: int, framing: Framing = LINES) -> LogBytes:
    """``file_number`` names this opening of a file in ``pages``. Raises OSError."""
    if framing.kind == "varint":
        return VarintBytes(path, pages, file_number)
    if path.name.endswith(".zst"):
        return ZstdBytes(path, pages, file_number)
    return GzipBytes(path, pages, file_number) if path.name.endswith(".gz") else PlainBytes(path)


class PlainBytes:
    """A plain file."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

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
    """An inflater and where it stands. ``at``: uncompressed; ``taken``: compressed bytes it has used up."""

    inflate: Any
    at: int
    taken: int

    def copy(self) -> _Inflation:
        return _Inflation(self.inflate.copy(), self.at, self.taken)


class GzipBytes(PagedBytes):
    """A gzip file of one or several members."""

    def __init__(self, path: Path, pages: Pages, number: int) -> None:
        super().__init__(pages, number, PAGE_BYTES)
        self._path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._state = _Inflation(zlib.decompressobj(31), 0, 0)
        self._checkpoints = [self._state.copy()]
        self._spacing = CHECKPOINT_BYTES
        self._damaged: GzipSource | None = None

    def read(self, offset: int, length: int) -> bytes:
        if self._damaged is None:
            try:
                return self.read_pages(offset, length)
            except zlib.error:
                # The follower's reader gives out what stands before the damage: so those records are in the map.
                self._damaged = GzipSource(self._path)
        return self._damaged.read(offset, length)

    def _inflated(self, offset: int) -> bytes:
        """See PagedBytes."""
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
        """The next bytes, at most PAGE_BYTES; empty at the end of what is there. Raises zlib.error."""
        state = self._state
        while True:
            if state.inflate.eof:  # padding of zeros may stand between members
                data = os.pread(self._fd, INPUT_BYTES, state.taken)
                state.taken += len(data) - len(data.lstrip(b"\0"))
                if data and not data.strip(b"\0"):
                    continue
                state.inflate = zlib.decompressobj(31)
            data = os.pread(self._fd, INPUT_BYTES, state.taken)
            piece: bytes = state.inflate.decompress(data, min(limit, PAGE_BYTES))
            inflate = state.inflate
            state.taken += len(data) - len(inflate.unused_data if inflate.eof else inflate.unconsumed_tail)
            if piece or not data:
                state.at += len(piece)
                self._checkpoint()
                return piece

    def unlinked(self) -> bool:
        return os.fstat(self._fd).st_nlink == 0

    def close(self) -> None:
        if self._damaged is not None:
            self._damaged.close()
        os.close(self._fd)
