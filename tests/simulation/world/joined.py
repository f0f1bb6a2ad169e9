"""All of it at once: two datacentres over real Raft replicas of the registry, whose shards change and whose disks are
lost and replaced; joiners that share machines and adopt each other's slots; keepers of copies, and slots that are
lost and retired against them; under the faults of ``site_faults``, clocks that are a day apart among them.

Each is a plug-in: processes, faults, what has to come to rest, what has to hold then (``replica``, ``resharding``,
``replacing``, ``keepers``, ``adopting``). A seed draws which of them there are.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

from photon.idregistry.raft.options import RaftOptions
from photon.idregistry.replica import server as registry_server
from photon.joiner import adopter as joiner_adopter
from photon.joiner.copies import service as copies_service
from photon.joiner.slot.slot import STATE_NAME
from photon.operations.slots import retiring as slot_retiring
from tests.simulation.world import adopting, backfill, clocks, keepers, replacing, replica, resharding
from tests.simulation.world.process import JoinerProcess, Process, Replica, SimulatedLock
from tests.simulation.world.world import Patch, Variant, World
from tests.simulation.world.world import run_seed as run_world


class CountedLock(SimulatedLock):
    """Says how often it was taken."""

    def take(self, *, wait_s: float = 0.0) -> None:
        super().take(wait_s=wait_s)
        world: Any = self._process.world
        world.takes[self._name] += 1


class JoinedWorld(World):
    """See the module."""

    sampler = adopting.SharedSampler
    patches: tuple[Patch, ...] = (
        (copies_service, "SlotLock", CountedLock),
        (slot_retiring, "SlotLock", CountedLock),
        (joiner_adopter, "is_held", adopting.is_held),
        (joiner_adopter, "_taken", adopting.taken),
        (joiner_adopter, "LOCK_NAME", STATE_NAME),
        (joiner_adopter, "PAUSE_FIRST_S", 2.0),
        (joiner_adopter, "PAUSE_MOST_S", 8.0),
        (registry_server, "_CHANGING_SECONDS", 0.3),
    )

    expected_alarms = (
        "no copy of the output is kept: what is durable here alone is shown to readers",
        "the output is not copied",
    )

    def _draw(self) -> None:
        super()._draw()
        random = self.random
        self.options = replica.draw_options(random)
        self.epoch = 1
        self.settings = Random(f"{self.seed} settings")
        self.lose_slot = adopting.lose_machine
        self.harmed: set[str] = set()
        """Replicas whose disk was damaged or lost, and that have no successor yet."""
        self.refuses: set[str] = set()
        """Those of them that do not go on."""
        self.takes: Counter[str] = Counter()
        self.loses_slots = random.random() < 0.5
        self.targets = list(random.choice(resharding.TARGETS))
        self.replaces = random.random() < 0.5
        self.removes = random.random() < 0.5
        self.copies_wait_s: float | None = random.choice((None, 2.0, 20.0, 1e9))
        self.copies_required = self.copies_wait_s == 1e9
        self.crash_in = ("joiner", "dispatcher", "replica", "keeper")
        self.counts |= dict.fromkeys(("adopted", "replaced", "changes", "sealed"), 0)

    def restarted(self) -> None:
        """Joiners come back with other settings."""
        if self.seed % 2:
            self.adapter.unmatched_inline = self.settings.random() < 0.6

    def raft_options(self) -> RaftOptions:
        return replace(self.options, epoch=self.epoch)

    def _place(self) -> None:
        super()._place()
        for name in [name for name, (kind, _) in self.kinds.items() if kind is Replica]:
            self._exchange(name, replica.RaftReplica)
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
        self.unrests[:0] = [
            resharding.changing, replacing.unreplaced, adopting.not_left_empty, keepers.behind, replica.unsettled,
        ]  # fmt: skip
        self.checks[:0] = [resharding.held_twice, replica.differing, keepers.other_copies]

    def _exchange(self, name: str, kind: type[Process]) -> None:
        self.kinds[name] = (kind, self.kinds[name][1])

    def _add(self, name: str, kind: type[Process], place: Any) -> None:
        super()._add(name, kind, place)
        if kind in (Replica, keepers.Keeper):
            place.disks[name] = self._disk()
        if name == "north-operator":  # copies have theirs where they are kept
            del self.kinds[name]
            place.names.remove(name)

    # -- the registry --------------------------------------------------------------------------------------------
    def _begin(self) -> None:
        """Replicas elect among themselves."""

    def shard_machines(self) -> list[Any]:
        return list(replica.shard_machines(self))

    def new_leader(self) -> None:
        here = replica.replicas(self)
        if here:
            one = self.random.choice(here)
            self.ended(one, "kill -9: another one is to lead")


def run_seed(seed: int, variant: Variant | None = None, *, story: bool = False) -> JoinedWorld:
    """Runs one schedule; raises Violation, with the seed in it."""
    return run_world(seed, variant, story=story, kind=JoinedWorld)


def drawn(seed: int) -> JoinedWorld:
    """What a seed consists of; it is never run."""
    world = JoinedWorld(seed)
    world.loop.close()
    return world
