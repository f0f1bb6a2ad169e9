"""Implements the commands for slots: queries the registry, checks this machine, and refuses unsafe actions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from photon.config.clock import SystemClock
from photon.config.disk import RealDisk
from photon.config.errors import UsageError
from photon.config.settings import Pipeline, Settings
from photon.config.tls import OPERATOR
from photon.fleet.access import registry_of, tls_of
from photon.fleet.polling import dispatchers_serve, healthy
from photon.fleet.processes import of_datacentre
from photon.idregistry.api import I64, U8, U64, Digester
from photon.idregistry.client.deployment_key import deployment_key
from photon.idregistry.client.grpc_client import RegistryClient
from photon.idregistry.client.whereabouts import reached_at
from photon.idregistry.core.outcomes import Refusal
from photon.idregistry.core.scans import EntryPage
from photon.idregistry.witness import KnownSlot
from photon.joiner.copies.api import CopyOf
from photon.operations.slots import event_ids, sealing
from photon.operations.slots.id_list import IdList, Listed, listed
from photon.operations.slots.inventory import SlotRow, has_slot, rows_of, state_of
from photon.operations.slots.retiring import (
    Asking,
    NotAnswered,
    Place,
    Report,
    Retirement,
    RetiringRefused,
    Tell,
    count,
)

ASK_S = 10.0
HEALTH_S = 2.0
WATCH_S = 3.0  # A working joiner extends its witness each second, if it writes.
IDS_NAME = "given-up.jsonl"


@dataclass(frozen=True, slots=True)
class Asked:
    slot: str
    copy: Path | None = None
    ids: Path | None = None
    wait_s: float = 300.0
    watch_s: float = WATCH_S


@dataclass(frozen=True, slots=True)
class Here:
    """A deployment file, as seen from this machine."""

    settings: Settings
    base: Path

    def pipeline(self, datacentre: str) -> Pipeline | None:
        return self.settings.datacentre.get(datacentre)

    def place(self, slot: KnownSlot) -> Place | None:
        """The place where readers find the slot; ``None`` if its datacentre's state is not on this machine."""
        pipeline, state = self.pipeline(slot.datacentre), self.state(slot)
        if pipeline is None or state is None or not (self.base / pipeline.state).is_dir():
            return None
        return Place(state, self.base / pipeline.output)

    def state(self, slot: KnownSlot) -> Path | None:
        return state_of(self.settings, self.base, slot.datacentre, slot.name)

    def ids_path(self, slot: KnownSlot, asked: Asked) -> Path:
        if asked.ids is not None:
            return asked.ids
        place = self.place(slot)
        return place.state / IDS_NAME if place is not None else Path(f"{slot.name}-{IDS_NAME}")


@dataclass(frozen=True, slots=True)
class Checked:
    slot: KnownSlot
    copy: sealing.Copy | None


def _registry(here: Here) -> AbstractAsyncContextManager[RegistryClient]:
    return registry_of(here.settings, tls_of(here.settings, here.base, OPERATOR))


async def _known(client: RegistryClient) -> list[KnownSlot]:
    found = await client.recovery.list_slots(timeout=ASK_S)
    if isinstance(found, Refusal):
        why = client.problem or found.reason or "no replica answers"
        raise NotAnswered(f"the registry did not list the slots: {why}")
    return found


async def all_slots(here: Here) -> list[SlotRow]:
    """Returns all slots of the registry and of this machine. Raises NotAnswered."""
    async with _registry(here) as client:
        return rows_of(here.settings, here.base, RealDisk(), await _known(client))


async def owned_by(here: Here, slot: str, wait_s: float) -> Report:
    """Counts the ids that a slot owns, by shard. Raises NotAnswered."""
    async with _registry(here) as client:
        return await count(Asking(client.recovery, SystemClock(), slot, wait_s), slot)


