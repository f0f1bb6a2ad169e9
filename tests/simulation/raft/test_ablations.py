"""Each protection of the driver is needed: without it the simulator finds a violation."""

from __future__ import annotations

import re
import sys

import pytest

from tests.simulation.raft.ablations import ABLATIONS
from tests.simulation.world import raft as world
from tests.simulation.world.cluster import Violation


@pytest.mark.parametrize("name", ABLATIONS)
def test_the_simulator_notices_a_missing_protection(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ablation = ABLATIONS[name]
    ablation.patch(monkeypatch)
    for seed in range(ablation.seeds):
        try:
            world.run(
                seed,
                replicas=ablation.replicas,
                lies_about=ablation.lies_about,
                kinds=ablation.kinds,
                options=ablation.options,
            )
        except Violation as e:
            if re.search(ablation.finds, str(e)):
                print(f"{name}: seed {seed}: {e}", file=sys.stderr)
                return
    pytest.fail(f"without '{name}' {ablation.seeds} schedules found nothing")
