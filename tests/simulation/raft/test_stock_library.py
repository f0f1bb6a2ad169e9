"""pysyncobj 0.3.17 as it comes loses what it acknowledged; under the same schedules the driver does not."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.simulation.raft import stock
from tests.simulation.world import raft as world
from tests.simulation.world.violation import Violation

COMPACTION_ENTRIES = 20
NO_COMPACTION = 1 << 40

CASES: dict[str, tuple[tuple[str, ...], int, tuple[int, ...]]] = {
    "connections cut, nobody dies": (("cut",), COMPACTION_ENTRIES, (6, 8, 22)),
    "pauses and cuts, nobody dies": (("pause", "cut"), COMPACTION_ENTRIES, (6, 15)),
    "processes killed, connections cut": (("kill", "cut"), COMPACTION_ENTRIES, (1, 2, 5)),
    "power cuts": (("power",), NO_COMPACTION, (1, 2, 7)),
}
"""Faults, after how many entries a dump is written, and seeds under which the library breaks its promise."""
SEEDS = [(name, seed) for name, (_, _, seeds) in CASES.items() for seed in seeds]


def _events(name: str, seed: int) -> list[stock.Event]:
    return stock.draw(seed, "abc", CASES[name][0])


@pytest.mark.xfail(raises=Violation, strict=True, reason="pysyncobj 0.3.17 loses acknowledged writes")
@pytest.mark.parametrize(("name", "seed"), SEEDS)
def test_the_stock_library_keeps_what_it_acknowledged(name: str, seed: int, tmp_path: Path) -> None:
    stock.run(seed, tmp_path, _events(name, seed), compaction_entries=CASES[name][1])


@pytest.mark.parametrize(("name", "seed"), SEEDS)
def test_the_driver_keeps_it_under_the_same_schedule(name: str, seed: int) -> None:
    done = world.run(seed, plan=lambda each: stock.play(each, _events(name, seed)))
    assert done.acknowledged  # or nothing was tested


@pytest.mark.parametrize("name", CASES)
def test_the_driver_keeps_it_under_more_of_them(name: str) -> None:
    for seed in range(20 if os.environ.get("PHOTON_FULL") else 8):
        world.run(seed, plan=_plan(name, seed))


def _plan(name: str, seed: int) -> Callable[[world.World], None]:
    return lambda each: stock.play(each, _events(name, seed))


def test_without_faults_the_stock_library_works(tmp_path: Path) -> None:
    """The simulated world is fair to it: what it loses it loses by the faults."""
    done = stock.run(1, tmp_path, [], compaction_entries=NO_COMPACTION)
    assert len(done.acknowledged) > 100
