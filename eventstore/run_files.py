"""Sorted runs of the dense map on disk: two column files each, mapped into memory for look-ups.

Format, version 1: ``run-NNNNNNNNNN.hashes`` and ``run-NNNNNNNNNN.locations``, each

    magic 'PHRN' | column 'H' or 'L' | version 1 | 10 zero bytes
    n x u64, little endian
    count u64 | crc32 of the values u32 | 4 zero bytes

A run's files are written and synced whole before the catalogue names them, and are never changed; files that the
catalogue does not name are left-overs of a crash. Merging reads and writes in slices, so its memory does not grow
with the runs.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from isal import isal_zlib

from photon.config.disk import AppendFile, Disk
from photon.eventstore.file_map import FileMapError
from photon.eventstore.index import U64, Run

MAGIC = b"PHRN"
VERSION = 1
HEADER_BYTES = 16
FOOTER = struct.Struct("<QIxxxx")
COLUMNS = (("hashes", b"H"), ("locations", b"L"))


def run_name(number: int) -> str:
    """File name of a run, without suffix."""
    return f"run-{number:010d}"


class RunFiles:
    def __init__(self, directory: Path, disk: Disk) -> None:
        self._directory = directory
        self._disk = disk

    def write(self, number: int, slices: Iterator[Run]) -> tuple[int, int]:
        """Writes and syncs a new run from ascending slices. (entries, those that repeat a hash).

        The directory is synced too: once the catalogue names the run, its files are there.
        """
        files = [self._disk.append(self._path(number, suffix)) for suffix, _ in COLUMNS]
        try:
            for file, (_, letter) in zip(files, COLUMNS, strict=True):
                file.write((MAGIC + letter + bytes([VERSION])).ljust(HEADER_BYTES, b"\0"))
            written = self._fill(files, slices)
            for file in files:
                file.sync()
        finally:
            for file in files:
                file.close()
        self._disk.sync_dir(self._directory)
        return written

    def _fill(self, files: Sequence[AppendFile], slices: Iterator[Run]) -> tuple[int, int]:
        crcs = [0, 0]
        count = repeats = 0
        last: np.uint64 | None = None
        for run in slices:
            count += len(run)
            repeats += int(np.count_nonzero(run.hashes[1:] == run.hashes[:-1])) + (run.hashes[0] == last)
            last = run.hashes[-1]
            for i, column in enumerate((run.hashes, run.locations)):
                data = column.astype("<u8", copy=False).tobytes()
                crcs[i] = isal_zlib.crc32(data, crcs[i])
                files[i].write(data)
        for file, crc in zip(files, crcs, strict=True):
            file.write(FOOTER.pack(count, crc))
        return count, int(repeats)

    def open(self, number: int, count: int) -> Run:
        """Maps a run of ``count`` entries. Raises FileMapError when its files are not what was written."""
        hashes, locations = (self._column(number, suffix, letter, count) for suffix, letter in COLUMNS)
        return Run(hashes, locations)

    def _column(self, number: int, suffix: str, letter: bytes, count: int) -> U64:
        path = self._path(number, suffix)
        try:
            with open(path, "rb") as file:
                mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        except (OSError, ValueError) as err:
            raise FileMapError(f"{path}: cannot be read ({err})") from None
        size = HEADER_BYTES + 8 * count + FOOTER.size
        if len(mapped) != size or mapped[:6] != MAGIC + letter + bytes([VERSION]):
            raise FileMapError(f"{path}: not a run of {count} entries in format version {VERSION}")
        values = memoryview(mapped)[HEADER_BYTES : HEADER_BYTES + 8 * count]
        if FOOTER.unpack(mapped[-FOOTER.size :]) != (count, isal_zlib.crc32(values)):
            raise FileMapError(f"{path}: its checksum is wrong")
        mapped.madvise(mmap.MADV_RANDOM)
        return np.frombuffer(values, dtype="<u8").astype(np.uint64, copy=False)

    def remove(self, number: int) -> None:
        """Deletes a run's files; mappings of it stay valid."""
        for suffix, _ in COLUMNS:
            self._disk.remove(self._path(number, suffix))

    def remove_all_but(self, numbers: set[int]) -> None:
        """Deletes what a crash left: files of runs that the catalogue does not name."""
        keep = {self._path(number, suffix).name for number in numbers for suffix, _ in COLUMNS}
        for name in self._disk.names(self._directory):
            if name.startswith("run-") and name not in keep:
                self._disk.remove(self._directory / name)

    def _path(self, number: int, suffix: str) -> Path:
        return self._directory / f"{run_name(number)}.{suffix}"
