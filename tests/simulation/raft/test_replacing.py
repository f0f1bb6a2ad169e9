"""A replaced replica takes nothing away; without the barrier it does."""

from __future__ import annotations

import pytest

from tests.simulation.raft.replacing import NEW, Skips, run
from tests.simulation.world.cluster import Violation, ViolationInCallback
from tests.simulation.world.seeds import seeds, share


def test_nothing_acknowledged_is_lost_when_a_replica_is_replaced() -> None:
    for seed in share(seeds(60), 4, least=8):
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
