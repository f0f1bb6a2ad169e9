"""``photon serve joiner``: one joiner in its slot, and the slots beside its own that nobody is at any more."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from photon.adapters.join_adapters import adapter_of
from photon.assembly.eventstore import event_store
from photon.assembly.registry import agree, rule_of
from photon.assembly.together import Nearby, Up, unheard
from photon.config.clock import SystemClock
from photon.config.disk import RealDisk
from photon.config.errors import UsageError
from photon.config.roles import Role, identity
from photon.config.settings import NAME_MAX, Settings
from photon.fleet.access import logged, pipeline_named, registry_client, tls_of
from photon.idregistry.api import Slot
from photon.joiner.auto_joiner import AUTO_MAX, auto_name, is_auto
from photon.joiner.whereabouts import AUTO, is_reachable, noted

if TYPE_CHECKING:
    from photon.config.tls import Tls
    from photon.eventstore.api import EventStore
    from photon.joiner.shell import Die

LIST_S = 5.0
EVERY = ("0.0.0.0", "[::]")
"""Hosts to listen at, and not to call."""


async def serve_joiner(
    settings: Settings,
    base: Path,
    datacentre: str | None,
    slot: str | None,
    stop: asyncio.Event,
    *,
    accept_damaged_log: bool = False,
    listen: str | None = None,
    address: str | None = None,
    near: Nearby | None = None,
    up: Up = unheard,
) -> bool:
    """One joiner in its slot; whether nothing was left in the slot when it was told to end.

    What it writes is verified by ``photon serve verifier``. ``listen``, ``address``: where it listens and is reached,
    if not where the file says; ``near``: what it finds in this process, and where it is found.
    """
    from photon.assembly.copies import copying_of
    from photon.assembly.engines import joiner_engine, joiner_limits
    from photon.fleet.explain.service import EXPLAIN, ExplainService, of_joiner
    from photon.joiner.auto_joiner import TAKE_S, AutoJoiner
    from photon.joiner.engine import JoinerEngine
    from photon.joiner.process import Served, serve
    from photon.joiner.slot.slot import Ages, SlotPaths

    near = near or Nearby()
    name, pipeline = pipeline_named(settings, datacentre)
    place = joiner_place(settings, name, slot, listen=listen, address=address)
    if place.slot is None and accept_damaged_log:
        raise UsageError("--accept-damaged-log is for one slot: name it, as in photon serve joiner NAME")
    join = pipeline.join
    disk, clock = RealDisk(), SystemClock()
    tls = logged(tls_of(settings, base, identity(Role.JOINER, name)))
    slots = base / pipeline.state / "slots"
    copying = copying_of(settings, name, tls)
    process = f"{socket.gethostname()}:{os.getpid()}:{clock.now_ns()}"
    limits = joiner_limits(settings)
    limits = limits if place.slot else replace(limits, lock_wait_s=TAKE_S)

    async with contextlib.AsyncExitStack() as closing:
        registry = registry_client(settings, tls, near.replicas)
        closing.push_async_callback(registry.close)
        store = event_store(settings, name, tls, near, closing)

        def make(its: str) -> JoinerEngine:
            return joiner_engine(
                settings, adapter_of(settings, join, base), Slot(its, name, place.note(process)),
                SlotPaths(slots / its, base / pipeline.output), registry=registry, store=store, disk=disk,
                clock=clock, limits=limits, ages=Ages(accept_damaged_log), copying=copying,
            )  # fmt: skip

        engine = make(place.slot) if place.slot else AutoJoiner(
            disk, slots, name, file_slots(settings), lambda: registry.recovery.list_slots(timeout=LIST_S), make
        )  # fmt: skip
        rule = rule_of(settings, base, join)

        def ready(port: int) -> None:
            if place.slot:
                near.joiners[pipeline.joiners[place.slot].address] = engine
            up()

        return await serve(
            [Served(join, engine, tuple(_orphans(settings, base, name, process, store, tls)))],
            address=place.listen,
            stop=stop,
            ready=ready,
            may_open=lambda stopped: agree(registry, join, rule, stopped),
            tls=tls,
            also=lambda server: EXPLAIN.add(server, ExplainService(of_joiner(engine))),
        )


def _orphans(
    settings: Settings, base: Path, datacentre: str, process: str, store: EventStore, tls: Tls | None
) -> list[Callable[[asyncio.Event], Awaitable[None]]]:
    """What runs beside the joiner and redoes slots here that have lost theirs (``photon.joiner.adopter``); nothing
    where ``joiner.adopt_after`` is 0. ``process``: for people, which process opened a slot."""
    from photon.assembly.copies import copying_of
    from photon.assembly.engines import joiner_engine, joiner_limits
    from photon.joiner.adopter import Adopted, Adopter
    from photon.joiner.slot.slot import SlotPaths

    pipeline, adopt_after_s = settings.datacentre[datacentre], settings.joiner.adopt_after
    if not adopt_after_s:
        return []
    disk, clock = RealDisk(), SystemClock()
    slots = base / pipeline.state / "slots"
    limits = replace(joiner_limits(settings), lock_wait_s=0.0)

    @contextlib.asynccontextmanager
    async def adopted(slot: str, ends: Die) -> AsyncIterator[Adopted]:
        registry = registry_client(settings, tls)  # its own: a client speaks for one slot
        try:
            engine = joiner_engine(
                settings, adapter_of(settings, pipeline.join, base), Slot(slot, datacentre, process),
                SlotPaths(slots / slot, base / pipeline.output), registry=registry, store=store, disk=disk,
                clock=clock, limits=limits, ends=ends, copying=copying_of(settings, datacentre, tls),
            )  # fmt: skip
            yield Adopted(engine)  # the datacentre's verifier clears what it writes
        finally:
            await registry.close()

    adopter = Adopter(disk, slots, datacentre, clock, Random().random, adopted, adopt_after_s=adopt_after_s)
    return [adopter.run]


@dataclass(frozen=True, slots=True)
class JoinerPlace:
    """``slot`` None: it takes a free one when it starts."""

    slot: str | None
    listen: str
    reached: str

    def note(self, process: str) -> str:
        """For the registry, which tells dispatchers."""
        return noted(self.reached, process)


def joiner_place(
    settings: Settings, datacentre: str, slot: str | None, *, listen: str | None, address: str | None
) -> JoinerPlace:
    """What the joiner's name, ``--listen`` and ``--address`` mean. Raises UsageError."""
    pipeline = settings.datacentre[datacentre]
    if slot is None and len(pipeline.joiners) == 1:
        slot = next(iter(pipeline.joiners))
    if slot == AUTO:
        return _unnamed(settings, datacentre, None, listen, address)
    if slot is not None and slot not in pipeline.joiners and is_auto(slot, datacentre):
        return _unnamed(settings, datacentre, slot, listen, address)
    if slot not in pipeline.joiners:
        known = ", ".join(sorted(pipeline.joiners)) or "none"
        raise UsageError(
            f"joiner {slot or ''}: not one of datacentre {datacentre}; there are: {known}; "
            f"photon serve joiner {AUTO} takes a free one"
        )
    reached = _reached(address) or pipeline.joiners[slot].address
    return JoinerPlace(slot, listen or pipeline.joiners[slot].address, reached)


