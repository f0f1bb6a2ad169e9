"""An index of (64-bit key hash, location), kept as immutable sorted runs that are merged geometrically.

An entry takes 16 bytes and no object; look-ups and inserts work on whole batches. Collisions and duplicates are
allowed: a look-up returns every location stored under a hash, and whoever reads the record there verifies its key.

Runs are never changed once published, and the tuple of runs is replaced as one reference: one thread may insert while
others look up. Merging has a separate lock, and is delayed until the next look-up.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import xxhash

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

ENTRY_BYTES = 16
# Number of runs of one size class that become one run of the next: an entry is copied log8(n) times, and a look-up
# searches at most seven runs of each class.
MERGE_FANOUT = 8
# Number of runs kept unmerged while there are no look-ups: then an entry is copied once and not log8(n) times.
UNASKED_RUNS_MAX = 512
SLICE_ENTRIES = 1 << 17  # merged at a time, so that they stay in the processor's cache
RADIX_ENTRIES = 1 << 8  # smaller arrays are sorted directly
# From this number of entries on, equal 16-bit prefixes leave too much to the comparison sort that follows.
TWO_DIGITS_ENTRIES = 1 << 13


def hash_keys(keys: Sequence[bytes]) -> U64:
    return np.fromiter(map(xxhash.xxh3_64_intdigest, keys), dtype=np.uint64, count=len(keys))


@dataclass(frozen=True, slots=True)
class Run:
    """Two aligned columns, ascending by hash. Equal hashes are in arbitrary order."""

    hashes: U64
    locations: U64

    def __len__(self) -> int:
        return len(self.hashes)


def ascending(hashes: U64) -> I64:
    """Returns the order that sorts hashes; equal ones are in arbitrary order."""
    if len(hashes) < RADIX_ENTRIES:
        return hashes.argsort()
    first = (hashes >> np.uint64(48)).astype(np.uint16)
    if len(hashes) > TWO_DIGITS_ENTRIES:
        order = np.argsort((hashes >> np.uint64(32)).astype(np.uint16), kind="stable")
        order = order[np.argsort(first[order], kind="stable")]
    else:
        order = np.argsort(first, kind="stable")
    nearly = hashes[order]
    if (nearly[1:] < nearly[:-1]).any():
        order = order[np.argsort(nearly, kind="stable")]
    return order


def sorted_run(hashes: U64, locations: U64) -> Run:
    order = ascending(hashes)
    return Run(hashes[order], locations[order])


def merged(runs: Sequence[Run]) -> Run:
    if len(runs) == 1:
        return runs[0]
    total = sum(map(len, runs))
    hashes, locations = np.empty(total, dtype=np.uint64), np.empty(total, dtype=np.uint64)
    at = 0
    for part in merge_slices(runs):
        hashes[at : at + len(part)] = part.hashes
        locations[at : at + len(part)] = part.locations
        at += len(part)
    return Run(hashes, locations)


def merge_slices(runs: Sequence[Run], slice_entries: int = SLICE_ENTRIES) -> Iterator[Run]:
    """Yields all entries of ``runs`` in ascending slices of about ``slice_entries`` entries."""
    total = sum(map(len, runs))
    share = [len(run) * slice_entries // max(total, 1) + 1 for run in runs]
    at = [0] * len(runs)
    while True:
        open_runs = [i for i, run in enumerate(runs) if at[i] < len(run)]
        if not open_runs:
            return
        windows = [runs[i].hashes[at[i] : at[i] + share[i]] for i in open_runs]
        limit = min(window[-1] for window in windows)
        hashes, locations = [], []
        for i, window in zip(open_runs, windows, strict=True):
            if take := int(window.searchsorted(limit, "right")):
                hashes.append(window[:take])
                locations.append(runs[i].locations[at[i] : at[i] + take])
                at[i] += take
        if len(hashes) == 1:
            yield Run(hashes[0], locations[0])
        else:
            yield sorted_run(np.concatenate(hashes), np.concatenate(locations))


def size_class(entries: int) -> int:
    """floor(log8(entries))."""
    return max(0, entries.bit_length() - 1) // 3


def tail_to_merge(sizes: Sequence[int]) -> int:
    """Returns how many of the newest runs to merge into one; 0 for none. ``sizes``: the runs' sizes, oldest first.

    Once MERGE_FANOUT runs of one size class are at the end, they are merged with everything newer.
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
    """Returns (index into ``asked``, location) of every entry with a requested hash. Fast if ``asked`` ascends."""
    if not len(run):
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.uint64)
    left = run.hashes.searchsorted(asked)
    rows = (run.hashes.take(left, mode="clip") == asked).nonzero()[0]
    if not len(rows):
        return rows, np.empty(0, dtype=np.uint64)
    first = left[rows]
    after = np.minimum(first + 1, len(run) - 1)
    if ((run.hashes[after] == asked[rows]) & (after > first)).any():  # rare: more than one entry for a hash
        counts = np.searchsorted(run.hashes, asked[rows], side="right") - first
        rows = np.repeat(rows, counts)
        steps = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        first = np.repeat(first, counts) + steps
    return rows, run.locations[first]


