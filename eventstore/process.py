"""The event store as a process: what ``photon eventstore serve`` and the embedded deployment's child run."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from photon.adapters.contract import Adapter
from photon.adapters.logs.problems import LogDirectoryError
from photon.config.clock import Clock
from photon.config.disk import Disk
from photon.config.errors import PhotonError, UsageError
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
    stop: asyncio.Event | None = None,
    stop_on_stdin_eof: bool = False,
) -> None:
    """Serves at ``address`` (host:port or unix:/path) until ``stop``; without one until SIGTERM or SIGINT.

    With ``stop_on_stdin_eof`` also until the parent that holds our stdin is gone.

    ``ready(port)`` is called once the server listens. Everything read is committed before it returns. Raises
    EventStoreFailed when it cannot start, or when a reader fails.
    """
    loop = asyncio.get_running_loop()
    signals = (signal.SIGTERM, signal.SIGINT) if stop is None else ()
    stop = stop or asyncio.Event()
    for number in signals:
        loop.add_signal_handler(number, stop.set)
    if stop_on_stdin_eof:
        _watch_stdin(loop, stop)
    engines: dict[str, EventStoreEngine] = {}
    try:
        for each in joins:
            engines[each.config.join] = await _engine(each, clock, disk, report)
        server = await start_server(engines, address)
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
        for number in signals:
            loop.remove_signal_handler(number)


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


def _watch_stdin(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    """A pipe whose writer is the parent: its end says that the parent is dead, however it died."""
    descriptor = sys.stdin.fileno()

    def wait() -> None:
        while os.read(descriptor, 4096):
            pass
        loop.call_soon_threadsafe(stop.set)

    threading.Thread(target=wait, name="stdin-eof", daemon=True).start()
