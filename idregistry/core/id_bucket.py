"""The ids of one time bucket: packed rows that grow without being copied, and their sums.

A row changes in place only when it is cleared, reopened or taken again. If a snapshot has not read the row yet, its
old content is kept (``FrozenBucket``), so neither a snapshot nor a change ever copies a bucket.

Sums: each block of SUM_ROWS rows has the sum of its rows' hashes, updated with each change. The total does not depend
on the order of rows: replicas compare it. A row corrupted in memory no longer matches its block's sum.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from photon.idregistry.api import I64, U8, U32, U64
from photon.idregistry.core.growing_array import GrowingArray

Bools = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.void]

ABSENT, OWNED, CLEARED, REOPENED = range(4)  # States of an id. ABSENT is never stored.

MAX_BUCKET_ROWS = 2**32
STATE_MASK = 3
KIND_SHIFT = 2
_SUM_BITS = 16
SUM_ROWS = 1 << _SUM_BITS  # rows per sum

ROW = np.dtype(
    [
        ("lo", "<u8"),
        ("hi", "<u8"),
        ("token", "<u8"),
        ("tag", "<u4"),
        ("time_low", "<u4"),  # event time within the bucket: 48 bits
        ("time_high", "<u2"),
        ("what", "u1"),  # state | kind << 2
    ]
)

_K = [np.uint64(k | 1) for k in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x27D4EB2F165667C5)]
_FINAL = np.uint64(0xFF51AFD7ED558CCD)
_U64_MASK = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Entries:
    """The table's entry for each of a batch's n ids, as left by the batch's earlier rows. Columns of n."""

    states: U8
    tokens: U64
    kinds: U8
    tags: U32
    times: I64  # event times of the stored entries
    added: Bools  # this row was absent and is now stored as owned


def times_in(rows: Rows) -> I64:
    """Returns the rows' event times, in ns after the bucket's start."""
    return rows["time_low"].astype(np.int64) | rows["time_high"].astype(np.int64) << 32


def row_hashes(rows: Rows, number: int, generations: U64 | None = None) -> U64:
    """Returns one hash per row of bucket ``number``; 0 is a valid one. ``generations``: ``None`` means all 0."""
    x: U64 = rows["lo"] * _K[0]
    x ^= rows["hi"]
    x *= _K[1]
    x ^= x >> np.uint64(29)
    x += rows["token"]
    x *= _K[2]
    x ^= x >> np.uint64(31)
    rest: U64 = rows["tag"].astype(np.uint64) << np.uint64(32)
    rest |= rows["time_low"]
    x += rest
    x *= _K[3]
    x ^= x >> np.uint64(30)
    rest = rows["time_high"].astype(np.uint64) << np.uint64(8)
    rest |= rows["what"]
    x += rest
    x ^= np.uint64((number * 0x9E3779B97F4A7C15) & _U64_MASK)
    if generations is not None:
        x += generations * _K[2]
    x *= _FINAL
    x ^= x >> np.uint64(33)
    return x


