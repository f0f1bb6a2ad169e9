"""Which shard an id belongs to: a pure function of digest, event time and shard config (paper, section 2.2.2).

A config is a list of ranges (start, end, shards) of event time. Within a range the shard is chosen by the digest's
*last* eight bytes modulo the number of shards; the first eight index the table within a shard (``id_table``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from photon.idregistry.api import DIGEST_BYTES, I64, U32, U64
from photon.idregistry.commands import MAX_SHARDS, Range, check_ranges

FOREVER = (-(2**63), 2**63 - 1)
NO_SHARD = 0
"""Answer for a time that no range covers. Group 0 is the config group, so no shard has this number."""


def single_range(shards: int) -> tuple[Range, ...]:
    """The config of a deployment's first start: all of time in shards 1 to n."""
    if not 1 <= shards <= MAX_SHARDS:
        raise ValueError(f"shards = {shards} is not within 1 and {MAX_SHARDS}")
    return (Range(*FOREVER, tuple(range(1, shards + 1))),)


def with_range(ranges: tuple[Range, ...], starts_ns: int, shards: tuple[int, ...]) -> tuple[Range, ...]:
    """The config in which event times from ``starts_ns`` on belong to other shards. Raises CommandError."""
    last = ranges[-1]
    changed = (*ranges[:-1], Range(last.start_ns, starts_ns, last.shards), Range(starts_ns, last.end_ns, shards))
    check_ranges(changed)
    return changed


def shards_of(digests: bytes, times: I64, ranges: Sequence[Range]) -> U32:
    """Shard number of each of n ids. ``digests`` is n x 16 bytes, ``times`` ns UTC."""
    return shards_by(np.frombuffer(digests, "<u8").reshape(-1, DIGEST_BYTES // 8)[:, 1], times, ranges)


def shards_by(by_digest: U64, times: I64, ranges: Sequence[Range]) -> U32:
    """As ``shards_of``, of the digests' last eight bytes as little-endian numbers."""
    out = np.zeros(len(times), np.uint32)
    if not len(times):
        return out
    for each in ranges:
        if (each.start_ns, each.end_ns) == FOREVER:
            inside = np.ones(len(times), np.bool_)
        else:
            inside = (times >= each.start_ns) & (times < each.end_ns)
        shards = np.array(each.shards, np.uint32)
        out[inside] = shards[(by_digest[inside] % np.uint64(len(shards))).astype(np.int64)]
    return out


@dataclass(frozen=True, slots=True)
class Part:
    """The rows of a batch that one shard answers for, in the batch's order."""

    shard: int
    rows: I64


def split(digests: bytes, times: I64, ranges: Sequence[Range], rows: I64 | None = None) -> list[Part]:
    """A batch (or the given rows of it) by shard, ascending; rows of no shard come under NO_SHARD."""
    shards = shards_of(digests, times, ranges)
    if rows is None:
        rows = np.arange(len(times))
    else:
        shards = shards[rows]
    if not len(rows):
        return []
    if (shards == shards[0]).all():
        return [Part(int(shards[0]), rows)]
    order = np.argsort(shards, kind="stable")
    ends = np.flatnonzero(np.diff(shards[order])) + 1
    return [Part(int(shards[part[0]]), rows[part]) for part in np.split(order, ends)]
