"""Finds the row of a digest among all rows of a shard: open addressing over 48-bit words, in segments that split.

A word says where the row is, and 6 bits of the digest's second half, so that a row is seldom looked at in vain.
One segment of up to SEGMENT_SLOTS places doubles while it is small; then it splits in two by the top bits of the
hash (extendible hashing), and a directory says which segment a hash belongs to. So growing is always some 20,000
words at a time, a few milliseconds, however many there are. The segments split at different loads, or all of them
would have to at once. Probing is by double hashing within a segment; whole batches are probed at once.

Rows have their place in chunks, and vanish by whole chunks. Nobody looks for their words then: they match nothing
any more, and go when their segment is full.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from photon.idregistry.api import I64, U64
from photon.idregistry.growing import GrowingArray

Bools = npt.NDArray[np.bool_]

CHUNK_BITS = 20
CHUNK_ROWS = 1 << CHUNK_BITS
_NUMBER_BITS = 22
CHUNKS_MAX = 1 << _NUMBER_BITS
"""More than there are 2.4 hours in 584 years."""
SEGMENT_SLOTS = 1 << 15
LOAD_LOW, LOAD_HIGH = 0.70, 0.88
"""A segment splits (or doubles, while it is small) at a load between these: about 11 bytes a row on average."""
PURGED_SHARE = 0.75
"""A full segment that is not below this share of its limit without the words of rows that are gone splits at once."""
_DEPTH_MAX = 28
_SLOT_SHIFT = np.uint64(18)
_MIX = np.uint64(0x9E3779B97F4A7C15)
_32 = np.uint64(32)
_LOW_MASK = np.uint64(0xFFFFFFFF)
_LIKE_SHIFT = np.uint64(CHUNK_BITS + _NUMBER_BITS)
_LIKE_MASK = np.uint64(63)
_CHUNK_SHIFT = np.uint64(CHUNK_BITS)
_ROW_MASK = np.uint64(CHUNK_ROWS - 1)
_NUMBER_MASK = np.uint64(CHUNKS_MAX - 1)


def words_of(hi: U64, chunk: int, rows: I64) -> U64:
    """The words of a chunk's rows. Chunk 0 is nobody's: its words are positions in the batch that is being added."""
    return ((hi & _LIKE_MASK) << _LIKE_SHIFT) | np.uint64(chunk << CHUNK_BITS) | rows.astype(np.uint64)


def chunks_in(words: U64) -> I64:
    """Numbers of the chunks that the rows are in."""
    return ((words >> _CHUNK_SHIFT) & _NUMBER_MASK).astype(np.int64)


def rows_in(words: U64) -> I64:
    """Which of the chunk's rows."""
    return (words & _ROW_MASK).astype(np.int64)


def hashes_of(lo: U64) -> U64:
    """One hash an id. The top bits choose the segment, others the place, the lowest the step."""
    return (lo ^ (lo >> _32)) * _MIX


class RowsOfWords(Protocol):
    """Who has the rows."""

    def living(self, words: U64) -> Bools:
        """Whose chunk is still there."""
        ...

    def digests(self, words: U64) -> tuple[U64, U64]:
        """First and last eight bytes of the digest of each living row."""
        ...


