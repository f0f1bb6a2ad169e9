"""Seeded schedules of the joiner's protocol (``world.seeds`` says which)."""

from __future__ import annotations

import pytest

from tests.simulation.joiner.ablations import ABLATIONS
from tests.simulation.joiner.process import Variant
from tests.simulation.joiner.world import OUTPUT, World, run_seed
from tests.simulation.world.noticed import notice, reach
from tests.simulation.world.seeds import run_each

BOUNDED_SEEDS = 30
SETS = Variant(sets=True)
SEEDS_OF_AN_ABLATION = 6000  # schedules within which the simulator must notice a missing rule; most need a few


@pytest.mark.seeded
def test_fresh_seeds_keep_the_promises() -> None:
    run_each(run_seed, lambda seed: run_seed(seed, story=True).story or [], 100)


def test_a_join_with_bounds_keeps_the_same_promises() -> None:
    said = 0
    for seed in range(BOUNDED_SEEDS):
        world = run_seed(seed, Variant(bounded=True))
        for site in world.sites:
            names = site.disk.names(OUTPUT / "unmatched")
            said += sum(b"within.before" in site.disk.read(OUTPUT / "unmatched" / name) for name in names)
    assert said, "nothing was out of bounds"


@pytest.mark.seeded
def test_fresh_seeds_write_all_pairs_of_an_event_or_none() -> None:
    run_each(_run_sets, lambda seed: run_seed(seed, SETS, story=True).story or [], 100)


def _run_sets(seed: int) -> World:
    return run_seed(seed, SETS)


@pytest.mark.seeded
def test_fresh_seeds_write_unmatched_events_once_wherever_they_stand() -> None:
    run_each(_run_inline, lambda seed: _run_inline(seed, story=True).story or [], 60)


def _run_inline(seed: int, *, story: bool = False) -> World:
    return run_seed(seed, Variant(inline=True, sets=seed % 3 == 0), story=story)


def test_unmatched_events_stand_in_both_places() -> None:
    found = set[str]()
    for seed in range(BOUNDED_SEEDS):
        for site in _run_inline(seed).sites:
            for directory in ("joined", "unmatched"):
                names = site.disk.names(OUTPUT / directory)
                found |= {directory for name in names if b'"reason":' in site.disk.read(OUTPUT / directory / name)}
    assert found == {"joined", "unmatched"}


def test_a_seed_replays_exactly() -> None:
    one, other = run_seed(7, story=True), run_seed(7, story=True)
    assert one.story == other.story
    assert len(one.story or []) > 5


@pytest.mark.parametrize("name", sorted(ABLATIONS))
def test_the_simulator_notices_a_missing_rule(name: str) -> None:
    ablation = ABLATIONS[name]
    seeds = range(SEEDS_OF_AN_ABLATION)
    notice(f"joiner: {name}", seeds, lambda seed: run_seed(seed, ablation.variant), ablation.finds)


def test_schedules_reach_what_they_are_for() -> None:
    """The faults really happen: a simulator that does nothing finds nothing."""
    words = (
        "power cut",
        "kill",
        "simulated",
        r"redoes [1-9]",
        "hears None",
        "final",
        "older copy and refused",
        "all that the witness",
        "rot in",
        "and that is accepted",
        "loses its redo log",
        "nothing is left of incarnations",
        r"gives up [1-9]",
    )
    reach("joiner", range(60), _story, words)


def _story(seed: int) -> list[str]:
    world = World(seed, Variant(), story=True)
    world.run()
    return world.story or []
