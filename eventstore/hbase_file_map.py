"""The file map on HBase (paper, section 3.4.2): entries in a table, positions in a local catalogue.

HBase is not fully trusted: its write-ahead log is not durable on a plain directory, where a region reopened after a
crash lacks its last acknowledged writes. A region is only assumed to keep a *prefix* of its writes, in order. Three
things make entries and positions agree:

- **Marks.** A commit writes its entries, waits until all are acknowledged, and then writes a fresh random mark into
  each region. A region that has the mark has every entry before it.
- **Incarnations.** Before a region is opened, hbase:meta records it (``schema.instances``). A commit counts only if
  the incarnations are the same before its first entry and after its marks; a look-up counts only if the incarnations
  after its reads are the ones verified before them. So neither can span a crash unnoticed.
- **Checkpoints.** If the incarnations are not the verified ones, the marks are read. If the last mark is in every
  region, nothing was lost. Otherwise the catalogue goes back to a checkpoint whose mark all regions still have,
  ``RowsLost`` is raised, and the logs are read again from there; the cells are a function of the logs, so writing
  them twice changes nothing. Until all has been read, ``MappedPlaces.complete`` is False and no miss is *absent*.

A commit's mark goes to the slot that the last commit did not use, so a commit that fails half-way destroys no
evidence. The map goes back one checkpoint further than the marks require, in case an HBase log file that was being
closed lost its end (a hole rather than a tail). Entries written by a failed commit stay: they are correct, only
visible a little early.
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_right, insort
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from photon.adapters.logs.api import LogPosition
from photon.config.clock import NEVER_NS, Clock
from photon.config.disk import Disk
from photon.eventstore.file_map import (
    LOGS_MAX,
    PLACES_PER_KEY_MAX,
    UNKNOWN_TIME_NS,
    FileMapError,
    MapKind,
    MappedBlock,
    MappedLog,
    MappedLogs,
    MappedPlaces,
    MapSettings,
    MapTotals,
    RowsLost,
    Version,
    first_places,
    lock_map,
    newest,
    pack,
    predecessors,
    unpack,
)
from photon.eventstore.hbase import schema
from photon.eventstore.hbase.api import HBase, HBaseUnavailable, Put
from photon.eventstore.hbase.catalog import HBaseCatalog
from photon.eventstore.hbase.schema import RegionView, VerifiedRegions, read_instances, surviving_checkpoint
from photon.eventstore.index import I64, U64, Run, RunIndex, look_up
from photon.eventstore.sparse import ProcessStates, SparseEntry, exact_entries, parse_event_id

Bucket = tuple[bytes, int]  # (row key prefix of a process, microseconds // W)
Entry = tuple[int, int, int]  # (microseconds, log number, offset)


class PendingEntries:
    """Entries that are not in HBase yet. One thread adds and clears; any thread may read."""

    def __init__(self, window_micros: int) -> None:
        self._window = window_micros
        self._dense = RunIndex()
        self._sparse: dict[Bucket, set[Entry]] = {}
        self._sparse_count = 0
        self._versions: dict[int, list[Version]] = {}  # hash -> ascending
        self._versions_count = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._dense) + self._sparse_count + self._versions_count

    @property
    def runs(self) -> tuple[Run, ...]:
        """Returns the dense entries as runs, for a look-up."""
        return self._dense.asked_runs()

    @property
    def has_dense(self) -> bool:
        return len(self._dense) > 0

    def add_dense(self, hashes: U64, locations: U64) -> None:
        """Adds dense entries; ``hashes`` ascend."""
        self._dense.insert(Run(hashes, locations))

    def add_sparse(self, log: int, entries: Sequence[SparseEntry]) -> None:
        with self._lock:
            for each in entries:
                bucket = (each.prefix, each.micros // self._window)
                self._sparse.setdefault(bucket, set()).add((each.micros, log, each.offset))
            self._sparse_count += len(entries)

    def add_versions(self, keys: Sequence[int], versions: Sequence[Version]) -> None:
        with self._lock:
            for key, version in zip(keys, versions, strict=True):
                insort(self._versions.setdefault(key, []), version)
            self._versions_count += len(versions)

    def versions(self) -> list[tuple[int, Version]]:
        """Returns all versions, with the hashes of their keys."""
        with self._lock:
            return [(key, version) for key, its in self._versions.items() for version in its]

    def near(self, key: int, time_ns: int, without: Collection[int], times_max: int, most: int) -> list[Version]:
        """Like FileMap.versions, for a single key."""
        with self._lock:
            its = self._versions.get(key, [])
            if without:
                its = [each for each in its if each.log not in without]
            known = bisect_right(its, Version(UNKNOWN_TIME_NS, LOGS_MAX, 0))
            at = bisect_right(its, Version(time_ns, LOGS_MAX, 0))
            before = newest((its[each] for each in range(at - 1, known - 1, -1)), times_max, most)
            return before + its[at : at + 1] + its[: min(known, most)]

    def of_buckets(self, buckets: Iterable[Bucket]) -> dict[Bucket, set[Entry]]:
        with self._lock:
            return {bucket: set(self._sparse[bucket]) for bucket in buckets if bucket in self._sparse}

    def dense(self) -> tuple[U64, U64]:
        """Returns (hashes, locations) of all dense entries."""
        runs = self._dense.runs
        if not runs:
            return np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.uint64)
        return np.concatenate([run.hashes for run in runs]), np.concatenate([run.locations for run in runs])

    def sparse(self) -> list[tuple[Bucket, list[Entry]]]:
        """Returns all sparse entries by bucket."""
        with self._lock:
            return [(bucket, list(entries)) for bucket, entries in self._sparse.items()]

    def clear(self) -> None:
        with self._lock:
            self._dense.clear()
            self._sparse.clear()
            self._versions.clear()
            self._sparse_count = self._versions_count = 0


def stored_repeats(hbase: HBase, table: bytes, life: bytes, numbers: Mapping[bytes, int]) -> int:
    """Counts the repeats in the table by scanning all rows of the map. ``numbers``: log numbers by digest."""
    repeats = 0
    for salt in range(256):
        start = bytes([salt]) + life
        for row, cells in hbase.scan(table, start, _row_after(start)):
            if len(row) == schema.DENSE_ROW_BYTES:
                repeats += max(0, sum(1 for _ in schema.dense_places(cells, numbers)) - 1)
    return repeats


def pending_repeats(
    hbase: HBase, table: bytes, life: bytes, numbers: Mapping[bytes, int], pending: PendingEntries
) -> int:
    """Counts the pending entries that will be repeats once they are in the table."""
    hashes, locations = pending.dense()
    if not len(hashes):
        return 0
    rows = schema.dense_rows(life, hashes)
    found = hbase.read(table, list(set(rows)))
    there = {(row, place) for row, cells in found.items() for place in schema.dense_places(cells, numbers)}
    known = {row for row, _ in there}
    logs, offsets = unpack(locations)
    repeats = 0
    for row, place in zip(rows, zip(logs.tolist(), offsets.tolist(), strict=True), strict=True):
        if (row, place) not in there:
            repeats += row in known
            known.add(row)
    return repeats


def _row_after(prefix: bytes) -> bytes:
    """Returns the first row after all rows that begin with ``prefix``; b"" if none can follow."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else b""


