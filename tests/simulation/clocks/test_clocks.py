"""Wrong clocks (``world.clocks``) with only the registry: no boundary moves too far; all replicas propose again."""

from __future__ import annotations

from functools import partial

import pytest

from photon.config.clock import NS_PER_S
from photon.idregistry.core.shard_snapshot import NO_BOUNDARY
from photon.idregistry.replica import server as registry_server
from tests.simulation.datacentres.ablations import ABLATIONS
from tests.simulation.world import clocks, site_faults
from tests.simulation.world.noticed import notice
from tests.simulation.world.process import Replica
from tests.simulation.world.seeds import seeds
from tests.simulation.world.world import REGIONS, Patch, World, run_seed

SEEDS = seeds(base=81_000)


class ClocksWorld(World):
    """Three or five replicas, two of them in one region; days are long, and boundaries move every second."""

    patches: tuple[Patch, ...] = (
        (registry_server, "BOUNDARY_STEP_NS", NS_PER_S),
        (registry_server, "CARETAKER_SECONDS", 1.0),
    )
    faults_s = 100.0
    common_faults = (
        (clocks.set_replica_clock, 8),
        (site_faults.kill_one, 2),
        (site_faults.pause_one, 2),
        (site_faults.cut_network, 4),
        (site_faults.weather, 3),
        (site_faults.new_leader, 4),
        (site_faults.shift_clock, 3),
    )

    def _draw(self) -> None:
        super()._draw()
        self.apart = True
        self.loses_slots = False
        self.unrests.clear()
        self.checks.clear()
        self.boundaries: set[tuple[int, int]] = set()
        self.refusals = 0

    def _place_more(self) -> None:
        for region in self.random.choice(((), self.random.sample(REGIONS, 2))):
            self._add(f"{region}-replica1", Replica, self.places[region])
        clocks.drift(self, self.random)

    def _begin(self) -> None:
        super()._begin()
        self._count()

    def _count(self) -> None:
        """Counts what the schedule showed."""
        for number, group in self.groups.items():
            leader = group.leader and self.running(group.leader)
            if number and isinstance(leader, Replica) and leader.watch is not None:
                self.refusals += bool(leader.watch.objection())
        self.boundaries |= {
            (at, each.boundary) for at, each in enumerate(self.shard_machines()) if each.boundary != NO_BOUNDARY
        }
        self.loop.later(clocks.LOOK_S, self._count)


@pytest.mark.seeded
@pytest.mark.parametrize("seed", SEEDS)
def test_fewer_than_half_wrong_clocks_move_no_boundary_too_far(seed: int) -> None:
    run_seed(seed, kind=ClocksWorld)


def test_schedules_reach_what_they_are_for() -> None:
    """Boundaries move and leaders object, with three replicas and with five."""
    worlds = [run_seed(seed, kind=ClocksWorld) for seed in range(8)]
    assert {len(world.replicas) for world in worlds if world.refusals} == {3, 5}
    assert sum(len(world.boundaries) for world in worlds) > 100


def test_without_the_objection_the_simulation_sees_a_boundary_in_the_future() -> None:
    trusting = ABLATIONS["clocks: any leader's moves the boundary"].variant
    run = partial(run_seed, variant=trusting, kind=ClocksWorld)
    notice("clocks: objections are not heard", range(20), run, "moved the boundary")
