"""Finds an id's shard: a pure function of its digest and the shard config (paper, section 2.2.2).

A config is a list of ranges (start, end, shards) of event time, and ids are entered in the last one: their shard is
chosen by the digest's *last* eight bytes modulo the number of shards; the first eight index the table within a shard
(``id_table``). The earlier ranges describe former shards: their ids have event times below the range's end, so
requests go to them until the boundary has passed it. Unlike in the paper, an id's shard does not depend on its event
time: the same id may arrive with another time, and must be found where it was entered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from photon.idregistry.api import DIGEST_BYTES, I64, U32, U64
from photon.idregistry.core.commands import END_OF_TIME, MAX_ENTRY_IDS, MAX_SHARDS, NO_TIME, Range, check_ranges

FOREVER = (NO_TIME, END_OF_TIME)


def single_range(shards: int) -> tuple[Range, ...]:
    """Returns a new deployment's config: all event times belong to shards 1 to ``shards``."""
    if not 1 <= shards <= MAX_SHARDS:
        raise ValueError(f"shards = {shards} is not from 1 to {MAX_SHARDS}")
    return (Range(*FOREVER, tuple(range(1, shards + 1))),)


def shards_in(ranges: tuple[Range, ...]) -> set[int]:
    return {shard for each in ranges for shard in each.shards}


def with_range(ranges: tuple[Range, ...], starts_ns: int, shards: tuple[int, ...]) -> tuple[Range, ...]:
    """Returns the config in which event times from ``starts_ns`` on belong to ``shards``. Raises CommandError."""
    last = ranges[-1]
    changed = (*ranges[:-1], Range(last.start_ns, starts_ns, last.shards), Range(starts_ns, last.end_ns, shards))
    check_ranges(changed)
    return changed


def shards_of(digests: bytes, shards: Sequence[int]) -> U32:
    """Returns the shard number of each of n ids. ``digests`` is n x 16 bytes."""
    return shards_by(np.frombuffer(digests, "<u8").reshape(-1, DIGEST_BYTES // 8)[:, 1], shards)


def shards_by(by_digest: U64, shards: Sequence[int]) -> U32:
    """Like ``shards_of``, from the digests' last eight bytes as little-endian numbers."""
    if len(shards) == 1:
        return np.full(len(by_digest), shards[0], np.uint32)
    return np.array(shards, np.uint32)[(by_digest % np.uint64(len(shards))).astype(np.int64)]


@dataclass(frozen=True, slots=True)
class Part:
    """The rows of a batch that go to one shard, in the batch's order."""

    shard: int
    rows: I64


def split(digests: bytes, shards: Sequence[int], rows: I64 | None = None, *, most: int = MAX_ENTRY_IDS) -> list[Part]:
    """Splits a batch (or the given rows of it) by shard, ascending, in parts of at most ``most`` rows."""
    numbers = shards_of(digests, shards)
    if rows is None:
        rows = np.arange(len(numbers))
    else:
        numbers = numbers[rows]
    if not len(rows):
        return []
    if (numbers == numbers[0]).all():
        by_shard = [(int(numbers[0]), rows)]
    else:
        order = np.argsort(numbers, kind="stable")
        ends = np.flatnonzero(np.diff(numbers[order])) + 1
        by_shard = [(int(numbers[part[0]]), rows[part]) for part in np.split(order, ends)]
    return [Part(shard, mine[at : at + most]) for shard, mine in by_shard for at in range(0, len(mine), most)]
