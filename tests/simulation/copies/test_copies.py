"""Seeded schedules of copied output: PHOTON_SIM_SEEDS fresh ones (40); PHOTON_SIM_SEED replays one."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest
import structlog

from tests.simulation.copies.world import run_seed


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Alarms are what schedules are about: they stand in the story."""
    with structlog.testing.capture_logs():
        yield


@pytest.mark.seeded
def test_fresh_seeds_keep_the_promises() -> None:
    if (one := os.environ.get("PHOTON_SIM_SEED")) is not None:
        print("\n".join(run_seed(int(one), story=True).story or []))
        return
    first = random.SystemRandom().randrange(1 << 40)
    count = int(os.environ.get("PHOTON_SIM_SEEDS", "40"))
    print(f"seeds {first} to {first + count - 1}")
    for seed in range(first, first + count):
        run_seed(seed)


def test_a_seed_replays_exactly() -> None:
    one, other = run_seed(7, story=True), run_seed(7, story=True)
    assert one.story == other.story
    assert len(one.story or []) > 5
