"""bz2 and xz files by uncompressed offset, through Python's own libraries. Reading back starts a file again.

Several streams, with zeros allowed in between, are read as one. If a library fails, the output of its last input is
lost, so input is passed in small pieces; xz files that need more than MEMORY_MAX are refused.
"""

from __future__ import annotations

import bz2
import lzma
from pathlib import Path

from photon.adapters.logs.forward import INFLATE_BYTES, ForwardSource
from photon.adapters.logs.links import LogPath

MEMORY_MAX = 128 << 20  # xz -9 needs 65 MiB
INPUT_BYTES = 16 << 10


class LibrarySource(ForwardSource):
    """A file of one or several streams, possibly still growing."""

    def __init__(self, path: Path | LogPath) -> None:
        self._kind = "bz2" if path.name.endswith(".bz2") else "xz"
        super().__init__(path)

    def _restart(self, offset: int) -> None:
        self._taken = 0  # compressed bytes
        self._waiting = b""  # compressed bytes after the end of a stream
        self._inflate = self._inflater()
        self._begun = False  # inside a stream
        self._damage = ""
        self._buffer = bytearray()
        self._start = 0

    def _inflater(self) -> bz2.BZ2Decompressor | lzma.LZMADecompressor:
        return bz2.BZ2Decompressor() if self._kind == "bz2" else lzma.LZMADecompressor(memlimit=MEMORY_MAX)

    def _more(self, limit: int) -> bytes:
        while not self._damage:
            data = b""
            if self._inflate.needs_input:
                data = self._waiting or self._file.read(self._taken, INPUT_BYTES)
                self._taken += 0 if self._waiting else len(data)
                self._waiting = b""
                if not data:
                    return b""
                if not self._begun and not (data := data.lstrip(b"\0")):
                    continue
            self._begun = True
            try:
                piece = self._inflate.decompress(data, INFLATE_BYTES)
            except (OSError, EOFError, lzma.LZMAError) as error:
                before = self._taken - len(data)
                self._damage = f"not valid {self._kind} after compressed byte {before} ({error})"
                return b""
            if self._inflate.eof:
                self._waiting = self._inflate.unused_data
                self._inflate, self._begun = self._inflater(), False
            if piece:
                return piece
        return b""

    def consumed(self) -> int:
        return self._taken - len(self._waiting)

    def damage(self) -> str:
        return self._damage

    def cut_short(self) -> bool:
        return self._begun and not self._damage