# -- retiring --------------------------------------------------------------------------------------------------------
async def check(here: Here, asked: Asked) -> Checked:
    """Checks that the slot may be retired in this way. Raises UsageError, RetiringRefused, CopyRefused,
    NotAnswered."""
    async with _registry(here) as client:
        known = {each.name: each for each in await _known(client)}
        if asked.slot not in known:
            raise UsageError(
                f"{asked.slot}: the registry knows no such slot; there are: {', '.join(known) or 'none'}"
            )
        slot = known[asked.slot]
        if not slot.retired:
            _refuse_what_is_here(here, slot)
            await _refuse_what_lives(here, slot, client, asked.watch_s)
    return Checked(slot, _copy_of(here, slot, asked))


def _refuse_what_is_here(here: Here, slot: KnownSlot) -> None:
    state = here.state(slot)
    if state is not None and has_slot(RealDisk(), state):
        raise RetiringRefused(
            f"{state}: is readable, so slot {slot.name} has lost nothing: start its joiner, or any other of "
            f"datacentre {slot.datacentre} on this machine, to redo it. If no joiner can (an older copy, a "
            "damaged log), move the directory away and name its output with --copy"
        )


async def _refuse_what_lives(here: Here, slot: KnownSlot, client: RegistryClient, watch_s: float) -> None:
    pipeline = here.pipeline(slot.datacentre)
    joiner = None if pipeline is None else here.settings.joiners(slot.datacentre).get(slot.name)
    address = reached_at(slot.address) if joiner is None else joiner
    if address:
        process = of_datacentre("joiner", slot.datacentre, slot.name, address)
        lives = await healthy(process, tls_of(here.settings, here.base, OPERATOR), HEALTH_S)
        if lives and not await _opened_another(client, slot, address):
            raise RetiringRefused(f"slot {slot.name} is alive: its joiner answers at {address}; stop it first")
    await asyncio.sleep(watch_s)
    again = {each.name: each for each in await _known(client)}.get(slot.name)
    if again is not None and (again.newest, again.witness) != (slot.newest, slot.witness):
        raise RetiringRefused(
            f"slot {slot.name} is alive: within {watch_s:g} s its joiner ({again.address}) has opened or extended it"
        )


async def _opened_another(client: RegistryClient, slot: KnownSlot, address: str) -> bool:
    """True if the process at this address has since opened another slot."""
    there = [each for each in await _known(client) if reached_at(each.address) == address]
    return max((each.newest for each in there), default=0) > slot.newest


def _copy_of(here: Here, slot: KnownSlot, asked: Asked) -> sealing.Copy | None:
    place = here.place(slot)
    if asked.copy is None:
        if place is not None and not slot.retired and not sealing.was_begun(RealDisk(), place.state):
            _refuse_output_left_behind(slot, place)
        return _kept_copy(here, slot, place)
    if place is None:
        raise UsageError(
            f"--copy {asked.copy}: datacentre {slot.datacentre} has no state directory on this machine; run this "
            "on a machine that has it"
        )
    copy = sealing.add_marks(RealDisk(), sealing.find_copy(asked.copy, slot.name), place.state)
    sealing.measure(RealDisk(), copy, slot.witness)
    return copy


def _kept_copy(here: Here, slot: KnownSlot, place: Place | None) -> sealing.Copy | None:
    """The copy that a surviving datacentre keeps on this machine, unless retiring was begun without it."""
    disk = RealDisk()
    for copy in sealing.kept_copies(disk, here.settings, here.base, CopyOf(slot.datacentre, slot.name)):
        assert copy.kept is not None
        if place is not None:
            sealing.add_marks(disk, copy, place.state)
        notes = copy.kept if place is None else place.state
        begun = sealing.was_begun(disk, notes)
        if (begun or slot.retired) and sealing.begun_with(disk, notes) != copy.root.resolve():
            continue
        sealing.measure(disk, copy, slot.witness)
        return copy
    return None


def _place_of(here: Here, checked: Checked) -> Place | None:
    """Returns the slot's place; the keeper's directory if the slot's datacentre is lost completely."""
    copy, place = checked.copy, here.place(checked.slot)
    return Place(copy.kept, copy.root) if place is None and copy is not None and copy.kept is not None else place


