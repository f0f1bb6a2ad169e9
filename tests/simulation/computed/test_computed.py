"""Seeded schedules of the join and of computations over its output (``world``), and checks that a missing rule is
noticed."""

from __future__ import annotations

import os
from functools import cache, partial

import pytest

from tests.simulation.computed.ablations import ABLATIONS
from tests.simulation.computed.world import SITES, EverythingWorld, run_seed, run_site
from tests.simulation.world.noticed import notice, reach
from tests.simulation.world.seeds import seeds, share

BATCH = 5
SEEDS = 10
SEEDS_OF_AN_ABLATION = 200
_SEEDS = seeds(SEEDS, base=60_000)


def _batches(all_seeds: list[int]) -> list[list[int]]:
    return [all_seeds[n : n + BATCH] for n in range(0, len(all_seeds), BATCH)]


@pytest.mark.seeded
@pytest.mark.parametrize("batch", _batches(share(_SEEDS, 5)), ids=lambda b: f"{b[0]}-{b[-1]}")
def test_computed_is_what_follows_from_the_joined_output_alone(batch: list[int]) -> None:
    told = "PHOTON_SIM_SEED" in os.environ
    for seed in batch:
        world = run_seed(seed, story=told)
        if told:
            print("\n".join(world.story or []))
        print(f"seed {seed}: {[dict(site.counts) for site in world.sites]}")


@pytest.mark.seeded
@pytest.mark.parametrize(
    "batch",
    _batches(share(seeds(SEEDS, base=60_000, world="everything"), 20)),
    ids=lambda b: f"everything-{b[0]}-{b[-1]}",
)
def test_so_is_it_over_slots_that_are_adopted_and_shards_that_change(batch: list[int]) -> None:
    for seed in batch:
        run_seed(seed, kind=EverythingWorld)


_ran = cache(partial(run_seed, story=True))  # the same world for all tests that only inspect it


def test_a_seed_replays_exactly() -> None:
    assert _ran(0).story == run_seed(0, story=True).story


def test_schedules_reach_what_they_are_for() -> None:
    """In the first seeds, taken together."""
    wanted = ("ended", "zombie", "fenced", "clock", "power", "split", "merged", "late", "in time", "final", "waiting")
    told = lambda seed: [what for site in _ran(seed).sites for what in +site.counts]  # noqa: E731
    reach("computed", range(40), told, [f"^{what}$" for what in wanted])


@pytest.mark.parametrize("name", ABLATIONS)
def test_the_world_notices_a_missing_rule(name: str) -> None:
    ablation = ABLATIONS[name]
    notice(
        f"computed: {name}",
        range(SEEDS_OF_AN_ABLATION * SITES),
        lambda seed: run_site(seed, ablation.variant),
        ablation.finds,
    )
