"""A joiner's disk that is gone for ever, and the operator who retires its slot (protocol rule 14).

What ``photon slot retire`` does, by the production code: the intent in the config group, fences in all shards, the
list of ids, then what still carries the slot's tokens is reopened by compare. It may be killed at any step and begins
again.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from photon.idregistry.api import INCARNATION_BITS
from photon.idregistry.client.recovery import Recovery
from photon.idregistry.core.scans import EntryPage
from photon.operations.slots.id_list import IdList
from photon.operations.slots.retiring import Asking, NotAnswered, Retirement, RetiringRefused
from tests.simulation.world.faulty_disk import FaultyDisk
from tests.simulation.world.process import Process, ProcessDisk

if TYPE_CHECKING:
    from tests.simulation.world.world import Place, World

LOST_MAX = 3
"""Disks that a schedule loses at most."""
LOOK_S = 0.7
TIMEOUT_S = 3.0
OPERATOR = "north-operator"
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


def list_path(slot: str) -> Path:
    """Where the operator keeps the list of a slot's ids."""
    return Path(f"/lists/{slot}.jsonl")


def listed_ids(world: World, slot: str) -> set[bytes]:
    """Digests on the list of a slot that was retired."""
    (disk,) = [place.disks[name] for place in world.places.values() for name in place.disks if name == OPERATOR]
    if not disk.exists(list_path(slot)):
        return set()
    lines = disk.read(list_path(slot)).splitlines()[1:]
    return {bytes.fromhex(json.loads(line)["digest"]) for line in lines}


async def _nothing_known(_: EntryPage) -> dict[bytes, bytes]:
    return {}


class Operator(Process):
    """Retires the slots that are lost, one after the other."""

    async def run(self) -> None:
        self.place.disks.setdefault(self.name, FaultyDisk(Random(self.random.getrandbits(64))))
        recovery = self.registry().recovery
        while True:
            for lost in self.world.lost:
                if not lost.retired and await self._retire(recovery, lost.slot):
                    lost.retired = True
                    self.world.say(f"slot {lost.slot} is retired")
            await asyncio.sleep(LOOK_S)

    async def _retire(self, recovery: Recovery, slot: str) -> bool:
        """Whether it is done; if not, it begins again."""
        disk: Any = ProcessDisk(self.place.disks[self.name], self)
        retirement = Retirement(
            slot=slot,
            asking=Asking(recovery, self.clock, slot, TIMEOUT_S, page_ids=5),
            disk=disk,
            id_list=IdList(disk, list_path(slot), slot),
            place=None,
            already=False,
            resolve=_nothing_known,
            tell=self.world.say,
        )
        try:
            await retirement.run()
        except RetiringRefused as refused:
            return "no slot is named" in str(refused)  # it was lost before it was ever opened
        except NotAnswered:
            return False
        return True
