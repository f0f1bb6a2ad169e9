"""The event store as a process: what ``photon eventstore serve`` and the embedded deployment's child run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from photon.adapters.contract import Adapter
from photon.adapters.logs.problems import LogDirectoryError
from photon.config.clock import Clock
from photon.config.disk import Disk
from photon.config.errors import PhotonError, UsageError
from photon.config.tls import Tls
from photon.eventstore.embedded_file_map import FileMapBusy
from photon.eventstore.engine import EventStoreConfig, EventStoreEngine
from photon.eventstore.file_map import FileMapError
from photon.eventstore.service import start_server

STOP_GRACE_SECONDS = 5.0
BUSY_SECONDS = 10.0
"""How long a map that another process has open is waited for."""
WATCH_SECONDS = 0.1
"""How often a failure of a reader is looked for."""


@dataclass(frozen=True, slots=True)
class Served:
    """One join to serve."""

    config: EventStoreConfig
    adapter: Adapter


class EventStoreFailed(PhotonError):
    """The process cannot go on: one line, what, where, what to do."""


async def serve(
    joins: Sequence[Served],
    *,
    address: str,
    clock: Clock,
    disk: Disk,
    ready: Callable[[int], None],
    report: Callable[[str], None],
    stop: asyncio.Event,
    tls: Tls | None = None,
) -> None:
    """Serves at ``address`` (host:port or unix:/path) until ``stop``; ``tls`` None: in plain text.

    ``ready(port)`` is called once the server listens. Everything read is committed before it returns. Raises
    EventStoreFailed when it cannot start, or when a reader fails.
    """
    engines: dict[str, EventStoreEngine] = {}
    try:
        for each in joins:
            engines[each.config.join] = await _engine(each, clock, disk, report)
        server = await start_server(engines, address, tls)
        for engine in engines.values():
            engine.start()
        ready(server.port)
        try:
            await _until_stopped(stop, engines)
        finally:
            await server.stop(STOP_GRACE_SECONDS)
    finally:
        for engine in engines.values():
            await engine.close()


async def _engine(each: Served, clock: Clock, disk: Disk, report: Callable[[str], None]) -> EventStoreEngine:
    name = each.config.join
    deadline = clock.monotonic() + BUSY_SECONDS
    try:
        while True:
            try:
                return EventStoreEngine(
                    each.config, each.adapter, clock, disk, lambda line: report(f"join {name}: {line}")
                )
            except FileMapBusy:  # a predecessor whose parent was killed may still be committing
                if clock.monotonic() > deadline:
                    raise
            await asyncio.sleep(WATCH_SECONDS)
    except (FileMapError, LogDirectoryError) as err:
        raise EventStoreFailed(f"join {name}: {err}") from None
    except OSError as err:
        raise EventStoreFailed(f"join {name}: {err.filename or each.config.state}: {err.strerror or err}") from None


async def _until_stopped(stop: asyncio.Event, engines: dict[str, EventStoreEngine]) -> None:
    while not stop.is_set():
        for name, engine in engines.items():
            if engine.failure:
                failed = EventStoreFailed(f"join {name}: {engine.failure}")
                if engine.hopeless:  # whoever supervises this process need not start it again
                    failed.exit_code = UsageError.exit_code
                raise failed
        try:
            await asyncio.wait_for(stop.wait(), WATCH_SECONDS)
        except TimeoutError:
            continue
