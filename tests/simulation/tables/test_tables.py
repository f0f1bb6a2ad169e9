"""Seeded schedules of tables (``world.seeds`` says which)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from tests.simulation.tables.ablations import ABLATIONS
from tests.simulation.tables.chains import Chain, ChainInFile
from tests.simulation.tables.history import Ran, check
from tests.simulation.tables.workload import InFile, Races, Schedule, run_seed
from tests.simulation.world.noticed import notice, reach
from tests.simulation.world.seeds import run_each
from tests.simulation.world.violation import Violation

SEEDS_OF_AN_ABLATION = 6000


@pytest.mark.seeded
def test_fresh_seeds_keep_the_promises() -> None:
    run_each(run_seed, lambda seed: run_seed(seed).story, 100)


@pytest.mark.seeded
def test_a_stream_through_chains_of_observers_is_what_a_batch_says() -> None:
    run_each(lambda seed: run_seed(seed, None, Chain), lambda seed: run_seed(seed, None, Chain).story, 40)


@pytest.mark.seeded
@pytest.mark.parametrize("kind", [InFile, ChainInFile])
def test_files_keep_the_promises_by_commits_in_one_step(kind: type[Any]) -> None:
    run_each(lambda seed: run_seed(seed, None, kind), lambda seed: run_seed(seed, None, kind).story, 40)


@pytest.mark.seeded
def test_slow_prewrites_after_their_roll_back_change_nothing() -> None:
    run_each(lambda seed: run_seed(seed, None, Races), lambda seed: run_seed(seed, None, Races).story, 40)


def test_a_seed_replays_exactly() -> None:
    assert run_seed(7).story == run_seed(7).story
    assert run_seed(7, None, Chain).story == run_seed(7, None, Chain).story


@pytest.mark.parametrize("name", sorted(ABLATIONS))
def test_the_simulator_notices_a_missing_rule(name: str) -> None:
    ablation = ABLATIONS[name]
    seeds = range(SEEDS_OF_AN_ABLATION)
    run = lambda seed: run_seed(seed, ablation.variant, ablation.kind)  # noqa: E731
    notice(f"tables: {name}", seeds, run, ablation.finds)


def test_schedules_reach_what_they_are_for() -> None:
    words = (
        "kill client",
        "comes 4.0 s later",
        "never comes",
        "answer lost",
        "afterwards",
        "deposed",
        "clock steps",
        "told: aborted",
    )
    reach("tables", range(60), partial(_story, Schedule), words)
    reach("tables: races", range(60), partial(_story, Races), ("a slow prewrite meets a mark", "comes 4.0 s later"))
    words = ("a step never comes", "a step comes later", "answer is lost .True.", "kill client", "told: aborted")
    reach("tables: in a file", range(60), partial(_story, InFile), words)
    words = (
        "kill client-loader", "kill client-worker", "a snapshot is the same and was held", "a snapshot is refused",
        "oracle . is deposed", "clock steps", "comes 4.0 s later",
    )  # fmt: skip
    reach("tables: chains", range(60), partial(_story, Chain), words)


def _story(kind: type[Any], seed: int) -> list[str]:
    schedule = kind(seed)
    schedule.run_all()
    return schedule.story


# -- the checker sees planted anomalies ------------------------------------------------------------------------------
A, B = ("t", "a", "x"), ("t", "b", "x")


def history() -> dict[str, Ran]:
    """A correct history."""
    return {
        "first": Ran(1, 0, {}, {A, B}, "committed", 2),
        "second": Ran(3, 2, {A: 1, B: 1}, {A, B}, "committed", 5),
        "beside": Ran(4, 2, {A: 1, B: 1}, set(), "committed", 0),
        "aborted": Ran(6, 5, {A: 3}, {A}, "aborted", 0),
        "dead": Ran(7, 5, {B: 3}, {B}, "unknown", 8),
        "last": Ran(9, 5, {A: 3, B: 7}, set(), "committed", 0),
    }


def test_a_right_history_passes() -> None:
    check(history().values())


@pytest.mark.parametrize(
    ("anomaly", "plant"),
    [
        (
            "lost update",
            lambda h: h | {"x": Ran(10, 5, {A: 3}, {A}, "committed", 12), "y": Ran(11, 5, {}, {A}, "", 13)},
        ),
        ("fractured read", lambda h: {"first": h["first"], "second": h["second"], "x": Ran(10, 5, {A: 3, B: 1})}),
        ("aborted read", lambda h: h | {"last": replace(h["last"], reads={A: 6})}),
        ("wrong snapshot", lambda h: h | {"beside": replace(h["beside"], reads={A: 3})}),
        ("wrong snapshot", lambda h: h | {"last": replace(h["last"], reads={B: 0})}),
        ("lost commit", lambda h: h | {"second": replace(h["second"], commit=0)}),
        ("false abort", lambda h: h | {"aborted": replace(h["aborted"], commit=20)}),
        ("time", lambda h: h | {"last": replace(h["last"], after=10)}),
        ("time", lambda h: h | {"second": replace(h["second"], commit=3)}),
    ],
)
def test_planted_anomalies_are_found(anomaly: str, plant: Callable[[dict[str, Ran]], dict[str, Ran]]) -> None:
    with pytest.raises(Violation, match=anomaly):
        check(plant(history()).values())
