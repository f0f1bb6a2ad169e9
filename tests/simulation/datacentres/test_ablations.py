"""Each measure of a datacentre is needed: without it the simulator finds a broken promise."""

from __future__ import annotations

import pytest

from tests.simulation.datacentres.ablations import ABLATIONS
from tests.simulation.world.noticed import notice
from tests.simulation.world.world import World, run_seed

SEEDS = 300  # schedules within which the violation must show


@pytest.mark.parametrize("name", ABLATIONS)
def test_the_simulator_notices_a_missing_measure(name: str) -> None:
    ablation = ABLATIONS[name]
    worlds = range(4, 5 * SEEDS, 5) if ablation.apart else range(SEEDS)
    seeds = (seed for seed in worlds if ablation.shows(_drawn(seed)))
    notice(f"datacentres: {name}", seeds, lambda seed: run_seed(seed, ablation.variant), ablation.finds)


def _drawn(seed: int) -> World:
    world = World(seed)
    world.loop.close()  # it is never run
    return world
