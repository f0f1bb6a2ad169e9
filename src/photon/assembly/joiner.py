"""``photon serve joiner``: runs a joiner in its slot, and redoes this machine's slots that have no joiner."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Any

from photon.assembly.eventstore import event_store
from photon.assembly.registry import admitted
from photon.assembly.verdict_rule import named, unmatched
from photon.config.errors import UsageError
from photon.config.settings import NAME_MAX, Settings
from photon.idregistry.api import Slot
from photon.idregistry.client.whereabouts import AUTO, is_reachable, noted

if TYPE_CHECKING:
    import grpc.aio

    from photon.assembly.room import Room
    from photon.config.tls import Tls
    from photon.eventstore.api import EventStore
    from photon.idregistry.api import Registry
    from photon.idregistry.client.routing import RoutedRegistry
    from photon.joiner.auto_joiner import AutoJoiner
    from photon.joiner.engine import JoinerEngine
    from photon.joiner.shell import Die

LIST_S = 5.0
EVERY = ("0.0.0.0", "[::]")  # hosts that one can listen at, but not call


async def serve_joiner(room: Room, *, accept_damaged_log: bool = False, address: str | None = None) -> bool:
    """Runs one joiner in its slot. Returns True if the slot was empty when the joiner was told to end.

    ``photon serve verifier`` verifies its output. ``address``: public address; default: the address in the file.
    """
    from photon.assembly.engines import joiner_limits
    from photon.dispatcher.database import STATE_NAME, read_reached
    from photon.joiner.process import Served, serve
    from photon.joiner.slot.slot import Ages

    settings, name, pipeline = room.settings, room.datacentre, room.pipeline
    place = joiner_place(settings, name, room.member, listen=room.listen, address=address)
    if place.slot is None and accept_damaged_log:
        raise UsageError("--accept-damaged-log applies to one slot: name it, as in photon serve joiner NAME")
    tls = room.tls()
    process = f"{socket.gethostname()}:{os.getpid()}:{room.clock.now_ns()}"
    limits = joiner_limits(settings)

    async with contextlib.AsyncExitStack() as closing:
        registry = await closing.enter_async_context(room.registry(tls))
        store = event_store(room, tls, closing)

        own_name = named("joiner", name, place.slot) if place.slot else ""
        verdicts = unmatched(room, registry, own_name)
        ages = Ages(accept_damaged_log)
        if room.alone is not None:
            ages = Ages(own_registry=True, reached=read_reached(room.state / STATE_NAME))

        def make(its: str, lock_wait_s: float = limits.lock_wait_s) -> JoinerEngine:
            slot = Slot(its, name, place.note(process))
            return _engine(
                room, slot, registry, store, tls,
                limits=replace(limits, lock_wait_s=lock_wait_s), ages=ages, withholds=lambda: verdicts.waits,
            )  # fmt: skip

        async def may_open(stop: asyncio.Event) -> bool:
            return await admitted(room, registry) and await verdicts.begin(stop)

        engine = make(place.slot) if place.slot else _auto(room, registry, make)

        def explained(server: grpc.aio.Server) -> None:
            from photon.fleet.explain.service import EXPLAIN, ExplainService, of_joiner

            EXPLAIN.add(server, ExplainService(of_joiner(engine)))

        def ready(port: int) -> None:
            if place.slot:
                room.near.joiners[settings.joiners(name)[place.slot]] = engine
            room.up()

        return await serve(
            [Served(pipeline.join, engine, (*_orphans(room, process, store, tls), verdicts.run))],
            address=room.heard_at(place.listen),
            stop=room.stop,
            ready=ready,
            may_open=may_open,
            tls=tls,
            also=explained,
        )


def _auto(room: Room, registry: RoutedRegistry, make: Callable[[str, float], JoinerEngine]) -> AutoJoiner:
    from photon.joiner.auto_joiner import TAKE_S, AutoJoiner

    return AutoJoiner(
        room.disk, room.state / "slots", room.datacentre, file_slots(room.settings),
        lambda: registry.recovery.list_slots(timeout=LIST_S), lambda slot: make(slot, TAKE_S),
    )  # fmt: skip


def _engine(
    room: Room, slot: Slot, registry: Registry, store: EventStore, tls: Tls | None, **more: Any
) -> JoinerEngine:
    """Builds the engine of a slot. ``more``: further arguments of ``joiner_engine``."""
    from photon.assembly.copies import copying_of
    from photon.assembly.engines import joiner_engine
    from photon.joiner.slot.slot import SlotPaths

    adapter, paths = room.adapter(f"joiner-{slot.name}"), SlotPaths(room.state / "slots" / slot.name, room.output)
    return joiner_engine(
        room.settings, adapter, slot, paths,
        registry=registry, store=store, disk=room.disk, clock=room.clock,
        copying=copying_of(room.settings, room.datacentre, tls), **more,
    )  # fmt: skip


def _orphans(
    room: Room, process: str, store: EventStore, tls: Tls | None
) -> list[Callable[[asyncio.Event], Awaitable[None]]]:
    """Returns tasks that run next to the joiner and redo slots here that have lost their joiner
    (``photon.joiner.adopter``); none if ``joiner.adopt_after`` is 0. ``process``: name shown for the process that
    opens a slot."""
    adopt_after_s = room.settings.joiner.adopt_after
    if not adopt_after_s:
        return []
    from photon.assembly.engines import joiner_limits
    from photon.joiner.adopter import Adopted, Adopter

    limits = replace(joiner_limits(room.settings), lock_wait_s=0.0)

    @contextlib.asynccontextmanager
    async def adopted(slot: str, ends: Die) -> AsyncIterator[Adopted]:
        async with room.registry(tls) as registry:  # a separate client, because a client acts for one slot
            its = Slot(slot, room.datacentre, process)
            # The datacentre's verifier clears the records that it writes.
            yield Adopted(_engine(room, its, registry, store, tls, limits=limits, ends=ends))

    adopter = Adopter(
        room.disk, room.state / "slots", room.datacentre, room.clock, Random().random, adopted,
        adopt_after_s=adopt_after_s,
    )  # fmt: skip
    return [adopter.run]


@dataclass(frozen=True, slots=True)
class JoinerPlace:
    """A joiner's slot and addresses. ``slot``: `None` if the joiner takes a free one when it starts."""

    slot: str | None
    listen: str
    reached: str

    def note(self, process: str) -> str:
        """Returns the joiner's note in the registry, in which dispatchers find its address."""
        return noted(self.reached, process)


