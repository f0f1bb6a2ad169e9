"""The ids of one shard: digest -> (state, token, kind, tag, generation, event time), in flat tables per time bucket.

A bucket (``id_bucket``) holds its rows densely in one packed array (35 bytes a row) and finds them through an index
of 32-bit row numbers (``row_index``, some 7 bytes a row). Whole batches are probed at once with numpy. Generations
are nearly always 0 and live in a small dict aside. Rows are only appended or changed in place; collection rebuilds or
drops whole buckets, so dropping a day does not mean scanning every id. Nothing here takes longer the more ids there
are: arrays grow without being copied, the index in small steps.

The bucket of an id follows from its event time, which is a pure function of the event: one digest always comes with
one time. The index hashes by the digest's *first* eight bytes, shards are chosen by its *last* eight (``sharding``):
were it the same ones, all ids of a shard would crowd into a fraction of the index.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from photon.idregistry.api import DIGEST_BYTES, I64, U8, U32, U64
from photon.idregistry.id_bucket import (
    ABSENT,
    CLEARED,
    KIND_SHIFT,
    OWNED,
    REOPENED,
    ROW,
    STATE_MASK,
    Bools,
    Bucket,
    Entries,
    FrozenBucket,
    Rows,
)

__all__ = [
    "ABSENT",
    "CLEARED",
    "OWNED",
    "REOPENED",
    "ROW",
    "BucketRows",
    "Entries",
    "Entry",
    "FrozenBucket",
    "IdTable",
    "Rows",
]

BUCKET_BITS = 43
"""Event times that differ only in their low 43 bits (2.4 hours of nanoseconds) share a bucket."""
MAX_BUCKET_BITS = 48  # what a row has room for
_LOAD_ROWS = 16_384


@dataclass(frozen=True, slots=True)
class Entry:
    """One id's entry."""

    state: int
    token: int
    kind: int
    tag: int
    generation: int


@dataclass(frozen=True, slots=True)
class BucketRows:
    """A bucket as it is now: to be looked at, not to be kept."""

    number: int
    rows: Rows
    generations: dict[int, int]


def digest_columns(digests: bytes) -> tuple[U64, U64]:
    """First and last eight bytes of each digest, as little-endian numbers."""
    pairs = np.frombuffer(digests, dtype="<u8").reshape(-1, DIGEST_BYTES // 8)
    return np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])


class IdTable:
    """The ids of one shard. Not thread-safe. All batch columns are aligned; digests come as two u64 columns."""

    def __init__(self, bucket_bits: int = BUCKET_BITS) -> None:
        if not 0 < bucket_bits <= MAX_BUCKET_BITS:
            raise ValueError(f"bucket_bits {bucket_bits} is not within 1 and {MAX_BUCKET_BITS}")
        self.bucket_bits = bucket_bits
        self._buckets: dict[int, Bucket] = {}

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
                bucket = self._buckets[number] = Bucket(number)
            group_lo = lo[at]
            found, added = bucket.find_or_add(group_lo, hi[at], may_add[at])
            rows = slice(bucket.count - added.size, bucket.count)
            base = number << self.bucket_bits
            bucket.write(rows, (times[at] - base)[added], tokens[at][added], kinds[at][added], tags[at][added], OWNED)
            if generations is not None and generations[at].any():
                for row, generation in zip(found[added].tolist(), generations[at][added].tolist(), strict=True):
                    if generation:
                        bucket.generations[row] = generation
            bucket.appended(rows.start)
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
                bucket.clear(rows)
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
        return Entry(what & STATE_MASK, token, what >> KIND_SHIFT, tag, bucket.generations.get(row, 0))

    def put(self, digest: bytes, time: int, entry: Entry) -> None:
        """Stores or replaces one id's entry."""
        number = time >> self.bucket_bits
        bucket = self._buckets.setdefault(number, Bucket(number))
        found, added = bucket.find_or_add(*digest_columns(digest), np.ones(1, np.bool_))
        row = int(found[0])
        one = np.array([row])
        if not added.size:
            bucket.change(one)
        was_cleared = not added.size and int(bucket.rows["what"][row]) & STATE_MASK == CLEARED
        bucket.cleared += int(entry.state == CLEARED) - int(was_cleared)
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
        bucket.changed(one)

    # -- scans ----------------------------------------------------------------------------------------------------
    def bucket_numbers(self) -> list[int]:
        """Ascending."""
        return sorted(self._buckets)

    def bucket_rows(self, number: int) -> Rows:
        """Of one of them, to be read at once; none when it is there no more."""
        bucket = self._buckets.get(number)
        return np.zeros(0, ROW) if bucket is None else bucket.rows[: bucket.count]

    def bucket(self, number: int) -> Bucket:
        """One of them. Its rows keep their order until a collection."""
        return self._buckets[number]

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

    def freeze(self) -> list[FrozenBucket]:
        """A consistent view for a snapshot, free of charge: what is changed before it was read is remembered."""
        return [self._buckets[number].freeze() for number in sorted(self._buckets)]

    def load(self, number: int, rows: Rows) -> None:
        """Takes rows of a snapshot, each id once."""
        self._buckets.setdefault(number, Bucket(number)).load(rows)

    def load_generations(self, number: int, pairs: Iterable[tuple[int, int]]) -> None:
        """Takes (row, generation) of a snapshot, after the rows. Raises ValueError for rows that are not there."""
        self._buckets.setdefault(number, Bucket(number)).set_generations(pairs)

    @classmethod
    def thaw(cls, buckets: Iterable[FrozenBucket], bucket_bits: int = BUCKET_BITS) -> IdTable:
        """The table that ``freeze`` saw."""
        table = cls(bucket_bits)
        for each in buckets:
            while each.position < each.count:
                table.load(each.number, each.read(_LOAD_ROWS))
            table.load_generations(each.number, each.generations.items())
        return table

    # -- sums ---------------------------------------------------------------------------------------------------
    def sum(self) -> int:
        """Of the hashes of all entries, modulo 2**64: equal for equal tables, in whatever order they were filled."""
        return sum(bucket.sum for bucket in self._buckets.values()) % 2**64

    def blocks(self) -> list[tuple[int, int]]:
        """(bucket, block) of all rows, for ``adds_up``."""
        return [(number, block) for number in sorted(self._buckets) for block in range(self._buckets[number].blocks)]

    def adds_up(self, number: int, block: int) -> bool:
        """Whether some tens of thousands of rows are still what was written; a bucket that is gone is."""
        bucket = self._buckets.get(number)
        return bucket is None or block >= bucket.blocks or bucket.adds_up(block)


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
