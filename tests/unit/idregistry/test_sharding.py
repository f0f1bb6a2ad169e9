"""Digest and time to shard."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from photon.idregistry.core.sharding import shards_of, split

SHARDS = (1, 2, 3, 9)


def one(digest: bytes) -> int:
    """The definition, one id at a time."""
    return SHARDS[int.from_bytes(digest[8:], "little") % len(SHARDS)]


@settings(deadline=None)
@given(st.lists(st.binary(min_size=16, max_size=16), max_size=30))
def test_the_batch_equals_the_definition(ids: list[bytes]) -> None:
    digests = b"".join(ids)
    assert shards_of(digests, SHARDS).tolist() == [one(each) for each in ids]
    parts = split(digests, SHARDS)
    assert sorted(row for part in parts for row in part.rows.tolist()) == list(range(len(ids)))
    assert [part.shard for part in parts] == sorted({one(each) for each in ids})
    for part in parts:
        assert all(one(ids[row]) == part.shard for row in part.rows)
        assert part.rows.tolist() == sorted(part.rows.tolist())


def test_split_of_some_rows() -> None:
    digests = b"".join(bytes(8) + i.to_bytes(8, "little") for i in range(6))
    parts = split(digests, (1, 2, 3), np.array([1, 4, 5]))
    assert [(part.shard, part.rows.tolist()) for part in parts] == [(2, [1, 4]), (3, [5])]


def test_shards_are_even() -> None:
    n = 100_000
    digests = np.random.default_rng(3).bytes(16 * n)
    counts = np.bincount(shards_of(digests, range(1, 8)), minlength=8)
    assert counts[0] == 0
    assert counts[1:].min() > 0.95 * n / 7
