"""Seeded schedules of computations (``world``), and checks that a missing rule is noticed."""

from __future__ import annotations

import pytest

from tests.simulation.computing.ablations import ABLATIONS
from tests.simulation.computing.world import SessionsWorld, run_seed
from tests.simulation.world.noticed import notice, reach
from tests.simulation.world.seeds import seeds

BATCH = 25
SEEDS_OF_AN_ABLATION = 2_500
_SEEDS = seeds()


@pytest.mark.seeded
@pytest.mark.parametrize(
    "batch", [_SEEDS[n : n + BATCH] for n in range(0, len(_SEEDS), BATCH)], ids=lambda b: f"{b[0]}-{b[-1]}"
)
def test_each_record_counts_once_whatever_dies(batch: list[int]) -> None:
    for seed in batch:
        run_seed(seed)
        run_seed(seed, kind=SessionsWorld)


def test_a_seed_replays_exactly() -> None:
    one, other = run_seed(7), run_seed(7)
    assert one.story == other.story
    assert one.published == other.published


def test_schedules_reach_what_they_are_for() -> None:
    wanted = ("kill", "zombie", "fenced", "clock", "held", "split", "merged", "broken off", "merges refused")
    reach("computing", range(200), lambda seed: +run_seed(seed).counts, [f"^{what}$" for what in wanted])


@pytest.mark.parametrize("name", ABLATIONS)
def test_the_world_notices_a_missing_rule(name: str) -> None:
    ablation = ABLATIONS[name]
    notice(
        f"computing: {name}",
        range(SEEDS_OF_AN_ABLATION),
        lambda seed: run_seed(seed, ablation.variant),
        ablation.finds,
    )
