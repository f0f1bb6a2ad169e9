"""The file map of one machine: sorted runs for dense entries, SQLite for the rest, in one directory.

    map.lock      held by the process that has it open
    catalog.db    runs, logs and positions, sparse entries, versions, totals (catalog.py)
    run-*.hashes, run-*.locations    dense entries

A commit writes and syncs run files; then one catalogue transaction names them, drops the merged ones and moves the
positions; then the merged files are deleted. After a crash before the transaction, unnamed files are deleted at the
next start, and the same records are read again from the old positions; after a later crash, the next start deletes
merged files.

A sorted run of the dense map is two column files, mapped into memory for look-ups. Format, version 1:
``run-NNNNNNNNNN.hashes`` and ``run-NNNNNNNNNN.locations``, each

    magic 'PHRN' | column 'H' or 'L' | version 1 | 10 zero bytes
    n x u64, little endian
    count u64 | crc32 of the values u32 | 4 zero bytes

A run's files are written and synced whole before the catalogue names them, and are never changed; files that the
catalogue does not name were left by a crash. Merging reads and writes in slices, so its memory does not grow with the
runs.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from isal import isal_zlib

from photon.adapters.logs.api import LogPosition
from photon.config.disk import AppendFile, Disk
from photon.eventstore.catalog import Catalog
from photon.eventstore.file_map import (
    FileMapError,
    MapKind,
    MappedBlock,
    MappedLog,
    MappedLogs,
    MappedPlaces,
    MapSettings,
    MapTotals,
    first_places,
    lock_map,
    pack,
    predecessors,
    unpack,
)
from photon.eventstore.index import I64, U64, Run, RunIndex, count_repeats, look_up, merge_slices, tail_to_merge
from photon.eventstore.sparse import ProcessStates, exact_entries, parse_event_id

MAGIC = b"PHRN"
VERSION = 1
HEADER_BYTES = 16
FOOTER = struct.Struct("<QIxxxx")
COLUMNS = (("hashes", b"H"), ("locations", b"L"))


def run_name(number: int) -> str:
    return f"run-{number:010d}"


class RunFiles:
    def __init__(self, directory: Path, disk: Disk) -> None:
        self._directory = directory
        self._disk = disk

    def write(self, number: int, slices: Iterator[Run]) -> tuple[int, int]:
        """Writes and syncs a new run from ascending slices. Returns (number of entries, number that repeat a hash).

        Also syncs the directory, so that the files exist once the catalogue names the run.
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
        """Maps a run of ``count`` entries. Raises FileMapError if its files do not match."""
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
            raise FileMapError(f"{path}: not a run of {count} entries of version {VERSION}")
        values = memoryview(mapped)[HEADER_BYTES : HEADER_BYTES + 8 * count]
        if FOOTER.unpack(mapped[-FOOTER.size :]) != (count, isal_zlib.crc32(values)):
            raise FileMapError(f"{path}: its checksum is wrong")
        mapped.madvise(mmap.MADV_RANDOM)
        return np.frombuffer(values, dtype="<u8").astype(np.uint64, copy=False)

    def remove(self, number: int) -> None:
        """Deletes a run's files. Existing memory mappings stay valid."""
        for suffix, _ in COLUMNS:
            self._disk.remove(self._path(number, suffix))

    def remove_all_but(self, numbers: set[int]) -> None:
        """Deletes files left by a crash: all runs but ``numbers``, which the catalogue names."""
        keep = {self._path(number, suffix).name for number in numbers for suffix, _ in COLUMNS}
        for name in self._disk.names(self._directory):
            if name.startswith("run-") and name not in keep:
                self._disk.remove(self._directory / name)

    def _path(self, number: int, suffix: str) -> Path:
        return self._directory / f"{run_name(number)}.{suffix}"


PENDING_ENTRIES_MAX = 1 << 20  # dense entries in memory before they are written as a run: 16 MiB


@dataclass(frozen=True, slots=True)
class _DiskRun:
    number: int
    run: Run
    repeats: int


