"""The event store of a ``photon join``: in the command's process or, if it has much to read, in a separate process on
its own core."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, cast

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import Adapter
from photon.adapters.logs.discovery import compile_patterns, discover
from photon.adapters.logs.elsewhere import is_final
from photon.adapters.logs.problems import ProblemReporter
from photon.assembly.registry import samples_of
from photon.assembly.room import Room, Serve, Up
from photon.config.log import Unfailing
from photon.config.settings import Settings
from photon.config.stopping import until
from photon.config.structured import structlog
from photon.local_join.options import JoinFailed, JoinOptions
from photon.local_join.site import Site
from photon.supervision.process_log import LOG_BYTES, open_log

if TYPE_CHECKING:
    from photon.supervision.supervisor import Service
    from photon.supervision.zygote import Zygote

APART_BYTES = 32 << 20  # with fewer bytes to read, starting another process takes longer than it saves
WATCH_S = 0.2
SOCKET_NAME, SOCKET_SUFFIX = "eventstore", ".socket"


def store_log(site: Site) -> Path:
    return site.state / "logs" / "eventstore.log"


def remove_sockets(site: Site) -> None:
    """Removes the sockets that a killed predecessor left behind."""
    for stale in site.state.glob(f"{SOCKET_NAME}-*{SOCKET_SUFFIX}"):
        stale.unlink(missing_ok=True)


@contextlib.contextmanager
def store_reports(site: Site) -> Iterator[Callable[[str], None]]:
    """Yields a function that logs messages about logs and records, for a store in this process. It writes to the same
    file as a separate store."""
    with open_log(store_log(site), LOG_BYTES) as file:
        told = structlog.wrap_logger(structlog.PrintLogger(cast(TextIO, Unfailing(io.TextIOWrapper(file)))))
        yield lambda line: told.warning(line, part="event store")


def is_apart(options: JoinOptions, settings: Settings, name: str, adapter: Adapter, size: int | None) -> bool:
    """Returns True if the event store should have its own process: logs are followed, long or remote, or user code
    may hang. ``size``: total size of the primary logs; `None` if not known yet."""
    directory, files = options.primary, settings.join[name].primary_files
    if not options.once or is_final(directory) or not isinstance(adapter, ConfiguredAdapter):
        return True
    if size is None:
        found = discover(
            directory, compile_patterns(tuple(files)), ProblemReporter(None), links=adapter.primary_links
        )
        size = sum(each.size for each in found)
    return size >= APART_BYTES


def may_be_apart(options: JoinOptions) -> bool:
    """Returns False if it is clear from the files alone, before the configuration is read, that ``is_apart`` will be
    False."""
    directory = options.primary
    if not options.once or is_final(directory) or not directory.is_dir():
        return True
    sizes = (each.stat().st_size for each in directory.rglob("*") if each.is_file())
    return any(total >= APART_BYTES for total in accumulate(sizes))


@contextlib.asynccontextmanager
async def store_apart(
    room: Room, options: JoinOptions, config: Path, site: Site, zygote: Zygote | None
) -> AsyncIterator[tuple[str, Serve]]:
    """Runs the event store in a separate process. Yields its address, and the service that represents it in this
    process."""
    from photon.supervision.supervisor import Supervisor

    with socket_address(site.state, SOCKET_NAME) as address:
        supervisor = Supervisor(zygote=zygote)

        async def serve(stop: asyncio.Event, up: Up) -> None:
            """Connects to the event store and watches its process. Raises JoinFailed, UsageError."""
            from photon.eventstore.client import EventStoreClient

            assert room.near.registry is not None, "set by an earlier stage"
            samples = samples_of(room, room.near.registry)
            if not await samples.begin(stop):
                return
            await samples.keep_first("primary", stop)
            room.near.store = store = EventStoreClient(address, room.pipeline.join)
            up()
            try:
                while not await until(stop, WATCH_S):
                    if (failure := supervisor.failure()) is not None:
                        raise JoinFailed(failure)
            finally:
                await store.close()

        try:
            await supervisor.start([_service(options, config, room.pipeline.join, site, address)])
            yield address, serve
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
    """Yields a ``unix:PATH`` for a child that ends before this process does. ``directory`` must exist and be locked
    by this process.

    A socket's path is limited to some 100 bytes. A path through this process's descriptor of the directory is short,
    and a killed command leaves no file elsewhere.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # The process id makes the name unique: a killed predecessor's child removes its own socket when it stops.
        path = f"/proc/{os.getpid()}/fd/{descriptor}/{name}-{os.getpid()}{SOCKET_SUFFIX}"
        if _works(path):
            try:
                yield f"unix:{path}"
            finally:
                with contextlib.suppress(FileNotFoundError):  # a child that stopped normally has removed the socket
                    os.unlink(path)
            return
    finally:
        os.close(descriptor)
    with tempfile.TemporaryDirectory(prefix="photon-") as elsewhere:  # for file systems that have no sockets
        yield f"unix:{elsewhere}/{name}"


def _works(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.bind(path)
        except OSError:
            return False
    os.unlink(path)
    return True
