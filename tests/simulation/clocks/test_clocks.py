"""Seeded schedules of clocks (``world``): no boundary is moved too far, and all propose again once all is well."""

from __future__ import annotations

import pytest

from tests.simulation.clocks.world import TICKS, Violation, World
from tests.simulation.world.seeds import seeds

SEEDS = seeds(base=81_000)


@pytest.mark.seeded
@pytest.mark.parametrize("seed", SEEDS)
def test_fewer_than_half_wrong_clocks_move_no_boundary_too_far(seed: int) -> None:
    world = World(seed)
    try:
        world.run()
    except Violation as violation:
        raise AssertionError(f"PHOTON_SIM_SEED={seed}: {violation}") from violation
    assert world.proposals > TICKS // 10
    assert world.refusals > 0


def test_without_the_objection_the_simulation_sees_a_boundary_in_the_future() -> None:
    """The ablation: within 20 schedules."""

    def trusting() -> None:
        for seed in range(20):
            World(seed, trusting=True).run()

    with pytest.raises(Violation, match="moved the boundary"):
        trusting()
