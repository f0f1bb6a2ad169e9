"""A joiner's disk that is gone for ever, and the operator who retires its slot (protocol rule 14).

What ``photon slot retire`` does, by the production client: the intent in the config group, fences in all shards, then
ids that still carry the slot's tokens are reopened by compare. It may be killed at any step and begins again.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

import numpy as np

from photon.idregistry.api import INCARNATION_BITS, Answer
from photon.idregistry.outcomes import Refusal
from photon.idregistry.recovery.asking import Recovery
from photon.idregistry.scanning import EntryPage
from tests.simulation.datacentres.process import Process
from tests.simulation.world.faulty_disk import FaultyDisk

if TYPE_CHECKING:
    from tests.simulation.datacentres.world import Place, World

LOST_MAX = 3
"""Disks that a schedule loses at most."""
LOOK_S = 0.7
TIMEOUT_S = 3.0
ALL = (1 << INCARNATION_BITS) - 1


@dataclass
class LostSlot:
    """A slot whose directory nobody has any more; what readers saw of its output is still known to the world."""

    slot: str
    joiner: str
    place: Place
    disk: FaultyDisk
    retired: bool = False


def lose_slot(world: World) -> None:
    """A joiner's disk burns. The joiner goes on in a new slot on a new disk."""
    if len(world.lost) >= LOST_MAX:
        return
    place = world.random.choice(world.datacentres)
    name = world.random.choice(place.joiners)
    process = world.running(name)
    if process is not None:
        world.ended(process, "its disk is gone for ever")
    slot = place.slots.get(name, name)
    world.say(f"slot {slot} is lost")
    world.lost.append(LostSlot(slot, name, place, place.disks[name]))
    place.disks[name] = FaultyDisk(Random(world.random.getrandbits(64)))
    place.slots[name] = f"{name}.{len(world.lost)}"


class Operator(Process):
    """Retires the slots that are lost, one after the other."""

    async def run(self) -> None:
        recovery = self.registry().recovery
        while True:
            for lost in self.world.lost:
                if not lost.retired and await self._retire(recovery, lost.slot):
                    lost.retired = True
                    self.world.say(f"slot {lost.slot} is retired")
            await asyncio.sleep(LOOK_S)

    async def _retire(self, recovery: Recovery, slot: str) -> bool:
        """Whether it is done; if not, it begins again."""
        shards = await recovery.retire_slot(slot, timeout=TIMEOUT_S)
        if isinstance(shards, Refusal):
            return "no slot" in shards.reason or "not known" in shards.reason
        for shard in shards:
            first = await recovery.scan_owned(shard, slot, ALL, timeout=TIMEOUT_S)
            if isinstance(first, Refusal) or not first.fenced:
                return False
        return all([await self._reopen(recovery, slot, shard) for shard in shards])

    async def _reopen(self, recovery: Recovery, slot: str, shard: int) -> bool:
        cursor = b""
        while True:
            page = await recovery.scan_owned(shard, slot, ALL, cursor=cursor, limit=5, timeout=TIMEOUT_S)
            if isinstance(page, Refusal) or not await self._give_up(recovery, page):
                return False
            cursor = page.cursor
            if not cursor:
                return True

    async def _give_up(self, recovery: Recovery, page: EntryPage) -> bool:
        if not len(page):
            return True
        self.world.say(f"{len(page)} ids are to be reopened")
        columns = (page.digests, page.times, page.tokens, page.generations)
        answers = await recovery.reopen(*columns, retired=True, timeout=TIMEOUT_S)
        return not np.any(answers == Answer.UNKNOWN)
