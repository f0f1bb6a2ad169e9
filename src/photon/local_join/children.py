"""The child processes of a ``photon join``: its event store, and the registry in the command's own process."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import orjson

from photon.adapters.contract import Adapter
from photon.assembly.registry import rule_hash
from photon.config.clock import Clock
from photon.config.disk import Disk
from photon.config.errors import PhotonError, UsageError
from photon.config.settings import Settings
from photon.idregistry.api import Digester, Registry
from photon.joiner.slot.identity import OutOfStep
from photon.local_join.given import Given
from photon.local_join.site import Site
from photon.local_join.words import NOTHING_SAID, Words
from photon.outputs.identity import ID_BYTES, identify
from photon.supervision.supervisor import Service, Supervisor
from photon.supervision.zygote import Zygote

READY_S = 30.0
SOCKET_SUFFIX = ".socket"


class JoinFailed(PhotonError):
    """A part of the pipeline failed; what was done before is durable."""


def refused(site: Site, other: OutOfStep) -> UsageError:
    """State and output are from different times: the error for the user, one line."""
    return UsageError(
        f"{other.reason}. Nothing was changed. Put the newest {site.state} and the output next to it back, both of "
        "one moment; where there is none, name another --output: everything is joined again there, and the records "
        f"in {site.output} must not be counted as well"
    )


@dataclass(frozen=True, slots=True)
class JoinOptions:
    primary: Path
    """A directory, a file, a glob, a topic, or ``-`` for standard input; of ``foreign`` likewise."""
    foreign: Path
    output: Path
    config: Path | None = None
    """`None` means that it is inferred from the logs and ``words``."""
    words: Words = NOTHING_SAID
    overrides: tuple[str, ...] = ()
    join: str | None = None
    once: bool = False
    keep_pending: bool = False
    kafka_client: Path | None = None
    """Properties of Kafka's clients, for a side that is kafka://HOST:PORT/TOPIC."""
    accept_lost_offsets: bool = False
    """Continues after messages of topics that are gone."""
    stages: Path | None = None
    """The event store's process writes its stages next to this file."""

    def sides(self) -> dict[str, Path]:
        """The input named for each side."""
        return {"primary": self.primary, "foreign": self.foreign}

    def at(self, join: str, sides: Mapping[str, Given], adapter: Adapter) -> JoinOptions:
        """Fills in directories and, as settings, the files to read in them; the user's settings take precedence."""
        allowed = {"primary": adapter.primary_links, "foreign": adapter.foreign_links}
        files = [
            f"join.{join}.{side}_files={orjson.dumps(logs.patterns).decode()}"
            for side, logs in sides.items()
            if logs.patterns is not None
        ]
        links = [
            f"join.{join}.{side}.follow_links={orjson.dumps([*allowed[side], *logs.links]).decode()}"
            for side, logs in sides.items()
            if logs.links
        ]
        primary, foreign = sides["primary"].directory, sides["foreign"].directory
        return replace(self, primary=primary, foreign=foreign, overrides=(*files, *self.overrides, *links))


@dataclass(frozen=True, slots=True)
class Children:
    """The child processes of a run."""

    options: JoinOptions
    join: str
    digester: Digester
    rule: bytes
    """Hash of how the join's ids are derived."""
    supervisor: Supervisor
    store: str
    """The event store's address."""


@contextlib.asynccontextmanager
async def children_of(
    options: JoinOptions,
    config: Path,
    name: str,
    adapter: Adapter,
    site: Site,
    disk: Disk,
    zygote: Zygote | None,
) -> AsyncIterator[Children]:
    """Starts the child processes without waiting for them, and ends them."""
    digester = Digester(site.key(disk), name)
    identify(disk, site.state, secrets.token_hex(ID_BYTES), "join")
    async with contextlib.AsyncExitStack() as stack:
        address = stack.enter_context(socket_address(site.state, "eventstore"))
        supervisor = Supervisor(zygote=zygote)
        stack.push_async_callback(supervisor.stop)
        await supervisor.start([_store_service(options, config, name, site, address)])
        yield Children(options, name, digester, rule_hash(adapter, digester), supervisor, address)


def store_log(site: Site) -> Path:
    return site.state / "logs" / "eventstore.log"


def _store_service(options: JoinOptions, config: Path, name: str, site: Site, address: str) -> Service:
    """The event store reads primary logs in its own process, so that it has a core to itself."""
    arguments = ["serve", "eventstore", "--config", str(config.absolute()), "--join", name, "--stop-with-parent"]
    arguments += ["--primary", str(options.primary.absolute()), "--state", str(site.file_map.absolute())]
    arguments += ["--address", address, *(["--once"] if options.once else [])]
    arguments += ["--may-be-empty"] if options.keep_pending else []
    if options.stages is not None:
        arguments += ["--stages", str(options.stages.absolute().with_suffix(".eventstore.json"))]
    for override in options.overrides:
        arguments += ["--set", override]
    return Service("event store", tuple(arguments), store_log(site), address)


@contextlib.asynccontextmanager
async def open_registry(
    children: Children, site: Site, settings: Settings, disk: Disk, clock: Clock
) -> AsyncIterator[Registry]:
    """The registry of a site; closed at the end. Raises UsageError."""
    from photon.idregistry.replica.embedded import EmbeddedRegistry, RegistryConflict

    try:
        local = await EmbeddedRegistry.open(
            site.registry("local"),
            shards=settings.registry.shards,
            id_rules={children.join: children.rule},
            uncertainty_ns=int(settings.clock.uncertainty * 1e9),
            retention_ns=None if settings.registry.retention is None else int(settings.registry.retention * 1e9),
            memory_limit=settings.registry.memory_limit,
            lone=True,
            disk=disk,
            clock=clock,
        )
    except RegistryConflict as conflict:
        raise UsageError(f"{site.output}: {conflict}") from None
    try:
        yield local
    finally:
        await local.close()


@contextlib.contextmanager
def socket_address(directory: Path, name: str) -> Iterator[str]:
    """``unix:PATH`` for a child that ends before this process does. ``directory`` exists, and this process holds its
    lock.

    A socket's path may have some 100 bytes. Through the command's descriptor of the directory every path is short,
    and a killed command leaves nothing elsewhere; the next one removes what it left.
    """
    for stale in directory.glob(f"{name}-*{SOCKET_SUFFIX}"):
        stale.unlink(missing_ok=True)
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
