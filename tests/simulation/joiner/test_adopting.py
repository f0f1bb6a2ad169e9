"""Orphaned slots under faults: PHOTON_SIM_SEEDS fresh schedules (60); PHOTON_SIM_SEED replays one."""

from __future__ import annotations

import os
import random

import pytest

from tests.simulation.joiner.adopting import run_seed
from tests.simulation.joiner.world import Violation
from tests.simulation.world.noticed import notice

SEEDS_OF_THE_ABLATION = 3000


@pytest.mark.seeded
def test_a_slot_that_others_redo_keeps_the_promises() -> None:
    if (one := os.environ.get("PHOTON_SIM_SEED")) is not None:
        print("\n".join(run_seed(int(one), story=True).story or []))
        return
    first = random.SystemRandom().randrange(1 << 40)
    count = int(os.environ.get("PHOTON_SIM_SEEDS", "60"))
    print(f"seeds {first} to {first + count - 1}")
    for seed in range(first, first + count):
        run_seed(seed)


def test_schedules_reach_what_they_are_for() -> None:
    worlds = [run_seed(seed) for seed in range(120)]
    assert sum(world.adoptions for world in worlds) > 20
    assert sum(world.redone for world in worlds) > 2


def test_without_the_lock_records_come_out_twice() -> None:
    seeds = range(SEEDS_OF_THE_ABLATION)
    notice("adopting: no lock", seeds, lambda seed: run_seed(seed, locked=False), "twice", Violation)
