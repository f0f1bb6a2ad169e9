"""Compressed files read forwards: a window of uncompressed bytes, and what reading back means."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from pathlib import Path

COMPRESSED_SUFFIXES = (".gz", ".zst")
"""Names that say that, and how, a file is compressed."""
READ_BYTES = 1 << 18
"""Compressed bytes taken at a time."""
INFLATE_BYTES = 1 << 20
"""Uncompressed bytes made at a time."""


def open_for_reading(path: Path) -> tuple[int, tuple[int, int]]:
    """(descriptor, (device, inode)). Raises OSError."""
    # O_NONBLOCK: what was a file a moment ago may be a pipe now.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    st = os.fstat(fd)
    return fd, (st.st_dev, st.st_ino)


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


class ForwardSource(ForwardBytes):
    def __init__(self, path: Path) -> None:
        self._fd, self.key = open_for_reading(path)
        self._restart(0)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def unlinked(self) -> bool:
        """The file has no name any more."""
        return os.fstat(self._fd).st_nlink == 0

    def close(self) -> None:
        os.close(self._fd)
