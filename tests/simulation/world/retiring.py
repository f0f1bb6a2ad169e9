"""A joiner's disk that is permanently gone, and the operator who retires its slot (protocol rule 14).

Does the same as ``photon slot retire``, by the production code: the intent in the config group, fences in all shards,
the list of ids, then reopening by compare of all ids that still carry the slot's tokens. It may be killed at any step
and starts over.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from photon.idregistry.api import INCARNATION_BITS
from photon.idregistry.client.routing import RoutedRegistry
from photon.idregistry.core.scans import EntryPage
from photon.operations.slots.id_list import IdList
from photon.operations.slots.retiring import Asking, NotAnswered, Retirement, RetiringRefused
from photon.outputs.output_places import OUTPUT_NAME
from photon.outputs.published import read_slot
from tests.simulation.world.faulty_disk import FaultyDisk
from tests.simulation.world.process import Process, ProcessDisk

if TYPE_CHECKING:
    from tests.simulation.world.world import Place, World

LOST_MAX = 3  # maximum number of disks a schedule loses
LOOK_S = 0.7
TIMEOUT_S = 3.0
OPERATOR = "-operator"
ALL = (1 << INCARNATION_BITS) - 1


@dataclass
class LostSlot:
    """A slot whose directory is gone; the world still knows what readers saw of its output."""

    slot: str
    joiner: str
    place: Place
    disk: FaultyDisk
    retired: bool = False
    sealed: tuple[FaultyDisk, Path] | None = None  # the keeper's disk and directory, if readers continue in a copy


def lose_slot(world: World) -> None:
    """A joiner's disk burns. The joiner continues in a new slot on a new disk."""
    if len(world.lost) >= LOST_MAX:
        return
    place = world.random.choice(world.datacentres)
    name = world.random.choice(place.joiners)
    process = world.running(name)
    if process is not None:
        world.ended(process, "its disk is permanently gone")
    slot = place.slots.get(name, name)
    world.say(f"slot {slot} is lost")
    world.lost.append(LostSlot(slot, name, place, place.disks[name]))
    place.disks[name] = FaultyDisk(Random(world.random.getrandbits(64)))
    place.slots[name] = f"{name}.{len(world.lost)}"


def list_path(slot: str) -> Path:
    """Where the operator keeps the list of a slot's ids."""
    return Path(f"/lists/{slot}.jsonl")


def listed_ids(world: World, slot: str) -> set[bytes]:
    """Digests on the list of a retired slot."""
    disks = [disk for place in world.places.values() for name, disk in place.disks.items() if name.endswith(OPERATOR)]
    lists = [disk.read(list_path(slot)) for disk in disks if disk.exists(list_path(slot))]
    return {bytes.fromhex(json.loads(line)["digest"]) for each in lists for line in each.splitlines()[1:]}


def sealed_files(lost: LostSlot) -> dict[str, bytes]:
    """Files of its copy given to readers of a lost slot."""
    assert lost.sealed is not None
    disk, directory = lost.sealed
    files = read_slot(disk, directory).files
    root = directory / OUTPUT_NAME
    return {file.name: disk.read(root / file.name, 0, file.length) for file in files if file.length}


async def nothing_known(_: EntryPage) -> dict[bytes, bytes]:
    return {}


class Operator(Process):
    """Retires the slots that are lost, one after the other."""

    async def run(self) -> None:
        self.place.disks.setdefault(self.name, FaultyDisk(Random(self.random.getrandbits(64))))
        registry = self.registry()
        while True:
            for lost in self.losses():
                if not lost.retired and await self.retire(registry, lost):
                    lost.retired = True
                    self.world.say(f"slot {lost.slot} is retired")
            await asyncio.sleep(LOOK_S)

    def losses(self) -> list[LostSlot]:
        return self.world.lost

    async def retire(self, registry: RoutedRegistry, lost: LostSlot) -> bool:
        """True if it is done; if not, it begins again."""
        slot = lost.slot
        disk: Any = ProcessDisk(self.place.disks[self.name], self)
        retirement = Retirement(
            slot=slot,
            asking=Asking(registry.recovery, self.clock, slot, TIMEOUT_S, page_ids=5),
            disk=disk,
            id_list=IdList(disk, list_path(slot), slot),
            place=None,
            already=False,
            resolve=nothing_known,
            tell=self.world.say,
        )
        try:
            await retirement.run()
        except RetiringRefused as refused:
            return "there is no slot" in str(refused)  # it was lost before it was ever opened
        except NotAnswered:
            return False
        return True