def _refuse_output_left_behind(slot: KnownSlot, place: Place) -> None:
    try:
        left = sealing.find_copy(place.output, slot.name)
    except sealing.CopyRefused:
        return
    raise RetiringRefused(
        f"{place.output}: has {len(left.files)} output files of slot {slot.name}; name it with --copy "
        f"{place.output}, so that their records are not joined again, or move them away"
    )


def ids_path(here: Here, checked: Checked, asked: Asked) -> Path:
    place = _place_of(here, checked)
    return here.ids_path(checked.slot, asked) if asked.ids or place is None else place.state / IDS_NAME


async def preview(here: Here, checked: Checked, asked: Asked) -> tuple[Report, list[Listed]]:
    """Returns the ids that retiring would give up; changes nothing. Raises NotAnswered."""
    found: list[Listed] = []
    async with _registry(here) as client:
        with _resolver(here, checked.slot) as resolver:

            async def take(page: EntryPage) -> None:
                known = await resolver.resolve(page) if resolver is not None else {}
                found.extend(line for _, line in listed(page, known))

            asking = Asking(client.recovery, SystemClock(), asked.slot, asked.wait_s)
            report = await count(asking, asked.slot, take)
    report.copy = checked.copy
    report.resolved = sum(each.event_id is not None or each.event_id_raw_base64 is not None for each in found)
    return report, found


def write_list(path: Path, slot: str, entries: list[Listed]) -> None:
    """Writes the list of a dry run. Raises ListUnusable, OSError."""
    ids = IdList(RealDisk(), path, slot)
    ids.open()
    ids.add([(bytes.fromhex(each.digest), each) for each in entries])
    ids.sync()


async def carry_out(here: Here, checked: Checked, asked: Asked, tell: Tell) -> Report:
    """Retires the slot. After PhotonError or OSError, repeat the call."""
    slot, clock, disk = checked.slot, SystemClock(), RealDisk()
    async with _registry(here) as client:

        async def clear(digests: bytes, times: I64, tokens: U64) -> U8:
            return await client.clear(digests, times, tokens, timeout=ASK_S)

        async def resolve(page: EntryPage) -> Mapping[bytes, bytes]:
            return {} if resolver is None else await resolver.resolve(page)

        with _resolver(here, slot) as resolver:
            retirement = Retirement(
                slot=slot.name,
                asking=Asking(client.recovery, clock, slot.name, asked.wait_s),
                disk=disk,
                id_list=IdList(disk, ids_path(here, checked, asked), slot.name),
                place=_place_of(here, checked),
                already=slot.retired,
                resolve=resolve,
                tell=tell,
                copy=checked.copy,
                witness=slot.witness,
                clear=clear,
                digester=_digester(here, slot),
            )
            return await retirement.run()


@contextmanager
def _resolver(here: Here, slot: KnownSlot) -> Iterator[event_ids.Resolver | None]:
    """Opens a resolver; ``None`` if the deployment file does not tell the join of the slot's ids."""
    pipeline, digester = here.pipeline(slot.datacentre), _digester(here, slot)
    if pipeline is None or digester is None:
        yield None
        return
    with event_ids.opened(here.settings, here.base, pipeline.join, digester) as resolver:
        yield resolver


def _digester(here: Here, slot: KnownSlot) -> Digester | None:
    pipeline = here.pipeline(slot.datacentre)
    return None if pipeline is None else Digester(deployment_key(here.settings, here.base), pipeline.join)


async def dispatchers(here: Here, slot: KnownSlot) -> dict[str, bool]:
    """Returns datacentre -> True if all its dispatchers answer, for the datacentres of the slot's join: their
    dispatchers give its ids new verdicts."""
    pipeline = here.pipeline(slot.datacentre)
    if pipeline is None:
        return {}
    tls = tls_of(here.settings, here.base, OPERATOR)

    readers = [name for name, each in here.settings.datacentre.items() if each.join == pipeline.join]
    asked = (dispatchers_serve(here.settings, name, tls, HEALTH_S) for name in readers)
    found = await asyncio.gather(*asked)
    return dict(zip(readers, found, strict=True))
