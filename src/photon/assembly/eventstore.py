"""``photon serve eventstore`` and ``photon serve cache``, and access to the store from this process or others."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from photon.adapters.containment import keep_crumbs
from photon.adapters.crumbs import DIRECTORY
from photon.adapters.join_adapters import adapter_of, join_named
from photon.adapters.logs.elsewhere import is_final
from photon.adapters.logs.watching import Watch
from photon.assembly.registry import admitted, samples_of
from photon.assembly.room import Room, reporter
from photon.assembly.verdict_rule import named, unmatched
from photon.config.errors import UsageError
from photon.config.roles import Role, identity
from photon.config.settings import Settings
from photon.config.structured import get_logger
from photon.config.tls import Tls, towards
from photon.outputs.log.copier import WHOLE_NAME

if TYPE_CHECKING:
    from photon.adapters.logs.api import Block
    from photon.assembly.samples import Samples
    from photon.config.settings_reload import SettingsReload
    from photon.eventstore.api import OperatedStore
    from photon.eventstore.client import EventStoreClient
    from photon.eventstore.engine import EventStoreConfig, EventStoreEngine
    from photon.eventstore.file_map import HBaseTable
    from photon.idregistry.client.routing import RoutedRegistry

# Share of ``limits.latency`` for which primary lines are gathered; most arrive long before their foreign
# events.
GATHERED = 0.8

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class StorePlace:
    """Inputs and address of an event store. ``join``: `None` means the only join."""

    join: str | None
    primary: Path
    state: Path
    address: str
    tls: Tls | None = None
    # Datacentre of a pipeline's store, which may have cache nodes; `None` for other stores.
    datacentre: str | None = None


def _place(room: Room, join: str | None, given: Sequence[Path | str | None]) -> StorePlace:
    primary, state, address = given
    if isinstance(primary, Path) and isinstance(state, Path) and isinstance(address, str):
        return StorePlace(join, primary, state, address)
    if any(each is not None for each in given):
        raise UsageError("give --primary, --state and --address together, instead of --datacentre")
    own = room.pipeline
    tls = room.tls()
    return StorePlace(own.join, room.logs("primary"), room.state / "eventstore", own.eventstore, tls, room.datacentre)


async def serve_store(
    room: Room,
    *,
    join_name: str | None = None,
    primary: Path | None = None,
    state: Path | None = None,
    address: str | None = None,
    once: bool = False,
    may_be_empty: bool = False,
) -> None:
    """Serves one pipeline's event store, or a store described by ``primary``, ``state`` and ``address``. ``once``: no
    records will be added to the present ones. Raises UsageError."""
    from photon.eventstore.process import ServedJoin, serve

    settings, alone = room.settings, room.alone
    if alone is not None:
        once, may_be_empty = alone.once, alone.keep_pending
    place = _place(room, join_name, (primary, state, address))
    name = join_named(settings, place.join)
    place.state.mkdir(parents=True, exist_ok=True)
    served = ServedJoin(
        eventstore_config(
            settings,
            name,
            place.primary,
            place.state,
            once=once,
            may_be_empty=may_be_empty,
            watch=Watch("auto" if place.datacentre is None else settings.datacentre[place.datacentre].watch),
            hbase=_table_of(settings, place.datacentre),
            relayed=not is_final(place.primary) and room.disk.exists(place.primary / WHOLE_NAME)
            if place.datacentre is None or alone is not None
            else "primary" in settings.relayed(place.datacentre),
        ),
        keep_crumbs(adapter_of(settings, name, room.base), place.state / DIRECTORY, room.disk)
        if alone is None
        else alone.adapter,
        None if place.datacentre is None else cache_nodes(settings, place.datacentre, room.reload),
        None if place.datacentre is None else towards(place.tls, identity(Role.DATACENTRE, place.datacentre)),
    )

    def ready(port: int, engines: Mapping[str, EventStoreEngine]) -> None:
        log.info("event store serves", address=place.address)
        room.near.store = engines[name]
        room.up()

    async with contextlib.AsyncExitStack() as closing:
        may_read: Callable[[], Awaitable[bool]] | None = None
        if place.datacentre is not None:
            registry = await closing.enter_async_context(room.registry(place.tls))
            samples = samples_of(room, registry)
            served = replace(served, begun=_begun(samples, room.stop))
            may_read = partial(_may_read, room, registry, samples)

        await serve(
            [served],
            address=room.heard_at(place.address),
            clock=room.clock,
            disk=room.disk,
            ready=ready,
            report=reporter("event store") if alone is None else alone.report,
            stop=room.stop,
            tls=place.tls,
            may_read=may_read,
        )


def _table_of(settings: Settings, datacentre: str | None) -> HBaseTable | None:
    if datacentre is None or settings.datacentre[datacentre].hbase is None:
        return None
    from photon.fleet.hbase import table_of

    return table_of(settings, datacentre)


async def _may_read(room: Room, registry: RoutedRegistry, samples: Samples) -> bool:
    """Waits until the registry admits the store. With a wrong key, existing events would seem absent."""
    own_name = named("eventstore", room.datacentre)
    return await admitted(room, registry, samples) and await unmatched(room, registry, own_name).begin(room.stop)


def _begun(samples: Samples, stop: asyncio.Event) -> Callable[[Sequence[Block]], None]:
    """Returns a callback that keeps samples of new logs. It runs in the reader's thread, which asks for no ids and so
    continues without the registry."""
    loop = asyncio.get_running_loop()

    def begun(blocks: Sequence[Block]) -> None:
        if found := samples.began("primary", blocks):
            asyncio.run_coroutine_threadsafe(samples.keep(found, stop, patient=False), loop).result()

    return begun


def eventstore_config(
    settings: Settings,
    join: str,
    primary: Path,
    state: Path,
    *,
    once: bool = False,
    may_be_empty: bool = False,
    watch: Watch = Watch.AUTO,
    hbase: HBaseTable | None = None,
    relayed: bool = False,
) -> EventStoreConfig:
    from photon.eventstore.engine import EventStoreConfig
    from photon.eventstore.file_map import MapKind

    configured = settings.join[join]
    return EventStoreConfig(
        join=join,
        directory=primary,
        state=state,
        patterns=tuple(configured.primary_files),
        max_record=settings.limits.record,
        watch=watch,
        hbase=hbase,
        relayed=relayed,
        kind=MapKind.DENSE if configured.file_map == "dense" else MapKind.SPARSE,
        window_micros=round(configured.file_map_window * 1e6),
        window_bytes=configured.file_map_bytes,
        forget_missing=configured.missing_logs == "forget",
        cache_bytes=settings.limits.cache,
        gather_s=GATHERED * settings.limits.latency,
        last_line_after_s=configured.last_line_after,
        sought_keys=settings.limits.sought_keys,
        once=once,
        may_be_empty=may_be_empty,
    )


def cache_nodes(
    settings: Settings, datacentre: str, again: SettingsReload | None = None
) -> Callable[[], Mapping[str, str]]:
    """Returns a function for a pipeline's current cache nodes: name -> host:port."""
    known = _addresses(settings, datacentre)

    def now() -> Mapping[str, str]:
        nonlocal known
        changed = None if again is None else again.changed()
        if changed is not None:
            known = _addresses(changed, datacentre)
        return known

    return now


