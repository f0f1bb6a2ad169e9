"""Seeded schedules of a backfill (``world.seeds`` says which)."""

from __future__ import annotations

import pytest

from tests.simulation.backfill.ablations import ABLATIONS
from tests.simulation.backfill.world import Violation, run_seed
from tests.simulation.world.noticed import notice
from tests.simulation.world.seeds import run_each

SEEDS_OF_AN_ABLATION = 2000
"""Schedules within which the simulator has to notice that a rule is missing; most need a few."""


@pytest.mark.seeded
def test_fresh_seeds_keep_the_promises() -> None:
    run_each(run_seed, lambda seed: run_seed(seed).told, 100)


def test_a_seed_replays_exactly() -> None:
    one, other = run_seed(7), run_seed(7)
    assert one.told == other.told
    assert len(one.told) > 2


@pytest.mark.parametrize("name", sorted(ABLATIONS))
def test_the_simulator_notices_a_missing_rule(name: str) -> None:
    ablation = ABLATIONS[name]
    seeds = range(SEEDS_OF_AN_ABLATION)
    notice(f"backfill: {name}", seeds, lambda seed: run_seed(seed, ablation.variant), ablation.finds, Violation)


def test_schedules_reach_what_they_are_for() -> None:
    """The faults really happen: a simulator that does nothing finds nothing."""
    told = [line for seed in range(60) for line in run_seed(seed).told]
    for what in ("power cut", "kill driver", "kill run", "speculates", "run ends: AttemptFailed"):
        assert what in told, what
    assert told.count("driver starts") > told.count("published") > 0
