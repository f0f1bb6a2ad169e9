"""A replaced replica takes nothing away; without the barrier it does."""

from __future__ import annotations

import os

import pytest

from tests.simulation.raft.replacing import NEW, Skips, run
from tests.simulation.world.cluster import Violation, ViolationInCallback

BASE = int(os.environ.get("PHOTON_SIM_BASE", "0"))
SEEDS = [int(seed)] if (seed := os.environ.get("PHOTON_SIM_SEED")) else None
COUNT = max(int(os.environ.get("PHOTON_SIM_SEEDS", "60")) // 4, 8)


def test_nothing_acknowledged_is_lost_when_a_replica_is_replaced() -> None:
    for seed in SEEDS or range(BASE, BASE + COUNT):
        try:
            world = run(seed)
        except (Violation, ViolationInCallback, AssertionError) as found:
            pytest.fail(f"seed {seed}: {found}; PHOTON_SIM_SEED={seed} replays it")
        assert world.nodes[NEW].up


def test_without_the_barrier_something_is() -> None:
    """The ablation: at once, with an empty replica."""
    found = 0
    for seed in range(300):
        try:
            run(seed, Skips(barrier=True))
        except (Violation, ViolationInCallback):
            found += 1
            break
    assert found