def _addresses(settings: Settings, datacentre: str) -> dict[str, str]:
    return settings.caches(datacentre) if datacentre in settings.datacentre else {}


def event_store(room: Room, tls: Tls | None, closing: contextlib.AsyncExitStack) -> OperatedStore | EventStoreClient:
    """Returns the store of the room's pipeline: the one in this process, or a client, which ``closing`` closes."""
    if room.near.store is not None:
        return room.near.store
    from photon.eventstore.client import EventStoreClient

    to = towards(tls, identity(Role.DATACENTRE, room.datacentre))
    client = EventStoreClient(room.pipeline.eventstore, room.pipeline.join, to=to)
    closing.push_async_callback(client.close)
    return client


async def serve_cache(room: Room) -> None:
    """Serves one cache node. Raises UsageError."""
    from photon.eventstore.cache_nodes.service import serve

    caches, node = room.settings.caches(room.datacentre), room.member
    if node is None and len(caches) == 1:
        node = next(iter(caches))
    if node not in caches:
        known = ", ".join(sorted(caches)) or "none"
        given = "cache: name one" if node is None else f"cache {node}: no such node"
        raise UsageError(f"{given} in datacentre {room.datacentre}; there are: {known}")
    await serve(
        address=room.at(caches[node]),
        bytes_max=room.settings.limits.cache,
        ready=lambda port: log.info("cache node serves", node=node, address=caches[node]),
        stop=room.stop,
        tls=room.tls(),
    )
