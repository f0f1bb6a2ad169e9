"""The service processes: what each ``photon serve KIND`` builds from the deployment file and runs until stopped."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from photon.adapters.logs.watching import Watch
from photon.config.clock import SystemClock
from photon.config.disk import RealDisk
from photon.config.errors import UsageError
from photon.config.roles import Role, identity
from photon.config.settings import Settings
from photon.config.stopping import until
from photon.config.structured import get_logger
from photon.config.tls import Tls, towards
from photon.embedded.adapter import adapter_of, join_named, rule_hash
from photon.embedded.settings_again import SettingsAgain, cache_nodes
from photon.embedded.together import Nearby, Up, unheard
from photon.fleet.access import logged as logged
from photon.fleet.access import pipeline_named as pipeline_named
from photon.fleet.access import registry_client as registry_client
from photon.fleet.access import tls_in as tls_in
from photon.fleet.access import tls_of as tls_of
from photon.idregistry.api import Digester, Slot
from photon.idregistry.deployment_key import deployment_key as deployment_key
from photon.idregistry.deployment_key import key_path as key_path
from photon.idregistry.deployment_key import read_key as read_key

if TYPE_CHECKING:
    from photon.eventstore.api import OperatedStore
    from photon.eventstore.client import EventStoreClient
    from photon.eventstore.engine import EventStoreEngine
    from photon.idregistry.client import RegistryClient

DESCRIBE_S = 2.0
PULSE_S = 2.0
LIST_S = 5.0

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


async def serve_replica(
    settings: Settings, base: Path, name: str, id_rules: Sequence[str], stop: asyncio.Event
) -> None:
    """One registry replica."""
    from photon.idregistry.process import ReplicaSettings, serve_registry

    replicas = settings.registry.replicas
    if name not in replicas:
        known = ", ".join(sorted(replicas)) or "none"
        raise UsageError(f"registry {name}: not in [registry.replicas]; there are: {known}")
    own = ReplicaSettings(
        name=name,
        peers={each: replica.address for each, replica in replicas.items()},
        directory=base / replicas[name].directory,
        shards=settings.registry.shards,
        uncertainty_s=settings.clock.uncertainty,
        require_sync=settings.clock.require_sync,
        retention_s=settings.registry.retention,
        memory_limit=settings.registry.memory_limit,
        near=settings.replicas_near() if settings.registry.follow_callers else {},
        epoch=settings.registry.epoch,
        id_rules=dict(map(_given, id_rules)) if id_rules else rules_of(settings, base),
        tls=logged(tls_of(settings, base, identity(Role.REGISTRY, name))),
    )
    await serve_registry(own, stop=stop)


def _given(id_rule: str) -> tuple[str, bytes]:
    join, _, digits = id_rule.rpartition("=")
    try:
        rule = bytes.fromhex(digits)
    except ValueError:
        rule = b""
    if not join or not rule:
        raise UsageError(f"--id-rule {id_rule}: must be JOIN= and pairs of hex digits")
    return join, rule


def rules_of(settings: Settings, base: Path) -> dict[str, bytes]:
    """By join: hash of how its ids are derived, the key that digests are made with included."""
    return {name: rule_of(settings, base, name) for name in sorted(settings.join)}


def rule_of(settings: Settings, base: Path, join: str) -> bytes:
    """Hash of how a join's ids are derived, the key included."""
    return rule_hash(adapter_of(settings, join, base), Digester(deployment_key(settings, base), join))


def store_place(settings: Settings, base: Path, datacentre: str | None) -> StorePlace:
    """Of a pipeline of the deployment file."""
    name, pipeline = pipeline_named(settings, datacentre)
    state = base / pipeline.state / "eventstore"
    tls = logged(tls_of(settings, base, identity(Role.EVENTSTORE, name)))
    return StorePlace(pipeline.join, base / pipeline.primary, state, pipeline.eventstore, tls=tls, datacentre=name)


async def serve_cache(
    settings: Settings, base: Path, datacentre: str | None, node: str | None, stop: asyncio.Event
) -> None:
    """One cache node of a pipeline."""
    from photon.eventstore.cache_nodes.process import serve

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


async def serve_store(
    settings: Settings,
    base: Path,
    place: StorePlace,
    stop: asyncio.Event,
    again: SettingsAgain | None = None,
    *,
    near: Nearby | None = None,
    up: Up = unheard,
) -> None:
    """One pipeline's event store. ``again``: reads the deployment file again when it has changed, for the ring of
    cache nodes; ``near``: where those in this process find it."""
    from photon.embedded.eventstore_parts import eventstore_config, reporter
    from photon.embedded.hbase import table_of
    from photon.eventstore.process import ServedJoin, serve

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


def event_store(
    settings: Settings, datacentre: str, tls: Tls | None, near: Nearby | None, closing: contextlib.AsyncExitStack
) -> OperatedStore | EventStoreClient:
    """A pipeline's: the one in this process, or a client, which ``closing`` closes."""
    from photon.eventstore.client import EventStoreClient

    if near is not None and near.store is not None:
        return near.store
    pipeline = settings.datacentre[datacentre]
    to = towards(tls, identity(Role.EVENTSTORE, datacentre))
    client = EventStoreClient(pipeline.eventstore, pipeline.join, to=to)
    closing.push_async_callback(client.close)
    return client


async def agree(registry: RegistryClient, join: str, rule: bytes, stop: asyncio.Event) -> bool:
    """Waits until the registry knows the join, and compares its rule; False when ``stop`` came first.

    Raises UsageError: a process with another key, or another way to derive ids, would register what is registered.
    """
    said = ""
    while not stop.is_set():
        described = await registry.describe(timeout=DESCRIBE_S)
        known = described and described.id_rules.get(join)
        if known == rule:
            return True
        if known is not None:
            raise UsageError(
                f"key_file or the adapter of join {join}: not those that the registry was filled under; "
                "with others all that is read again would be joined twice: restore the old ones"
            )
        problem = registry.problem
        if described is not None:
            problem = f"it does not know join {join} yet: restart its replicas with a configuration that has it"
            await until(stop, DESCRIBE_S)
        if problem != said:
            log.warning("waiting for the registry", problem=problem)
        said = problem
    return False


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
    from photon.embedded.adopting import Neighbours, orphans_of
    from photon.embedded.copying import copying_of
    from photon.embedded.explaining.explainers import of_joiner
    from photon.embedded.explaining.service import EXPLAIN, ExplainService
    from photon.embedded.joiner_place import file_slots, joiner_place
    from photon.embedded.pipeline import joiner_engine, joiner_limits
    from photon.joiner.auto_joiner import TAKE_S, AutoJoiner
    from photon.joiner.engine import JoinerEngine
    from photon.joiner.process import Served, serve
    from photon.joiner.slot.slot import Ages, SlotPaths

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
        registry = registry_client(settings, tls)
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
        neighbours = Neighbours(settings, base, name, process, store, tls)
        rule = rule_of(settings, base, join)

        def ready(port: int) -> None:
            if near is not None and place.slot:
                near.joiners[pipeline.joiners[place.slot].address] = engine
            up()

        return await serve(
            [Served(join, engine, tuple(orphans_of(neighbours)))],
            address=place.listen,
            stop=stop,
            ready=ready,
            may_open=lambda stopped: agree(registry, join, rule, stopped),
            tls=tls,
            also=lambda server: EXPLAIN.add(server, ExplainService(of_joiner(engine))),
        )
