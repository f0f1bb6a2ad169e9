"""Entries that were added and are not in HBase yet, and how many of the map's entries repeat an earlier hash.

One thread adds and clears; any thread looks.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from photon.eventstore.file_map import unpack
from photon.eventstore.hbase import schema
from photon.eventstore.hbase.api import HBase
from photon.eventstore.index import U64, Run, RunIndex
from photon.eventstore.sparse import SparseEntry

Bucket = tuple[bytes, int]
"""(row key prefix of a process, microseconds // W)."""
Entry = tuple[int, int, int]
"""(microseconds, log number, offset)."""


class PendingEntries:
    def __init__(self, window_micros: int) -> None:
        self._window = window_micros
        self._dense = RunIndex()
        self._sparse: dict[Bucket, set[Entry]] = {}
        self._sparse_count = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._dense) + self._sparse_count

    @property
    def runs(self) -> tuple[Run, ...]:
        """Runs of the dense entries, for a look-up."""
        return self._dense.asked_runs()

    @property
    def has_dense(self) -> bool:
        return len(self._dense) > 0

    def add_dense(self, hashes: U64, locations: U64) -> None:
        """``hashes`` ascend."""
        self._dense.insert(Run(hashes, locations))

    def add_sparse(self, log: int, entries: Sequence[SparseEntry]) -> None:
        with self._lock:
            for each in entries:
                bucket = (each.prefix, each.micros // self._window)
                self._sparse.setdefault(bucket, set()).add((each.micros, log, each.offset))
            self._sparse_count += len(entries)

    def of_buckets(self, buckets: Iterable[Bucket]) -> dict[Bucket, set[Entry]]:
        with self._lock:
            return {bucket: set(self._sparse[bucket]) for bucket in buckets if bucket in self._sparse}

    def dense(self) -> tuple[U64, U64]:
        """(hashes, locations) of all dense entries."""
        runs = self._dense.runs
        if not runs:
            return np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.uint64)
        return np.concatenate([run.hashes for run in runs]), np.concatenate([run.locations for run in runs])

    def sparse(self) -> list[tuple[Bucket, list[Entry]]]:
        """All sparse entries by bucket."""
        with self._lock:
            return [(bucket, list(entries)) for bucket, entries in self._sparse.items()]

    def clear(self) -> None:
        """Call it when all of them are in HBase."""
        with self._lock:
            self._dense.clear()
            self._sparse.clear()
            self._sparse_count = 0


def stored_repeats(hbase: HBase, table: bytes, life: bytes, numbers: Mapping[bytes, int]) -> int:
    """Repeats in the table, by a scan of all rows of the map. ``numbers``: logs by digest."""
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
    """Pending entries that will be repeats once they are in the table."""
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
    """The first row that does not begin with ``prefix``; b"" if no row does."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else b""
