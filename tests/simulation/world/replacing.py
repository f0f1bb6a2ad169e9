"""A registry replica whose disk is lost or damaged, and the operator who gives its place to a new one.

By the procedure of ``idregistry/operate/replacing.py``: a barrier that every survivor applies, a directory filled
from a survivor's states, and restarts in the next epoch at random moments, while all else goes on.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

from photon.idregistry.core import commands as c
from photon.idregistry.operate.seeding import write_group
from photon.idregistry.raft.api import Applied
from photon.idregistry.raft.identity import Identity, group_directory
from photon.idregistry.replica.proposing import proposed
from tests.simulation.world.faulty_disk import FaultyDisk
from tests.simulation.world.process import Process
from tests.simulation.world.replica import DIRECTORY, RaftReplica, leader, replicas

if TYPE_CHECKING:
    from tests.simulation.world.replica import RaftWorld

REPLACED_MAX = 2
LOOK_S = 0.3


def lose_replica(world: RaftWorld) -> None:
    """A replica's disk burns."""
    if world.counts["replaced"] >= REPLACED_MAX or world.harmed:
        return
    name = world.random.choice(world.replicas)
    if not all((name, other) in met(world) for other in world.replicas if other != name):
        return  # it was never heard: a wiped disk under its name is indistinguishable from the first
    world.harmed.add(name)
    world.away.add(name)
    world.refuses.add(name)
    if (process := world.running(name)) is not None:
        world.ended(process, "its disk is permanently gone")


def met(world: RaftWorld) -> set[tuple[str, str]]:
    """(who, by whom): replicas whose disks the others know."""
    found: set[tuple[str, str]] = set()
    for each in replicas(world):
        assert each.host is not None
        if each.host._identity is not None:
            found |= {(peer, each.name) for peer in each.host._identity._record.peers}
    return found


def rot_replica(world: RaftWorld) -> None:
    """A bit of a replica's file flips; it may refuse to continue. No second one until it is replaced."""
    if world.counts["replaced"] >= REPLACED_MAX or world.harmed:
        return
    name = world.random.choice(world.replicas)
    process, place = world.running(name), world.kinds[name][1]
    if not isinstance(process, RaftReplica) or process.host is None:
        return
    if not all(group._journal._proven for group in process.host._groups.values()):
        return  # its last frame may pass for one that was torn
    where = place.disks[name].rot(str(DIRECTORY))
    if where is not None:
        world.harmed.add(name)
        world.say(f"{name}: a bit flipped in {where}")
        if world.random.random() < 0.7:
            world.ended(process, "kill -9")


class ReplicaOperator(Process):
    """Replaces replicas that refuse to continue; starts over where it is killed."""

    world: RaftWorld

    async def run(self) -> None:
        world = self.world
        while True:
            await asyncio.sleep(LOOK_S)
            for old in [name for name in world.replicas if name in world.refuses]:
                await self._replace(old)

    async def _replace(self, old: str) -> None:
        world = self.world
        new = f"{old}-{world.epoch + 1}"
        survivors = [name for name in world.replicas if name != old]
        if not await self._barrier(survivors):
            return
        place = world.kinds[old][1]
        members = [new if name == old else name for name in world.replicas]
        disk = FaultyDisk(Random(world.random.getrandbits(64)))
        identity = Identity(
            disk=disk, directory=DIRECTORY, name=new, members=members, epoch=world.epoch + 1, groups=(),
            entropy=world.random.randbytes,
        )  # fmt: skip
        for seed in self._seeds:
            write_group(disk, group_directory(DIRECTORY, seed.group), seed)
        identity.made([seed.group for seed in self._seeds])
        world.say(f"{new} takes the place of {old} in epoch {world.epoch + 1}")
        del world.kinds[old]
        place.disks[new] = disk
        place.names[place.names.index(old)] = new
        world.kinds[new] = (RaftReplica, place)
        world.replicas[:] = members
        world.epoch += 1
        world.counts["replaced"] += 1
        world.moved = {name: new if there == old else there for name, there in world.moved.items()} | {old: new}
        world.refuses.discard(old)
        world.harmed.discard(old)
        world.loop.later(world.random.uniform(0.0, 4.0), world.boot, new)
        for name in survivors:
            world.loop.later(world.random.uniform(0.0, 4.0), self._restart, name)

    async def _barrier(self, survivors: list[str]) -> bool:
        """Every survivor has applied all acknowledged entries; the states are from after that."""
        world = self.world
        here = {each.name: each for each in replicas(world)}
        if any(name not in here for name in survivors) or len({tuple(here[n].numbers) for n in survivors}) != 1:
            return False
        barriers: dict[int, int] = {}
        for number in here[survivors[0]].numbers:
            leading = leader(world, number)
            if leading is None or leading.host is None:
                return False
            asked = proposed(leading.host.group(number), c.encode(c.Barrier(b"new")), timeout=2.0)
            try:
                outcome = await asyncio.wait_for(asked, 3.0)  # the replica asked may die
            except TimeoutError:
                return False
            if not isinstance(outcome, Applied):
                return False
            barriers[number] = int(outcome.result)
        for _ in range(20):
            here = {each.name: each for each in replicas(world)}
            if any(name not in here for name in survivors):
                return False
            if all(
                number in here[name].numbers and here[name].state(number).applied >= index
                for number, index in barriers.items()
                for name in survivors
            ):
                break
            await asyncio.sleep(LOOK_S)
        else:
            return False
        sources = [(number, leader(world, number)) for number in here[survivors[0]].numbers]
        if any(source is None or number not in source.machines.by_group() for number, source in sources):
            return False
        self._seeds = [source.seed(number) for number, source in sources if source is not None]
        return True

    def _restart(self, name: str) -> None:
        world = self.world
        process = world.running(name)
        if isinstance(process, RaftReplica) and process.host is not None and process.epoch < world.epoch:
            world.ended(process, "it is restarted in the next epoch")


def unreplaced(world: RaftWorld) -> str:
    """Replicas that refuse to continue have successors, and all run in one epoch."""
    if world.refuses:
        return f"{sorted(world.refuses)} are not replaced"
    old = [each.name for each in replicas(world) if each.epoch != world.epoch]
    return f"{old} run in another epoch" if old else ""
