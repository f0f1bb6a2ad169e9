"""Seeded schedules of everything at once (``world.joined``), and checks that removed rules which only several
components together can break are missed."""

from __future__ import annotations

import os
from collections import Counter
from functools import cache, partial

import pytest

from tests.simulation.joined.ablations import ABLATIONS
from tests.simulation.world.joined import drawn, run_seed
from tests.simulation.world.noticed import notice, reach
from tests.simulation.world.seeds import seeds, share

BATCH = 10
SEEDS = 20
SEEDS_OF_AN_ABLATION = 600
_SEEDS = share(seeds(SEEDS, base=40_000), 5, least=6)


@pytest.mark.seeded
@pytest.mark.parametrize(
    "batch", [_SEEDS[n : n + BATCH] for n in range(0, len(_SEEDS), BATCH)], ids=lambda b: f"{b[0]}-{b[-1]}"
)
def test_every_event_has_one_verdict_whatever_goes_on_at_once(batch: list[int]) -> None:
    told = "PHOTON_SIM_SEED" in os.environ
    for seed in batch:
        world = run_seed(seed, story=told)
        if told:
            print("\n".join(world.story or []))
        print(f"seed {seed}: {len(world.truth.events)} events, {dict(world.counts)}, {world.speed}")


_ran = cache(partial(run_seed, story=True))  # the same world for all tests that only inspect it


def test_a_seed_replays_exactly() -> None:
    assert _ran(0).story == run_seed(0, story=True).story


def test_schedules_reach_what_they_are_for() -> None:
    """In the first seeds, taken together."""
    wanted = ("adopted", "changes", "replaced", "sealed", "pauses", "cuts")
    reach("joined", range(60), lambda seed: +Counter(_ran(seed).counts), wanted)


@pytest.mark.parametrize("name", ABLATIONS)
def test_the_world_notices_a_missing_rule(name: str) -> None:
    ablation = ABLATIONS[name]
    tried = (seed for seed in range(SEEDS_OF_AN_ABLATION) if ablation.shows(drawn(seed)))
    notice(f"joined: {name}", tried, lambda seed: run_seed(seed, ablation.variant), ablation.finds)
