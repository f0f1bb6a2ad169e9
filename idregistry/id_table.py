"""The ids of one shard: digest -> (state, token, kind, tag, generation, event time), in flat tables per time bucket.

A bucket holds its rows densely in one packed array (35 bytes a row) and finds them through an open-addressing index
of 32-bit row numbers (linear probing, 6 to 12 bytes a row). Whole batches are probed at once with numpy. Generations
are nearly always 0 and live in a small dict aside. Rows are only appended or changed in place; collection rebuilds or
drops whole buckets, so dropping a day does not mean scanning every id.

The bucket of an id follows from its event time, which is a pure function of the event: one digest always comes with
one time. The index hashes by the digest's *first* eight bytes, shards are chosen by its *last* eight (``sharding``):
were it the same ones, all ids of a shard would crowd into a fraction of the index.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from photon.idregistry.api import DIGEST_BYTES, I64, U8, U32, U64

Bools = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.void]

ABSENT, OWNED, CLEARED, REOPENED = range(4)
"""States of an id. ABSENT is never stored."""

BUCKET_BITS = 43
"""Event times that differ only in their low 43 bits (2.4 hours of nanoseconds) share a bucket."""
MAX_BUCKET_BITS = 48  # what a row has room for
MAX_BUCKET_ROWS = 2**32 - 2
_LOAD_MAX = 0.66  # beyond it, linear probing takes too many rounds
_STATE_MASK = 3
_KIND_SHIFT = 2

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


@dataclass(frozen=True, slots=True)
class Entries:
    """What n ids of a batch met in the table, each as left by the rows before it. Columns of n."""

    states: U8
    tokens: U64
    kinds: U8
    tags: U32
    added: Bools  # this row was absent and is now stored as owned


@dataclass(frozen=True, slots=True)
class Entry:
    """One id's entry."""

    state: int
    token: int
    kind: int
    tag: int
    generation: int


def digest_columns(digests: bytes) -> tuple[U64, U64]:
    """First and last eight bytes of each digest, as little-endian numbers."""
    pairs = np.frombuffer(digests, dtype="<u8").reshape(-1, DIGEST_BYTES // 8)
    return np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])


