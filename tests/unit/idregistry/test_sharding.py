"""Digest and time to shard."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from photon.idregistry.commands import Range
from photon.idregistry.sharding import NO_SHARD, shards_of, single_range, split

RANGES = (Range(0, 100, (1, 2, 3)), Range(100, 200, (1, 2, 3, 4, 5)), Range(300, 400, (9,)))


def one(digest: bytes, time: int) -> int:
    """The definition, one id at a time."""
    for each in RANGES:
        if each.start_ns <= time < each.end_ns:
            return each.shards[int.from_bytes(digest[8:], "little") % len(each.shards)]
    return NO_SHARD


@settings(deadline=None)
@given(st.lists(st.tuples(st.binary(min_size=16, max_size=16), st.integers(-50, 450)), max_size=30))
def test_the_batch_equals_the_definition(ids: list[tuple[bytes, int]]) -> None:
    digests, times = b"".join(d for d, _ in ids), np.array([t for _, t in ids], np.int64)
    assert shards_of(digests, times, RANGES).tolist() == [one(d, t) for d, t in ids]
    parts = split(digests, times, RANGES)
    assert sorted(row for part in parts for row in part.rows.tolist()) == list(range(len(ids)))
    assert [part.shard for part in parts] == sorted({one(d, t) for d, t in ids})
    for part in parts:
        assert all(one(*ids[row]) == part.shard for row in part.rows)
        assert part.rows.tolist() == sorted(part.rows.tolist())


def test_split_of_some_rows() -> None:
    digests = b"".join(bytes(8) + i.to_bytes(8, "little") for i in range(6))
    parts = split(digests, np.zeros(6, np.int64), RANGES, np.array([1, 4, 5]))
    assert [(part.shard, part.rows.tolist()) for part in parts] == [(2, [1, 4]), (3, [5])]


def test_all_of_time_has_a_shard() -> None:
    times = np.array([-(2**63), -1, 0, 2**63 - 1], np.int64)
    assert set(shards_of(bytes(64), times, single_range(4)).tolist()) == {1}


def test_shards_are_even() -> None:
    n = 100_000
    digests = np.random.default_rng(3).bytes(16 * n)
    counts = np.bincount(shards_of(digests, np.zeros(n, np.int64), single_range(7)), minlength=8)
    assert counts[0] == 0
    assert counts[1:].min() > 0.95 * n / 7
