"""The join on Spark (``world``) against a rival that registers some of its events: seeded schedules, and with its
rules removed."""

from __future__ import annotations

import pytest

from tests.simulation.spark_join.ablations import ABLATIONS
from tests.simulation.spark_join.world import EXPORTER, FAULTS, SparkJoinWorld, full_disk
from tests.simulation.world.noticed import notice, reach
from tests.simulation.world.seeds import seeds, share
from tests.simulation.world.world import Variant, run_seed

SEEDS = 30
_SEEDS = share(seeds(SEEDS), 2, least=15)
SEEDS_OF_AN_ABLATION = 600  # schedules within which the world must notice a missing rule; most need a few


@pytest.mark.seeded
@pytest.mark.parametrize(
    "batch", [_SEEDS[n : n + 5] for n in range(0, len(_SEEDS), 5)], ids=lambda b: f"{b[0]}-{b[-1]}"
)
def test_every_event_is_written_once(batch: list[int]) -> None:
    for seed in batch:
        run_seed(seed, kind=SparkJoinWorld)


def test_a_seed_replays_exactly() -> None:
    one, other = (run_seed(7, story=True, kind=SparkJoinWorld) for _ in range(2))
    assert one.story == other.story


FULL = Variant(faults=[(full_disk, 60), *FAULTS])
# Files that a full disk keeps from being written.
STEPS = (
    r"plans/\.\d+", r"parts/[-\d]+\.\w+\.staged", r"parts/[-\d]+\.\w+\.rejected", r"waiting/[-\d]+\.\w+\.events",
    r"parts/\.[-\d]+\.decided", r"parts/\.[-\d]+\.result", r"commits/\.\d+", "claim.tmp", "slot.json.tmp",
    r"/out/\w+/.*jsonl", "slots/spark-east/durable.json", f"{EXPORTER}/durable.json",
)  # fmt: skip


def test_a_full_disk_in_any_step_loses_nothing() -> None:
    """A process ends with the error, and is started again."""

    def told(seed: int) -> list[str]:
        return run_seed(seed, FULL, story=True, kind=SparkJoinWorld).story or []

    reach("spark join, full disk", range(200), told, [f"is no more: .*No space left.*{step}" for step in STEPS])


@pytest.mark.parametrize("name", sorted(ABLATIONS))
def test_the_simulator_notices_a_missing_rule(name: str) -> None:
    ablation = ABLATIONS[name]
    notice(
        f"spark join: {name}", range(SEEDS_OF_AN_ABLATION),
        lambda seed: run_seed(seed, ablation.variant, kind=SparkJoinWorld), ablation.finds,
    )  # fmt: skip


def test_schedules_reach_what_they_are_for() -> None:
    """The faults really happen: a simulator that does nothing finds nothing."""
    speculated = drivers = 0

    def told(seed: int) -> list[str]:
        nonlocal speculated, drivers
        world = run_seed(seed, story=True, kind=SparkJoinWorld)
        speculated += world.join.speculated
        drivers += len(world.join.drivers) - 1
        return world.story or []

    killed = ("driver-. is no more: kill", "attempt is no more: kill", "in the middle of a write", "has no power")
    fenced = ("driver-.: Fenced: slot", "attempt: Fenced: batch")
    reach("spark join", range(30), told, (*killed, *fenced), lambda: speculated > 10 and drivers > 3)
