"""A node that comes or goes moves its own share of the keys, and nothing else."""

from __future__ import annotations

import os
import random

import numpy as np
import pytest

from photon.config.hash_ring import NODES_MAX, POINTS, U64, HashRing

SEED = int(os.environ.get("PHOTON_SEED", "7"))
KEYS = 100_000


def hashes() -> U64:
    print(f"PHOTON_SEED={SEED}")
    return np.random.default_rng(SEED).integers(0, 1 << 64, KEYS, dtype=np.uint64)


def names(ring: HashRing, asked: U64) -> list[str]:
    return [ring.nodes[owner] for owner in ring.owners(asked).tolist()]


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 20])
def test_a_node_that_comes_takes_its_share_from_all_and_nothing_else_moves(count: int) -> None:
    asked = hashes()
    before = names(HashRing(f"c{i}" for i in range(count)), asked)
    after = names(HashRing(f"c{i}" for i in range(count + 1)), asked)
    moved = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
    assert {new for _, new in moved} == {f"c{count}"}
    assert {old for old, _ in moved} == {f"c{i}" for i in range(count)}
    assert 0.7 < len(moved) / KEYS * (count + 1) < 1.3


@pytest.mark.parametrize("count", [2, 3, 5, 8, 20])
def test_a_node_that_goes_leaves_its_keys_to_all_others_and_nothing_else_moves(count: int) -> None:
    asked = hashes()
    lost = random.Random(SEED).randrange(count)
    left = [f"c{i}" for i in range(count) if i != lost]
    before = names(HashRing(f"c{i}" for i in range(count)), asked)
    after = names(HashRing(left), asked)
    moved = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
    assert {old for old, _ in moved} == {f"c{lost}"}
    assert {new for _, new in moved} == set(left)
    assert 0.7 < len(moved) / KEYS * count < 1.3


def test_nodes_have_even_shares() -> None:
    shares = np.bincount(HashRing(f"node-{i}" for i in range(10)).owners(hashes())) / KEYS * 10
    assert shares.min() > 0.75
    assert shares.max() < 1.25


def test_the_ring_depends_on_names_alone() -> None:
    asked = hashes()
    one, two = HashRing(["b", "a", "c"]), HashRing(["c", "b", "a"])
    assert one == two
    assert hash(one) == hash(two)
    assert one != HashRing(["a", "b"])
    assert (one.owners(asked) == two.owners(asked)).all()


def test_owners_are_pinned() -> None:
    """A different answer would make every cache cold at an upgrade."""
    ring = HashRing(["c1", "c2", "c3"])
    assert ring.owners(np.array([0, 1 << 62, 1 << 63, 3 << 62, (1 << 64) - 1], dtype=np.uint64)).tolist() == PINNED


PINNED = [1, 2, 1, 2, 1]


def test_the_circle_closes() -> None:
    ring = HashRing(["a", "b"], points=1)
    first = ring.owners(np.array([0], dtype=np.uint64))
    assert (ring.owners(np.array([(1 << 64) - 1], dtype=np.uint64)) == first).all()


def test_what_is_no_ring_is_refused() -> None:
    with pytest.raises(ValueError, match="has no owners"):
        HashRing([]).owners(np.zeros(1, dtype=np.uint64))
    with pytest.raises(ValueError, match="distinct names"):
        HashRing(["a", "a"])
    with pytest.raises(ValueError, match="up to"):
        HashRing((str(i) for i in range(NODES_MAX + 1)), points=1)
    assert POINTS == 256
