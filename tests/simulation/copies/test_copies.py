"""Seeded schedules of copied output (``world.seeds`` says which)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog

from tests.simulation.copies.ablations import ABLATIONS
from tests.simulation.copies.process import CopyVariant
from tests.simulation.copies.world import CopyWorld, run_seed
from tests.simulation.world.noticed import notice, reach
from tests.simulation.world.seeds import run_each

SEEDS_OF_AN_ABLATION = 2000  # schedules within which the simulator must notice a missing rule; most need a few dozen


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Alarms are the subject of schedules: they go into the story."""
    with structlog.testing.capture_logs():
        yield


@pytest.mark.seeded
def test_fresh_seeds_keep_the_promises() -> None:
    run_each(run_seed, lambda seed: run_seed(seed, story=True).story or [], 60)


@pytest.mark.seeded
def test_fresh_seeds_show_and_copy_all_pairs_of_an_event_or_none() -> None:
    run_each(_run_sets, lambda seed: _run_sets(seed, story=True).story or [], 40)


def _run_sets(seed: int, *, story: bool = False) -> CopyWorld:
    return run_seed(seed, CopyVariant(sets=True, loses=0.7), story=story)


def test_a_seed_replays_exactly() -> None:
    one, other = run_seed(7, story=True), run_seed(7, story=True)
    assert one.story == other.story
    assert len(one.story or []) > 5


@pytest.mark.parametrize("name", sorted(ABLATIONS))
def test_the_simulator_notices_a_missing_rule(name: str) -> None:
    ablation = ABLATIONS[name]
    seeds = range(SEEDS_OF_AN_ABLATION)
    notice(f"copies: {name}", seeds, lambda seed: run_seed(seed, ablation.variant), ablation.finds)


def test_schedules_reach_what_they_are_for() -> None:
    """The faults really happen: a simulator that does nothing finds nothing."""
    variant = CopyVariant(loses=0.7, puts_back=0.7)
    words = (
        "is permanently lost",
        "is believed to be lost",
        "is sealed: {'",
        r"retired, [1-9]\d* ids",
        "retiring s0 is killed",
        "shows what is durable there alone",
        "has not heard of its copy",
        "keeper of dc. is away",
        "keeper of dc. dies",
        "older copy, which has all",
        "takes from its copy",
        "makes .* final",
    )
    reach("copies", range(80), lambda seed: run_seed(seed, variant, story=True).story or [], words)
