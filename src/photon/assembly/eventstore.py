"""``photon serve eventstore`` and ``photon serve cache``; and how others, in this process or not, reach the store."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from photon.adapters.join_adapters import adapter_of, join_named
from photon.adapters.logs.watching import Watch
from photon.assembly.together import Nearby, Up, unheard
from photon.config.clock import SystemClock
from photon.config.disk import RealDisk
from photon.config.errors import UsageError
from photon.config.roles import Role, identity
from photon.config.settings import Settings
from photon.config.settings_reload import SettingsReload
from photon.config.structured import get_logger
from photon.config.tls import Tls, towards
from photon.fleet.access import logged, pipeline_named, tls_of

if TYPE_CHECKING:
    from photon.eventstore.api import OperatedStore
    from photon.eventstore.client import EventStoreClient
    from photon.eventstore.engine import EventStoreConfig, EventStoreEngine
    from photon.eventstore.file_map import HBaseTable

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class StorePlace:
    """Where an event store reads and listens. ``join`` None: the only one there is."""

    join: str | None
    primary: Path
    state: Path
    address: str
    once: bool = False
    may_be_empty: bool = False
    tls: Tls | None = None
    datacentre: str | None = None
    """Of the deployment file, where it is a pipeline's: then it may have cache nodes."""


def store_place(settings: Settings, base: Path, datacentre: str | None) -> StorePlace:
    name, pipeline = pipeline_named(settings, datacentre)
    state = base / pipeline.state / "eventstore"
    tls = logged(tls_of(settings, base, identity(Role.EVENTSTORE, name)))
    return StorePlace(pipeline.join, base / pipeline.primary, state, pipeline.eventstore, tls=tls, datacentre=name)


async def serve_store(
    settings: Settings,
    base: Path,
    place: StorePlace,
    stop: asyncio.Event,
    again: SettingsReload | None = None,
    *,
    near: Nearby | None = None,
    up: Up = unheard,
) -> None:
    """One pipeline's event store. ``again``: reads the deployment file again when it has changed, for the ring of
    cache nodes; ``near``: where those in this process find it."""
    from photon.eventstore.process import ServedJoin, serve
    from photon.fleet.hbase import table_of

    name = join_named(settings, place.join)
    place.state.mkdir(parents=True, exist_ok=True)
    served = ServedJoin(
        eventstore_config(
            settings,
            name,
            place.primary,
            place.state,
            once=place.once,
            may_be_empty=place.may_be_empty,
            watch=Watch("auto" if place.datacentre is None else settings.datacentre[place.datacentre].watch),
            hbase=table_of(settings, place.datacentre),
        ),
        adapter_of(settings, name, base),
        None if place.datacentre is None else cache_nodes(settings, place.datacentre, again),
        None if place.datacentre is None else towards(place.tls, identity(Role.CACHE, place.datacentre)),
    )

    def ready(port: int, engines: Mapping[str, EventStoreEngine]) -> None:
        log.info("event store serves", address=place.address)
        if near is not None:
            near.store = engines[name]
        up()

    await serve(
        [served],
        address=place.address,
        clock=SystemClock(),
        disk=RealDisk(),
        ready=ready,
        report=reporter("event store"),
        stop=stop,
        tls=place.tls,
    )


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
        kind=MapKind.DENSE if configured.file_map == "dense" else MapKind.SPARSE,
        window_micros=round(configured.file_map_window * 1e6),
        window_bytes=configured.file_map_bytes,
        forget_missing=configured.missing_logs == "forget",
        cache_bytes=settings.limits.cache,
        last_line_after_s=configured.last_line_after,
        sought_keys=settings.limits.sought_keys,
        once=once,
        may_be_empty=may_be_empty,
    )


def cache_nodes(
    settings: Settings, datacentre: str, again: SettingsReload | None = None
) -> Callable[[], Mapping[str, str]]:
    """Says which cache nodes a pipeline has now: name -> host:port."""
    known = _addresses(settings, datacentre)

    def now() -> Mapping[str, str]:
        nonlocal known
        changed = None if again is None else again.changed()
        if changed is not None:
            known = _addresses(changed, datacentre)
        return known

    return now


def _addresses(settings: Settings, datacentre: str) -> dict[str, str]:
    pipeline = settings.datacentre.get(datacentre)
    return {} if pipeline is None else {name: node.address for name, node in pipeline.caches.items()}


def event_store(
    settings: Settings, datacentre: str, tls: Tls | None, near: Nearby, closing: contextlib.AsyncExitStack
) -> OperatedStore | EventStoreClient:
    """A pipeline's: the one in this process, or a client, which ``closing`` closes."""
    from photon.eventstore.client import EventStoreClient

    if near.store is not None:
        return near.store
    pipeline = settings.datacentre[datacentre]
    to = towards(tls, identity(Role.EVENTSTORE, datacentre))
    client = EventStoreClient(pipeline.eventstore, pipeline.join, to=to)
    closing.push_async_callback(client.close)
    return client


async def serve_cache(
    settings: Settings, base: Path, datacentre: str | None, node: str | None, stop: asyncio.Event
) -> None:
    from photon.eventstore.cache_nodes.service import serve

    name, pipeline = pipeline_named(settings, datacentre)
    if node is None and len(pipeline.caches) == 1:
        node = next(iter(pipeline.caches))
    if node not in pipeline.caches:
        known = ", ".join(sorted(pipeline.caches)) or "none"
        given = "cache: name one" if node is None else f"cache {node}: is none"
        raise UsageError(f"{given} of the cache nodes of datacentre {name}; there are: {known}")
    configured = pipeline.caches[node]
    await serve(
        address=configured.address,
        bytes_max=configured.size or settings.limits.cache,
        ready=lambda port: log.info("cache node serves", node=node, address=configured.address),
        stop=stop,
        tls=logged(tls_of(settings, base, identity(Role.CACHE, name))),
    )


def reporter(what: str) -> Callable[[str], None]:

    def report(line: str) -> None:
        log.warning(line, part=what)

    return report
