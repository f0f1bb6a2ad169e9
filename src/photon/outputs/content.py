"""Reads one output file by uncompressed offset, even if it is compressed or becomes so meanwhile."""

from __future__ import annotations

import contextlib
import zlib
from bisect import bisect_left
from dataclasses import dataclass
from pathlib import Path

from isal import isal_zlib

from photon.config.disk import Disk
from photon.config.errors import PhotonError
from photon.objects.paths import ObjectPath
from photon.outputs.log.format import gzip_name

COMPRESSED_CHUNK_BYTES = 256 << 10
SKIP_BYTES = 1 << 20
# A compressed file is unchanged if its length and its last compressed bytes are, which include checksums.
END_BYTES = 64
GZIP = 31  # zlib's window bits for a gzip stream
# One of igzip's four levels: output an eighth larger than zlib's at level 6, in a thirteenth of the time, which had
# been a third of a joiner's work.
COMPRESSION_LEVEL = 2


@dataclass(slots=True, eq=False)
class OutputMissing(PhotonError):
    """Published output is missing or incomplete."""

    path: Path
    why: str

    def __str__(self) -> str:
        return f"{self.path}: {self.why}; restore it, or start after it"


def gzip_stream() -> isal_zlib.Compress:
    """Returns a compressor for an output file: ``compress`` the parts, then ``flush``."""
    return isal_zlib.compressobj(COMPRESSION_LEVEL, isal_zlib.DEFLATED, GZIP)


class FileContent:
    """Reads one file forwards from an offset. Keeps no file open; unpacks a compressed file only once."""

    def __init__(self, disk: Disk, path: Path, at: int) -> None:
        """``path``: path of the plain file; ``at``: offset in uncompressed bytes."""
        self._disk = disk
        self._plain = path
        self._final = path.with_name(gzip_name(path.name))
        self._only_final = isinstance(path, ObjectPath)  # as a request for a missing object would be billed
        self.at = at
        self._unpacking: _Unpacking | None = None

    @property
    def unpacked(self) -> bool:
        """True if a new reader would have to unpack again, while this one can continue."""
        return self._unpacking is not None

    def read(self, length: int) -> bytes:
        """Returns the next ``length`` bytes; fewer at the end of the file. Raises OutputMissing, OSError."""
        data = self._read(length)
        self.at += len(data)
        return data

    def give_back(self, data: bytes) -> None:
        """Puts back ``data``, the end of the bytes read last, to be read again."""
        self.at -= len(data)
        if self._unpacking is not None:
            self._unpacking.give_back(data)

    def check(self) -> None:
        """Raises OutputMissing if the file is compressed and its checksum is wrong. Call it at the file's end."""
        if self._unpacking is not None:
            more = self._read(1, whole=True)  # the checksum follows the last byte
            if self._unpacking is not None:
                self._unpacking.give_back(more)

    def _read(self, length: int, *, whole: bool = False) -> bytes:
        # The compressed file exists before the plain one is removed. After a power cut the plain one may be back, and
        # people may recompress: try both until one is found.
        for _ in range(6):
            try:
                if self._unpacking is not None:
                    return self._unpacking.read(length, whole=whole)
                if not self._only_final:
                    return self._disk.read(self._plain, self.at, length)
                was = None
            except FileNotFoundError:
                was, self._unpacking = self._unpacking, None
            if was is None:
                with contextlib.suppress(FileNotFoundError):
                    unpacking = _Unpacking(self._disk, self._final)
                    unpacking.skip(self.at)
                    self._unpacking = unpacking
        raise OutputMissing(self._plain, "was published, but is gone, even as .gz (lost, or archived)")


class _Unpacking:
    """A gzip file, read forwards. Raises FileNotFoundError once the file is gone or another file has its name."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self._path = path
        self._at = 0
        self._end: tuple[int, bytes] | None = None
        self._packed = b""
        self._given_back = b""
        self._member = zlib.decompressobj(GZIP)

    def skip(self, length: int) -> None:
        while length and (part := self.read(min(length, SKIP_BYTES))):
            length -= len(part)

    def give_back(self, data: bytes) -> None:
        self._given_back = data + self._given_back

    def read(self, length: int, *, whole: bool = False) -> bytes:
        """Returns fewer bytes at the end, and before damage that the next call reports. ``whole``: the file must end
        there.
        """
        parts = [self._given_back[:length]]
        self._given_back = self._given_back[length:]
        length -= len(parts[0])
        try:
            while length and (part := self._part(length)):
                parts.append(part)
                length -= len(part)
        except OutputMissing:
            if not any(parts):
                raise
        if whole and length and not self._member.eof:
            raise OutputMissing(self._path, "is cut short")
        return b"".join(parts)

    def _part(self, length: int) -> bytes:
        """Returns the next bytes; empty at the end."""
        while True:
            if self._member.eof:  # files may have been recompressed with several members
                self._packed = self._member.unused_data or self._chunk()
                if not self._packed:
                    return b""
                self._member = zlib.decompressobj(GZIP)
            last = not self._packed and not self._fill()
            before = self._member.copy()
            try:
                part = self._member.decompress(self._packed, length)
            except zlib.error as damage:
                self._member = before
                if not (part := self._before_damage(length)):
                    raise OutputMissing(self._path, f"is damaged ({damage})") from None
                return part
            self._packed = self._member.unconsumed_tail
            if part or (last and not self._member.eof):
                return part

    def _before_damage(self, length: int) -> bytes:
        """Returns the bytes that can be unpacked before zlib meets an error."""

        def unpacked(size: int) -> tuple[bytes, zlib._Decompress] | None:
            member = self._member.copy()
            try:
                return member.decompress(packed[:size], length), member
            except zlib.error:
                return None

        packed = self._packed
        good = bisect_left(range(1, len(packed)), True, key=lambda size: unpacked(size) is None)
        found = unpacked(good)
        assert found is not None  # it had failed with more bytes
        part, self._member = found
        self._packed = self._member.unconsumed_tail + packed[good:]
        return part

    def _fill(self) -> bool:
        self._packed = self._chunk()
        return bool(self._packed)

    def _chunk(self) -> bytes:
        before = self._end or self._found_end()
        data = self._disk.read(self._path, self._at, COMPRESSED_CHUNK_BYTES)
        self._end = self._found_end()
        if self._end != before:
            raise FileNotFoundError(self._path)
        self._at += len(data)
        return data

    def _found_end(self) -> tuple[int, bytes]:
        size = self._disk.size(self._path)
        return size, self._disk.read(self._path, max(size - END_BYTES, 0))
