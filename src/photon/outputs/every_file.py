"""Finds every file in an output, even unlisted ones, and the whole lines that can still be read.

Readers rely on lengths and checksums. A search for a record must not: unlisted files may contain it, and a wrong
checksum does not invalidate single lines.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from photon.config.disk import Disk
from photon.outputs.content import GZIP
from photon.outputs.log.format import FINAL_SUFFIX, PLAIN_SUFFIX
from photon.outputs.published import GONE
from photon.outputs.ranges import BLOCK_BYTES, Lines

CHECKSUM_WRONG = "checksum wrong"  # a ``trouble``; all lines were returned nevertheless
_CHECKS = {"incorrect data check": 4, "incorrect length check": 0}
# zlib's words for a wrong trailer -> bytes of the trailer after the place where zlib stops


@dataclass(frozen=True, slots=True)
class FoundFile:
    kind: str  # joined, filtered, unmatched, rejected or late: its directory
    name: str  # plain name relative to the output, as ``OutputFile.name``
    path: Path  # the file itself: the plain form if both exist
    bytes: int  # on disk


def files_below(disk: Disk, output: Path, kinds: Collection[str]) -> list[FoundFile]:
    """Returns all output files in the directories of these kinds and below them, by name. Raises OSError."""
    return [found for kind in sorted(kinds) for found in _below(disk, output, kind, kind)]


def _below(disk: Disk, output: Path, directory: str, kind: str) -> Iterator[FoundFile]:
    try:
        names = disk.names(output / directory)
    except NotADirectoryError:
        return
    for name in names:
        # Compressed files grow under .tmp, copies under .partial before they are renamed; hidden ones are not output.
        if name.startswith((".", "_")) or name.endswith((".tmp", ".partial")):
            continue
        if not name.endswith((PLAIN_SUFFIX, FINAL_SUFFIX)):
            yield from _below(disk, output, f"{directory}/{name}", kind)
            continue
        plain = name.removesuffix(FINAL_SUFFIX).removesuffix(PLAIN_SUFFIX) + PLAIN_SUFFIX
        if name == plain or plain not in names:  # the plain form is used while a file is being compressed
            path = output / directory / name
            with suppress(FileNotFoundError):  # it was compressed or removed since the listing
                yield FoundFile(kind, f"{directory}/{plain}", path, disk.size(path))


def whole_lines(disk: Disk, path: Path) -> WholeLines:
    """Reads the whole lines of a plain or ``.gz`` file, as far as it can be read."""
    return WholeLines(disk, path)


class WholeLines:
    """Iterates once over blocks of whole lines; ``trouble`` and the counts are known at the end. Never raises."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self._path = path
        self.trouble: str | None = None  # why the file is incomplete
        self.lines = 0
        self.end = 0  # of the last whole line, in uncompressed bytes

    def __iter__(self) -> Iterator[Lines]:
        rest = b""
        for data in self._bytes():
            rest += data
            stop = rest.rfind(b"\n") + 1
            if stop:
                self.lines += rest.count(b"\n")
                begin, self.end = self.end, self.end + stop
                yield Lines(begin, rest[:stop])
                rest = rest[stop:]
        if rest and self.trouble is None:
            self.trouble = "has an unfinished last line"

    def _bytes(self) -> Iterator[bytes]:
        chunks = self._chunks()
        yield from _inflated(chunks, self) if self._path.name.endswith(".gz") else chunks

    def _chunks(self) -> Iterator[bytes]:
        at = 0
        try:
            while data := self._disk.read(self._path, at, BLOCK_BYTES):
                at += len(data)
                yield data
        except FileNotFoundError:
            self.trouble = GONE
        except OSError as error:
            self.trouble = f"cannot be read ({error.strerror})"


def _inflated(chunks: Iterator[bytes], told: WholeLines) -> Iterator[bytes]:
    """Yields the content of a gzip stream up to damage. A wrong checksum affects only its own member."""
    packed = b""
    inflate = zlib.decompressobj(GZIP)
    begun = False
    skip = 0
    while True:
        if not packed:
            packed = next(chunks, b"")
            if not packed:
                break
        if skip:
            skip, packed = max(skip - len(packed), 0), packed[skip:]
            continue
        if not begun and not (packed := packed.lstrip(b"\0")):  # padding between members is allowed
            continue
        before = inflate.copy()
        try:
            data = inflate.decompress(packed, BLOCK_BYTES)
        except zlib.error as error:
            data, taken = _up_to_damage(before, packed)
            if data:
                yield data
            left = next((left for words, left in _CHECKS.items() if words in str(error)), None)
            if left is None:
                told.trouble = f"is damaged ({error})"
                return
            told.trouble = CHECKSUM_WRONG
            packed, skip, begun = packed[taken:], left, False
            inflate = zlib.decompressobj(GZIP)
            continue
        begun, packed = not inflate.eof, inflate.unconsumed_tail or inflate.unused_data
        if inflate.eof:
            inflate = zlib.decompressobj(GZIP)
        if data:
            yield data
    if begun and told.trouble is None:
        while data := inflate.flush(BLOCK_BYTES):
            yield data
        if not inflate.eof:
            told.trouble = "is cut short"


def _up_to_damage(inflate: zlib._Decompress, packed: bytes) -> tuple[bytes, int]:
    """Returns the output before the damage and the number of bytes consumed. Needed because a failing call of zlib
    keeps its earlier output.
    """
    out = []
    for at in range(len(packed)):
        try:
            out.append(inflate.decompress(packed[at : at + 1]))
        except zlib.error:
            return b"".join(out), at + 1
    return b"".join(out), len(packed)
