"""A joiner process beside whose own slot others may lie that nobody is at any more (``photon.joiner.adopter``)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from photon.adapters.join_adapters import adapter_of
from photon.assembly.copies import copying_of
from photon.assembly.parts import joiner_engine, joiner_limits
from photon.config.clock import SystemClock
from photon.config.disk import RealDisk
from photon.config.settings import Settings
from photon.config.tls import Tls
from photon.eventstore.api import EventStore
from photon.fleet.access import registry_client
from photon.idregistry.api import Slot
from photon.joiner.adopter import Adopted, Adopter
from photon.joiner.shell import Die
from photon.joiner.slot.slot import SlotPaths

if TYPE_CHECKING:
    import asyncio


@dataclass(frozen=True, slots=True)
class Neighbours:
    """What a joiner process knows that also serves the slots beside its own."""

    settings: Settings
    base: Path
    datacentre: str
    address: str
    """For people: which process opened a slot."""
    store: EventStore
    tls: Tls | None


def orphans_of(here: Neighbours) -> list[Callable[[asyncio.Event], Awaitable[None]]]:
    """What runs beside the joiner; nothing where ``joiner.adopt_after`` is 0."""
    settings, pipeline = here.settings, here.settings.datacentre[here.datacentre]
    if not settings.joiner.adopt_after:
        return []
    disk, clock = RealDisk(), SystemClock()
    slots = here.base / pipeline.state / "slots"
    limits = replace(joiner_limits(settings), lock_wait_s=0.0)

    @asynccontextmanager
    async def adopted(slot: str, ends: Die) -> AsyncIterator[Adopted]:
        paths = SlotPaths(slots / slot, here.base / pipeline.output)
        registry = registry_client(settings, here.tls)  # its own: a client speaks for one slot
        try:
            engine = joiner_engine(
                settings, adapter_of(settings, pipeline.join, here.base), Slot(slot, here.datacentre, here.address),
                paths, registry=registry, store=here.store, disk=disk, clock=clock, limits=limits, ends=ends,
                copying=copying_of(settings, here.datacentre, here.tls),
            )  # fmt: skip
            yield Adopted(engine)  # the datacentre's verifier clears what it writes
        finally:
            await registry.close()

    adopter = Adopter(
        disk, slots, here.datacentre, clock, Random().random, adopted, adopt_after_s=settings.joiner.adopt_after
    )
    return [adopter.run]