class DigestIndex:
    """Words by digest; the digests themselves stay in the rows. 0 is no word."""

    def __init__(self, rows: RowsOfWords) -> None:
        self._rows = rows
        self._slots = 8
        self._low, self._high = GrowingArray(np.uint32), GrowingArray(np.uint16)
        self._reserve_slots(self._slots)
        self._depth = 0
        self._directory: I64 = np.zeros(1, np.int64)  # top bits of the hash -> first place of its segment
        self._counts: I64 = np.zeros(1, np.int64)  # by segment
        self._depths: list[int] = [0]
        self._limits: I64 = np.array([self._limit(0)])

    @property
    def nbytes(self) -> int:
        """Of the places in use."""
        return len(self._depths) * self._slots * 6

    # -- batches ------------------------------------------------------------------------------------------------
    def find(self, lo: U64, hi: U64) -> U64:
        """The word of each id; 0: there is none."""
        return self.probe(lo, hi, hashes_of(lo))[0]

    def probe(self, lo: U64, hi: U64, hashes: U64) -> tuple[U64, I64]:
        """(word of each id or 0, place that ended its probing: where there is none a free one)."""
        found = np.zeros(len(lo), np.uint64)
        at, steps = self._homes(hashes), self._steps(hashes)
        todo: npt.NDArray[np.int64] = np.arange(len(lo))
        while todo.size:
            word = self._words(at[todo])
            left = word != 0
            like = np.flatnonzero(left & (word >> _LIKE_SHIFT == hi[todo] & _LIKE_MASK))
            if like.size:
                like = like[self._rows.living(word[like])]
                row_lo, row_hi = self._rows.digests(word[like])
                hit = like[(row_lo == lo[todo[like]]) & (row_hi == hi[todo[like]])]
                found[todo[hit]] = word[hit]
                left[hit] = False
            todo = todo[left]
            at[todo] = self._next(at[todo], steps[todo])
        return found, at

    def claim(self, lo: U64, hi: U64, hashes: U64, at: I64) -> I64:
        """Takes places for absent ids, equal ones together: the first position equal to each. ``settle`` must follow.

        ``at``: where ``probe`` ended; ends as the place of each.
        """
        if self._reserve(hashes):
            at[:] = self._homes(hashes)
        first: npt.NDArray[np.int64] = np.arange(len(lo))
        todo: npt.NDArray[np.int64] = np.arange(len(lo))
        steps = self._steps(hashes)
        positions = words_of(hi, 0, np.arange(1, len(lo) + 1))
        while todo.size:
            free = todo[self._words(at[todo]) == 0]
            if free.size:
                # Explicit first-of-each: numpy promises no order when one element is assigned twice, and the
                # winner must be the same on every replica.
                taken, which = np.unique(at[free], return_index=True)
                self._write(taken, positions[free[which]])
            word = self._words(at[todo])
            mine = np.flatnonzero(chunks_in(word) == 0)
            other = rows_in(word[mine]) - 1
            same = (lo[other] == lo[todo[mine]]) & (hi[other] == hi[todo[mine]])
            first[todo[mine[same]]] = other[same]
            left = np.ones(len(todo), np.bool_)
            left[mine[same]] = False
            todo = todo[left]
            at[todo] = self._next(at[todo], steps[todo])
        return first

    def settle(self, at: I64, words: U64) -> None:
        """The words of claimed places, each place once."""
        self._write(at, words)
        self._counts += np.bincount(at // self._slots, minlength=len(self._counts))

    def enter(self, lo: U64, words: U64) -> None:
        """Enters words of ids that are all different and not in here yet."""
        hashes = hashes_of(lo)
        self._reserve(hashes)
        at = self._homes(hashes)
        self._put(words, hashes, at)
        self._counts += np.bincount(at // self._slots, minlength=len(self._counts))

    # -- inside -------------------------------------------------------------------------------------------------
    def _words(self, at: I64 | slice) -> U64:
        words: U64 = self._high.array[at].astype(np.uint64) << _32
        words |= self._low.array[at]
        return words

    def _write(self, at: I64, words: U64) -> None:
        self._low.array[at], self._high.array[at] = words & _LOW_MASK, words >> _32

    def _reserve_slots(self, slots: int) -> None:
        self._low.reserve(slots)
        self._high.reserve(slots)

    def _homes(self, hashes: U64) -> I64:
        """Where the probing of each id starts."""
        at = ((hashes >> _SLOT_SHIFT) & np.uint64(self._slots - 1)).astype(np.int64)
        if self._depth:
            at += self._directory[(hashes >> np.uint64(64 - self._depth)).astype(np.int64)]
        return at

    def _steps(self, hashes: U64) -> I64:
        """By how many places each id's probing goes on; odd, so that it meets every place of its segment."""
        return ((hashes & np.uint64(self._slots - 1)) | np.uint64(1)).astype(np.int64)

    def _next(self, at: I64, steps: I64) -> I64:
        """The place after ``at`` in each id's probing."""
        mask = self._slots - 1
        return (at & ~mask) | ((at + steps) & mask)

    def _reserve(self, hashes: U64) -> bool:
        """Room for these ids besides those that are there; whether places moved."""
        moved = False
        while True:
            segments = self._homes(hashes) // self._slots
            full = np.flatnonzero(self._counts + np.bincount(segments, minlength=len(self._counts)) > self._limits)
            if not full.size:
                return moved
            moved = True
            if self._depth == 0 and self._slots < SEGMENT_SLOTS:
                self._double(len(hashes))
                continue
            for segment in full.tolist():
                self._purge_or_split(segment)

    def _limit(self, segment: int) -> int:
        spread = (segment * 0.6180339887) % 1.0
        return max(int(self._slots * (LOAD_LOW + (LOAD_HIGH - LOAD_LOW) * spread)), 4)

    def _held(self, segment: int) -> U64:
        """The words of a segment whose rows are still there."""
        words = self._words(slice(segment * self._slots, (segment + 1) * self._slots))
        words = words[words > 0]
        return words[self._rows.living(words)]

    def _double(self, more: int) -> None:
        """The only segment, while it is small, becomes large enough for so many more, or as large as they get."""
        held = self._held(0)
        while self._slots < SEGMENT_SLOTS and len(held) + more > self._limit(0):
            self._slots *= 2
        self._low, self._high = GrowingArray(np.uint32), GrowingArray(np.uint16)
        self._reserve_slots(self._slots)
        self._limits = np.array([self._limit(0)])
        hashes = hashes_of(self._rows.digests(held)[0])
        self._put(held, hashes, self._homes(hashes))
        self._counts[0] = len(held)

    def _purge_or_split(self, segment: int) -> None:
        held = self._held(segment)
        hashes = hashes_of(self._rows.digests(held)[0])
        base = segment * self._slots
        if len(held) < PURGED_SHARE * min(int(self._limits[segment]), int(self._counts[segment])):
            self._wipe(base)
            self._put(held, hashes, self._homes(hashes))
            self._counts[segment] = len(held)
            return
        depth = self._depths[segment]
        if depth >= _DEPTH_MAX:
            raise OverflowError("one shard has too many ids with like digests: use more shards")
        if depth == self._depth:
            self._directory = np.repeat(self._directory, 2)
            self._depth += 1
        new = len(self._depths)
        self._reserve_slots((new + 1) * self._slots)
        self._wipe(base)
        ours = np.flatnonzero(self._directory == base)  # neighbours, a power of two of them
        self._directory[ours[len(ours) // 2 :]] = new * self._slots
        self._depths[segment] = depth + 1
        self._depths.append(depth + 1)
        self._limits = np.append(self._limits, self._limit(new))
        at = self._homes(hashes)
        moved = int(np.count_nonzero(at >= new * self._slots))
        self._counts[segment] = len(held) - moved
        self._counts = np.append(self._counts, moved)
        self._put(held, hashes, at)

    def _wipe(self, base: int) -> None:
        for half in (self._low, self._high):
            half.array[base : base + self._slots] = 0

    def _put(self, words: U64, hashes: U64, at: I64) -> None:
        """Puts words of different ids into free places, probing from ``at``; these end as their places."""
        steps = self._steps(hashes)
        todo: npt.NDArray[np.int64] = np.arange(len(words))
        while todo.size:  # who wins a place does not matter
            here = at[todo]
            free = np.flatnonzero(self._words(here) == 0)
            self._write(here[free], words[todo[free]])
            left = self._words(here) != words[todo]
            todo = todo[left]
            at[todo] = self._next(here[left], steps[todo])
