"""Random worlds that break their promises: whatever is done to logs, state and output, nothing is joined twice or
lost.

``PHOTON_WORLDS=1-200`` runs those seeds, ``PHOTON_ACTS="rotate again"`` draws from these acts only, and
``PHOTON_STEPS`` runs the steps that a story names, or some of them.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.integration.hostile.oracle import Broken
from tests.integration.hostile.world import ACTS, World, draw, parsed

HERE = "tests/integration/hostile/test_worlds.py"
PINNED = (508, 1450)
ROUNDS = 3
FULL = 50
LONG = 8  # rounds per world in long runs


def seeds() -> list[int | None]:
    """``None`` means a fresh one. They are drawn in the test: all workers of a run must list the same tests."""
    if named := os.environ.get("PHOTON_WORLDS"):
        first, _, last = named.partition("-")
        return list(range(int(first), int(last or first) + 1))
    return [*PINNED, *[None] * (FULL if os.environ.get("PHOTON_FULL") else 0)]


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("pinned", [PINNED[0], None])
def test_world_without_event_times(tmp_path: Path, pinned: int | None) -> None:
    """Every event has the same time in each run, even when reread from an older state."""
    run(tmp_path, pinned, timed=False)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("pinned", seeds())
def test_world(tmp_path: Path, pinned: int | None) -> None:
    run(tmp_path, pinned)


def run(tmp_path: Path, pinned: int | None, *, timed: bool = True) -> None:
    seed = random.SystemRandom().randrange(1 << 30) if pinned is None else pinned
    rounds = LONG if os.environ.get("PHOTON_FULL") or os.environ.get("PHOTON_WORLDS") else ROUNDS
    steps = draw(seed, rounds, os.environ.get("PHOTON_ACTS", " ".join(ACTS)).split())
    if named := os.environ.get("PHOTON_STEPS"):
        steps = parsed(named)
    world = World(tmp_path, seed, timed=timed)
    for step in steps:
        try:
            world.do(step)
        except Broken as broken:
            which = "" if timed else " -k without_event_times"
            replay = f'PHOTON_WORLDS={seed} PHOTON_STEPS="{" ".join(map(str, steps))}" .venv/bin/pytest {HERE}{which}'
            pytest.fail("\n".join([str(broken), *world.story, f"at {step}", replay]), pytrace=False)
