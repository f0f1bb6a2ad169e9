"""The ids of one shard: digest -> (state, token, kind, tag, generation, event time), in flat tables per time bucket.

An id is found by its digest alone, regardless of its event time: one index of the whole shard (``digest_index``, some
11 bytes per id) gives its bucket and row. A bucket (``id_bucket``) holds its rows densely in one packed array (35
bytes per row); the event time of an id's first entry chooses the bucket. Whole batches are probed at once with numpy.
Generations are nearly always 0 and live in a separate small dict. Rows are only appended or changed in place;
collection rebuilds or drops whole buckets, so dropping a day does not scan every id. No operation slows down as ids
accumulate: arrays grow without being copied, the index in small steps.

The index hashes by the digest's *first* eight bytes, shards are chosen by its *last* eight (``sharding``): with the
same bytes for both, a shard's ids would fill only a fraction of the index.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from photon.idregistry.api import DIGEST_BYTES, I64, U8, U32, U64
from photon.idregistry.core.digest_index import (
    CHUNK_BITS,
    CHUNK_ROWS,
    CHUNKS_MAX,
    DigestIndex,
    hashes_of,
    places_in,
    words_of,
)
from photon.idregistry.core.id_bucket import (
    CLEARED,
    KIND_SHIFT,
    OWNED,
    ROW,
    STATE_MASK,
    Bools,
    Bucket,
    Entries,
    FrozenBucket,
    Rows,
    times_in,
)

BUCKET_BITS = 43  # event times that differ only in their low 43 bits (2.4 hours in nanoseconds) share a bucket
MAX_BUCKET_BITS = 48  # limit of a row's time field


@dataclass(frozen=True, slots=True)
class Entry:
    state: int
    token: int
    kind: int
    tag: int
    generation: int


def digest_columns(digests: bytes) -> tuple[U64, U64]:
    """Returns the first and last eight bytes of each digest, as little-endian numbers."""
    pairs = np.frombuffer(digests, dtype="<u8").reshape(-1, DIGEST_BYTES // 8)
    return np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])


class IdTable:
    """The ids of one shard. Not thread-safe. All batch columns are aligned; digests come as two u64 columns."""

    def __init__(self, bucket_bits: int = BUCKET_BITS) -> None:
        if not 0 < bucket_bits <= MAX_BUCKET_BITS:
            raise ValueError(f"bucket_bits {bucket_bits} is not from 1 to {MAX_BUCKET_BITS}")
        self.bucket_bits = bucket_bits
        self._buckets: dict[int, Bucket] = {}
        self._index = DigestIndex(self)
        # Bucket number -> the index's numbers of its first, second ... CHUNK_ROWS rows.
        self._chunks: dict[int, list[int]] = {}
        # (bucket, first row) by chunk; ``None`` means deleted. The first is never used, as a word of 0 means none.
        self._by_chunk: list[tuple[Bucket, int] | None] = [None]
        self._living: Bools = np.zeros(1, np.bool_)

    def __len__(self) -> int:
        return sum(bucket.count for bucket in self._buckets.values())

    @property
    def resident_bytes(self) -> int:
        return sum(bucket.resident_bytes for bucket in self._buckets.values()) + self._index.nbytes

    def add(
        self, lo: U64, hi: U64, times: I64, tokens: U64, kinds: U8, tags: U32, generations: U32 | None, may_add: Bools
    ) -> Entries:
        """Stores the ids that are absent and may be added, only the first of equal ones. Returns the entry that each
        row met.
        """
        self._make_room(2 * len(lo))
        hashes = hashes_of(lo)
        words, ends = self._index.probe(lo, hi, hashes)
        out = _empty_entries(len(lo))
        absent = np.flatnonzero(words == 0)
        first = _first_of_equals(lo[absent], hi[absent], may_add[absent])
        won = first == np.arange(absent.size)
        added = absent[won]
        if added.size:
            words[added] = self._append(lo, hi, times, tokens, kinds, tags, generations, added)
            self._index.enter(words[added], hashes[added], ends[added])
            behind = np.flatnonzero(~won & (first >= 0))
            words[absent[behind]] = words[absent[first[behind]]]
            words[added] = 0
            out.added[added] = True
            out.tokens[added], out.kinds[added], out.tags[added] = tokens[added], kinds[added], tags[added]
            out.times[added] = times[added]
        return self._entries(words, out)

    def look_up(self, lo: U64, hi: U64) -> Entries:
        return self._entries(self._index.find(lo, hi), _empty_entries(len(lo)))

    def clear(self, lo: U64, hi: U64, tokens: U64) -> Entries:
        """Marks owned ids with the same token as cleared; returns the entry that each row met."""
        if not len(lo):
            return _empty_entries(0)
        words = self._index.find(lo, hi)
        met = self._entries(words, _empty_entries(len(words)))
        owned = met.states == OWNED
        hits = np.flatnonzero(owned & (met.tokens == tokens))
        if not hits.size:
            return met
        cleared, first = np.unique(words[hits], return_index=True)
        for bucket, rows, _ in self._by_bucket(cleared):
            bucket.clear(rows)
        by = hits[first]
        met.states[hits] = CLEARED
        met.states[by] = OWNED
        others = np.flatnonzero(owned & (met.tokens != tokens))
        if others.size:  # rare: another token, perhaps in addition to the right one
            at = np.minimum(np.searchsorted(cleared, words[others]), cleared.size - 1)
            met.states[others[(cleared[at] == words[others]) & (by[at] < others)]] = CLEARED
        return met

    def holds(self, lo: U64, hi: U64, before_ns: int) -> Bools:
        """True for ids with an entry; all False if the table has no bucket that starts before ``before_ns``."""
        if not any(number << self.bucket_bits < before_ns for number in self._buckets):
            return np.zeros(len(lo), np.bool_)
        held: Bools = self._index.find(lo, hi) != 0
        return held

    # -- one id: the rare path ----------------------------------------------------------------------------------
    def get(self, digest: bytes) -> Entry | None:
        word = self._index.find(*digest_columns(digest))
        if not word[0]:
            return None
        bucket, row = self._place(word)
        _, _, token, tag, _, _, what = bucket.rows[row].tolist()
        return Entry(what & STATE_MASK, token, what >> KIND_SHIFT, tag, bucket.generations.get(row, 0))

    def put(self, digest: bytes, time: int, entry: Entry) -> None:
        """Stores or replaces one id's entry. The id keeps the event time of its first entry."""
        lo, hi = digest_columns(digest)
        word = self._index.find(lo, hi)
        one = np.zeros(1, np.int64)
        columns = (
            np.array([entry.token], np.uint64),
            np.array([entry.kind], np.uint8),
            np.array([entry.tag], np.uint32),
        )
        if not word[0]:
            self._make_room(2)
            word = self._append(lo, hi, np.array([time]), *columns, None, one)
            self._index.enter(word, hashes_of(lo))
        bucket, row = self._place(word)
        at = np.array([row])
        bucket.change(at)
        was_cleared = int(bucket.rows["what"][row]) & STATE_MASK == CLEARED
        bucket.cleared += int(entry.state == CLEARED) - int(was_cleared)
        bucket.write(at, times_in(bucket.rows[at]), *columns, entry.state)
        bucket.generations.pop(row, None)
        if entry.generation:
            bucket.generations[row] = entry.generation
        bucket.changed(at)

    # -- rows by word -------------------------------------------------------------------------------------------
    def living(self, words: U64) -> Bools:
        living: Bools = self._living[places_in(words)[0]]
        return living

    def digests(self, words: U64) -> tuple[U64, U64]:
        lo, hi = np.empty(len(words), np.uint64), np.empty(len(words), np.uint64)
        for bucket, rows, at in self._by_bucket(words):
            lo[at], hi[at] = bucket.rows["lo"][rows], bucket.rows["hi"][rows]
        return lo, hi

    def _by_bucket(self, words: U64) -> Iterator[tuple[Bucket, I64, I64 | slice]]:
        """Yields (bucket, rows in it, positions in ``words``) of living words, chunk by chunk."""
        chunks, rows = places_in(words)
        for chunk, at in _groups(chunks):
            known = self._by_chunk[chunk]
            if known is None:
                raise AssertionError("a word points to a deleted bucket")
            bucket, first = known
            yield bucket, rows[at] + first, at

    def _place(self, word: U64) -> tuple[Bucket, int]:
        (bucket, rows, _) = next(self._by_bucket(word))
        return bucket, int(rows[0])

    def _entries(self, words: U64, out: Entries) -> Entries:
        """Fills ``out`` with the entries of words; a word of 0 has none."""
        present = np.flatnonzero(words)
        if not present.size:
            return out
        for bucket, found, part in self._by_bucket(words[present]):
            at = present[part]
            rows = bucket.rows[found]
            out.states[at], out.kinds[at] = rows["what"] & STATE_MASK, rows["what"] >> KIND_SHIFT
            out.tokens[at], out.tags[at] = rows["token"], rows["tag"]
            out.times[at] = times_in(rows) + np.int64(bucket.number << self.bucket_bits)
        return out

    def _append(
        self, lo: U64, hi: U64, times: I64, tokens: U64, kinds: U8, tags: U32, generations: U32 | None, at: I64
    ) -> U64:
        """Appends rows for the absent ids at positions ``at`` of a batch; returns the word of each."""
        words = np.empty(len(at), np.uint64)
        for number, part in _groups(times[at] >> self.bucket_bits):
            rows = at[part]
            bucket = self._bucket_of(number)
            low = times[rows] - np.int64(number << self.bucket_bits)
            start = bucket.append(lo[rows], hi[rows], low, tokens[rows], kinds[rows], tags[rows], OWNED)
            if generations is not None:
                for i in np.flatnonzero(generations[rows]).tolist():
                    bucket.generations[start + i] = int(generations[rows][i])
            bucket.appended(start)
            words[part] = self._words(bucket, hi[rows], np.arange(start, bucket.count))
        return words

    def _bucket_of(self, number: int) -> Bucket:
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets[number] = Bucket(number)
        return bucket

    def _words(self, bucket: Bucket, hi: U64, rows: I64) -> U64:
        chunks = self._chunks.setdefault(bucket.number, [])
        while len(chunks) << CHUNK_BITS < bucket.count:
            chunks.append(len(self._by_chunk))
            self._by_chunk.append((bucket, len(chunks) - 1 << CHUNK_BITS))
            if len(self._by_chunk) > len(self._living):
                self._living = np.append(self._living, np.zeros(len(self._by_chunk), np.bool_))
            self._living[chunks[-1]] = True
        words = np.empty(len(rows), np.uint64)
        for nth, at in _groups(rows >> CHUNK_BITS):
            words[at] = words_of(hi[at], chunks[nth], rows[at] & (CHUNK_ROWS - 1))
        return words

    def _enter(self, bucket: Bucket, start: int) -> None:
        """Enters the bucket's rows from ``start`` on into the index."""
        rows = np.arange(start, bucket.count)
        lo, hi = bucket.rows["lo"][rows], bucket.rows["hi"][rows]
        self._index.enter(self._words(bucket, hi, rows), hashes_of(lo))

    def _forget(self, number: int) -> None:
        """Drops a bucket in constant time: the index purges its words gradually."""
        for chunk in self._chunks.pop(number, ()):
            self._by_chunk[chunk] = None
            self._living[chunk] = False
        del self._buckets[number]

    def _make_room(self, chunks: int) -> None:
        """Makes sure that there are numbers for ``chunks`` more chunks.

        If not, builds the index from all rows again, which frees the numbers of deleted chunks.
        """
        if len(self._by_chunk) + chunks <= CHUNKS_MAX:
            return
        self._index = DigestIndex(self)
        self._chunks, self._by_chunk, self._living = {}, [None], np.zeros(1, np.bool_)
        for number in sorted(self._buckets):
            self._enter(self._buckets[number], 0)

    # -- scans ----------------------------------------------------------------------------------------------------
    def bucket_numbers(self) -> list[int]:
        """Returns the numbers of all buckets, ascending."""
        return sorted(self._buckets)

    def bucket_rows(self, number: int) -> Rows:
        """Returns the rows of one bucket, to be read at once; none if it was deleted."""
        bucket = self._buckets.get(number)
        return np.zeros(0, ROW) if bucket is None else bucket.rows[: bucket.count]

    def bucket(self, number: int) -> Bucket:
        """Returns one bucket. Its rows keep their order until a collection."""
        return self._buckets[number]

    # -- collection and snapshots -------------------------------------------------------------------------------
    def collect(self, boundary: int) -> int:
        """Drops cleared ids from buckets that lie wholly below ``boundary``; returns the number of ids dropped.

        Touches only buckets with a cleared id. Owned and reopened ids stay (rule 9).
        """
        dropped = 0
        for number in sorted(self._buckets):
            if (number + 1) << self.bucket_bits > boundary:
                break
            bucket = self._buckets[number]
            dropped += bucket.cleared
            if bucket.cleared:
                self._forget(number)
                if bucket.cleared < bucket.count:
                    kept = self._buckets[number] = bucket.without_cleared()
                    self._make_room(1 + (kept.count >> CHUNK_BITS))
                    self._enter(kept, 0)
        if dropped and not self._buckets:
            self._index = DigestIndex(self)
        return dropped

    def freeze(self) -> list[FrozenBucket]:
        """Freezes all buckets for a snapshot, without copying: rows that change before they are read are saved."""
        return [self._buckets[number].freeze() for number in sorted(self._buckets)]

    def load(self, number: int, rows: Rows) -> None:
        self._make_room(2)
        bucket = self._bucket_of(number)
        start = bucket.count
        bucket.load(rows)
        self._enter(bucket, start)

    def load_generations(self, number: int, pairs: Iterable[tuple[int, int]]) -> None:
        """Sets a snapshot's generations, after its rows are loaded. Raises ValueError for missing rows."""
        self._bucket_of(number).set_generations(pairs)

    # -- sums ---------------------------------------------------------------------------------------------------
    def sum(self) -> int:
        """Returns the sum of the hashes of all entries, modulo 2**64: equal for equal tables, in any order of
        insertion."""
        return sum(bucket.sum for bucket in self._buckets.values()) % 2**64

    def blocks(self) -> list[tuple[int, int]]:
        """Returns the (bucket, block) pairs of all rows, for ``adds_up``."""
        return [(number, block) for number in sorted(self._buckets) for block in range(self._buckets[number].blocks)]

    def adds_up(self, number: int, block: int) -> bool:
        """True if a block of some tens of thousands of rows still matches its sum, or its bucket was deleted."""
        bucket = self._buckets.get(number)
        return bucket is None or block >= bucket.blocks or bucket.adds_up(block)


