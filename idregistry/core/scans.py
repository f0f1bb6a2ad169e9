"""A shard's less common operations on ids: pages of owned ids, clearing by watermark (rule 8), a trace.

The ids of a page and the rows read for it are limited, so that no request blocks the shard for long; even an empty
page need not be the last. A cursor is (bucket, row, boundary). Rows keep their order until a collection, which comes
with a new boundary, closes gaps; with an older cursor, a scan starts the bucket again. So a scan sees every id that
has the requested state throughout, some perhaps twice; actions on these ids compare their entries anyway.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from photon.idregistry.api import BATCH_BITS, I64, U8, U32, U64, Answer, incarnation_of
from photon.idregistry.core.commands import ClearBelow
from photon.idregistry.core.id_bucket import (
    CLEARED,
    KIND_SHIFT,
    OWNED,
    REOPENED,
    STATE_MASK,
    Bools,
    Bucket,
    Rows,
    times_in,
)
from photon.idregistry.core.id_table import Entry, IdTable
from photon.idregistry.core.shard_snapshot import NO_BOUNDARY, ShardState

PAGE_IDS_MAX = 16_384  # ids of one page: 672 KiB of columns
PAGE_ROWS_MAX = 262_144  # rows read for one page: a few milliseconds
_CURSOR = struct.Struct("<BqIq")
_CURSOR_VERSION = 1
_NO_COLUMNS = [np.empty(0, kind) for kind in ("<u8", "<i8", "<u8", "u1", "<u4", "<u4")]
_NO_ROWS = np.empty(0, np.int64)


class CursorError(ValueError):
    """The cursor did not come from a page."""


@dataclass(frozen=True, slots=True)
class EntryPage:
    """Some ids with their entries, as columns. An empty ``cursor`` means that there are no more."""

    digests: bytes  # n x 16
    times: I64
    tokens: U64
    kinds: U8
    tags: U32
    generations: U32
    cursor: bytes
    fenced: bool = False  # the requested slot is fenced in this shard

    def __len__(self) -> int:
        return len(self.times)


@dataclass(frozen=True, slots=True)
class Below:
    """The result of a ClearBelow: ``count`` and ``xor`` of the ids owned below the batch; ``applied`` if cleared."""

    applied: bool
    count: int
    xor: bytes
    reason: str = ""


# (bucket, first row, rows to read) -> (selected rows, the row after the last one read).
Select = Callable[[Bucket, int, int], tuple[I64, int]]


def owned_page(
    table: IdTable, state: ShardState, slot: str, upto: int, cursor: bytes, limit: int = PAGE_IDS_MAX
) -> EntryPage:
    """Returns the ids that this slot's incarnations up to ``upto`` own (rules 13, 14). Raises CursorError."""
    incarnations = np.array(
        [each for each, name in state.incarnations.items() if name == slot and each <= upto], np.uint64
    )

    def select(bucket: Bucket, start: int, rows: int) -> tuple[I64, int]:
        end = min(start + rows, bucket.count)
        if _all_cleared(bucket):
            return _NO_ROWS, bucket.count
        part = bucket.rows[start:end]
        owned = np.flatnonzero(_states(part) == OWNED)
        mine = np.isin(part["token"][owned] >> np.uint64(BATCH_BITS), incarnations)
        return owned[mine] + start, end

    known = state.slots.get(slot)
    return _page(table, state, cursor, limit, select, fenced=known is not None and known.fenced)


def reopened_page(table: IdTable, state: ShardState, cursor: bytes, limit: int = PAGE_IDS_MAX) -> EntryPage:
    """Returns the ids that were given up and not taken since. Reads only rows that were ever reopened."""

    def select(bucket: Bucket, start: int, rows: int) -> tuple[I64, int]:
        able = sorted(row for row in bucket.generations if row >= start)  # a reopened id has a generation
        looked = np.array(able[:rows], np.int64)
        after = bucket.count if len(able) <= rows else able[rows]
        return looked[_states(bucket.rows[looked]) == REOPENED], after

    return _page(table, state, cursor, limit, select, fenced=False)


def _page(table: IdTable, state: ShardState, cursor: bytes, limit: int, select: Select, *, fenced: bool) -> EntryPage:
    first, row = _decode(cursor, state.boundary) if cursor else (NO_BOUNDARY, 0)
    limit, budget = min(max(limit, 1), PAGE_IDS_MAX), PAGE_ROWS_MAX
    parts = []
    following = b""
    for number in table.bucket_numbers():
        if number < first:
            continue
        bucket = table.bucket(number)
        at = row if number == first else 0
        while at < bucket.count:
            if limit <= 0 or budget <= 0:
                following = _CURSOR.pack(_CURSOR_VERSION, number, at, state.boundary)
                break
            found, after = select(bucket, at, budget)
            if len(found) > limit:
                found = found[:limit]
                after = int(found[-1]) + 1
            budget -= 1 if _all_cleared(bucket) else after - at
            limit -= len(found)
            at = after
            if len(found):
                parts.append(_columns(table, bucket, found))
        if following:
            break
    digests, times, tokens, kinds, tags, generations = (
        [np.concatenate(each) for each in zip(*parts, strict=True)] if parts else _NO_COLUMNS
    )
    return EntryPage(digests.tobytes(), times, tokens, kinds, tags, generations, following, fenced)