class _Bucket:
    """The ids of one time bucket."""

    def __init__(self) -> None:
        self.rows: Rows = np.empty(0, dtype=ROW)
        self.count = 0
        self.cleared = 0
        self.generations: dict[int, int] = {}  # row -> generation, where it is not 0
        self.shared = False  # a snapshot reads these rows: copy before changing one in place
        self._index: U32 = np.zeros(8, dtype=np.uint32)  # row number + 1; 0 is empty

    # -- probing ------------------------------------------------------------------------------------------------
    def find(self, lo: U64, hi: U64) -> I64:
        """Row number per id, -1 where absent."""
        return self._probe(lo, hi)[0]

    def _home(self, lo: U64) -> I64:
        """Where each id's probing starts in the index."""
        return (lo & np.uint64(len(self._index) - 1)).astype(np.int64)

    def _probe(self, lo: U64, hi: U64) -> tuple[I64, I64]:
        """(row number or -1, place in the index) per id; where absent, the place is the free one that ended it."""
        found = np.full(len(lo), -1, dtype=np.int64)
        mask = len(self._index) - 1
        at = self._home(lo)
        todo = np.arange(len(lo))
        row_lo, row_hi = self.rows["lo"], self.rows["hi"]
        while todo.size:
            row = self._index[at[todo]].astype(np.int64) - 1
            met = row >= 0
            todo, row = todo[met], row[met]
            same = row_lo[row] == lo[todo]
            if same.any():
                same &= row_hi[row] == hi[todo]
                found[todo[same]] = row[same]
                todo = todo[~same]
            at[todo] = (at[todo] + 1) & mask
        return found, at

    def find_or_add(self, lo: U64, hi: U64, may_add: Bools) -> tuple[I64, I64]:
        """(row per id or -1, positions added). An id twice in the batch is added once, for its first position.

        The rows added are the bucket's last ones, in the order of the positions, and hold only their digest yet.
        """
        found, at = self._probe(lo, hi)
        new = np.flatnonzero((found < 0) & may_add)
        if not new.size:
            return found, new
        start = self.count
        new_lo, new_hi, at = lo[new], hi[new], at[new]
        if self._reserve(start + new.size):
            at = self._home(new_lo)
        tail = self.rows[start : start + new.size]
        tail["lo"], tail["hi"] = new_lo, new_hi
        first = self._claim(start, new_lo, new_hi, at)
        won = np.flatnonzero(first == np.arange(new.size))
        if won.size < new.size:  # the same id twice in this batch: close the holes
            tail[: won.size] = tail[won]
            self._index[at[won]] = (start + 1 + np.arange(won.size)).astype(np.uint32)
            dense = np.zeros(new.size, dtype=np.int64)
            dense[won] = np.arange(won.size)
            first = dense[first]
        found[new] = start + first
        self.count = start + won.size
        added = new[won]
        behind = np.flatnonzero(found < 0)  # not to be added, but maybe behind an equal one that was
        if behind.size:
            again = self.find(lo[behind], hi[behind])
            hit = again >= 0
            behind, again = behind[hit], again[hit]
            after = added[again - start] < behind
            found[behind[after]] = again[after]
        return found, added

    def _claim(self, start: int, lo: U64, hi: U64, at: I64) -> I64:
        """Enters absent ids into the index, id i as row start + i; their digests stand there already.

        ``at`` says where probing goes on, and ends as each id's place. Returns per id the first one equal to it.
        """
        mask = len(self._index) - 1
        first = np.arange(len(lo))
        todo = np.arange(len(lo))
        row_lo, row_hi = self.rows["lo"], self.rows["hi"]
        while todo.size:
            free = todo[self._index[at[todo]] == 0]
            if free.size:
                # Explicit first-of-each: numpy promises no order when one element is assigned twice, and the
                # winner must be the same on every replica.
                places, which = np.unique(at[free], return_index=True)
                self._index[places] = (start + 1 + free[which]).astype(np.uint32)
            row = self._index[at[todo]].astype(np.int64) - 1
            same = (row_lo[row] == lo[todo]) & (row_hi[row] == hi[todo])
            first[todo[same]] = row[same] - start
            todo = todo[~same]
            at[todo] = (at[todo] + 1) & mask
        return first

    def _reserve(self, rows: int) -> bool:
        """Room for so many rows and their index; whether the index was built anew."""
        if rows > MAX_BUCKET_ROWS:
            raise OverflowError(f"more than {MAX_BUCKET_ROWS} ids in one time bucket: use more shards")
        if rows > len(self.rows):
            grown = np.empty(max(rows, len(self.rows) + len(self.rows) // 2, 16), dtype=ROW)
            grown[: self.count] = self.rows[: self.count]
            self.rows = grown
            self.shared = False  # a snapshot keeps the old array
        if rows <= len(self._index) * _LOAD_MAX:
            return False
        self._rebuild_index(rows)
        return True

    def _rebuild_index(self, rows: int) -> None:
        size = len(self._index)
        while rows > size * _LOAD_MAX:
            size *= 2
        self._index = np.zeros(size, dtype=np.uint32)
        mask = size - 1
        at = (self.rows["lo"][: self.count] & np.uint64(mask)).astype(np.int64)
        number = np.arange(1, self.count + 1, dtype=np.uint32)
        while number.size:  # all are distinct: who wins a place does not matter
            free = self._index[at] == 0
            self._index[at[free]] = number[free]
            left = self._index[at] != number
            number, at = number[left], (at[left] + 1) & mask

    # -- rows ---------------------------------------------------------------------------------------------------
    def write(self, at: I64 | slice, times: I64, tokens: U64, kinds: U8, tags: U32, state: int) -> None:
        """Fills the columns beside the digest. ``times`` are relative to the bucket's start."""
        rows = self.rows
        rows["token"][at], rows["tag"][at] = tokens, tags
        rows["time_low"][at], rows["time_high"][at] = times & 0xFFFFFFFF, times >> 32
        rows["what"][at] = (kinds << _KIND_SHIFT) | state

    def entries(self, found: I64) -> Entries:
        """The entries of rows found; row -1 is ABSENT."""
        if not self.count:
            n = len(found)
            zeros = np.zeros(n, np.uint8)
            return Entries(zeros, np.zeros(n, np.uint64), zeros, np.zeros(n, np.uint32), np.zeros(n, np.bool_))
        present = found >= 0
        rows = self.rows[np.where(present, found, 0)]
        what = np.where(present, rows["what"], 0).astype(np.uint8)
        return Entries(
            what & np.uint8(_STATE_MASK),
            np.where(present, rows["token"], 0).astype(np.uint64),
            what >> np.uint8(_KIND_SHIFT),
            np.where(present, rows["tag"], 0).astype(np.uint32),
            np.zeros(len(found), np.bool_),
        )

    def own_rows(self) -> None:
        """Before a change in place: leave a snapshot's rows alone."""
        if self.shared:
            self.rows = self.rows.copy()
            self.shared = False

    def without_cleared(self) -> _Bucket:
        """A bucket of the owned and reopened ids only, in the same order."""
        rows = self.rows[: self.count]
        kept = np.flatnonzero((rows["what"] & _STATE_MASK) != CLEARED)
        new_row = {int(old): new for new, old in enumerate(kept)} if self.generations else {}
        generations = {new_row[row]: g for row, g in self.generations.items() if row in new_row}
        return _Bucket.of(rows[kept], generations)

    @staticmethod
    def of(rows: Rows, generations: dict[int, int]) -> _Bucket:
        """A bucket with these rows."""
        bucket = _Bucket()
        bucket.rows, bucket.count, bucket.generations = rows, len(rows), generations
        bucket.cleared = int(np.count_nonzero((rows["what"] & _STATE_MASK) == CLEARED))
        bucket._rebuild_index(len(rows))
        return bucket

    @property
    def resident_bytes(self) -> int:
        return self.count * ROW.itemsize + self._index.nbytes


@dataclass(frozen=True, slots=True)
class BucketRows:
    """A bucket as a snapshot carries it."""

    number: int
    rows: Rows
    generations: dict[int, int]


class IdTable:
    """The ids of one shard. Not thread-safe. All batch columns are aligned; digests come as two u64 columns."""

    def __init__(self, bucket_bits: int = BUCKET_BITS) -> None:
        if not 0 < bucket_bits <= MAX_BUCKET_BITS:
            raise ValueError(f"bucket_bits {bucket_bits} is not within 1 and {MAX_BUCKET_BITS}")
        self.bucket_bits = bucket_bits
        self._buckets: dict[int, _Bucket] = {}

    def __len__(self) -> int:
        return sum(bucket.count for bucket in self._buckets.values())

    @property
    def resident_bytes(self) -> int:
        """Bytes of rows and indexes."""
        return sum(bucket.resident_bytes for bucket in self._buckets.values())

    @property
    def buckets(self) -> int:
        return len(self._buckets)

    def _groups(self, times: I64) -> Iterator[tuple[int, I64 | slice]]:
        """(bucket number, positions) of a batch; positions keep the batch's order."""
        if not len(times):
            return
        numbers = times >> self.bucket_bits
        if numbers[0] == numbers[-1] and (numbers == numbers[0]).all():
            yield int(numbers[0]), slice(None)
            return
        order = np.argsort(numbers, kind="stable")
        ends = np.flatnonzero(np.diff(numbers[order])) + 1
        for part in np.split(order, ends):
            yield int(numbers[part[0]]), part

    def add(
        self, lo: U64, hi: U64, times: I64, tokens: U64, kinds: U8, tags: U32, generations: U32 | None, may_add: Bools
    ) -> Entries:
        """Stores the absent ids among those that may be added, the first of equals; says what each row met."""
        out = _empty_entries(len(lo))
        for number, at in self._groups(times):
            bucket = self._buckets.get(number)
            if bucket is None:
                if not may_add[at].any():
                    continue
                bucket = self._buckets[number] = _Bucket()
            group_lo = lo[at]
            found, added = bucket.find_or_add(group_lo, hi[at], may_add[at])
            rows = slice(bucket.count - added.size, bucket.count)
            base = number << self.bucket_bits
            bucket.write(rows, (times[at] - base)[added], tokens[at][added], kinds[at][added], tags[at][added], OWNED)
            if generations is not None and generations[at].any():
                for row, generation in zip(found[added].tolist(), generations[at][added].tolist(), strict=True):
                    if generation:
                        bucket.generations[row] = generation
            _scatter(out, at, bucket.entries(found), added)
        return out

    def look_up(self, lo: U64, hi: U64, times: I64) -> Entries:
        """What each id's entry is."""
        out = _empty_entries(len(lo))
        for number, at in self._groups(times):
            bucket = self._buckets.get(number)
            if bucket is not None:
                _scatter(out, at, bucket.entries(bucket.find(lo[at], hi[at])), None)
        return out

    def clear(self, lo: U64, hi: U64, times: I64, tokens: U64) -> Entries:
        """Owned ids whose token equals become cleared; says what each row met."""
        out = _empty_entries(len(lo))
        for number, at in self._groups(times):
            bucket = self._buckets.get(number)
            if bucket is None:
                continue
            found = bucket.find(lo[at], hi[at])
            met = bucket.entries(found)
            owned = met.states == OWNED
            hits = owned & (met.tokens == tokens[at])
            rows, first = np.unique(found[hits], return_index=True)
            if rows.size:
                bucket.own_rows()
                bucket.rows["what"][rows] = (bucket.rows["what"][rows] & ~np.uint8(_STATE_MASK)) | CLEARED
                bucket.cleared += rows.size
                by = np.flatnonzero(hits)[first]
                met.states[hits] = CLEARED
                met.states[by] = OWNED
                cleared_at = dict(zip(rows.tolist(), by.tolist(), strict=True))
                for i in np.flatnonzero(owned & ~hits).tolist():  # rare: another token, maybe after the right one
                    if cleared_at.get(int(found[i]), i) < i:
                        met.states[i] = CLEARED
            _scatter(out, at, met, None)
        return out

    # -- one id: the rare path ----------------------------------------------------------------------------------
    def get(self, digest: bytes, time: int) -> Entry | None:
        """One id's entry."""
        bucket = self._buckets.get(time >> self.bucket_bits)
        if bucket is None:
            return None
        row = int(bucket.find(*digest_columns(digest))[0])
        if row < 0:
            return None
        _, _, token, tag, _, _, what = bucket.rows[row].tolist()
        return Entry(what & _STATE_MASK, token, what >> _KIND_SHIFT, tag, bucket.generations.get(row, 0))

    def put(self, digest: bytes, time: int, entry: Entry) -> None:
        """Stores or replaces one id's entry."""
        number = time >> self.bucket_bits
        bucket = self._buckets.setdefault(number, _Bucket())
        found, added = bucket.find_or_add(*digest_columns(digest), np.ones(1, np.bool_))
        row = int(found[0])
        bucket.own_rows()
        was_cleared = not added.size and int(bucket.rows["what"][row]) & _STATE_MASK == CLEARED
        bucket.cleared += int(entry.state == CLEARED) - int(was_cleared)
        one = np.array([row])
        bucket.write(
            one,
            np.array([time - (number << self.bucket_bits)]),
            np.array([entry.token], np.uint64),
            np.array([entry.kind], np.uint8),
            np.array([entry.tag], np.uint32),
            entry.state,
        )
        bucket.generations.pop(row, None)
        if entry.generation:
            bucket.generations[row] = entry.generation

    # -- collection and snapshots -------------------------------------------------------------------------------
    def collect(self, boundary: int) -> int:
        """Drops the cleared ids of the buckets that lie wholly below; the number dropped.

        Touches only those buckets that hold a cleared id. Owned and reopened ids stay (rule 9).
        """
        dropped = 0
        for number in sorted(self._buckets):
            if (number + 1) << self.bucket_bits > boundary:
                break
            bucket = self._buckets[number]
            dropped += bucket.cleared
            if bucket.cleared == bucket.count:
                del self._buckets[number]
            elif bucket.cleared:
                self._buckets[number] = bucket.without_cleared()
        return dropped

    def freeze(self) -> list[BucketRows]:
        """A consistent view for a snapshot, free of charge: rows are copied only when one is changed later."""
        out = []
        for number in sorted(self._buckets):
            bucket = self._buckets[number]
            bucket.shared = True
            out.append(BucketRows(number, bucket.rows[: bucket.count], dict(bucket.generations)))
        return out

    @classmethod
    def thaw(cls, buckets: Iterable[BucketRows], bucket_bits: int = BUCKET_BITS) -> IdTable:
        """The table that ``freeze`` saw."""
        table = cls(bucket_bits)
        for each in buckets:
            table._buckets[each.number] = _Bucket.of(each.rows, each.generations)
        return table


def _empty_entries(n: int) -> Entries:
    return Entries(
        np.zeros(n, np.uint8),
        np.zeros(n, np.uint64),
        np.zeros(n, np.uint8),
        np.zeros(n, np.uint32),
        np.zeros(n, np.bool_),
    )


def _scatter(out: Entries, at: Any, met: Entries, added: I64 | None) -> None:
    """Puts a bucket's part of a batch into place; added rows met nothing."""
    states = met.states
    if added is not None and added.size:
        states[added] = ABSENT
        met.added[added] = True
    out.states[at], out.tokens[at], out.kinds[at], out.tags[at] = states, met.tokens, met.kinds, met.tags
    out.added[at] = met.added