def joiner_place(
    settings: Settings, datacentre: str, slot: str | None, *, listen: str | None, address: str | None
) -> JoinerPlace:
    """Returns the joiner's slot and addresses, from its name, ``--listen`` and ``--address``. Raises UsageError."""
    slots = settings.joiners(datacentre)
    if slot is None and len(slots) == 1:
        slot = next(iter(slots))
    if slot == AUTO:
        return _unnamed(settings, datacentre, None, listen, address)
    if slot not in slots:
        from photon.joiner.auto_joiner import is_auto

        if slot is not None and is_auto(slot, datacentre):
            return _unnamed(settings, datacentre, slot, listen, address)
        known = ", ".join(slots) or "none"
        raise UsageError(
            f"joiner {slot or ''}: not one of datacentre {datacentre}; there are: {known}; "
            f"photon serve joiner {AUTO} takes a free one"
        )
    own = slots[slot]
    reached = _reached(address) or _reached(own, f"datacentre.{datacentre}: the address of joiner {slot},")
    return JoinerPlace(slot, listen or own, reached)


def listening_place(listen: str | None, address: str | None, what: str) -> tuple[str, str]:
    """Returns (listen address, public address) of a process that is not in the deployment file. Raises UsageError."""
    reached = _reached(address)
    if listen is None and not reached:
        raise UsageError(
            f"{what} needs --address HOST:PORT, its public address, or --listen HOST:PORT: the file has neither"
        )
    if not reached and listen is not None:
        if listen.rpartition(":")[0] in EVERY:
            raise UsageError(f"--listen {listen}: stands for all addresses; name a public one with --address")
        reached = _reached(listen, "--listen")
    return listen or reached, reached


def _unnamed(
    settings: Settings, datacentre: str, slot: str | None, listen: str | None, address: str | None
) -> JoinerPlace:
    from photon.joiner.auto_joiner import AUTO_MAX, auto_name

    if len(auto_name(datacentre, AUTO_MAX)) > NAME_MAX:
        raise UsageError(f"joiner {AUTO}: the name of datacentre {datacentre} is too long for slots named after it")
    where, reached = listening_place(listen, address, f"joiner {slot or AUTO}")
    return JoinerPlace(slot, where, reached)


def _reached(address: str | None, option: str = "--address") -> str:
    if not address:
        return ""
    host, colon, port = address.rpartition(":")
    found = f"{socket.gethostname()}{colon}{port}" if host == AUTO else address
    if not is_reachable(found):
        raise UsageError(f"{option} {address}: must be host:port, such as joiner-1:7101, or {AUTO}:7101")
    return found


def file_slots(settings: Settings) -> list[str]:
    """Returns the slots that the deployment file names, of all datacentres."""
    return [slot for datacentre in settings.datacentre for slot in settings.joiners(datacentre)]