# Entries in memory before they are written without a commit: some ten seconds' worth for HBase.
PENDING_ENTRIES_MAX = 1 << 18
PUTS_AT_ONCE = 1 << 15  # created and sent at a time: limits the objects that a commit creates
CHECKPOINT_SECONDS = 300.0
# a checkpoint ends after the first of these two, which limits how much must be read again
CHECKPOINT_ENTRIES = 1 << 22
# Interval at which the reader's thread checks for reopened regions, if nothing else makes it check.
CHECK_SECONDS = 5.0
# interval at which a map at rest rewrites its marks, which live no longer than the table's entries
REMARK_SECONDS = 3600.0
HOT_HASHES_MAX = 1 << 16  # keys known to have PLACES_PER_KEY_MAX places in a log: more would never be read


@dataclass(eq=False)
class HBaseFileMap:
    """Implements FileMap on HBase. Does not contact HBase before the first ``tend`` or ``commit``.

    Opens or creates the catalogue in ``directory``. Closing the map closes ``hbase``.

    Raises FileMapBusy, or FileMapError if the existing files cannot be used.
    """

    FILES = ("hbase.db",)

    directory: Path
    settings: MapSettings
    log_name: Callable[[str], str]
    disk: Disk
    hbase: HBase
    table: str
    clock: Clock
    random: Callable[[int], bytes] = os.urandom
    checkpoint_seconds: float = CHECKPOINT_SECONDS

    def __post_init__(self) -> None:
        self._table = self.table.encode()
        self.disk.make_dir(self.directory)
        self._lock_fd = lock_map(self.directory)
        try:
            stored = {**self.settings.stored(), "table": self._table}
            self._catalog = HBaseCatalog(self.directory / "hbase.db", stored, self.random(schema.LIFE_BYTES))
        except FileMapError:
            os.close(self._lock_fd)
            raise
        self._view = RegionView(None, False)
        self._suspect = threading.Event()
        self._checked = self._marked = self._checkpoint_began = self.clock.monotonic()
        self._entries_since = 0
        self._load()

    def _load(self) -> None:
        present = self._catalog.present()
        self._life = present.life
        self._checkpoint = present.checkpoint
        self._exact_written = present.exact
        self._logs = MappedLogs(self._catalog.logs())
        self._digests = [schema.log_digest(log.identity) for log in self._logs.all]
        self._by_digest = {digest: number for number, digest in enumerate(self._digests)}
        self._pending = PendingEntries(self.settings.window_micros)
        self._changed = False
        self._states = ProcessStates(self.settings, self._catalog.process)
        self._hot: dict[tuple[int, int], int] = {}

    # -- the reader's side -----------------------------------------------------------------------------------------
    def positions(self) -> list[LogPosition]:
        return [log.position() for log in self._logs.all if log.end]

    def tend(self) -> None:
        """See FileMap. Raises RowsLost, HBaseUnavailable, HBaseRefused."""
        now = self.clock.monotonic()
        if self._view.verified is None:
            self._verify()
        elif self._suspect.is_set() or now - self._checked >= CHECK_SECONDS:
            self._checked = now
            self._suspect.clear()
            if read_instances(self.hbase, self._view.verified.regions) != self._view.verified.instances:
                self._view = replace(self._view, verified=None)
                self._verify()
        if now - self._marked >= REMARK_SECONDS and not self._changed:
            self._changed = True
            self.commit()

    def all_read(self) -> None:
        if self._view.recovering:
            self._view = replace(self._view, recovering=False)

    def add(self, block: MappedBlock) -> None:
        """See FileMap. Raises FileMapError if a limit is exceeded."""
        log = self._moved_log(block)
        self._changed = True
        repeats = 0
        if self.settings.timed:
            assert block.times is not None
            places = zip(block.times[block.order].tolist(), block.starts[block.order].tolist(), strict=True)
            versions = [Version(time_ns, log.number, start) for time_ns, start in places]
            self._pending.add_versions(block.hashes.tolist(), versions)
        elif self.settings.kind is MapKind.DENSE or log.rewritten:
            repeats = self._add_dense(log.number, block.hashes, block.starts[block.order])
        else:
            repeats = self._add_sparse(log, block)
        size = block.end - block.begin
        self._catalog.add_totals(self._checkpoint, len(block.starts), block.bad, size, repeats)
        if len(self._pending) >= PENDING_ENTRIES_MAX:
            try:
                self.commit()
            except HBaseUnavailable:
                return  # the block was added; the reader's own commit, due in seconds, reports this

    def _moved_log(self, block: MappedBlock) -> MappedLog:
        log, again = self._logs.move(block)
        if log.number == len(self._digests):
            digest = schema.log_digest(block.identity)
            self._digests.append(digest)
            self._by_digest[digest] = log.number
        if again:
            self._hot = {each: size for each, size in self._hot.items() if each[0] != log.number}
        return log

    def _add_dense(self, log: int, hashes: U64, offsets: I64) -> int:
        """Adds entries, which must ascend by hash, and by offset within a hash.

        Returns the number omitted: no look-up reads more than PLACES_PER_KEY_MAX places of a key in a log.
        """
        first = np.searchsorted(hashes, hashes, side="left")
        keep = np.arange(len(hashes)) - first < PLACES_PER_KEY_MAX
        if self._hot:
            keep &= ~np.isin(hashes, np.array([h for (number, h) in self._hot if number == log], dtype=np.uint64))
        left_out = len(hashes) - int(keep.sum())
        if left_out:
            for each in np.unique(hashes[~keep]).tolist():
                self._hot[log, each] = 1
            while len(self._hot) > HOT_HASHES_MAX:
                del self._hot[next(iter(self._hot))]
        self._pending.add_dense(hashes[keep], pack(log, offsets[keep]))
        return left_out

    def _add_sparse(self, log: MappedLog, block: MappedBlock) -> int:
        additions, touched = self._states.add(log.number, block)
        self._catalog.put_processes(self._checkpoint, log.number, touched)
        self._pending.add_sparse(log.number, additions.entries)
        left_out = 0
        if additions.exact:
            left_out = self._add_dense(log.number, *exact_entries(block, additions))
        # both are certain repeats, but may overlap
        return max(additions.repeats, left_out)

    # -- commit ----------------------------------------------------------------------------------------------------
    def commit(self) -> None:
        """See FileMap. Raises RowsLost, HBaseUnavailable, HBaseRefused."""
        if not self._changed:
            return
        verified = self._verified_now()
        entries = len(self._pending)
        puts = self._puts()
        while batch := [put for _, put in zip(range(PUTS_AT_ONCE), puts, strict=False)]:
            self.hbase.write(self._table, batch)
        now = self.clock.monotonic()
        closes = (
            now - self._checkpoint_began >= self.checkpoint_seconds
            or self._entries_since + entries >= CHECKPOINT_ENTRIES
        )
        mark, slot = self._write_marks(verified, closes)
        for number in sorted(self._logs.moved):
            self._catalog.put_log(self._checkpoint, self._logs.all[number])
        exact = self._pending.has_dense
        self._catalog.commit(mark, slot, exact=exact, closes=closes)
        self._exact_written = self._exact_written or exact
        self._entries_since += entries
        self._marked = now
        if closes:
            self._checkpoint += 1
            self._entries_since = 0
            self._checkpoint_began = now
        self._logs.moved.clear()
        self._changed = False
        self._pending.clear()

    def _verified_now(self) -> VerifiedRegions:
        """Returns the verified regions, after checking that none was reopened. Raises like ``_verify``."""
        verified = self._view.verified
        if verified is not None and read_instances(self.hbase, verified.regions) == verified.instances:
            return verified
        self._view = replace(self._view, verified=None)
        return self._verify()

    def _puts(self) -> Iterator[Put]:
        hashes, locations = self._pending.dense()
        logs, offsets = unpack(locations)
        yield from schema.dense_puts(self._life, self._digests, hashes, logs, offsets)
        yield from schema.version_puts(self._life, self._digests, self._pending.versions())
        for (prefix, bucket), entries in self._pending.sparse():
            cells = dict(schema.sparse_cell(micros, self._digests[log], offset) for micros, log, offset in entries)
            yield Put(schema.sparse_row(self._life, prefix, bucket), cells)

    def _write_marks(self, verified: VerifiedRegions, closes: bool) -> tuple[bytes, int]:
        """Writes a new mark into each region, in the older of its two slots, once all entries are written."""
        mark = self.random(schema.MARK_BYTES)
        slot = (self._catalog.present().slot + 1) % schema.SLOTS
        cells = schema.mark_cells(mark, slot, self._checkpoint if closes else None)
        self.hbase.write(
            self._table, [Put(schema.mark_row(self._life, region), cells) for region in verified.regions]
        )
        if read_instances(self.hbase, verified.regions) != verified.instances:
            self._view = replace(self._view, verified=None)
            raise HBaseUnavailable("HBase restarted while entries were written; they are written again")
        return mark, slot

    # -- what HBase lost -------------------------------------------------------------------------------------------
    def _verify(self) -> VerifiedRegions:
        """Determines the regions that look-ups and commits may trust.

        Raises RowsLost, HBaseUnavailable, HBaseRefused.
        """
        regions = self.hbase.regions(self._table)
        before = read_instances(self.hbase, regions)
        rows = [schema.mark_row(self._life, region) for region in regions]
        found = self.hbase.read(self._table, rows)
        if before is None or before != read_instances(self.hbase, regions):
            raise HBaseUnavailable(f"table {self._table.decode()}: its regions are being opened")
        marks = [frozenset(found.get(row, {}).values()) for row in rows]
        verified = VerifiedRegions(regions, before)
        mark = self._catalog.present().mark
        if mark is None or all(mark in each for each in marks):
            self._view = replace(self._view, verified=verified)
            return verified
        target = surviving_checkpoint(marks, self._catalog.checkpoints())
        self._catalog.take_back(target)
        self._load()
        self._view = RegionView(verified, recovering=True)
        where = f"checkpoint {target}" if target else "their beginnings"
        raise RowsLost(
            f"table {self._table.decode()}: HBase lost entries that it had acknowledged; "
            f"logs are read again from {where}"
        )

    # -- look-ups --------------------------------------------------------------------------------------------------
    def places(self, keys: Sequence[bytes], hashes: U64) -> MappedPlaces:
        """See FileMap. Raises HBaseUnavailable, HBaseRefused."""
        view = self._view
        if view.verified is None:
            raise HBaseUnavailable(f"table {self._table.decode()}: its content is not verified yet")
        parsed: list[tuple[bytes, int] | None] = [None] * len(keys)
        if self.settings.kind is MapKind.SPARSE:
            parsed = [parse_event_id(key) for key in keys]
        # Memory first, then the table: an entry that moves between them is seen.
        waiting = look_up(self._pending.runs, hashes)
        wanted = {bucket for each in parsed if each for bucket in self._buckets(each)}
        near = self._pending.of_buckets(wanted)
        dense = [row for row, each in enumerate(parsed) if each is None or self._exact_written]
        dense_rows = dict(zip(dense, schema.dense_rows(self._life, hashes[dense]), strict=True))
        sparse_rows = {bucket: schema.sparse_row(self._life, *bucket) for bucket in wanted}
        found = self.hbase.read(self._table, list({*dense_rows.values(), *sparse_rows.values()}))
        if read_instances(self.hbase, view.verified.regions) != view.verified.instances:
            self._suspect.set()
            raise HBaseUnavailable(f"table {self._table.decode()}: its regions were reopened")
        exact = self._dense_places(
            waiting,
            [
                (row, log, offset)
                for row, key in dense_rows.items()
                if key in found
                for log, offset in schema.dense_places(found[key], self._by_digest)
            ],
        )
        for bucket, key in sparse_rows.items():
            if key in found:
                near.setdefault(bucket, set()).update(schema.sparse_entries(found[key], self._by_digest))
        sparse = self._sparse_places(parsed, near)
        return MappedPlaces.of(exact, sparse, self.settings.window_bytes, not view.recovering)

    def versions(self, hashes: U64, times: I64, without: Collection[int] = ()) -> MappedPlaces:
        """See FileMap. Raises HBaseUnavailable, HBaseRefused."""
        view = self._view
        if view.verified is None:
            raise HBaseUnavailable(f"table {self._table.decode()}: its content is not verified yet")
        limits = self._logs.times_max, self.settings.places_max
        asked = list(zip(hashes.tolist(), times.tolist(), strict=True))
        waiting = [self._pending.near(key, time_ns, without, *limits) for key, time_ns in asked]
        keys = schema.dense_rows(self._life, hashes)
        last = {key: schema.version_row(key, UNKNOWN_TIME_NS) for key in keys}
        unknown = self.hbase.read(self._table, list(last.values()))
        found: list[tuple[int, Version]] = []
        for row, ((_, time_ns), key) in enumerate(zip(asked, keys, strict=True)):
            first = schema.version_row(key, time_ns)
            known = [
                *waiting[row],
                *newest(self._scanned(first, last[key], without, limits[0]), *limits),
                *schema.versions_of(last[key], unknown.get(last[key], {}), self._by_digest),
            ]
            before = sorted({each for each in known if UNKNOWN_TIME_NS < each.time_ns <= time_ns}, reverse=True)
            chosen = newest(before, *limits)
            if not chosen:
                after = [each for each in known if each.time_ns > time_ns]
                chosen = (after or list(self._scanned(schema.version_row(key, NEVER_NS), first, without, 1)))[:1]
            chosen += [each for each in known if each.time_ns == UNKNOWN_TIME_NS and each.log not in without]
            found += [(row, each) for each in dict.fromkeys(chosen)]
        if read_instances(self.hbase, view.verified.regions) != view.verified.instances:
            self._suspect.set()
            raise HBaseUnavailable(f"table {self._table.decode()}: its regions were reopened")
        return MappedPlaces.of_versions(found, not view.recovering)

    def _scanned(self, start: bytes, stop: bytes, without: Collection[int], rows: int) -> Iterator[Version]:
        """Yields the versions in [``start``, ``stop``) of the table, newest first."""
        for row, cells in self.hbase.scan(self._table, start, stop, rows):
            yield from (each for each in schema.versions_of(row, cells, self._by_digest) if each.log not in without)

    def _buckets(self, parsed: tuple[bytes, int]) -> list[tuple[bytes, int]]:
        prefix, micros = parsed
        bucket = micros // self.settings.window_micros
        return [(prefix, bucket), (prefix, bucket - 1)] if bucket else [(prefix, bucket)]

    def _dense_places(self, waiting: tuple[I64, U64], stored: Sequence[tuple[int, int, int]]) -> tuple[I64, I64, I64]:
        table = np.array(stored, dtype=np.int64).reshape(-1, 3)
        logs, offsets = unpack(waiting[1])
        columns = np.column_stack((waiting[0], logs, offsets))
        both = np.unique(np.concatenate((columns, table)), axis=0) if len(columns) + len(table) else columns
        return first_places(both[:, 0], both[:, 1], both[:, 2], self._logs.all, self.log_name)

    def _sparse_places(
        self, parsed: Sequence[tuple[bytes, int] | None], near: dict[tuple[bytes, int], set[tuple[int, int, int]]]
    ) -> I64:
        """Returns (row, log, offset, anchor) of the entries that the requested ids may follow."""
        window = self.settings.window_micros
        out: list[tuple[int, int, int, int]] = []
        asked: dict[tuple[bytes, int], list[tuple[int, int]]] = {}
        for row, each in enumerate(parsed):
            if each is not None:
                asked.setdefault((each[0], each[1] // window), []).append((each[1], row))
        for (prefix, bucket), ids in asked.items():
            entries = sorted(near.get((prefix, bucket), set()) | near.get((prefix, bucket - 1), set()))
            out += predecessors(sorted(ids), entries, window)
        return np.array(out, dtype=np.int64).reshape(-1, 4)

    def logs(self) -> Sequence[MappedLog]:
        return self._logs.all

    # -- counting, ending ------------------------------------------------------------------------------------------
    def totals(self, *, exact: bool = False) -> MapTotals:
        """See FileMap. ``exact`` scans the table: a minute for some million keys."""
        totals = replace(self._catalog.totals(), logs=len(self._logs.all))
        if not exact:
            return totals
        repeats = stored_repeats(self.hbase, self._table, self._life, self._by_digest)
        repeats += pending_repeats(self.hbase, self._table, self._life, self._by_digest, self._pending)
        return replace(totals, duplicates=totals.duplicates + repeats)

    def interrupt(self) -> None:
        self.hbase.interrupt()

    def close(self) -> None:
        self.hbase.close()
        self._catalog.close()
        os.close(self._lock_fd)
