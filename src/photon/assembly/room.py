"""A service's place in its process: its arguments, the objects that it shares with other services there, and common
helpers. It loads neither adapters nor modules that only some services need, because even a status page has a room.

Each kind of process has a file that builds it: a coroutine that gets a ``Room``, calls ``up`` once it serves, and
serves until the room's ``stop`` is set; then it drains and closes. ``photon.fleet.processes.KINDS`` names it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from photon.config.clock import Clock, SystemClock
from photon.config.disk import Disk, RealDisk
from photon.config.errors import UsageError
from photon.config.roles import Role, identity
from photon.config.settings import Pipeline, Settings, Side
from photon.config.structured import get_logger
from photon.fleet.access import logged, pipeline_named, registry_client, registry_of, tls_of
from photon.fleet.processes import KINDS

if TYPE_CHECKING:
    import grpc

    from photon.adapters.contract import Adapter
    from photon.config.metrics.readings import ProcessMetrics
    from photon.config.serving import Address, SharedServer
    from photon.config.settings_reload import SettingsReload
    from photon.config.tls import Tls
    from photon.dispatcher.engine import DispatcherEngine
    from photon.dispatcher.status import Status
    from photon.eventstore.api import OperatedStore
    from photon.idregistry.api import Digester
    from photon.idregistry.client.grpc_client import RegistryClient
    from photon.idregistry.client.routing import RoutedRegistry
    from photon.joiner.auto_joiner import AutoJoiner
    from photon.joiner.engine import JoinerEngine

T = TypeVar("T")
Up: TypeAlias = Callable[[], None]  # called by a service once it serves
Serve: TypeAlias = Callable[[asyncio.Event, Up], Awaitable[object]]  # runs a service until the event is set


log = get_logger(__name__)


@dataclass(slots=True)
class Nearby:
    """Services in this process that can be called directly; empty if each service has its own process."""

    store: OperatedStore | None = None
    joiners: dict[str, JoinerEngine | AutoJoiner] = field(default_factory=dict)  # joiners by address
    connections: RegistryClient | None = None  # connections to the registry, shared by all parts
    replicas: dict[str, object] = field(default_factory=dict)  # gRPC servicers of the registry's replicas, by name
    registry: RoutedRegistry | None = None  # the registry itself, if only this process uses it
    dispatcher: DispatcherEngine | None = None
    dispatched: Status | None = None  # the dispatcher's last status, once it has stopped


@dataclass(frozen=True, slots=True)
class Alone:
    """A datacentre with its own registry in one process that no other process calls: ``photon join``."""

    adapter: Adapter
    once: bool  # stop when all events have a verdict
    keep_pending: bool
    guessed_ids: bool
    report: Callable[[str], None]  # receives the event store's messages about logs and records


@dataclass
class Room:
    settings: Settings
    base: Path  # directory that paths in the settings are relative to
    stop: asyncio.Event
    named: str | None = None  # the requested datacentre; `None` means the only one
    member: str | None = None  # the process's name among the processes of its kind
    reload: SettingsReload | None = None  # rereads the deployment file when it changes
    # host:port to listen at if a proxy serves the address; `None` means to listen at the address itself.
    listen: str | None = None
    near: Nearby = field(default_factory=Nearby)
    server: SharedServer | None = None  # the process's shared server; `None` if the service has its own process
    alone: Alone | None = None  # set only for ``photon join``
    up: Up = lambda: None
    disk: Disk = field(default_factory=RealDisk)
    clock: Clock = field(default_factory=SystemClock)

    def one_of(self, kind: str, known: Mapping[str, T]) -> T:
        """Returns the entry of ``known`` that ``member`` names, or the only one.

        ``known``: name of each process of the kind -> its settings. Raises UsageError.
        """
        member = next(iter(known)) if self.member is None and len(known) == 1 else self.member
        if member is None or member not in known:
            what = f"{member} is not in the configuration" if member else "name one"
            raise UsageError(f"serve {kind}: {what}; there are: {', '.join(known) or 'none'}")
        return known[member]

    @cached_property
    def datacentre(self) -> str:
        """The datacentre's name. Raises UsageError if none was given and there is not exactly one."""
        return pipeline_named(self.settings, self.named)[0]

    @property
    def pipeline(self) -> Pipeline:
        return self.settings.datacentre[self.datacentre]

    @property
    def state(self) -> Path:
        return self.base / self.pipeline.state

    @property
    def output(self) -> Path:
        return self.base / self.pipeline.output

    def logs(self, side: Side) -> Path:
        """Returns the directory of a side's logs; creates it if a relay fills it."""
        from photon.objects.paths import placed

        directory = placed(self.base, self.pipeline.logs(side))
        if side in self.settings.relayed(self.datacentre):
            directory.mkdir(parents=True, exist_ok=True)
        return directory

    def adapter(self, process: str | None = None) -> Adapter:
        """Loads the join's adapter. ``process``: for a process that reads records, the name under which it keeps
        crumbs."""
        if self.alone is not None:
            return self.alone.adapter
        from photon.adapters.containment import keep_crumbs
        from photon.adapters.crumbs import DIRECTORY
        from photon.adapters.join_adapters import adapter_of

        adapter = adapter_of(self.settings, self.pipeline.join, self.base)
        return adapter if process is None else keep_crumbs(adapter, self.state / DIRECTORY / process, self.disk)

    @property
    def digester(self) -> Digester:
        """The digester of the join's ids. Raises UsageError."""
        from photon.idregistry.api import Digester
        from photon.idregistry.client.deployment_key import deployment_key

        return Digester(deployment_key(self.settings, self.base), self.pipeline.join)

    def heard_at(self, address: str) -> Address | None:
        """Like ``at``, but returns `None` if the process has no outside clients."""
        return None if self.alone is not None else self.at(address)

    def at(self, address: str) -> Address:
        """Returns the place to listen at: the shared server, ``--listen``, or ``address`` from the deployment file.

        Raises UsageError for a part that is not listed in ``apart``.
        """
        if self.server is not None:
            return self.server
        for name, each in self.settings.datacentre.items():
            if address == each.address and self.listen is None:
                raise UsageError(
                    f"datacentre.{name}.apart: this part is not listed, so photon serve datacentre {name} runs it; "
                    "to run it separately, list it and give it its own address"
                )
        return self.listen or address

    def tls(self, role: Role = Role.DATACENTRE, place: str | None = None) -> Tls | None:
        """Returns the service's certificate and trusted authority. ``place``: `None` means the datacentre. Raises
        UsageError."""
        return logged(tls_of(self.settings, self.base, identity(role, place or self.datacentre)))

    @contextlib.asynccontextmanager
    async def registry(self, tls: Tls | None) -> AsyncIterator[RoutedRegistry]:
        """Yields a registry client. The parts of one process share connections, which the process closes."""
        if self.near.registry is not None:
            yield self.near.registry
        elif self.server is None:
            async with registry_of(self.settings, tls, self.near.replicas) as client:
                yield client
        else:
            if self.near.connections is None:
                self.near.connections = registry_client(self.settings, tls, self.near.replicas)
            yield self.near.connections.another()

    @contextlib.asynccontextmanager
    async def answering(
        self,
        kind: str,
        address: str | None,
        metrics: ProcessMetrics,
        tls: Tls | None,
        add: Callable[[grpc.aio.Server], None] = lambda server: None,
    ) -> AsyncIterator[None]:
        """While the context is open, serves health, metrics, and the services that ``add`` registers at ``address``.
        Serves nothing if ``address`` is `None` or the process has no outside clients. Raises CannotListen."""
        from photon.config.metrics.readings import SERVED
        from photon.config.serving import listen

        if address is None or (at := self.heard_at(address)) is None:
            SERVED[kind] = metrics
            yield
            return
        server = await listen(at, KINDS[kind].health, add, tls=tls, metrics=metrics)
        try:
            await server.serving()
            yield
        finally:
            await server.stop()


def reporter(what: str) -> Callable[[str], None]:
    def report(line: str) -> None:
        log.warning(line, part=what)

    return report