def _columns(table: IdTable, bucket: Bucket, rows: I64) -> tuple[Any, ...]:
    part = bucket.rows[rows]
    generations = np.array([bucket.generations.get(row, 0) for row in rows.tolist()], np.uint32)
    digests = np.stack([part["lo"], part["hi"]], axis=1)
    times = times_in(part) + (bucket.number << table.bucket_bits)
    return digests, times, part["token"], part["what"] >> np.uint8(KIND_SHIFT), part["tag"], generations


def _all_cleared(bucket: Bucket) -> bool:
    return bucket.cleared == bucket.count


def _states(rows: Rows) -> U8:
    states: U8 = rows["what"] & np.uint8(STATE_MASK)
    return states


def _decode(cursor: bytes, boundary: int) -> tuple[int, int]:
    if len(cursor) != _CURSOR.size or cursor[0] != _CURSOR_VERSION:
        raise CursorError(f"a cursor of {len(cursor)} bytes is invalid: begin the scan again")
    _, bucket, row, seen = _CURSOR.unpack(cursor)
    return bucket, row if seen == boundary else 0


def clear_below(table: IdTable, state: ShardState, command: ClearBelow) -> Below:
    """Clears the ids owned below a batch if count and XOR match them, and remembers the watermark (rule 8).

    Reads all rows of the buckets with ids that are not cleared, at about 10 ns per row, and takes a quarter of a
    microsecond per id cleared. Clears at most MAX_CLEARED ids at once.
    """
    incarnation, batch = command.incarnation, command.batch
    if incarnation not in state.incarnations:
        return Below(False, 0, bytes(16), f"incarnation {incarnation} is not known here")
    if batch <= state.watermarks.get(incarnation, 0):
        return Below(True, 0, bytes(16))  # repeated, so nothing below can be owned
    first = np.uint64(incarnation << BATCH_BITS)
    end = np.uint64((incarnation << BATCH_BITS) + batch)
    found = [(number, _owned_between(table, number, first, end)) for number in table.bucket_numbers()]
    count = sum(len(rows) for _, rows in found)
    xor = _xor_of(table, found)
    if (count, xor) != (command.count, command.xor):
        return Below(False, count, xor, "count or XOR differ: clear by id")
    for number, rows in found:
        if len(rows):
            table.bucket(number).clear(rows)
    state.watermarks[incarnation] = batch
    return Below(True, count, xor)


def _owned_between(table: IdTable, number: int, first: np.uint64, end: np.uint64) -> I64:
    bucket = table.bucket(number)
    if _all_cleared(bucket):
        return _NO_ROWS
    rows = bucket.rows[: bucket.count]
    tokens = rows["token"]
    within = np.flatnonzero((tokens >= first) & (tokens < end))
    owned: I64 = within[_states(rows[within]) == OWNED]
    return owned


def _xor_of(table: IdTable, found: Iterable[tuple[int, I64]]) -> bytes:
    lo = hi = 0
    for number, rows in found:
        part = table.bucket(number).rows[rows]
        lo ^= int(np.bitwise_xor.reduce(part["lo"]))
        hi ^= int(np.bitwise_xor.reduce(part["hi"]))
    return lo.to_bytes(8, "little") + hi.to_bytes(8, "little")


def under_watermark(state: ShardState, tokens: U64) -> Bools | None:
    """True for tokens below their incarnation's watermark; ``None`` if no token is."""
    if not state.watermarks or not len(tokens):
        return None
    owners = tokens >> np.uint64(BATCH_BITS)
    batches = tokens & np.uint64((1 << BATCH_BITS) - 1)
    if (owners == owners[0]).all():
        under = batches < np.uint64(state.watermarks.get(int(owners[0]), 0))
    else:
        values, back = np.unique(owners, return_inverse=True)
        limits = np.array([state.watermarks.get(value, 0) for value in values.tolist()], np.uint64)
        under = batches < limits[back]
    return under if under.any() else None


def known_token(state: ShardState, token: int) -> int:
    """Returns the token, or 0 if this shard does not know the token's owner."""
    return token if (token >> BATCH_BITS) in state.incarnations else 0


def is_retired(state: ShardState, token: int) -> bool:
    slot = state.incarnations.get(token >> BATCH_BITS)
    return slot is not None and state.slots[slot].fenced


@dataclass(frozen=True, slots=True)
class Traced:
    """A shard's facts about one id, for display. The owner's fields are empty if there is no entry."""

    answer: Answer  # ABSENT, PRESENT, BELOW_BOUNDARY or REOPENED
    shard: int = 0
    cleared: bool = False
    token: int = 0
    kind: int = 0
    generation: int = 0
    slot: str = ""
    datacentre: str = ""
    boundary_ns: int | None = None  # ``None`` if it has not moved
    replica: str = ""
    applied: int = 0  # entries of the shard's log that this replica had applied


def traced(entry: Entry | None, state: ShardState, time_ns: int) -> Traced:
    """Returns a shard's facts about an id, from its entry if there is one, and its event time."""
    boundary = None if state.boundary == NO_BOUNDARY else state.boundary
    if entry is None:
        below = boundary is not None and time_ns < boundary
        answer = Answer.BELOW_BOUNDARY if below else Answer.ABSENT
        return Traced(answer, state.sharding.number, boundary_ns=boundary)
    name = state.incarnations.get(incarnation_of(entry.token), "")
    slot = state.slots.get(name)
    known = slot is not None and 0 <= slot.datacentre < len(state.datacentres)
    return Traced(
        Answer.REOPENED if entry.state == REOPENED else Answer.PRESENT,
        state.sharding.number,
        entry.state == CLEARED,
        entry.token,
        entry.kind,
        entry.generation,
        name,
        state.datacentres[slot.datacentre] if slot is not None and known else "",
        boundary,
    )
