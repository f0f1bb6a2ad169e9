"""Each measure of a datacentre is needed: without it the simulator finds a broken promise."""

from __future__ import annotations

import re

import pytest

from tests.simulation.datacentres.ablations import ABLATIONS
from tests.simulation.datacentres.world import Violation, World, run_seed

SEEDS = 60
"""Schedules within which the violation must show."""


@pytest.mark.parametrize("name", ABLATIONS)
def test_the_simulator_notices_a_missing_measure(name: str) -> None:
    ablation = ABLATIONS[name]
    for seed in range(SEEDS):
        if ablation.loses_slots and not _loses_slots(seed):
            continue
        try:
            run_seed(seed, ablation.variant)
        except Violation as violation:
            if re.search(ablation.finds, str(violation)):
                print(f"{name}: seed {seed}: {violation}")
                return
    pytest.fail(f"{name}: {SEEDS} schedules and nothing found")


def _loses_slots(seed: int) -> bool:
    world = World(seed)
    world.loop.close()  # it is never run
    return world.loses_slots
