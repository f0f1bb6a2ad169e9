"""Joiners that share a machine: a slot with no process is redone by the others there (protocol rule 13), and a
separate process verifies the slots' output."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from photon.idregistry.api import Slot
from photon.joiner.adopter import Adopted, Adopter, has_work_left
from photon.joiner.service import JoinerService
from photon.joiner.shell import Die
from photon.joiner.slot.identity import SlotRefused
from photon.joiner.slot.slot import STATE_NAME, SlotPaths
from photon.verifier.watermark import SlotShown
from tests.simulation.world.faulty_disk import FaultyDisk
from tests.simulation.world.keepers import copying
from tests.simulation.world.loop import OWNER
from tests.simulation.world.process import JOIN, JoinerProcess, Process, ProcessDisk
from tests.simulation.world.retiring import LOST_MAX, LostSlot
from tests.simulation.world.watermarks import Sampler

if TYPE_CHECKING:
    from tests.simulation.world.joined import JoinedWorld
    from tests.simulation.world.world import Place

SLOTS = Path("/slots")
ADOPT_AFTER_S = 3.0
HOLD_S = 5.0
ADOPTER_LOOK_S = 1.5


def paths_of(slot: str) -> SlotPaths:
    """A slot that a joiner has after losing its first disk is called NAME-nNUMBER."""
    return SlotPaths(SLOTS / slot, Path(f"/{slot.partition('-n')[0]}/out"))


class SharingJoiner(JoinerProcess):
    """``photon serve joiner``: its own slot, and neighbouring slots without a process."""

    world: JoinedWorld

    async def run(self) -> None:
        disk: Any = ProcessDisk(self.place.disks[self.name], self)
        slot = self.place.slots.get(self.name, self.name)
        limits = self.world.joiner_limits
        engine = self.make_engine(slot, paths_of(slot), self.registry(), disk, self.die, limits, copying(self))
        try:
            await engine.start()
        except SlotRefused as refused:
            if "locked" not in str(refused) and "nobody knows" not in str(refused) and "its copy" not in str(refused):
                raise
            self.end(f"simulated: {refused}")
        self.engine = engine
        self.serving = True
        self.listen(JoinerService({JOIN: engine}), "Join")
        adopter = Adopter(
            disk, SLOTS, self.place.name, self.clock, self.random.random, self._adopted(disk),
            adopt_after_s=ADOPT_AFTER_S, hold_s=HOLD_S, look_s=ADOPTER_LOOK_S,
        )  # fmt: skip
        await adopter.run(asyncio.Event())

    def _adopted(self, disk: Any) -> Any:
        limits = replace(self.world.joiner_limits, lock_wait_s=0.0)

        @contextlib.asynccontextmanager
        async def adopted(slot: str, die: Die) -> AsyncIterator[Adopted]:
            self.world.say(f"{self.name} adopts {slot}")
            self.world.counts["adopted"] += 1
            ships = copying(self)
            yield Adopted(self.make_engine(slot, paths_of(slot), self.registry(), disk, die, limits, ships))

        return adopted


class VerifierProcess(Process):
    """``photon serve verifier``: of all slots of a machine, including adopted and abandoned ones."""

    world: JoinedWorld

    async def run(self) -> None:
        disk: Any = ProcessDisk(self.place.disks[self.name], self)
        verified: set[str] = set()
        while True:
            for name in disk.names(SLOTS):
                if name not in verified and disk.exists(SLOTS / name / STATE_NAME):
                    verified.add(name)
                    work = self.verify(disk, paths_of(name), self.registry())
                    self.world.loop.spawn(self, self._guarded(work))
            await asyncio.sleep(1.0)

    async def _guarded(self, work: Any) -> None:
        try:
            await work
        except OSError as error:
            if "simulated" not in str(error):
                self.world.violated(f"{self.name} failed: {error}", error)
            self.end(str(error))
        except Exception as error:
            self.world.violated(f"{self.name} failed: {type(error).__name__}: {error}", error)


class SharedSampler(Sampler):
    """Samples a machine's slots: some are adopted, or were left empty."""

    def states(self) -> list[tuple[Any, Path]]:
        disk = self.place.disks[self.place.joiners[0]]
        return [(disk, SLOTS / name) for name in disk.names(SLOTS) if disk.exists(SLOTS / name / STATE_NAME)]

    def slots_of(self) -> Iterator[SlotShown]:
        running: list[Any] = [self.world.running(name) for name in self.place.joiners]
        served = {each.engine.slot: each.engine for each in running if each and each.serving and not each.paused}
        for disk, state in self.states():
            if (engine := served.get(state.name)) is not None:
                yield SlotShown(state.name, engine.shell.oldest_unshown_ns)
            elif has_work_left(disk, state, Slot(state.name, self.place.name)):
                yield SlotShown(state.name, None, "its joiner does not answer")
        for lost in self.world.lost:
            if lost.place is self.place and not lost.retired:
                yield SlotShown(lost.slot, None, "its directory is not there")


# -- locks of slots, in place of flock -------------------------------------------------------------------------------
def is_held(directory: Path) -> bool:
    process: Any = OWNER.get()
    holder = process.world.locks.get(str(directory))
    return holder is not None and holder.alive


def taken(directory: Path) -> int:
    process: Any = OWNER.get()
    return int(process.world.takes[str(directory)])


# -- faults and checks -----------------------------------------------------------------------------------------------
def remove_joiner(world: JoinedWorld) -> None:
    """A joiner is taken out of the deployment for a while, or for good; another one of its machine stays."""
    place = world.random.choice(world.datacentres)
    if any(name in world.away for name in place.joiners):
        return
    name = world.random.choice(place.joiners)
    world.away.add(name)
    world.say(f"{name} is taken out of the deployment")
    if (process := world.running(name)) is not None:
        if world.random.random() < 0.5:
            world.loop.spawn(process, process.stop())
        else:
            world.ended(process, "kill -9")
    if world.random.random() < 0.6:
        world.loop.later(world.random.choice((5.0, 10.0, 20.0)), _back, world, name)


def _back(world: JoinedWorld, name: str) -> None:
    world.say(f"{name} is part of the deployment again")
    world.away.discard(name)
    world.boot(name)


def lose_machine(world: JoinedWorld, place: Place | None = None) -> None:
    """The disk with the slots of a datacentre's joiners burns. They continue in new slots on a new disk."""
    if len(world.lost) >= LOST_MAX:
        return
    place = place or world.random.choice(world.datacentres)
    old, new = place.disks[place.joiners[0]], FaultyDisk(Random(world.random.getrandbits(64)))
    for name in [name for name, disk in place.disks.items() if disk is old]:
        if (process := world.running(name)) is not None:
            world.ended(process, "its disk is permanently gone")
        place.disks[name] = new
    for name in place.joiners:
        slot = place.slots.get(name, name)
        world.say(f"slot {slot} is lost")
        world.lost.append(LostSlot(slot, name, place, old))
        place.slots[name] = f"{name}-n{len(world.lost)}"


def not_left_empty(world: JoinedWorld) -> str:
    """Slots whose joiners are away are redone by others."""
    for place in world.datacentres:
        for name in place.joiners:
            slot = place.slots.get(name, name)
            disk = place.disks[name]
            left = name in world.away and disk.exists(SLOTS / slot / STATE_NAME)
            if left and has_work_left(disk, SLOTS / slot, Slot(slot, place.name)):
                return f"{slot} is not left empty"
    return ""
