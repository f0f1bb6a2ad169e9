"""Each protection of the driver is needed: without it the simulator finds a violation, with it none."""

from __future__ import annotations

from functools import partial

import pytest

from tests.simulation.raft.ablations import ABLATIONS, Ablation
from tests.simulation.world import raft as world
from tests.simulation.world.noticed import notice


@pytest.mark.parametrize("name", ABLATIONS)
def test_the_simulator_notices_a_missing_protection(name: str) -> None:
    ablation = ABLATIONS[name]
    with pytest.MonkeyPatch.context() as patched:
        ablation.patch(patched)
        seeds, lies_about = range(ablation.seeds), ablation.lies_about
        run = partial(_run, ablation=ablation, lies_about=lies_about)
        found = notice(f"raft: {name}", seeds, run, ablation.finds)
    _run(found, ablation, lies_about=None)


def _run(seed: int, ablation: Ablation, *, lies_about: str | None) -> None:
    world.run(
        seed,
        replicas=ablation.replicas,
        lies_about=lies_about,
        kinds=ablation.kinds,
        options=ablation.options,
    )
