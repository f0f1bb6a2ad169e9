"""Compressed files read forwards: a window of uncompressed bytes, and what reading back means."""

from __future__ import annotations

import bisect
from abc import ABC, abstractmethod
from pathlib import Path

from photon.adapters.logs.elsewhere import open_stored
from photon.adapters.logs.links import LogPath

COMPRESSED_SUFFIXES = (".gz", ".zst")
"""Names that say that, and how, a file is compressed."""
READ_BYTES = 1 << 18
"""Compressed bytes taken at a time."""
INFLATE_BYTES = 1 << 20
"""Uncompressed bytes made at a time."""
MARKS_MAX = 4096  # places of one file that are remembered, evenly spread
MARK_SPACING_BYTES = 1 << 18  # between two of them at first; doubled whenever MARKS_MAX is reached


class ForwardBytes(ABC):
    """A stream by its offsets (see ``reader.Source``) that can only be made forwards. Reading back starts it again.

    A subclass sets ``_buffer`` and ``_start`` in ``_restart`` and gives the stream's bytes in order.
    """

    compressed = True
    _buffer: bytearray
    _start: int  # uncompressed offset of the buffer

    @abstractmethod
    def _restart(self, offset: int) -> None:
        """The stream's begin, or a place before ``offset`` from where it can be read on."""

    @abstractmethod
    def _more(self, limit: int) -> bytes:
        """The next uncompressed bytes, about ``limit`` of them; empty at the end of what is there."""

    @abstractmethod
    def damage(self) -> str:
        pass

    @abstractmethod
    def cut_short(self) -> bool:
        pass

    @abstractmethod
    def consumed(self) -> int:
        pass

    def read(self, offset: int, length: int) -> bytes:
        """As in Source; a damaged stream ends where it can no longer be inflated."""
        if offset < self._start:
            self._restart(offset)
        while (missing := offset + length - self._start - len(self._buffer)) > 0:
            piece = self._more(min(missing, INFLATE_BYTES))
            if not piece:
                break
            self._buffer += piece
            self._drop(offset)
        self._drop(offset)
        return b"" if self._start < offset else bytes(self._buffer[:length])

    def _drop(self, offset: int) -> None:
        drop = min(offset - self._start, len(self._buffer))
        if drop > 0:
            del self._buffer[:drop]
            self._start += drop


class Marks:
    """Places from which lines can be made of a file's bytes again: (offset of the lines, offset of the bytes, the
    framing's state there)."""

    def __init__(self) -> None:
        self._places = [(0, 0, b"")]
        self._spacing = MARK_SPACING_BYTES

    def before(self, offset: int) -> tuple[int, int, bytes]:
        """The last place at or before ``offset`` of the lines."""
        return self._places[bisect.bisect_right(self._places, (offset, 1 << 62)) - 1]

    def add(self, made: int, taken: int, state: bytes = b"") -> None:
        last = self._places[-1]
        if made < last[0] + self._spacing:
            return
        self._places.append((made, taken, last[2] if state == last[2] else state))  # most often one object for all
        if len(self._places) > MARKS_MAX:
            self._places = self._places[::2]
            self._spacing *= 2


class ForwardSource(ForwardBytes):
    def __init__(self, path: Path | LogPath) -> None:
        self._file = open_stored(path)
        self.key = self._file.key
        self._restart(0)

    def size(self) -> int:
        return self._file.size()

    def unlinked(self) -> bool:
        """The file has no name any more."""
        return self._file.unlinked()

    def close(self) -> None:
        self._file.close()
