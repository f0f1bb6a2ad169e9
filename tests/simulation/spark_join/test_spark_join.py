"""The join on Spark (``world``): seeded schedules, and with its rules removed."""

from __future__ import annotations

import pytest

from tests.simulation.spark_join.world import SparkJoinWorld
from tests.simulation.world.seeds import seeds, share
from tests.simulation.world.world import run_seed

SEEDS = 30
_SEEDS = share(seeds(SEEDS), 2, least=15)


@pytest.mark.seeded
@pytest.mark.parametrize(
    "batch", [_SEEDS[n : n + 5] for n in range(0, len(_SEEDS), 5)], ids=lambda b: f"{b[0]}-{b[-1]}"
)
def test_every_event_is_written_once(batch: list[int]) -> None:
    for seed in batch:
        run_seed(seed, kind=SparkJoinWorld)