def look_up(runs: Sequence[Run], hashes: U64) -> tuple[I64, U64]:
    """Returns (index into ``hashes``, location) of every entry of ``runs`` with a requested hash, sorted."""
    order = ascending(hashes)
    asked = hashes[order]
    found = [each for run in runs if len((each := matches(run, asked))[0])]
    if not found:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.uint64)
    rows, locations = found[0] if len(found) == 1 else map(np.concatenate, zip(*found, strict=True))
    rows = order[rows]
    if len(rows) == 1:
        return rows, locations
    by_row = np.lexsort((locations, rows))
    return rows[by_row], locations[by_row]


def count_repeats(runs: Sequence[Run], slice_entries: int = SLICE_ENTRIES) -> int:
    """Counts repeats over all runs: the number of entries minus the number of distinct hashes.

    Works through the hash space in slices of about ``slice_entries``, so memory stays bounded.
    """
    total = sum(map(len, runs))
    slices = max(1, total // slice_entries)
    repeats = 0
    begins = [0] * len(runs)
    for number in range(1, slices + 1):
        parts = []
        for i, run in enumerate(runs):
            end = int(run.hashes.searchsorted(np.uint64((number << 64) // slices))) if number < slices else len(run)
            parts.append(run.hashes[begins[i] : end])
            begins[i] = end
        if parts:
            hashes = np.sort(np.concatenate(parts), kind="stable")  # merges the runs in it
            repeats += int(np.count_nonzero(hashes[1:] == hashes[:-1]))
    return repeats


class RunIndex:
    """The index in memory. One writer; any number of concurrent readers."""

    def __init__(self) -> None:
        self._runs: tuple[Run, ...] = ()
        self._asked = False  # True if there was a look-up since the last insert
        self._lock = threading.Lock()  # around changes of the runs

    def __len__(self) -> int:
        return sum(map(len, self._runs))

    @property
    def runs(self) -> tuple[Run, ...]:
        return self._runs

    def asked_runs(self) -> tuple[Run, ...]:
        """Returns the runs for a look-up; first merges them if no look-up came since the last insert."""
        if not self._asked:
            with self._lock:
                self._asked = True
                self._runs = _settled(self._runs)
        return self._runs

    @property
    def nbytes(self) -> int:
        return len(self) * ENTRY_BYTES

    def insert(self, run: Run) -> None:
        if not len(run):
            return
        with self._lock:
            runs = (*self._runs, run)
            self._runs = _settled(runs) if self._asked or len(runs) > UNASKED_RUNS_MAX else runs
            self._asked = False

    def look_up(self, hashes: U64) -> tuple[I64, U64]:
        return look_up(self.asked_runs(), hashes)

    def retain(self, keep: Callable[[U64], Mask]) -> None:
        """Drops all entries except those for whose locations ``keep`` returns True."""
        with self._lock:
            left = []
            for run in self._runs:
                mask = keep(run.locations)
                if mask.all():
                    left.append(run)
                elif mask.any():
                    left.append(Run(run.hashes[mask], run.locations[mask]))
            self._runs = tuple(left)

    def clear(self) -> None:
        with self._lock:
            self._runs = ()


def _settled(runs: Sequence[Run]) -> tuple[Run, ...]:
    now = list(runs)
    while take := tail_to_merge([len(run) for run in now]):
        now[-take:] = [merged(now[-take:])]
    return tuple(now)
