"""An index of (hash64 of a key, location) as immutable sorted runs that are merged geometrically.

16 bytes an entry, no object per entry, look-ups and inserts by whole batches. Collisions and duplicates are
allowed: a look-up gives every location stored under a hash, and whoever reads the record there verifies its key.

Runs are never changed once published, and the tuple of runs is replaced as one reference: one thread may insert
while others look up, without a lock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import xxhash

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

ENTRY_BYTES = 16
MERGE_FANOUT = 8
"""So many runs of one size class become one run of the next: an entry is copied log8(n) times, and a look-up
searches at most seven runs of each class."""


def hash_keys(keys: Sequence[bytes]) -> U64:
    """XXH3-64 of each key."""
    return np.fromiter(map(xxhash.xxh3_64_intdigest, keys), dtype=np.uint64, count=len(keys))


@dataclass(frozen=True, slots=True)
class Run:
    """Two aligned columns, ascending by hash. The order among equal hashes means nothing."""

    hashes: U64
    locations: U64

    def __len__(self) -> int:
        return len(self.hashes)


def sorted_run(hashes: U64, locations: U64) -> Run:
    """A run of unsorted columns."""
    order = np.argsort(hashes, kind="stable")
    return Run(hashes[order], locations[order])


def merged(runs: Sequence[Run]) -> Run:
    """One run with all entries. (A stable sort finds the ascending runs in its input and merges them.)"""
    if len(runs) == 1:
        return runs[0]
    return sorted_run(np.concatenate([run.hashes for run in runs]), np.concatenate([run.locations for run in runs]))


def size_class(entries: int) -> int:
    """floor(log8(entries))."""
    return max(0, entries.bit_length() - 1) // 3


def tail_to_merge(sizes: Sequence[int]) -> int:
    """How many of the newest runs should become one; 0 for none. ``sizes`` go from the oldest to the newest run.

    Once MERGE_FANOUT runs of one size class stand at the end, they are merged with everything newer than them.
    """
    take = same = 0
    level = -1
    for size in reversed(sizes):
        its_level = size_class(size)
        if its_level > level:
            if same >= MERGE_FANOUT:
                break
            level, same = its_level, 1
        elif its_level == level:
            same += 1
        take += 1
    return take if same >= MERGE_FANOUT else 0


def matches(run: Run, asked: U64) -> tuple[I64, U64]:
    """(row into ``asked``, location) of every entry with an asked hash. ``asked`` ascending makes it fast."""
    if not len(run):
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.uint64)
    left = np.searchsorted(run.hashes, asked, side="left")
    hit = run.hashes[np.minimum(left, len(run) - 1)] == asked
    rows = np.flatnonzero(hit)
    first = left[rows]
    counts = np.searchsorted(run.hashes, asked[rows], side="right") - first
    if len(rows) and counts.max() > 1:
        rows = np.repeat(rows, counts)
        steps = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        first = np.repeat(first, counts) + steps
    return rows, run.locations[first]


def look_up(runs: Sequence[Run], hashes: U64) -> tuple[I64, U64]:
    """(row into ``hashes``, location) of every entry of ``runs`` with an asked hash, ordered by (row, location)."""
    order = np.argsort(hashes, kind="stable")
    asked = hashes[order]
    found = [matches(run, asked) for run in runs]
    if not found:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.uint64)
    rows = order[np.concatenate([each[0] for each in found])]
    locations = np.concatenate([each[1] for each in found])
    by_row = np.lexsort((locations, rows))
    return rows[by_row], locations[by_row]


def count_repeats(runs: Sequence[Run], slice_entries: int = 1 << 20) -> int:
    """Entries whose hash occurs in an earlier one, over all runs: entries less distinct hashes.

    Works through the hash space in slices of about ``slice_entries``, so memory stays bounded.
    """
    total = sum(map(len, runs))
    slices = max(1, total // slice_entries)
    repeats = 0
    for number in range(slices):
        low = np.uint64((number << 64) // slices)
        high = np.uint64(((number + 1) << 64) // slices - 1)
        parts = [
            run.hashes[np.searchsorted(run.hashes, low, "left") : np.searchsorted(run.hashes, high, "right")]
            for run in runs
        ]
        if parts:
            hashes = np.sort(np.concatenate(parts))
            repeats += int(np.count_nonzero(hashes[1:] == hashes[:-1]))
    return repeats


class RunIndex:
    """The index in memory. One writer; any number of readers at the same time."""

    def __init__(self) -> None:
        self._runs: tuple[Run, ...] = ()

    def __len__(self) -> int:
        return sum(map(len, self._runs))

    @property
    def runs(self) -> tuple[Run, ...]:
        """The runs of this moment, oldest first."""
        return self._runs

    @property
    def nbytes(self) -> int:
        """Bytes of the columns."""
        return len(self) * ENTRY_BYTES

    def insert(self, run: Run) -> None:
        """Adds a run (see sorted_run)."""
        if not len(run):
            return
        runs = [*self._runs, run]
        while take := tail_to_merge([len(run) for run in runs]):
            runs[-take:] = [merged(runs[-take:])]
        self._runs = tuple(runs)

    def look_up(self, hashes: U64) -> tuple[I64, U64]:
        """See the function of this name."""
        return look_up(self._runs, hashes)

    def retain(self, keep: Callable[[U64], Mask]) -> None:
        """Drops the entries whose location ``keep`` answers False for; leaves one run."""
        if not self._runs:
            return
        run = merged(self._runs)
        mask = keep(run.locations)
        self._runs = (Run(run.hashes[mask], run.locations[mask]),) if mask.any() else ()

    def clear(self) -> None:
        """Forgets everything."""
        self._runs = ()
