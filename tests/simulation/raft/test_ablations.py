"""Each protection of the driver is needed: without it the simulator finds a violation, with it none."""

from __future__ import annotations

import re
import sys

import pytest

from tests.simulation.raft.ablations import ABLATIONS, Ablation
from tests.simulation.world import raft as world
from tests.simulation.world.cluster import Violation


@pytest.mark.parametrize("name", ABLATIONS)
def test_the_simulator_notices_a_missing_protection(name: str) -> None:
    ablation = ABLATIONS[name]
    with pytest.MonkeyPatch.context() as patched:
        ablation.patch(patched)
        found = _first_violation(name, ablation)
    if found is None:
        pytest.fail(f"without '{name}' {ablation.seeds} schedules found nothing")
    _run(found, ablation, lies_about=None)


def _first_violation(name: str, ablation: Ablation) -> int | None:
    for seed in range(ablation.seeds):
        try:
            _run(seed, ablation, lies_about=ablation.lies_about)
        except Violation as e:
            if re.search(ablation.finds, str(e)):
                print(f"{name}: seed {seed}: {e}", file=sys.stderr)
                return seed
    return None


def _run(seed: int, ablation: Ablation, *, lies_about: str | None) -> None:
    world.run(
        seed,
        replicas=ablation.replicas,
        lies_about=lies_about,
        kinds=ablation.kinds,
        options=ablation.options,
    )
