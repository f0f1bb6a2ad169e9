"""Keepers of copies: each datacentre keeps the output of the other's slots on a separate machine; a lost slot is
retired against its copy, on that machine (protocol rule 14)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from photon.idregistry.api import I64, U8, U64
from photon.idregistry.client.routing import RoutedRegistry
from photon.idregistry.core.outcomes import Refusal
from photon.joiner.copies.client import KeeperClient
from photon.joiner.copies.service import Copies, CopiesService
from photon.joiner.copies.shipping import Copying
from photon.joiner.slot.place import DIRECTORY_OF, KINDS
from photon.operations.slots import sealing
from photon.operations.slots.id_list import IdList
from photon.operations.slots.retiring import Asking, NotAnswered, Place, Retirement, RetiringRefused
from photon.outputs.log.format import name_of
from photon.outputs.output_places import OUTPUT_NAME, is_kept, kept_directory
from tests.simulation.world.process import JoinerProcess, Process, ProcessDisk
from tests.simulation.world.retiring import TIMEOUT_S, LostSlot, Operator, list_path, nothing_known

if TYPE_CHECKING:
    from tests.simulation.world.joined import JoinedWorld
    from tests.simulation.world.world import Place as Region

STATE = Path("/state")


def keeper_of(world: JoinedWorld, place: Region) -> Region:
    """The datacentre that keeps a datacentre's copies."""
    (other,) = [each for each in world.datacentres if each is not place]
    return other


def copying(process: Process) -> Copying | None:
    """Ships like a joiner or adopter."""
    world: Any = process.world
    if world.copies_wait_s is None:
        return None
    client = KeeperClient("simulated")
    client._made = process.stub(f"{keeper_of(world, process.place).name}-keeper")
    return Copying(client, world.copies_wait_s, world.copies_required)


class Keeper(Process):
    """``photon serve copies``."""

    world: JoinedWorld

    async def run(self) -> None:
        disk: Any = ProcessDisk(self.place.disks[self.name], self)
        kept = [each.name for each in self.world.datacentres if each is not self.place]
        copies = Copies(disk, STATE, kept, self._die)
        self.listen(CopiesService(copies), "Open", "Look", "Extend", "Read")
        await asyncio.Event().wait()

    def _die(self, reason: str) -> NoReturn:
        if "simulated" not in reason:
            self.world.violated(f"{self.name}: {reason}")
        self.end(reason)


class CopyOperator(Operator):
    """Retires lost slots of the other datacentre on the keeper's machine, as ``photon slot retire`` does."""

    world: JoinedWorld

    def losses(self) -> list[LostSlot]:
        return [lost for lost in self.world.lost if keeper_of(self.world, lost.place) is self.place]

    async def retire(self, registry: RoutedRegistry, lost: LostSlot) -> bool:
        disk: Any = ProcessDisk(self.place.disks[self.name], self)
        known = await registry.recovery.list_slots(timeout=TIMEOUT_S)
        if isinstance(known, Refusal):
            return False
        slot = next((each for each in known if each.name == lost.slot), None)
        if slot is None:
            return True  # it was lost before it was ever opened
        directory = kept_directory(STATE, lost.place.name, lost.slot)
        copy = None
        if is_kept(disk, directory):
            copy = sealing.find_kept(disk, directory, lost.slot)
            begun = sealing.was_begun(disk, directory)
            if (begun or slot.retired) and sealing.begun_with(disk, directory) != copy.root.resolve():
                copy = None
            else:
                sealing.measure(disk, copy, slot.witness)

        async def clear(digests: bytes, times: I64, tokens: U64) -> U8:
            return await registry.clear(digests, times, tokens, timeout=TIMEOUT_S)

        retirement = Retirement(
            slot=lost.slot,
            asking=Asking(registry.recovery, self.clock, lost.slot, TIMEOUT_S, page_ids=5),
            disk=disk,
            id_list=IdList(disk, list_path(lost.slot), lost.slot),
            place=None if copy is None else Place(directory, copy.root),
            already=slot.retired,
            resolve=nothing_known,
            tell=self.world.say,
            copy=copy,
            witness=slot.witness,
            clear=clear,
            digester=self.world.digester,
        )
        try:
            await retirement.run()
        except RetiringRefused as refused:
            return "there is no slot" in str(refused)
        except NotAnswered:
            return False
        if copy is not None:
            self.world.counts["sealed"] += 1
            lost.sealed = (self.place.disks[self.name], directory)
        return True


# -- what must hold --------------------------------------------------------------------------------------------------
def behind(world: JoinedWorld) -> str:
    """Every living slot's copy has the slot's data."""
    for name in world.kinds:
        process = world.running(name)
        if isinstance(process, JoinerProcess) and process.engine is not None and world.copies_wait_s is not None:
            copies = process.engine.shell.copies
            if copies is None or copies.behind_bytes or copies.fallback or copies.trouble:
                return f"the copy of {name}'s output: {copies}"
    return ""


def other_copies(world: JoinedWorld) -> list[str]:
    """Copies that differ from their slot's output."""
    found = []
    for name in world.kinds if world.copies_wait_s is not None else ():
        process = world.running(name)
        if not isinstance(process, JoinerProcess) or process.engine is None:
            continue
        place, slot, store = process.place, process.engine.slot, process.engine.shell.store
        keeper = keeper_of(world, place)
        disk = keeper.disks[f"{keeper.name}-keeper"]
        root, own = kept_directory(STATE, place.name, slot) / OUTPUT_NAME, store.copied_output()
        for log, files in enumerate(store.local_files):
            for number, length in files:
                path = root / name_of(DIRECTORY_OF[KINDS[log]], slot, number)
                if length and (not disk.exists(path) or disk.read(path) != own._read(log, number, 0, length)):
                    found.append(f"the copy of {path} is another than what {name} wrote")
    return found