class Bucket:
    """The ids of one time bucket. Not thread-safe."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.count = 0
        self.cleared = 0
        self.generations: dict[int, int] = {}  # row -> generation, if not 0
        self._rows = GrowingArray(ROW)
        self._sums: U64 = np.zeros(1, np.uint64)
        self._frozen: list[weakref.ref[FrozenBucket]] = []

    @property
    def rows(self) -> Rows:
        """All rows, followed by spare room. Do not keep a reference."""
        return self._rows.array

    @property
    def resident_bytes(self) -> int:
        return self.count * ROW.itemsize + self._sums.nbytes

    def _reserve(self, rows: int) -> None:
        if rows > MAX_BUCKET_ROWS:
            raise OverflowError(f"more than {MAX_BUCKET_ROWS} ids in one time bucket: use more shards")
        self._rows.reserve(rows)
        blocks = (rows >> _SUM_BITS) + 1
        if blocks > len(self._sums):
            self._sums = np.append(self._sums, np.zeros(blocks - len(self._sums), np.uint64))

    # -- rows ---------------------------------------------------------------------------------------------------
    def append(self, lo: U64, hi: U64, times: I64, tokens: U64, kinds: U8, tags: U32, state: int) -> int:
        """Appends new rows; returns the first new row's number. ``times`` are relative to the bucket's start."""
        start = self.count
        self._reserve(start + len(lo))
        rows = self.rows[start : start + len(lo)]
        rows["lo"], rows["hi"] = lo, hi
        self.count += len(lo)
        self.write(slice(start, self.count), times, tokens, kinds, tags, state)
        return start

    def write(self, at: I64 | slice, times: I64, tokens: U64, kinds: U8, tags: U32, state: int) -> None:
        """Fills all columns of rows except the digest. ``times`` are relative to the bucket's start."""
        rows = self.rows
        rows["token"][at], rows["tag"][at] = tokens, tags
        rows["time_low"][at], rows["time_high"][at] = times & 0xFFFFFFFF, times >> 32
        rows["what"][at] = (kinds << KIND_SHIFT) | state

    def appended(self, first: int) -> None:
        """Adds the new rows, from ``first`` on, to the sums; all their columns must be set."""
        if first < self.count:
            rows = np.arange(first, self.count)
            block, end = first >> _SUM_BITS, self.count - 1 >> _SUM_BITS
            if block == end:
                self._sums[block : end + 1] += np.add.reduce(self._hashes(rows))
                return
            starts = np.flatnonzero(np.diff(rows >> _SUM_BITS, prepend=-1))
            self._sums[block : end + 1] += np.add.reduceat(self._hashes(rows), starts)

    def change(self, rows: I64) -> None:
        """Prepares an in-place change of rows, all different. Call ``changed`` afterwards."""
        self._subtract(rows)
        live = []
        for reference in self._frozen:
            frozen = reference()
            if frozen is not None and frozen.position < frozen.count:
                frozen.remember(rows, self.rows)
                live.append(reference)
        self._frozen = live

    def changed(self, rows: I64) -> None:
        np.add.at(self._sums, rows >> _SUM_BITS, self._hashes(rows))

    def clear(self, rows: I64) -> None:
        """Marks owned rows, all different, as cleared."""
        self.change(rows)
        self.rows["what"][rows] = (self.rows["what"][rows] & ~np.uint8(STATE_MASK)) | CLEARED
        self.cleared += rows.size
        self.changed(rows)

    def load(self, rows: Rows) -> None:
        """Appends complete rows of new ids."""
        start = self.count
        self._reserve(start + len(rows))
        self.rows[start : start + len(rows)] = rows
        self.count = start + len(rows)
        self.cleared += int(np.count_nonzero((rows["what"] & STATE_MASK) == CLEARED))
        self.appended(start)

    def set_generations(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Sets generations, given as (row, generation). Raises ValueError for a missing row."""
        given = dict(pairs)
        if not given:
            return
        if not 0 <= min(given) <= max(given) < self.count:
            raise ValueError(f"a generation of row {max(given)}, but there are {self.count} rows")
        rows = np.array(sorted(given), np.int64)
        self.change(rows)
        self.generations.update({row: generation for row, generation in given.items() if generation})
        self.changed(rows)

    def without_cleared(self) -> Bucket:
        """Returns a copy with only the owned and reopened ids, in the same order."""
        rows = self.rows[: self.count]
        kept = np.flatnonzero((rows["what"] & STATE_MASK) != CLEARED)
        bucket = Bucket(self.number)
        bucket.load(rows[kept])
        if self.generations:
            new_row = {int(old): new for new, old in enumerate(kept)}
            bucket.set_generations((new_row[row], g) for row, g in self.generations.items() if row in new_row)
        return bucket

    # -- sums and snapshots -------------------------------------------------------------------------------------
    @property
    def sum(self) -> int:
        return int(np.add.reduce(self._sums))

    @property
    def blocks(self) -> int:
        """The number of blocks of SUM_ROWS rows; each has its own sum."""
        return -(-self.count >> _SUM_BITS) if self.count else 0

    def adds_up(self, block: int) -> bool:
        """True if the rows of a block still match their sum."""
        start = block << _SUM_BITS
        rows = np.arange(start, min(start + SUM_ROWS, self.count))
        return int(np.add.reduce(self._hashes(rows))) == int(self._sums[block])

    def freeze(self) -> FrozenBucket:
        frozen = FrozenBucket(self)
        self._frozen.append(weakref.ref(frozen))
        return frozen

    def _hashes(self, rows: I64) -> U64:
        generations = None
        if self.generations:
            held = self.generations
            generations = np.fromiter((held.get(row, 0) for row in rows.tolist()), np.uint64, len(rows))
        picked = self.rows[rows[0] : rows[-1] + 1] if _consecutive(rows) else self.rows[rows]
        return row_hashes(picked, self.number, generations)

    def _subtract(self, rows: I64) -> None:
        np.subtract.at(self._sums, rows >> _SUM_BITS, self._hashes(rows))


def _consecutive(rows: I64) -> bool:
    return bool(len(rows) and rows[-1] - rows[0] == len(rows) - 1 and (len(rows) < 3 or (np.diff(rows) == 1).all()))


class FrozenBucket:
    """A bucket's rows as of one moment, read once, in order, while the bucket changes."""

    def __init__(self, bucket: Bucket) -> None:
        self.number = bucket.number
        self.count = bucket.count
        self.generations = dict(bucket.generations)
        self.position = 0  # number of rows already read
        self._bucket = bucket
        self._before: list[tuple[I64, Rows]] = []

    def remember(self, rows: I64, present: Rows) -> None:
        rows = np.sort(rows[(rows >= self.position) & (rows < self.count)])
        if rows.size:
            self._before.append((rows, present[rows]))

    def read(self, rows: int) -> Rows:
        """Returns the next rows, at most ``rows`` of them; none at the end."""
        start, end = self.position, min(self.position + rows, self.count)
        out = self._bucket.rows[start:end].copy()
        for changed, before in reversed(self._before):  # the oldest last, as it holds the original content
            low, high = np.searchsorted(changed, (start, end))
            out[changed[low:high] - start] = before[low:high]
        self.position = end
        if end == self.count:
            self._before = []
        return out
