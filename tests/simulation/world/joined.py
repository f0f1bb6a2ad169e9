"""Everything at once: two datacentres over real Raft replicas of the registry, whose shards change and whose disks
are lost and replaced; joiners that share machines and adopt each other's slots; keepers of copies, and slots that are
lost and retired against them; under the faults of ``site_faults``, including clocks a day apart.

Each is a plug-in: processes, faults, what must come to rest, and what must hold then (``replica``, ``resharding``,
``replacing``, ``keepers``, ``adopting``). A seed draws which of them exist.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from photon.config.back_off import BackOff
from photon.idregistry.replica import server as registry_server
from photon.joiner import adopter as joiner_adopter
from photon.joiner.copies import service as copies_service
from photon.joiner.slot.slot import STATE_NAME
from photon.operations.slots import retiring as slot_retiring
from tests.simulation.world import adopting, backfill, clocks, holders, keepers, replacing, replica, resharding
from tests.simulation.world.process import JoinerProcess, Process, SimulatedLock
from tests.simulation.world.replica import RaftWorld
from tests.simulation.world.world import Patch, Variant
from tests.simulation.world.world import run_seed as run_world

# Faults where processes that join nothing hold slots.
HOLD = (
    *((holders.kill_holder, 2), (holders.cut_holder, 2), (holders.open_late, 2), (holders.ask_late, 2)),
    *((holders.copy_slot, 2), (holders.late_entry, 3), (replica.full_disk, 2), (replica.slow_disk, 2)),
)


class CountedLock(SimulatedLock):
    """Counts how often it was taken."""

    def take(self, *, wait_s: float = 0.0) -> None:
        super().take(wait_s=wait_s)
        world: Any = self._process.world
        world.takes[self._name] += 1


class JoinedWorld(RaftWorld):
    """See the module."""

    sampler = adopting.SharedSampler
    patches: tuple[Patch, ...] = (
        (copies_service, "SlotLock", CountedLock),
        (slot_retiring, "SlotLock", CountedLock),
        (joiner_adopter, "is_held", adopting.is_held),
        (joiner_adopter, "_taken", adopting.taken),
        (joiner_adopter, "LOCK_NAME", STATE_NAME),
        (joiner_adopter, "PAUSES", BackOff(first=2.0, most=8.0)),
        (registry_server, "_CHANGING_SECONDS", 0.3),
    )

    expected_alarms = (
        "no copy of the output is kept now: readers see output that is durable only here",
        "the output cannot be copied",
        "raft.disk_full",
    )

    def _draw(self) -> None:
        super()._draw()
        random = self.random
        self.lose_slot = adopting.lose_machine
        self.takes: Counter[str] = Counter()
        self.loses_slots = random.random() < 0.5
        self.targets = list(random.choice(resharding.TARGETS))
        self.replaces = random.random() < 0.5
        self.removes = random.random() < 0.5
        self.copies_wait_s: float | None = random.choice((None, 2.0, 20.0, 1e9))
        self.copies_required = self.copies_wait_s == 1e9
        self.crash_in = ("joiner", "dispatcher", "replica", "keeper")
        self.counts |= dict.fromkeys(("adopted", "sealed"), 0)

    def restarted(self) -> None:
        """Joiners come back with other settings."""
        if self.seed % 2:
            self.adapter.unmatched_inline = self.settings.random() < 0.6

    def _place(self) -> None:
        super()._place()
        for place in self.datacentres:
            if len(place.joiners) == 1:
                place.joiners.append(f"{place.name}-joiner1")
                self._add(place.joiners[-1], JoinerProcess, place)
            for name in place.joiners:
                self._exchange(name, adopting.SharingJoiner)
                place.disks[name] = place.disks[place.joiners[0]]
            self._add(f"{place.name}-verifier", adopting.VerifierProcess, place)
            place.disks[f"{place.name}-verifier"] = place.disks[place.joiners[0]]
            self._add(f"{place.name}-keeper", keepers.Keeper, place)
            if self.loses_slots:
                self._add(f"{place.name}-operator", keepers.CopyOperator, place)
                place.disks[f"{place.name}-operator"] = place.disks[f"{place.name}-keeper"]
        if self.apart:
            clocks.drift(self, self.settings)
        if self.seed % 7 == 2:
            self.backfill = backfill.plan(self, self.settings)
            self.unrests.append(backfill.undone)
        north = self.places["north"]
        if self.targets:
            self._add("north-resharder", resharding.ReshardingOperator, north)
        if self.replaces:
            self._add("north-replacer", replacing.ReplicaOperator, north)
        self.faults_here = [
            *([(resharding.hasty_intent, 2)] if self.targets else []),
            *([(replacing.lose_replica, 2), (replacing.rot_replica, 2)] if self.replaces else []),
            *([(adopting.remove_joiner, 4)] if self.removes else []),
            *([(clocks.set_replica_clock, 3)] if self.apart else []),
            *(backfill.FAULTS if self.backfill is not None else []),
        ]
        if self.seed % 6 == 5:
            holders.place(self, 2)
            self.faults_here += HOLD
        self.unrests[:0] = [
            resharding.changing, replacing.unreplaced, adopting.not_left_empty, keepers.behind, replica.unsettled,
        ]  # fmt: skip
        self.checks[:0] = [resharding.held_twice, replica.differing, resharding.misplaced, keepers.other_copies]

    def _add(self, name: str, kind: type[Process], place: Any) -> None:
        super()._add(name, kind, place)
        if kind is keepers.Keeper:
            place.disks[name] = self._disk()
        if name == "north-operator":  # copies are checked where they are kept
            del self.kinds[name]
            place.names.remove(name)


def run_seed(seed: int, variant: Variant | None = None, *, story: bool = False) -> JoinedWorld:
    """Runs one schedule; raises Violation, with the seed in it."""
    return run_world(seed, variant, story=story, kind=JoinedWorld)


def drawn(seed: int) -> JoinedWorld:
    """The contents of a seed; it is never run."""
    world = JoinedWorld(seed)
    world.loop.close()
    return world
