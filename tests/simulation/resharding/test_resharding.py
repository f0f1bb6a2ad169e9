"""Shards that grow and shrink under every fault: seeded schedules, and what they find when a rule is taken out.

`make sim SEED=123` replays one and tells its story.
"""

from __future__ import annotations

import os

import numpy as np
import pytest

from photon.idregistry.api import DIGEST_BYTES
from photon.idregistry.core import commands as c
from photon.idregistry.core.state_machine import WRONG_SHARD
from photon.idregistry.replica.shard_server import ShardServer
from tests.simulation.registry.world import client_cut, client_killed, small_clock_jump
from tests.simulation.resharding import world
from tests.simulation.world.cluster import Violation
from tests.simulation.world.noticed import notice, reach
from tests.simulation.world.seeds import seeds, share

BATCH = 5
SEEDS_OF_AN_ABLATION = 150


def _run(seed: int) -> world.ReshardingWorld:
    story: list[str] | None = [] if "PHOTON_SIM_SEED" in os.environ else None
    try:
        return world.run(seed, story=story)
    except BaseException as e:
        raise AssertionError(f"replay with: make sim SEED={seed} (resharding): {e}") from e
    finally:
        if story:
            print(f"\nResharding, seed {seed}", *story, sep="\n")


_SEEDS = share(seeds(30), 3, least=30)


@pytest.mark.seeded
@pytest.mark.parametrize(
    "batch", [_SEEDS[n : n + BATCH] for n in range(0, len(_SEEDS), BATCH)], ids=lambda b: f"{b[0]}-{b[-1]}"
)
def test_the_promises_hold(batch: list[int]) -> None:
    for seed in batch:
        assert _run(seed).history.asked  # or nothing was tested


def test_a_seed_replays() -> None:
    stories: list[list[str]] = [[], []]
    first, second = (world.run(3, story=story) for story in stories)
    assert stories[0] == stories[1]
    assert first.history.asked == second.history.asked


def test_schedules_reach_what_they_are_for() -> None:
    """Changes that are activated, refused, given up; shards removed; callers that went by an old config."""
    missing = {(kind, False) for kind in ("Intend", "Prepare", "Activate", "Abort", "Seed", "Configure")}
    missing |= {("Prepare", True), ("Intend", True), ("Decide", True)}
    missing |= {("activated", False), ("aborted", False), ("Close", False), ("Drop", False)}
    wrong = removed = 0

    def told(seed: int) -> list[str]:
        nonlocal wrong, removed
        story: list[str] = []
        done = world.run(seed, story=story)
        for group in done.history.logs:
            for entry in done.history.log(group):
                refused = isinstance(entry.result, str) and bool(entry.result)
                missing.discard((type(entry.command).__name__, refused))
                if isinstance(entry.command, c.Decide):
                    missing.discard(("activated" if entry.command.activate else "aborted", refused))
                if isinstance(entry.command, c.Batch):
                    wrong += WRONG_SHARD in entry.result[0]
        removed += len(done.changes.removed)
        return story

    words = ("opens group 5", "removes group 3", "gives up", "an hour ahead", r"is fenced everywhere: \(1, 2, 3\)")
    reach(map(told, range(40)), words, lambda: not missing and wrong > 20 and removed > 3)


def test_that_former_shards_are_asked_is_missed_here_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other rules are taken out in ``test_machines``, where a schedule takes a hundredth of the time."""

    def nobody(self: ShardServer, digests: bytes) -> tuple[np.ndarray, int]:
        return np.zeros(len(digests) // DIGEST_BYTES, np.bool_), self.machine.serving[0].config

    monkeypatch.setattr(ShardServer, "held_elsewhere", nobody)
    kinds = (world.hasty_intent, world.hasty_intent, small_clock_jump, client_killed, client_cut)
    finds = "was accepted by shards|acknowledged to tokens"
    tried = range(SEEDS_OF_AN_ABLATION)
    notice("resharding: former shards not asked", tried, lambda seed: world.run(seed, kinds=kinds), finds, Violation)