def _empty_entries(n: int) -> Entries:
    return Entries(
        np.zeros(n, np.uint8),
        np.zeros(n, np.uint64),
        np.zeros(n, np.uint8),
        np.zeros(n, np.uint32),
        np.zeros(n, np.int64),
        np.zeros(n, np.bool_),
    )


def _first_of_equals(lo: U64, hi: U64, may_add: Bools) -> I64:
    """Returns, for each id, the position of the first equal id that may be added; -1 if none is at or before it.

    The order is the batch's, so it is the same on every replica.
    """
    n = len(lo)
    first = np.where(may_add, np.arange(n), -1)
    if n < 2:
        return first
    order = np.argsort(lo, kind="stable")
    ordered = lo[order]
    if not (ordered[1:] == ordered[:-1]).any():
        return first
    order = np.lexsort((hi, lo))  # stable, too
    starts = np.flatnonzero(np.append(True, (lo[order][1:] != lo[order][:-1]) | (hi[order][1:] != hi[order][:-1])))
    least = np.minimum.reduceat(np.where(may_add, np.arange(n), n)[order], starts)
    winners = np.empty(n, np.int64)
    winners[order] = np.repeat(least, np.diff(starts, append=n))
    return np.where(winners <= np.arange(n), winners, -1)


def _groups(keys: I64) -> Iterator[tuple[int, I64 | slice]]:
    """Groups the positions of a batch by key. Yields (key, positions in the batch's order)."""
    if not len(keys):
        return
    if len(keys) == 1 or (keys[0] == keys[-1] and (keys == keys[0]).all()):
        yield int(keys[0]), slice(None)
        return
    order = np.argsort(keys, kind="stable")
    ends = np.flatnonzero(np.diff(keys[order])) + 1
    for part in np.split(order, ends):
        yield int(keys[part[0]]), part
