"""The Raft driver under power cuts, bad disks, bad networks, partitions and pauses: seeded schedules.

`make sim SEED=123` replays one and tells its story. ``raft/test_ablations.py`` shows what a schedule loses without
one of the protections.
"""

from __future__ import annotations

import os
import sys

import pytest

from tests.simulation.raft.conftest import small
from tests.simulation.world import raft as world
from tests.simulation.world.noticed import reach
from tests.simulation.world.seeds import seeds, share

__all__ = ["small"]
BATCH = 10


def _batches(all_seeds: list[int]) -> list[list[int]]:
    return [all_seeds[n : n + BATCH] for n in range(0, len(all_seeds), BATCH)]


def _run(seed: int, replicas: int = 3) -> world.World:
    story: list[str] | None = [] if "PHOTON_SIM_SEED" in os.environ else None
    try:
        return world.run(seed, replicas=replicas, story=story)
    except BaseException as e:
        raise AssertionError(f"replay with: make sim SEED={seed} ({replicas} replicas): {e}") from e
    finally:
        if story:
            print(f"\nRaft, {replicas} replicas, seed {seed}", *story, sep="\n")


@pytest.mark.seeded
@pytest.mark.parametrize("batch", _batches(seeds()), ids=lambda b: f"{b[0]}-{b[-1]}")
def test_no_acknowledged_command_is_lost(batch: list[int]) -> None:
    acknowledged = crashes = 0
    for seed in batch:
        done = _run(seed)
        acknowledged += len(done.acknowledged)
        crashes += done.crashes
    print(f"{len(batch)} seeds: {acknowledged} acknowledged, {crashes} crashes", file=sys.stderr)
    if len(batch) == BATCH:
        assert acknowledged > 20 * len(batch)  # or nothing was tested
        assert crashes > 0


@pytest.mark.seeded
@pytest.mark.parametrize("seed", share(seeds(50), 10))
def test_five_replicas(seed: int) -> None:
    _run(seed, replicas=5)


def test_a_seed_replays() -> None:
    stories: list[list[str]] = [[], []]
    first, second = (world.run(4, story=story) for story in stories)
    assert first.by_index == second.by_index
    assert (first.now, first.proposed, first.crashes) == (second.now, second.proposed, second.crashes)
    assert stories[0] == stories[1]
    assert len(stories[0]) > 10


def test_schedules_reach_what_they_are_for() -> None:
    """Every kind of fault really happens: a simulator that does nothing finds nothing."""

    def tell(seed: int) -> list[str]:
        told: list[str] = []
        world.run(seed, story=told)
        return told

    words = (
        "power cut",
        "killed",
        "stands still",
        "cut: ",
        "late",
        "bytes are left",
        "a sync takes",
        "Input/output error",
        "a bit flipped",
        "is damaged",
        "its disk was wiped",
        "has another disk|with another disk",
    )
    reach("raft", range(60), tell, words)
