"""The file map of one machine: sorted runs for dense entries, SQLite for the rest, in one directory.

    map.lock      held by the process that has it open
    catalog.db    runs, logs and positions, sparse entries, totals (catalog.py)
    run-*.hashes, run-*.locations    dense entries (run_files.py)

Order of a commit: run files written and synced; one catalogue transaction that names them, drops the merged ones and
moves the positions; merged files deleted. A crash before the transaction leaves files that nobody names (deleted at
the next start) and positions from which the same records are read again; a crash after it leaves deleted-to-be files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from photon.adapters.logs.api import LogPosition
from photon.config.disk import Disk
from photon.eventstore.catalog import Catalog
from photon.eventstore.file_map import (
    LOG_BYTES_MAX,
    LOGS_MAX,
    FileMapBusy,
    FileMapError,
    MapKind,
    MappedBlock,
    MappedLog,
    MappedPlaces,
    MapSettings,
    MapTotals,
    first_places,
    lock_map,
    pack,
    predecessors,
    unpack,
)
from photon.eventstore.index import U64, Run, RunIndex, count_repeats, look_up, merge_slices, tail_to_merge
from photon.eventstore.row_keys import parse_event_id
from photon.eventstore.run_files import RunFiles
from photon.eventstore.sparse import ProcessStates, exact_entries

PENDING_ENTRIES_MAX = 1 << 20
"""Dense entries in memory before they become a run of their own accord: 16 MiB."""


@dataclass(frozen=True, slots=True)
class _DiskRun:
    number: int
    run: Run
    repeats: int


class EmbeddedFileMap:
    """FileMap on local files. See the module for its files, file_map.py for its promises."""

    def __init__(self, directory: Path, settings: MapSettings, log_name: Callable[[str], str], disk: Disk) -> None:
        """Opens or makes it. Raises FileMapBusy, or FileMapError when what is there cannot be used."""
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
        self._logs = self._catalog.logs()
        self._numbers = {log.identity: log.number for log in self._logs}
        self._moved: set[int] = set()  # logs whose position is not in the catalogue yet
        self._states = ProcessStates(self._settings, self._catalog.process)
        self._next_run = max((run.number for run in self._runs), default=0) + 1

    # -- the reader's side -----------------------------------------------------------------------------------------
    def tend(self) -> None:
        pass

    def all_read(self) -> None:
        """Does nothing: this backend never loses what it committed."""

    def interrupt(self) -> None:
        """Does nothing: this backend waits for no other machine."""

    def positions(self) -> list[LogPosition]:
        return [log.position() for log in self._logs]

    def add(self, block: MappedBlock) -> None:
        """See FileMap. Raises FileMapError when a limit is passed."""
        log = self._moved_log(block)
        repeats = 0
        if self._settings.kind is MapKind.DENSE or log.rewritten:
            # In a log that was rewritten sparse entries may be stale, so from then on each of its records is exact.
            self._pending.insert(Run(block.hashes, pack(log.number, block.starts[block.order])))
        else:
            repeats = self._add_sparse(log, block)
        self._catalog.add_totals(len(block.starts), block.bad, block.end - block.begin, repeats)
        if len(self._pending) >= PENDING_ENTRIES_MAX:
            self.commit()

    def _moved_log(self, block: MappedBlock) -> MappedLog:
        number = self._numbers.get(block.identity)
        if block.end > LOG_BYTES_MAX:
            raise FileMapError(
                f"{block.file.path}: longer than {LOG_BYTES_MAX} bytes, the most that can be mapped; split it"
            )
        if number is None:
            number = len(self._logs)
            if number >= LOGS_MAX:
                raise FileMapError(f"{self._directory}: more than {LOGS_MAX} logs; start with an empty map directory")
            log = MappedLog(number, block.identity, block.file, block.end, proof=block.proof)
            self._logs.append(log)
            self._numbers[block.identity] = number
        else:
            old = self._logs[number]
            again = block.begin < old.end
            log = replace(old, file=block.file, end=block.end, rewritten=old.rewritten or again, proof=block.proof)
            self._logs[number] = log
        self._moved.add(number)
        return log

    def _add_sparse(self, log: MappedLog, block: MappedBlock) -> int:
        additions, touched = self._states.add(log.number, block)
        self._catalog.put_sparse(log.number, additions.entries, touched)
        if additions.exact:
            hashes, offsets = exact_entries(block, additions)
            self._pending.insert(Run(hashes, pack(log.number, offsets)))
        return additions.repeats

    def commit(self) -> None:
        gone = self._publish_pending()
        for number in sorted(self._moved):
            self._catalog.put_log(self._logs[number])
        self._moved.clear()
        self._catalog.commit()
        for run in gone:
            self._files.remove(run.number)

    def _publish_pending(self) -> tuple[_DiskRun, ...]:
        """Writes what is pending, merged with as many of the newest runs as tail_to_merge says; returns those."""
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
        # First the runs, then the pending ones: ``places`` reads in the other order and so misses nothing.
        self._runs = (*self._runs[: len(self._runs) - take], new)
        self._pending.clear()
        return gone

    # -- look-ups ----------------------------------------------------------------------------------------------------
    def places(self, keys: Sequence[bytes], hashes: U64) -> MappedPlaces:
        pending = self._pending.asked_runs()
        runs = [each.run for each in self._runs]
        rows, locations = look_up([*pending, *runs], hashes)
        if len(rows) > 1:  # an entry that was being published shows twice
            new = np.concatenate(([True], (rows[1:] != rows[:-1]) | (locations[1:] != locations[:-1])))
            rows, locations = rows[new], locations[new]
        logs, offsets = unpack(locations)
        rows, logs, offsets = first_places(rows, logs, offsets, self._logs, self._log_name, last=self._settings.last)
        exact = MappedPlaces(rows, logs, offsets, np.zeros(len(rows), dtype=np.int64), np.full(len(rows), -1))
        return exact if self._settings.kind is MapKind.DENSE else self._with_sparse(exact, keys)

    def _with_sparse(self, exact: MappedPlaces, keys: Sequence[bytes]) -> MappedPlaces:
        window = self._settings.window_micros
        asked = sorted((*parsed, row) for row, key in enumerate(keys) if (parsed := parse_event_id(key)))
        found: list[tuple[int, int, int, int]] = []  # row, log, offset, anchor
        begin = 0
        for end in range(1, len(asked) + 1):
            # Neighbours whose ranges touch are read as one range.
            if end < len(asked) and asked[end][0] == asked[begin][0] and asked[end][1] - asked[end - 1][1] <= window:
                continue
            group = asked[begin:end]
            prefix = group[0][0]
            entries = self._catalog.sparse_range(prefix, group[0][1] - window, group[-1][1])
            places = predecessors([(micros, row) for _, micros, row in group], entries, window)
            found += self._reached(prefix, {row: micros for _, micros, row in group}, places)
            begin = end
        columns = np.array(found, dtype=np.int64).reshape(-1, 4)
        spans = np.full(len(columns), self._settings.window_bytes)
        return MappedPlaces(
            np.concatenate((exact.rows, columns[:, 0])),
            np.concatenate((exact.logs, columns[:, 1])),
            np.concatenate((exact.offsets, columns[:, 2])),
            np.concatenate((exact.spans, spans)),
            np.concatenate((exact.anchors, columns[:, 3])),
        )

    def _reached(
        self, prefix: bytes, asked: dict[int, int], places: Sequence[tuple[int, int, int, int]]
    ) -> list[tuple[int, int, int, int]]:
        """``places`` without those in logs that the process has not written so far: an event asked for before it is
        written costs no reading."""
        states = {log: self._catalog.process(log, prefix) for log in {place[1] for place in places}}
        lasts = {log: state.last_micros for log, state in states.items() if state is not None}
        return [place for place in places if asked[place[0]] <= lasts.get(place[1], asked[place[0]])]

    def logs(self) -> Sequence[MappedLog]:
        return self._logs

    def totals(self, *, exact: bool = False) -> MapTotals:
        totals = self._catalog.totals()
        if exact:
            repeats = count_repeats([*self._pending.runs, *(each.run for each in self._runs)])
        else:
            repeats = sum(each.repeats for each in self._runs)
        return replace(totals, duplicates=totals.duplicates + repeats, logs=len(self._logs))

    def close(self) -> None:
        self._catalog.close()
        os.close(self._lock_fd)


def open_or_rebuild(
    directory: Path, settings: MapSettings, log_name: Callable[[str], str], disk: Disk
) -> tuple[EmbeddedFileMap, str]:
    """The map, and why it had to be rebuilt ("" if it had not). Raises FileMapBusy, OSError.

    The map is derived from the logs: a damaged one, or one of other settings, is deleted and its positions with it.
    The logs are then read again from their beginnings; until that is done a miss is NOT_YET, never ABSENT.
    """
    try:
        return EmbeddedFileMap(directory, settings, log_name, disk), ""
    except FileMapBusy:
        raise
    except FileMapError as err:
        why = str(err)
    fd = lock_map(directory)
    try:
        for name in disk.names(directory):
            if name.startswith(("catalog.db", "run-")):
                disk.remove(directory / name)
        disk.sync_dir(directory)
    finally:
        os.close(fd)
    return EmbeddedFileMap(directory, settings, log_name, disk), why


__all__ = ["EmbeddedFileMap", "FileMapBusy", "MapSettings", "open_or_rebuild"]
