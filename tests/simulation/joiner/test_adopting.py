"""Orphaned slots under faults (``world.seeds`` says which)."""

from __future__ import annotations

import pytest

from tests.simulation.joiner.adopting import run_seed
from tests.simulation.world.noticed import notice
from tests.simulation.world.seeds import run_each

SEEDS_OF_THE_ABLATION = 3000


@pytest.mark.seeded
def test_a_slot_that_others_redo_keeps_the_promises() -> None:
    run_each(run_seed, lambda seed: run_seed(seed, story=True).story or [], 60)


def test_schedules_reach_what_they_are_for() -> None:
    adoptions = redone = 0
    for world in map(run_seed, range(120)):
        adoptions, redone = adoptions + world.adoptions, redone + world.redone
        if adoptions > 20 and redone > 2:
            return
    pytest.fail(f"{adoptions} adoptions, {redone} redone")


def test_without_the_lock_records_come_out_twice() -> None:
    seeds = range(SEEDS_OF_THE_ABLATION)
    notice("adopting: no lock", seeds, lambda seed: run_seed(seed, locked=False), "twice")
