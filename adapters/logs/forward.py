"""Reads compressed files sequentially: keeps a window of uncompressed bytes, and restarts to read earlier ones."""

from __future__ import annotations

import bisect
from abc import ABC, abstractmethod
from pathlib import Path

from photon.adapters.logs.elsewhere import open_stored
from photon.adapters.logs.links import LogPath

READ_BYTES = 1 << 18  # compressed bytes read at a time
INFLATE_BYTES = 1 << 20  # uncompressed bytes made at a time
MARKS_MAX = 4096  # remembered places of one file, evenly spread
MARK_SPACING_BYTES = 1 << 18  # between two of them at first; doubled whenever MARKS_MAX is reached


class ForwardBytes(ABC):
    """A stream read by offset (``reader.Source``) that can only be produced sequentially; reading back restarts it.

    A subclass sets ``_buffer`` and ``_start`` in ``_restart`` and returns the stream's bytes in order.
    """

    compressed = True
    _buffer: bytearray
    _start: int  # uncompressed offset of the buffer

    @abstractmethod
    def _restart(self, offset: int) -> None:
        """Moves to the stream's start, or to a place before ``offset`` where it can be resumed."""

    @abstractmethod
    def _more(self, limit: int) -> bytes:
        """Returns the next uncompressed bytes, about ``limit`` of them; empty at the current end."""

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
        """As in Source; a damaged stream ends where inflating fails."""
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
    """Points where conversion to lines can resume: (offset in the lines, offset in the bytes, framing's state)."""

    def __init__(self) -> None:
        self._places = [(0, 0, b"")]
        self._spacing = MARK_SPACING_BYTES

    def before(self, offset: int) -> tuple[int, int, bytes]:
        """Returns the last of these points at or before ``offset``, which counts the lines' bytes."""
        return self._places[bisect.bisect_right(self._places, (offset, 1 << 62)) - 1]

    def add(self, made: int, taken: int, state: bytes = b"") -> None:
        last = self._places[-1]
        if made < last[0] + self._spacing:
            return
        self._places.append((made, taken, last[2] if state == last[2] else state))  # mostly one shared object
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
        """True if the file has been unlinked."""
        return self._file.unlinked()

    def close(self) -> None:
        self._file.close()
