"""The event store of a ``photon join``: in the command's own process, or in one of its own, which has a core to
itself, if it has much to read."""

from __future__ import annotations

import contextlib
import io
import os
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, cast

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import Adapter
from photon.adapters.join_adapters import adapter_of
from photon.adapters.logs.discovery import compile_patterns, discover
from photon.adapters.logs.elsewhere import is_final
from photon.adapters.logs.problems import ProblemReporter
from photon.config.clock import Clock
from photon.config.disk import Disk
from photon.config.log import Unfailing
from photon.config.settings import Settings
from photon.config.structured import structlog
from photon.local_join.options import JoinOptions
from photon.local_join.site import Site
from photon.outputs.log.copier import WHOLE_NAME
from photon.supervision.process_log import LOG_BYTES, open_log

if TYPE_CHECKING:
    from photon.eventstore.api import OperatedStore
    from photon.supervision.supervisor import Service

APART_BYTES = 32 << 20
"""With less to read, starting another process takes longer than it saves."""
SOCKET_NAME, SOCKET_SUFFIX = "eventstore", ".socket"


@dataclass(frozen=True, slots=True)
class RunningStore:
    store: OperatedStore
    failure: Callable[[], str | None]
    """One line once it cannot go on."""
    address: str | None = None
    """`None` in this process."""


def store_log(site: Site) -> Path:
    return site.state / "logs" / "eventstore.log"


@contextlib.asynccontextmanager
async def store_of(
    options: JoinOptions,
    config: Path,
    settings: Settings,
    name: str,
    adapter: Adapter,
    site: Site,
    disk: Disk,
    clock: Clock,
) -> AsyncIterator[RunningStore]:
    """Starts the event store of join ``name``, and ends it. Raises EventStoreFailed."""
    for stale in site.state.glob(f"{SOCKET_NAME}-*{SOCKET_SUFFIX}"):  # of a killed predecessor
        stale.unlink(missing_ok=True)
    if is_apart(options, settings, name, adapter):
        opened = _apart(options, config, name, site)
    else:
        opened = _within(options, config, settings, name, site, disk, clock)
    async with opened as running:
        yield running


def is_apart(options: JoinOptions, settings: Settings, name: str, adapter: Adapter) -> bool:
    """True if its work is worth a process: logs that are followed, long or in object storage, or a user's code, which
    may hang."""
    directory, files = options.primary, settings.join[name].primary_files
    if not options.once or is_final(directory) or not isinstance(adapter, ConfiguredAdapter):
        return True
    found = discover(directory, compile_patterns(tuple(files)), ProblemReporter(None), links=adapter.primary_links)
    return sum(each.size for each in found) >= APART_BYTES


@contextlib.asynccontextmanager
async def _within(
    options: JoinOptions, config: Path, settings: Settings, name: str, site: Site, disk: Disk, clock: Clock
) -> AsyncIterator[RunningStore]:
    from photon.assembly.eventstore import eventstore_config
    from photon.eventstore.engine import open_engine

    site.file_map.mkdir(parents=True, exist_ok=True)
    store_config = eventstore_config(
        settings, name, options.primary, site.file_map,
        once=options.once, may_be_empty=options.keep_pending, relayed=disk.exists(options.primary / WHOLE_NAME),
    )  # fmt: skip
    with open_log(store_log(site), LOG_BYTES) as file:
        told = structlog.wrap_logger(structlog.PrintLogger(cast(TextIO, Unfailing(io.TextIOWrapper(file)))))
        engine = await open_engine(
            store_config,
            adapter_of(settings, name, config.parent),
            clock,
            disk,
            lambda line: told.warning(line, part="event store"),
        )
        try:
            engine.start()
            yield RunningStore(engine, lambda: f"event store: {engine.failure}" if engine.failure else None)
        finally:
            await engine.close()


@contextlib.asynccontextmanager
async def _apart(options: JoinOptions, config: Path, name: str, site: Site) -> AsyncIterator[RunningStore]:
    from photon.supervision.supervisor import Supervisor

    with socket_address(site.state, SOCKET_NAME) as address:
        supervisor = Supervisor()
        try:
            await supervisor.start([_service(options, config, name, site, address)])  # it imports, and so do we
            from photon.eventstore.client import EventStoreClient

            store = EventStoreClient(address, name)
            try:
                yield RunningStore(store, supervisor.failure, address)
            finally:
                await store.close()
        finally:
            await supervisor.stop()


def _service(options: JoinOptions, config: Path, name: str, site: Site, address: str) -> Service:
    from photon.supervision.supervisor import Service

    arguments = ["serve", "eventstore", "--config", str(config.absolute()), "--join", name, "--stop-with-parent"]
    arguments += ["--primary", str(options.primary.absolute()), "--state", str(site.file_map.absolute())]
    arguments += ["--address", address, *(["--once"] if options.once else [])]
    arguments += ["--may-be-empty"] if options.keep_pending else []
    if options.stages is not None:
        arguments += ["--stages", str(options.stages.absolute().with_suffix(".eventstore.json"))]
    for override in options.overrides:
        arguments += ["--set", override]
    return Service("event store", tuple(arguments), store_log(site), address)


@contextlib.contextmanager
def socket_address(directory: Path, name: str) -> Iterator[str]:
    """``unix:PATH`` for a child that ends before this process does. ``directory`` exists, and this process holds its
    lock.

    A socket's path may have some 100 bytes. Through the command's descriptor of the directory every path is short,
    and a killed command leaves nothing elsewhere.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # The number keeps a child of a killed predecessor, which removes its socket when it ends, from removing ours.
        path = f"/proc/{os.getpid()}/fd/{descriptor}/{name}-{os.getpid()}{SOCKET_SUFFIX}"
        if _works(path):
            try:
                yield f"unix:{path}"
            finally:
                with contextlib.suppress(FileNotFoundError):  # a child that ended normally has removed it
                    os.unlink(path)
            return
    finally:
        os.close(descriptor)
    with tempfile.TemporaryDirectory(prefix="photon-") as elsewhere:  # for a file system without sockets
        yield f"unix:{elsewhere}/{name}"


def _works(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.bind(path)
        except OSError:
            return False
    os.unlink(path)
    return True
