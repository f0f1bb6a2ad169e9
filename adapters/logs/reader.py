"""Reads one file by uncompressed offset: plain files by pread, compressed ones as a forward stream."""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import Protocol

from photon.adapters.logs.elsewhere import StoredFile, open_for_reading, open_stored
from photon.adapters.logs.forward import READ_BYTES, ForwardSource
from photon.adapters.logs.identity import ZSTD_SUFFIXES
from photon.adapters.logs.links import LogPath
from photon.adapters.logs.zstd_source import ZstdSource
from photon.objects.paths import ObjectPath

CHECKSUM_WRONG = "checksum wrong, all its lines are whole"  # the ``Source.damage`` that loses no line
_CHECKS = ("incorrect data check", "incorrect length check")  # zlib's wording
CHECK_BYTES = 4  # most bytes of a trailer after the place where zlib rejects it


class Source(Protocol):
    """An open log file."""

    key: tuple[int, int]  # device, inode
    compressed: bool

    def read(self, offset: int, length: int) -> bytes:
        """Returns up to ``length`` bytes from ``offset``; fewer only at the current end."""
        ...

    def size(self) -> int: ...

    def consumed(self) -> int:
        """Returns the number of bytes on disk read so far, to show progress; 0 if unknown."""
        ...

    def damage(self) -> str:
        """Returns why bytes after the last read are permanently unreadable; empty if all is well."""
        ...

    def cut_short(self) -> bool:
        """True if the last read reached the end of the file in the middle of a compressed stream: more may come."""
        ...

    def unlinked(self) -> bool:
        """True if the file has been unlinked."""
        ...

    def close(self) -> None: ...


def open_source(path: Path | LogPath) -> Source:
    """Opens a file; its suffix tells the compression. Raises OSError."""
    if path.name.endswith(ZSTD_SUFFIXES):
        return ZstdSource(path)
    if path.name.endswith(".gz"):
        return GzipSource(path)
    if path.name.endswith((".bz2", ".xz")):
        from photon.adapters.logs.library_source import LibrarySource  # few logs need its libraries

        return LibrarySource(path)
    return PlainObject(open_stored(path)) if isinstance(path, ObjectPath) else PlainSource(path)


class PlainSource:
    """A plain file: any offset can be read at any time."""

    compressed = False

    def __init__(self, path: Path | LogPath) -> None:
        self._fd, self.key = open_for_reading(path)

    def read(self, offset: int, length: int) -> bytes:
        data = os.pread(self._fd, length, offset)
        if len(data) in (0, length):
            return data
        parts = [data]
        got = len(data)
        while got < length and (data := os.pread(self._fd, length - got, offset + got)):
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def consumed(self) -> int:
        return 0

    def damage(self) -> str:
        return ""

    def cut_short(self) -> bool:
        return False

    def unlinked(self) -> bool:
        return os.fstat(self._fd).st_nlink == 0

    def close(self) -> None:
        os.close(self._fd)


class PlainObject:
    """A plain file that is not on this machine."""

    compressed = False

    def __init__(self, file: StoredFile) -> None:
        self.key = file.key
        self.read = file.read
        self.size = file.size
        self.unlinked = file.unlinked
        self.close = file.close

    def consumed(self) -> int:
        return 0

    def damage(self) -> str:
        return ""

    def cut_short(self) -> bool:
        return False


class GzipSource(ForwardSource):
    """A gzip file, possibly of several members, possibly still growing. Reading backwards starts it again."""

    def _restart(self, offset: int) -> None:
        self._taken = 0  # compressed bytes
        self._waiting = b""  # compressed bytes not inflated yet
        self._inflate = zlib.decompressobj(wbits=31)
        self._begun = False  # inside a member
        self._is_blank = True  # no member has begun yet
        self._pending = False  # the inflater may still hold output for consumed input
        self._damage = ""
        self._buffer = bytearray()
        self._start = 0  # uncompressed offset of the buffer

    def _more(self, limit: int) -> bytes:
        """Returns the next uncompressed bytes; empty at the current end."""
        while not self._damage:
            if not self._waiting and not self._pending:
                self._waiting = self._file.read(self._taken, READ_BYTES)
                self._taken += len(self._waiting)
                if not self._waiting:
                    return b""
            if not self._begun:
                self._waiting = self._waiting.lstrip(b"\0")  # padding between members is allowed
                if not self._waiting:
                    continue
                self._begun, self._is_blank = True, False
            if piece := self._inflated(limit):
                return piece
        return b""

    def _inflated(self, limit: int) -> bytes:
        before = self._inflate.copy()
        try:
            piece = self._inflate.decompress(self._waiting, limit)
        except zlib.error as err:
            return self._up_to_damage(before, str(err))
        self._pending = len(piece) == limit and not self._inflate.eof
        if self._inflate.eof:
            self._waiting = self._inflate.unused_data
            self._inflate = zlib.decompressobj(wbits=31)
            self._begun = False
        else:
            self._waiting = self._inflate.unconsumed_tail
        return piece

    def _up_to_damage(self, inflate: zlib._Decompress, why: str) -> bytes:
        """Returns the output before the damage. Inflates byte by byte, as a failing call loses its output."""
        out = []
        at = 0
        try:
            while at < len(self._waiting):
                out.append(inflate.decompress(self._waiting[at : at + 1]))
                at += 1
        except zlib.error:
            pass
        self._damage = f"not valid gzip at compressed byte {self._taken - len(self._waiting) + at} ({why})"
        if any(check in why for check in _CHECKS) and not self._more_follows(at):
            self._damage = CHECKSUM_WRONG
        return b"".join(out)

    def _more_follows(self, at: int) -> bool:
        """True if bytes follow the wrong trailer: another member, which is not read."""
        left = len(self._waiting) - at - 1
        return left > CHECK_BYTES or bool(self._file.read(self._taken, 1))

    def consumed(self) -> int:
        return self._taken - len(self._waiting)

    def damage(self) -> str:
        return self._damage

    def cut_short(self) -> bool:
        if self._is_blank and self._taken:  # only zeros, as after a power cut
            return True
        return self._begun and not self._pending
