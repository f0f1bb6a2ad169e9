"""Finds the row of a digest: open addressing over 32-bit row numbers, in segments that split one at a time.

One segment of up to SEGMENT_SLOTS places doubles while it is small; then it splits in two by the top bits of the
hash (extendible hashing), and a directory says which segment a hash belongs to. So growing is always some 20,000 rows
at a time, two or three milliseconds, however many rows there are. The segments split at different loads, or all of
them would have to at once. Probing is by double hashing within a segment; whole batches are probed at once.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from photon.idregistry.api import I64, U32, U64
from photon.idregistry.growing import GrowingArray

SEGMENT_SLOTS = 1 << 15
LOAD_LOW, LOAD_HIGH = 0.62, 0.84
"""A segment splits (or doubles, while it is small) at a load between these: about 6.8 bytes a row on average."""
_DEPTH_MAX = 28
_SLOT_SHIFT = np.uint64(18)
_MIX = np.uint64(0x9E3779B97F4A7C15)
_32 = np.uint64(32)


def hashes_of(lo: U64) -> U64:
    """One hash an id. The top bits choose the segment, others the place, the lowest the step."""
    return (lo ^ (lo >> _32)) * _MIX


class RowIndex:
    """Row numbers by digest; the digests themselves stay in the rows, which the caller passes in."""

    def __init__(self) -> None:
        self._slots = 8
        self._pool = GrowingArray(np.uint32)  # row number + 1; 0 is empty
        self._pool.reserve(self._slots)
        self._depth = 0
        self._directory: I64 = np.zeros(1, np.int64)  # top bits of the hash -> first place of its segment
        self._counts: I64 = np.zeros(1, np.int64)  # by segment
        self._depths: list[int] = [0]
        self._limits: I64 = np.array([self._limit(0)])

    @property
    def nbytes(self) -> int:
        """Of the places in use."""
        return len(self._depths) * self._slots * 4

    @property
    def places(self) -> U32:
        """All places; positions in ``homes`` and ``next`` are places here."""
        return self._pool.array

    def homes(self, hashes: U64) -> I64:
        """Where the probing of each id starts."""
        at = ((hashes >> _SLOT_SHIFT) & np.uint64(self._slots - 1)).astype(np.int64)
        if self._depth:
            at += self._directory[(hashes >> np.uint64(64 - self._depth)).astype(np.int64)]
        return at

    def steps(self, hashes: U64) -> I64:
        """By how many places each id's probing goes on; odd, so that it meets every place of its segment."""
        return ((hashes & np.uint64(self._slots - 1)) | np.uint64(1)).astype(np.int64)

    def next(self, at: I64, steps: I64) -> I64:
        """The place after ``at`` in each id's probing."""
        mask = self._slots - 1
        return (at & ~mask) | ((at + steps) & mask)

    def reserve(self, hashes: U64, row_lo: U64) -> bool:
        """Room for these ids besides those that are there; whether places moved. ``row_lo``: the rows' digests."""
        moved = False
        while True:
            segments = self.homes(hashes) // self._slots
            full = np.flatnonzero(self._counts + np.bincount(segments, minlength=len(self._counts)) > self._limits)
            if not full.size:
                return moved
            moved = True
            if self._depth == 0 and self._slots < SEGMENT_SLOTS:
                self._double(int(self._counts[0]) + len(hashes), row_lo)
                continue
            for segment in full.tolist():
                self._split(segment, row_lo)

    def added(self, at: I64) -> None:
        """Rows were entered at these places."""
        self._counts += np.bincount(at // self._slots, minlength=len(self._counts))

    def enter(self, rows: I64, hashes: U64, row_lo: U64) -> None:
        """Enters rows whose digests are all different and not in here yet."""
        self.reserve(hashes, row_lo)
        at = self.homes(hashes)
        self._settle(rows, hashes, at)
        self.added(at)

    def _limit(self, segment: int) -> int:
        spread = (segment * 0.6180339887) % 1.0
        return max(int(self._slots * (LOAD_LOW + (LOAD_HIGH - LOAD_LOW) * spread)), 4)

    def _double(self, rows: int, row_lo: U64) -> None:
        """The only segment, while it is small, becomes large enough for so many rows, or as large as they get."""
        held = self._held(0)
        while self._slots < SEGMENT_SLOTS and rows > self._limit(0):
            self._slots *= 2
        self._pool = GrowingArray(np.uint32)
        self._pool.reserve(self._slots)
        self._limits = np.array([self._limit(0)])
        hashes = hashes_of(row_lo[held])
        self._settle(held, hashes, self.homes(hashes))

    def _held(self, segment: int) -> I64:
        places = self.places[segment * self._slots : (segment + 1) * self._slots]
        return places[places > 0].astype(np.int64) - 1

    def _split(self, segment: int, row_lo: U64) -> None:
        depth = self._depths[segment]
        if depth >= _DEPTH_MAX:
            raise OverflowError("one time bucket has too many ids with like digests: use more shards")
        held = self._held(segment)
        hashes = hashes_of(row_lo[held])
        if depth == self._depth:
            self._directory = np.repeat(self._directory, 2)
            self._depth += 1
        new = len(self._depths)
        base = segment * self._slots
        self._pool.reserve((new + 1) * self._slots)
        self.places[base : base + self._slots] = 0
        ours = np.flatnonzero(self._directory == base)  # neighbours, a power of two of them
        self._directory[ours[len(ours) // 2 :]] = new * self._slots
        self._depths[segment] = depth + 1
        self._depths.append(depth + 1)
        self._limits = np.append(self._limits, self._limit(new))
        at = self.homes(hashes)
        moved = int(np.count_nonzero(at >= new * self._slots))
        self._counts[segment] = len(held) - moved
        self._counts = np.append(self._counts, moved)
        self._settle(held, hashes, at)

    def _settle(self, rows: I64, hashes: U64, at: I64) -> None:
        """Puts rows known to be different into free places, probing from ``at``; these end as their places."""
        number = (rows + 1).astype(np.uint32)
        steps = self.steps(hashes)
        todo: npt.NDArray[np.int64] = np.arange(len(rows))
        places = self.places
        while todo.size:  # who wins a place does not matter
            here = at[todo]
            free = places[here] == 0
            places[here[free]] = number[todo[free]]
            left = places[here] != number[todo]
            todo = todo[left]
            at[todo] = self.next(here[left], steps[todo])
