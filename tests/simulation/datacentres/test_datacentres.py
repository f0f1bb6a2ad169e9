"""Seeded schedules of two datacentres (``world``): PHOTON_SIM_SEEDS of them, from PHOTON_SIM_BASE on; one replays."""

from __future__ import annotations

import os

import pytest

from photon.adapters.contract import LogFile
from photon.adapters.faults import describe
from tests.simulation.world.seeds import seeds, share
from tests.simulation.world.truth import PairAdapter
from tests.simulation.world.world import Variant, run_seed

BATCH = 10
SEEDS = 40
_SEEDS = share(seeds(SEEDS), 5, least=6)


def _batches(all_seeds: list[int]) -> list[list[int]]:
    return [all_seeds[n : n + BATCH] for n in range(0, len(all_seeds), BATCH)]


@pytest.mark.seeded
@pytest.mark.parametrize("batch", _batches(_SEEDS), ids=lambda b: f"{b[0]}-{b[-1]}")
def test_every_event_has_one_verdict(batch: list[int]) -> None:
    told = "PHOTON_SIM_SEED" in os.environ
    moved = 0
    for seed in batch:
        world = run_seed(seed, story=told)
        if told:
            print("\n".join(world.story or []))
        moved += world.watermarks.moved
        print(f"seed {seed}: {len(world.truth.events)} events, {world.counts}, at rest after {world.rest_s:.0f} s")
    # Most schedules end before one moves.
    if not moved and len(batch) >= 8:
        assert any(run_seed(seed).watermarks.moved for seed in range(SEEDS)), "no watermark moved"


@pytest.mark.seeded
@pytest.mark.parametrize("lists", [False, True], ids=["key", "list"])
@pytest.mark.parametrize(
    "batch", _batches(share(seeds(SEEDS, world="sets"), 5)), ids=lambda b: f"sets-{b[0]}-{b[-1]}"
)
def test_every_event_is_joined_with_its_whole_set_once(batch: list[int], lists: bool) -> None:
    for seed in batch:
        run_seed(seed, Variant(sets=True, lists=lists), story="PHOTON_SIM_SEED" in os.environ)


@pytest.mark.seeded
@pytest.mark.parametrize("dispatchers", [2, 4])
@pytest.mark.parametrize(
    "batch", _batches(share(seeds(SEEDS, world="divided"), 5)), ids=lambda b: f"divided-{b[0]}-{b[-1]}"
)
def test_several_dispatchers_divide_the_logs_of_each(batch: list[int], dispatchers: int) -> None:
    for seed in batch:
        run_seed(seed, Variant(dispatchers=dispatchers), story="PHOTON_SIM_SEED" in os.environ)


def test_a_seed_replays_exactly() -> None:
    one, other = run_seed(8, story=True), run_seed(8, story=True)
    assert one.story == other.story
    assert len(one.story or []) > 20


def test_a_seed_replays_wherever_the_project_lies() -> None:
    adapter, log = PairAdapter({}), LogFile("queries")
    with pytest.raises(ValueError, match="no such thing") as raised:
        adapter.join(b"e1 1 k1 c", log, b"k1 rejected", log)
    assert describe(raised.value, adapter) == "the adapter raised ValueError: no such thing (adapter.py:7)"
