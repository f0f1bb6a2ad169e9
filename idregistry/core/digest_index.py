"""Finds the row of a digest among all rows of a shard: open addressing over 48-bit words, in segments that split.

A word holds its row's place and 11 bits of the digest's second half, so nearly every row read is the right one.
Places come in groups of GROUP, which fill from the front. A whole group is compared at once, and only from a full one
does probing go on to the next (double hashing within the segment), so a batch takes only a few steps. The first
segment doubles up to SEGMENT_SLOTS places. Later, segments split in two by the top bits of the hash (extendible
hashing), and a directory maps these bits to segments. So each growth moves some 20,000 words in a few milliseconds,
regardless of their total. Segments split at different loads; otherwise all of them would split at once.

Rows are stored in chunks and removed by whole chunks. Words of removed rows match nothing, and are purged when their
segment is full.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from photon.idregistry.api import I64, U64
from photon.idregistry.core.growing_array import GrowingArray

Bools = npt.NDArray[np.bool_]
U16 = npt.NDArray[np.uint16]

CHUNK_BITS = 20
CHUNK_ROWS = 1 << CHUNK_BITS
_NUMBER_BITS = 16
# Limit of chunk numbers. A bucket of 2.4 hours takes one per million ids: they last for 18 years of small buckets.
CHUNKS_MAX = 1 << _NUMBER_BITS
GROUP = 16
SEGMENT_SLOTS = 1 << 15
# A segment splits (or doubles, while it is small) at a load between these: about 11 bytes per row on average.
LOAD_LOW, LOAD_HIGH = 0.70, 0.88
# A full segment splits unless removing the words of deleted rows brings it below this share of its limit.
PURGED_SHARE = 0.75
_DEPTH_MAX = 28
FEW = 16  # up to this many words are put one by one: numpy's calls would cost more than they save
_GROUP_SHIFT = np.uint64(18)
_MIX = np.uint64(0x9E3779B97F4A7C15)
_32 = np.uint64(32)
_LOW_MASK = np.uint64(0xFFFFFFFF)
# The bits of a word's upper half that come from the digest. The lowest is always set: no upper half is 0.
_LIKE_MASK = np.uint64(0xFFF0)
_LIKE = np.uint64(0x10)
_CHUNK_SHIFT = np.uint64(CHUNK_BITS)
_ROW_MASK = np.uint64(CHUNK_ROWS - 1)
_NUMBER_MASK = np.uint64(CHUNKS_MAX - 1)


def words_of(hi: U64, chunk: int, rows: I64) -> U64:
    return (hi & _LIKE_MASK | _LIKE) << _32 | np.uint64(chunk << CHUNK_BITS) | rows.view(np.uint64)


def places_in(words: U64) -> tuple[I64, I64]:
    """Returns (number of the chunk, row within it) of each word."""
    chunks, rows = (words >> _CHUNK_SHIFT) & _NUMBER_MASK, words & _ROW_MASK
    return chunks.view(np.int64), rows.view(np.int64)


def hashes_of(lo: U64) -> U64:
    """Returns one hash per id. The top bits choose the segment, others the group, the lowest the step."""
    return (lo ^ (lo >> _32)) * _MIX


class RowsOfWords(Protocol):
    def living(self, words: U64) -> Bools:
        """True for words whose chunk still exists."""

    def digests(self, words: U64) -> tuple[U64, U64]:
        """Returns the first and last eight bytes of the digest of each living row."""


class DigestIndex:
    """Finds words by digest; the digests themselves stay in the rows. 0 is never a word.

    Group numbers run through all segments.
    """

    def __init__(self, rows: RowsOfWords) -> None:
        self._rows = rows
        self._groups = 1  # groups of each segment
        self._low, self._high = GrowingArray(np.uint32), GrowingArray(np.uint16)
        self._depth = 0
        self._directory: I64 = np.zeros(1, np.int64)  # top bits of the hash -> first group of its segment
        self._counts: I64 = np.zeros(1, np.int64)  # by segment
        self._depths: list[int] = [0]
        self._limits: I64 = np.array([self._limit(0)])
        self._reserve_places()

    @property
    def nbytes(self) -> int:
        """Bytes that the places in use take."""
        return len(self._depths) * self._groups * GROUP * 6

    # -- batches ------------------------------------------------------------------------------------------------
    def find(self, lo: U64, hi: U64) -> U64:
        """Returns the word of each id; 0 for an absent id."""
        return self.probe(lo, hi, hashes_of(lo))[0]

    def probe(self, lo: U64, hi: U64, hashes: U64) -> tuple[U64, I64]:
        """Returns (each id's word or 0, the group where its probing ended). An absent id's group has room."""
        found = np.zeros(len(lo), np.uint64)
        todo: I64 = np.arange(len(lo))
        at, steps = self._homes(hashes), self._steps(hashes)
        like = (hi & _LIKE_MASK | _LIKE).astype(np.uint16)[:, None]
        heads = self._heads
        while todo.size:
            here = heads[at[todo]]
            left = here[:, -1] != 0
            nth, place = (here & np.uint16(_LIKE_MASK) == like[todo]).nonzero()
            if nth.size:
                self._compare(lo, hi, todo[nth], at[todo[nth]] * GROUP + place, found)
                left &= found[todo] == 0
            todo = todo[left]
            at[todo] = self._next(at[todo], steps[todo])
        return found, at

    def enter(self, words: U64, hashes: U64, at: I64 | None = None) -> None:
        """Enters words of new ids, all different. ``at``: the groups that ``probe`` returned; may be modified."""
        if self._reserve(hashes) or at is None:
            at = self._homes(hashes)
        self._put(words, hashes, at)
        if self._depth:
            self._counts += np.bincount(at // self._groups, minlength=len(self._counts))
        else:
            self._counts[0] += len(words)

    # -- inside -------------------------------------------------------------------------------------------------
    def _compare(self, lo: U64, hi: U64, ids: I64, places: I64, found: U64) -> None:
        """Stores the word at each place in ``found`` if its row has the id's digest."""
        words = self._words(places)
        living = self._rows.living(words)
        words, ids = words[living], ids[living]
        row_lo, row_hi = self._rows.digests(words)
        hit = (row_lo == lo[ids]) & (row_hi == hi[ids])
        found[ids[hit]] = words[hit]

    def _words(self, at: I64 | slice) -> U64:
        words: U64 = self._high.array[at].astype(np.uint64) << _32
        words |= self._low.array[at]
        return words

    @property
    def _heads(self) -> U16:
        return self._high.array[: len(self._depths) * self._groups * GROUP].reshape(-1, GROUP)

    def _reserve_places(self) -> None:
        places = len(self._depths) * self._groups * GROUP
        self._low.reserve(places)
        self._high.reserve(places)

    def _homes(self, hashes: U64) -> I64:
        """Returns the group where the probing of each id starts."""
        at = ((hashes >> _GROUP_SHIFT) & np.uint64(self._groups - 1)).astype(np.int64)
        if self._depth:
            at += self._directory[(hashes >> np.uint64(64 - self._depth)).astype(np.int64)]
        return at

    def _steps(self, hashes: U64) -> I64:
        """Returns each id's probing step, in groups; odd, so that probing reaches every group of a segment."""
        return ((hashes & np.uint64(self._groups - 1)) | np.uint64(1)).astype(np.int64)

    def _next(self, at: I64, steps: I64) -> I64:
        mask = self._groups - 1
        return (at & ~mask) | ((at + steps) & mask)

    def _reserve(self, hashes: U64) -> bool:
        """Makes room for more ids; returns True if this moved words."""
        moved = False
        while True:
            if not self._depth and self._counts[0] + len(hashes) <= self._limits[0]:
                return moved
            segments = self._homes(hashes) // self._groups
            full = np.flatnonzero(self._counts + np.bincount(segments, minlength=len(self._counts)) > self._limits)
            if not full.size:
                return moved
            moved = True
            if self._depth == 0 and self._groups * GROUP < SEGMENT_SLOTS:
                self._double(len(hashes))
                continue
            for segment in full.tolist():
                self._purge_or_split(segment)

    def _limit(self, segment: int) -> int:
        spread = (segment * 0.6180339887) % 1.0
        return int(self._groups * GROUP * (LOAD_LOW + (LOAD_HIGH - LOAD_LOW) * spread))

    def _held(self, segment: int) -> U64:
        """Returns the words of a segment whose rows still exist."""
        places = self._groups * GROUP
        words = self._words(slice(segment * places, (segment + 1) * places))
        words = words[words > 0]
        return words[self._rows.living(words)]

    def _double(self, more: int) -> None:
        """Doubles the only segment, up to its full size, until ``more`` words fit."""
        held = self._held(0)
        while self._groups * GROUP < SEGMENT_SLOTS and len(held) + more > self._limit(0):
            self._groups *= 2
        self._low, self._high = GrowingArray(np.uint32), GrowingArray(np.uint16)
        self._reserve_places()
        self._limits = np.array([self._limit(0)])
        hashes = hashes_of(self._rows.digests(held)[0])
        self._put(held, hashes, self._homes(hashes))
        self._counts[0] = len(held)

    def _purge_or_split(self, segment: int) -> None:
        held = self._held(segment)
        hashes = hashes_of(self._rows.digests(held)[0])
        first = segment * self._groups
        if len(held) < PURGED_SHARE * min(int(self._limits[segment]), int(self._counts[segment])):
            self._wipe(segment)
            self._put(held, hashes, self._homes(hashes))
            self._counts[segment] = len(held)
            return
        depth = self._depths[segment]
        if depth >= _DEPTH_MAX:
            raise OverflowError("one shard has too many ids with similar digests: use more shards")
        if depth == self._depth:
            self._directory = np.repeat(self._directory, 2)
            self._depth += 1
        new = len(self._depths)
        self._depths[segment] = depth + 1
        self._depths.append(depth + 1)
        self._reserve_places()
        self._wipe(segment)
        ours = np.flatnonzero(self._directory == first)  # neighbours, a power of two of them
        self._directory[ours[len(ours) // 2 :]] = new * self._groups
        self._limits = np.append(self._limits, self._limit(new))
        at = self._homes(hashes)
        moved = int(np.count_nonzero(at >= new * self._groups))
        self._counts[segment] = len(held) - moved
        self._counts = np.append(self._counts, moved)
        self._put(held, hashes, at)

    def _wipe(self, segment: int) -> None:
        places = self._groups * GROUP
        for half in (self._low, self._high):
            half.array[segment * places : (segment + 1) * places] = 0

    def _put(self, words: U64, hashes: U64, at: I64) -> None:
        """Puts words of different ids into groups with room, probing from ``at``, which then holds the
        final groups.
        """
        steps, heads = self._steps(hashes), self._heads
        if len(words) <= FEW:
            self._put_each(words, steps, at)
            return
        todo: I64 = np.arange(len(words))
        while todo.size:
            here = at[todo]
            place = np.count_nonzero(heads[here], axis=1)
            if todo.size > 1:  # several words may go to one group
                order = np.argsort(here, kind="stable")
                todo, here, place = todo[order], here[order], place[order]
                starts = np.flatnonzero(np.diff(here, prepend=-1))
                place += np.arange(todo.size) - np.repeat(starts, np.diff(starts, append=todo.size))
            fits = place < GROUP
            taken, given = (here * GROUP + place)[fits], words[todo[fits]]
            self._low.array[taken], self._high.array[taken] = given & _LOW_MASK, given >> _32
            todo = todo[~fits]
            at[todo] = self._next(at[todo], steps[todo])

    def _put_each(self, words: U64, steps: I64, at: I64) -> None:
        """Does the same as ``_put``, one word at a time."""
        heads, low, mask = self._heads, self._low.array, self._groups - 1
        for nth, (word, step) in enumerate(zip(words.tolist(), steps.tolist(), strict=True)):
            group = int(at[nth])
            while (place := int(np.count_nonzero(heads[group]))) == GROUP:
                group = (group & ~mask) | ((group + step) & mask)
            heads[group, place], low[group * GROUP + place] = word >> 32, word & 0xFFFFFFFF
            at[nth] = group