class EmbeddedFileMap:
    """Implements FileMap on local files. See the module for the files, file_map.py for the guarantees."""

    FILES = ("catalog.db", "run-")  # beginnings of their names

    def __init__(self, directory: Path, settings: MapSettings, log_name: Callable[[str], str], disk: Disk) -> None:
        """Opens or creates the map. Raises FileMapBusy, or FileMapError if the existing files cannot be used."""
        self._directory = directory
        self._settings = settings
        self._log_name = log_name
        disk.make_dir(directory)
        self._lock_fd = lock_map(directory)
        try:
            self._catalog = Catalog(directory / "catalog.db", settings.stored())
        except FileMapError:
            os.close(self._lock_fd)
            raise
        try:
            self._files = RunFiles(directory, disk)
            named = self._catalog.runs()
            self._files.remove_all_but({number for number, _, _ in named})
            self._runs = tuple(_DiskRun(n, self._files.open(n, entries), repeats) for n, entries, repeats in named)
        except (FileMapError, OSError):
            self.close()
            raise
        self._pending = RunIndex()
        self._logs = MappedLogs(self._catalog.logs())
        self._states = ProcessStates(self._settings, self._catalog.process)
        self._next_run = max((run.number for run in self._runs), default=0) + 1

    # -- the reader's side -----------------------------------------------------------------------------------------
    def tend(self) -> None:
        pass

    def all_read(self) -> None:
        """Does nothing: this backend never loses committed entries."""

    def interrupt(self) -> None:
        """Does nothing: this backend never waits for another machine."""

    def positions(self) -> list[LogPosition]:
        return [log.position() for log in self._logs.all]

    def add(self, block: MappedBlock) -> None:
        """See FileMap. Raises FileMapError if a limit is exceeded."""
        log, _ = self._logs.move(block)
        repeats = 0
        if self._settings.timed:
            assert block.times is not None
            times, starts = block.times[block.order], block.starts[block.order]
            self._catalog.put_versions(log.number, block.hashes.astype(np.int64), times, starts)
        elif self._settings.kind is MapKind.DENSE or log.rewritten:
            # In a log that was rewritten sparse entries may be stale, so from then on each of its records is exact.
            self._pending.insert(Run(block.hashes, pack(log.number, block.starts[block.order])))
        else:
            repeats = self._add_sparse(log, block)
        self._catalog.add_totals(len(block.starts), block.bad, block.end - block.begin, repeats)
        if len(self._pending) >= PENDING_ENTRIES_MAX:
            self.commit()

    def _add_sparse(self, log: MappedLog, block: MappedBlock) -> int:
        additions, touched = self._states.add(log.number, block)
        self._catalog.put_sparse(log.number, additions.entries, touched)
        if additions.exact:
            hashes, offsets = exact_entries(block, additions)
            self._pending.insert(Run(hashes, pack(log.number, offsets)))
        return additions.repeats

    def commit(self) -> None:
        gone = self._publish_pending()
        for number in sorted(self._logs.moved):
            self._catalog.put_log(self._logs.all[number])
        self._logs.moved.clear()
        self._catalog.commit()
        for run in gone:
            self._files.remove(run.number)

    def _publish_pending(self) -> tuple[_DiskRun, ...]:
        """Writes pending entries as a run, merged with the newest runs that ``tail_to_merge`` selects; returns those
        runs.
        """
        if not len(self._pending):
            return ()
        sizes = [*(len(each.run) for each in self._runs), len(self._pending)]
        take = 0
        while more := tail_to_merge(sizes):
            take += more - 1
            sizes[-more:] = [sum(sizes[-more:])]
        gone = self._runs[len(self._runs) - take :]
        number = self._next_run
        self._next_run += 1
        slices = merge_slices([*(each.run for each in gone), *self._pending.runs])
        entries, repeats = self._files.write(number, slices)
        self._catalog.put_run([each.number for each in gone], number, entries, repeats)
        new = _DiskRun(number, self._files.open(number, entries), repeats)
        # Runs first, then pending entries: ``places`` reads in the other order and so misses nothing.
        self._runs = (*self._runs[: len(self._runs) - take], new)
        self._pending.clear()
        return gone

    # -- look-ups ----------------------------------------------------------------------------------------------------
    def places(self, keys: Sequence[bytes], hashes: U64) -> MappedPlaces:
        pending = self._pending.asked_runs()
        runs = [each.run for each in self._runs]
        rows, locations = look_up([*pending, *runs], hashes)
        if len(rows) > 1:  # an entry just being published appears twice
            new = np.concatenate(([True], (rows[1:] != rows[:-1]) | (locations[1:] != locations[:-1])))
            rows, locations = rows[new], locations[new]
        logs, offsets = unpack(locations)
        last, most = self._settings.last, self._settings.places_max
        exact = first_places(rows, logs, offsets, self._logs.all, self._log_name, last=last, most=most)
        sparse = self._sparse_places(keys) if self._settings.kind is MapKind.SPARSE else []
        return MappedPlaces.of(exact, np.array(sparse, dtype=np.int64).reshape(-1, 4), self._settings.window_bytes)

    def versions(self, hashes: U64, times: I64, without: Collection[int] = ()) -> MappedPlaces:
        limits = self._logs.times_max, self._settings.places_max
        asked = zip(hashes.astype(np.int64).tolist(), times.tolist(), strict=True)
        return MappedPlaces.of_versions(
            [
                (row, version)
                for row, (key, time_ns) in enumerate(asked)
                for version in self._catalog.versions(key, time_ns, without, *limits)
            ]
        )

    def _sparse_places(self, keys: Sequence[bytes]) -> list[tuple[int, int, int, int]]:
        window = self._settings.window_micros
        asked = sorted((*parsed, row) for row, key in enumerate(keys) if (parsed := parse_event_id(key)))
        found: list[tuple[int, int, int, int]] = []  # row, log, offset, anchor
        begin = 0
        for end in range(1, len(asked) + 1):
            # Neighbours with touching ranges are read as one range.
            if end < len(asked) and asked[end][0] == asked[begin][0] and asked[end][1] - asked[end - 1][1] <= window:
                continue
            group = asked[begin:end]
            prefix = group[0][0]
            entries = self._catalog.sparse_range(prefix, group[0][1] - window, group[-1][1])
            places = predecessors([(micros, row) for _, micros, row in group], entries, window)
            found += self._reached(prefix, {row: micros for _, micros, row in group}, places)
            begin = end
        return found

    def _reached(
        self, prefix: bytes, asked: dict[int, int], places: Sequence[tuple[int, int, int, int]]
    ) -> list[tuple[int, int, int, int]]:
        """Drops places in logs where the process has not written that far yet, so an early request costs no read."""
        states = {log: self._catalog.process(log, prefix) for log in {place[1] for place in places}}
        lasts = {log: state.last_micros for log, state in states.items() if state is not None}
        return [place for place in places if asked[place[0]] <= lasts.get(place[1], asked[place[0]])]

    def logs(self) -> Sequence[MappedLog]:
        return self._logs.all

    def totals(self, *, exact: bool = False) -> MapTotals:
        totals = self._catalog.totals()
        if exact:
            repeats = count_repeats([*self._pending.runs, *(each.run for each in self._runs)])
        else:
            repeats = sum(each.repeats for each in self._runs)
        return replace(totals, duplicates=totals.duplicates + repeats, logs=len(self._logs.all))

    def close(self) -> None:
        self._catalog.close()
        os.close(self._lock_fd)