def listening_place(listen: str | None, address: str | None, what: str) -> tuple[str, str]:
    """(where to listen, where it is reached) of a process that is not in the deployment file. Raises UsageError."""
    reached = _reached(address)
    if listen is None and not reached:
        raise UsageError(
            f"{what} needs --address HOST:PORT, where it is reached, or --listen HOST:PORT: the file says neither"
        )
    if not reached and listen is not None:
        if listen.rpartition(":")[0] in EVERY:
            raise UsageError(f"--listen {listen}: is every address of this machine; name the one to call: --address")
        reached = _reached(listen, "--listen")
    return listen or reached, reached


def _unnamed(
    settings: Settings, datacentre: str, slot: str | None, listen: str | None, address: str | None
) -> JoinerPlace:
    if len(auto_name(datacentre, AUTO_MAX)) > NAME_MAX:
        raise UsageError(f"joiner {AUTO}: the name of datacentre {datacentre} is too long for slots named after it")
    where, reached = listening_place(listen, address, f"joiner {slot or AUTO}")
    return JoinerPlace(slot, where, reached)


def _reached(address: str | None, option: str = "--address") -> str:
    if address is None:
        return ""
    host, colon, port = address.rpartition(":")
    found = f"{socket.gethostname()}{colon}{port}" if host == AUTO else address
    if not is_reachable(found):
        raise UsageError(f"{option} {address}: must be host:port, for instance joiner-1:7101, or {AUTO}:7101")
    return found


def file_slots(settings: Settings) -> list[str]:
    """Slots that the deployment file names, in all datacentres."""
    return [slot for pipeline in settings.datacentre.values() for slot in pipeline.joiners]
