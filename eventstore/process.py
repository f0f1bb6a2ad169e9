"""Runs the event store as a process, for ``photon serve eventstore`` and as the child of an embedded deployment."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from photon.adapters.contract import Adapter
from photon.adapters.logs.api import Block
from photon.config.allocator import keep_giving_back
from photon.config.clock import Clock
from photon.config.disk import Disk
from photon.config.errors import UsageError
from photon.config.metrics.disks import free_space
from photon.config.metrics.readings import ProcessMetrics, Readings, Source
from photon.config.serving import Address, HealthyServer, Unheard
from photon.config.stopping import end, until
from photon.config.tls import Tls, Towards
from photon.eventstore.api import ALL_BUT_ENDS_NS, EventStoreFailed, OperatedStore
from photon.eventstore.engine import EventStoreConfig, EventStoreEngine, open_engine
from photon.objects.costs import put_costs

STOP_GRACE_SECONDS = 5.0
WATCH_SECONDS = 1.0  # interval of checks for a failed reader
RING_SECONDS = 1.0  # interval of requests for the list of cache nodes


@dataclass(frozen=True, slots=True)
class ServedJoin:
    config: EventStoreConfig
    adapter: Adapter
    # Name -> host:port of the present cache nodes; called repeatedly. ``None`` means that there never are any.
    cache_nodes: Callable[[], Mapping[str, str]] | None = None
    to_caches: Towards | None = None  # how to call them; ``None`` means plain text
    begun: Callable[[Sequence[Block]], None] = lambda blocks: None  # as in the engine


async def serve(
    joins: Sequence[ServedJoin],
    *,
    address: Address | None,
    clock: Clock,
    disk: Disk,
    ready: Callable[[int, Mapping[str, EventStoreEngine]], None],
    report: Callable[[str], None],
    stop: asyncio.Event,
    tls: Tls | None = None,
    may_read: Callable[[], Awaitable[bool]] | None = None,
) -> None:
    """Serves at ``address`` (host:port or unix:/path; ``None`` if only this process asks it) until ``stop``;
    ``tls``: ``None`` means plain text.

    ``may_read`` is called once the process listens, before it reads a log; False or an exception ends the process.

    ``ready(port, engines)`` is called once the server listens, with the engine of each join. Everything read is
    committed before it returns. Raises EventStoreFailed if it cannot start, or if a reader fails.
    """
    engines: dict[str, EventStoreEngine] = {}
    try:
        for each in joins:
            engines[each.config.join] = await _open(each, clock, disk, report)
            _set_nodes(each, engines[each.config.join], report)
        metrics = ProcessMetrics([store_metrics(name, engine, clock) for name, engine in engines.items()])
        metrics.add(free_space({"state": joins[0].config.state}))
        metrics.add(put_costs)
        server = await _listen(engines, address, tls, metrics)
        if not await _may_read(may_read, server):
            return
        for engine in engines.values():
            engine.start()
        ready(server.port, engines)
        # Reading leaves holes as large as half the cache. Allocating large buffers directly from the system
        # (``keep_lean``) would leave none, but take two fifths more CPU time: there are some for each block read.
        tasks = (_follow_rings(joins, engines, report), keep_giving_back())
        background = [asyncio.create_task(task) for task in tasks]
        try:
            await _until_stopped(stop, engines)
        finally:
            await end(background)
            for engine in engines.values():
                engine.hang_up()
            await server.stop(STOP_GRACE_SECONDS)
    finally:
        for engine in engines.values():
            await engine.close()


async def _listen(
    engines: Mapping[str, EventStoreEngine], address: Address | None, tls: Tls | None, metrics: ProcessMetrics
) -> HealthyServer | Unheard:
    if address is None:
        return Unheard()
    from photon.eventstore.service import start_server

    return await start_server(engines, address, tls, metrics)


async def _may_read(asked: Callable[[], Awaitable[bool]] | None, server: HealthyServer | Unheard) -> bool:
    """Starts serving if permitted; otherwise ends the server."""
    may = False
    try:
        may = asked is None or await asked()
    finally:
        await (server.serving() if may else server.stop(0.0))
    return may


async def _open(each: ServedJoin, clock: Clock, disk: Disk, report: Callable[[str], None]) -> EventStoreEngine:
    return await open_engine(
        each.config,
        each.adapter,
        clock,
        disk,
        lambda line: report(f"join {each.config.join}: {line}"),
        to_caches=each.to_caches,
        begun=each.begun,
    )


def _set_nodes(each: ServedJoin, engine: EventStoreEngine, report: Callable[[str], None]) -> None:
    if each.cache_nodes is not None and engine.nodes.set_nodes(addresses := each.cache_nodes()):
        named = ", ".join(sorted(addresses)) or "none, recent records are kept in this process"
        report(f"join {each.config.join}: cache nodes are now {named}")


async def _follow_rings(
    joins: Sequence[ServedJoin], engines: dict[str, EventStoreEngine], report: Callable[[str], None]
) -> None:
    while True:
        await asyncio.sleep(RING_SECONDS)
        for each in joins:
            engine = engines[each.config.join]
            _set_nodes(each, engine, report)
            if len(engine.nodes):
                await engine.nodes.states()  # for progress


async def _until_stopped(stop: asyncio.Event, engines: dict[str, EventStoreEngine]) -> None:
    while not stop.is_set():
        for name, engine in engines.items():
            if engine.failure:
                failed = EventStoreFailed(f"join {name}: {engine.failure}")
                if engine.hopeless:  # its supervisor should not restart it
                    failed.exit_code = UsageError.exit_code
                raise failed
        await until(stop, WATCH_SECONDS)


def store_metrics(join: str, store: OperatedStore, clock: Clock) -> Source:
    async def read(into: Readings) -> None:
        progress = await store.progress()
        passed = progress.read_past_ns
        into.put_all(
            "photon_eventstore",
            {
                "events_total": progress.events,
                "duplicates_total": progress.duplicates,
                "bad_records_total": progress.bad_records,
                "ambiguous_keys_total": progress.ambiguous,
                "cache_hits_total": progress.cache_hits,
                "cache_misses_total": progress.cache_misses,
                "cache_evictions_total": progress.cache_evictions,
                "log_reads_total": progress.log_reads,
                "log_read_bytes_total": progress.log_bytes,
                "lag_seconds": 0.0 if passed >= ALL_BUT_ENDS_NS else max(clock.now_ns() - passed, 0) / 1e9,
                "lag_bytes": max(progress.bytes_known - progress.bytes_read, 0),
                "logs": progress.files,
                "cache_bytes": progress.cache_bytes,
                "missing_logs": progress.missing_logs,
                "missing_keys": progress.missing_keys,
                "sought_keys": progress.sought_keys,
                "sought_dropped_total": progress.sought_dropped,
                "sought_came_total": progress.sought_came,
            },
            join=join,
        )

    return read
