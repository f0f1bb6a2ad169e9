"""The registry alone in the simulated world: real Raft, replicas that are lost and replaced, shards that change, and
holders of slots (``world.holders``) under every fault. Logs and snapshots are as short as possible."""

from __future__ import annotations

from collections.abc import Sequence

from photon.config.clock import NS_PER_S
from photon.idregistry.core.state_machine import ShardMachine
from photon.idregistry.raft import snapshot
from photon.idregistry.replica import server as registry_server
from tests.simulation.world import holders, replacing, replica, resharding, site_faults
from tests.simulation.world.cluster import SMALL
from tests.simulation.world.replica import RaftWorld
from tests.simulation.world.retiring import Operator
from tests.simulation.world.site_faults import Fault
from tests.simulation.world.world import Patch, Place, Variant, run_seed

BUCKET_BITS = 30  # ids are collected by the second of their time
RETENTION_NS = 6 * NS_PER_S
_make = ShardMachine.__init__


def _small_buckets(self: ShardMachine) -> None:
    _make(self, BUCKET_BITS)


Faults = Sequence[tuple[Fault, int]]
REPLICAS: Faults = (
    (site_faults.kill_one, 5),
    (site_faults.crash_in_a_write, 4),
    (site_faults.fail_a_sync, 2),
    (site_faults.pause_one, 4),
    (site_faults.cut_power, 3),
    (site_faults.kill_both, 1),
    (site_faults.cut_network, 2),
    (replica.cut_replicas, 4),
    (site_faults.weather, 4),
    (site_faults.new_leader, 3),
    (replica.full_disk, 2),
    (replica.slow_disk, 2),
)
HOLDERS: Faults = ((holders.kill_holder, 6), (holders.cut_holder, 3))
CLOCKS: Faults = ((site_faults.shift_clock, 2), (holders.jump_clock, 4), (holders.late_boundary, 2))
SLOTS: Faults = (
    (holders.retire_holder, 3),
    (holders.copy_slot, 2),
    (holders.open_late, 2),
    (holders.ask_late, 2),
    (holders.unheard_and_set_back, 2),
)
CHANGES: Faults = ((resharding.hasty_intent, 4), (holders.late_entry, 6), (holders.hours_ahead, 4))


class RegistryWorld(RaftWorld):
    """See the module."""

    bucket_bits = BUCKET_BITS
    faults_s = 18.0
    changes_begin_s, changes_looked_at_s = (1.0, 3.0), (0.1, 1.0)
    common_faults = (*REPLICAS, *HOLDERS, *CLOCKS, *SLOTS)
    patches: tuple[Patch, ...] = (
        *SMALL,
        (snapshot, "SNAPSHOT_SLICE_BYTES", 200),
        (ShardMachine, "__init__", _small_buckets),
        (registry_server, "BOUNDARY_STEP_NS", NS_PER_S),
        (registry_server, "CARETAKER_SECONDS", 0.8),
        (registry_server, "_CHANGING_SECONDS", 0.2),
    )

    def _draw(self) -> None:
        super()._draw()
        self.apart = self.loses_slots = False
        self.crash_in = ("replica",)
        self.unrests.clear()
        self.checks[:] = [replica.unexplained, replica.differing, resharding.misplaced]
        self.keeps_ns = self.random.choice((None, RETENTION_NS, RETENTION_NS))
        self.targets = list(self.random.choice(resharding.TARGETS))
        self.replaces = self.random.random() < 0.3

    @property
    def retention_ns(self) -> int | None:
        return self.keeps_ns

    @property
    def datacentres(self) -> list[Place]:
        """The datacentres that may lose their power."""
        return [place for name, place in self.places.items() if name not in self.slots.directories]

    def _place_more(self) -> None:
        self._add("north-operator", Operator, self.places["north"])
        if self.targets:
            self._add("north-resharder", resharding.ReshardingOperator, self.places["north"])
            self.faults_here += CHANGES
        if self.replaces:
            self._add("north-replacer", replacing.ReplicaOperator, self.places["north"])
            self.faults_here += ((replacing.lose_replica, 2), (replacing.rot_replica, 2))
        holders.place(self, 3)
        self.unrests += [resharding.changing, resharding.unremoved, replacing.unreplaced, replica.unsettled]


def run(seed: int, variant: Variant | None = None, *, story: bool = False, kinds: Faults = ()) -> RegistryWorld:
    """One schedule, only with faults of ``kinds`` if given. Raises Violation."""
    kind = type("OfKinds", (RegistryWorld,), {"common_faults": kinds}) if kinds else RegistryWorld
    return run_seed(seed, variant, story=story, kind=kind)
