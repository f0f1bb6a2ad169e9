"""A gRPC server with its health and metrics services, used by every service process.

Imports gRPC only where a port is opened: the parts of ``photon join`` are services that nothing outside calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from photon.config.metrics.readings import ProcessMetrics
from photon.config.tls import MESSAGE_BYTES_MAX, METADATA_BYTES_MAX, CannotListen, Tls, bind

if TYPE_CHECKING:
    import grpc.aio

    from photon.config.rights import DatacentreOf
    from photon.config.rpc import Service

__all__ = ["CannotListen", "HealthyServer", "SharedServer", "listen", "listen_for", "make_server"]

CONNECTIONS_MAX = 1024  # connections of one port; further ones are refused
# Requests in progress on one connection: with the message size it bounds the memory for a connection.
STREAMS_MAX = 256
REQUEST_BYTES_MAX = 64 << 10  # the largest request of services that set no size
SHARED_REQUESTS_MAX = 512  # in flight at a server shared by several parts; more than any of them accepts
REPLY_BYTES_MAX = MESSAGE_BYTES_MAX  # the largest reply of these services: what their callers accept
# A connection that has not completed HTTP/2's preface (and shown its identity) by then is closed.
HANDSHAKE_MS = 10_000
_BOUNDS = {
    "grpc.max_allowed_incoming_connections": CONNECTIONS_MAX,
    "grpc.max_concurrent_streams": STREAMS_MAX,
    "grpc.max_metadata_size": METADATA_BYTES_MAX,
    "grpc.absolute_max_metadata_size": METADATA_BYTES_MAX,
    "grpc.max_receive_message_length": REQUEST_BYTES_MAX,
    "grpc.max_send_message_length": REPLY_BYTES_MAX,
    "grpc.server_handshake_timeout_ms": HANDSHAKE_MS,
    "grpc.so_reuseport": 0,  # two processes on one port would take each other's requests, so the second one must fail
}


def server_options(options: Sequence[tuple[str, int]] = ()) -> list[tuple[str, int]]:
    """Returns the options of every server; ``options`` take precedence over the bounds above.

    A message that is too large is refused by its declared length before a byte of it is stored, and so is one that
    would be too large when decompressed.
    """
    return list({**_BOUNDS, **dict(options)}.items())


def make_server(
    options: Sequence[tuple[str, int]] = (),
    *,
    tls: Tls | None,
    requests_max: int | None = None,
    datacentre_of: DatacentreOf | None = None,
) -> grpc.aio.Server:
    """The only way to create a server: its requests are bounded and, over TLS, checked with config/rights.py.

    Call ``bind`` with the same ``tls``. ``requests_max``: see listen; ``datacentre_of``: see config/rights.py.
    """
    import grpc.aio

    from photon.config.authorisation import Authorisation

    return grpc.aio.server(
        options=server_options(options),
        maximum_concurrent_rpcs=requests_max,
        interceptors=() if tls is None else (Authorisation(tls.identity, datacentre_of),),
    )


Handler: TypeAlias = "grpc.GenericRpcHandler[Any, Any]"


@dataclass(frozen=True, slots=True)
class HealthyServer:
    """A listening server, or a part's share of one. ``port`` has no meaning for a unix socket."""

    server: grpc.aio.Server
    health: Any  # grpc_health.v1.health.aio.HealthServicer, which is untyped
    name: str
    port: int
    shared: SharedServer | None = None  # the server that it is a part of

    async def serving(self) -> None:
        from grpc_health.v1 import health_pb2

        for each in (self.name,) if self.shared is not None else ("", self.name):
            await self.health.set(each, health_pb2.HealthCheckResponse.SERVING)

    async def stop(self, grace_s: float = 5.0) -> None:
        """Reports that it is not serving, gives requests in progress ``grace_s`` seconds to end, then stops."""
        from grpc_health.v1 import health_pb2

        if self.shared is not None:
            await self.health.set(self.name, health_pb2.HealthCheckResponse.NOT_SERVING)
            self.shared.parts.pop(self.name, None)
            return
        await self.health.enter_graceful_shutdown()
        await self.server.stop(grace_s)


class Unheard:
    """Stands in for the server of a part that only its own process calls."""

    port = 0

    async def serving(self) -> None:
        pass

    async def stop(self, grace_s: float = 0.0) -> None:
        pass


class _Parts:
    """A ``grpc.GenericRpcHandler`` that finds a call's handler among several parts: in the part named by the call's
    metadata, or in any."""

    def __init__(self, parts: dict[str, list[Handler]], key: str) -> None:
        """``key``: names the part in a call's metadata."""
        self._parts, self._key = parts, key

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        wanted = next((value for key, value in details.invocation_metadata or () if key == self._key), None)
        parts: Iterable[list[Handler]]
        parts = self._parts.values() if wanted is None else (self._parts.get(str(wanted), []),)
        found = (each.service(details) for handlers in parts for each in handlers)
        return next((handler for handler in found if handler is not None), None)


class _Part:
    """Collects the services of one part, which shares a server instead of having its own."""

    def __init__(self, handlers: list[Handler]) -> None:
        self._handlers = handlers

    def add_generic_rpc_handlers(self, handlers: Iterable[Handler]) -> None:
        self._handlers.extend(handlers)


@dataclass(frozen=True, slots=True)
class SharedServer:
    """One server at one address for all parts of a process. Each part has its own health and metrics; the server's
    health is the health of ``own``. The largest limits of the parts apply to all."""

    own: HealthyServer
    address: str
    parts: dict[str, list[Handler]] = field(default_factory=dict)


# Where a service listens: host:port (port 0: a free one), unix:/path, or a server that it shares.
Address: TypeAlias = str | SharedServer


async def listen_shared(
    address: str, listen_at: str, name: str, services: Iterable[Service], tls: Tls | None
) -> SharedServer:
    """Listens for parts that are added later. ``address``: as in the deployment file; ``services``: the parts'
    services, for their limits. Raises CannotListen.
    """
    from photon.config.metrics.service import PART

    sizes: dict[str, int] = {}
    for limit, size in (each for service in services for each in service.sizes):
        sizes[limit] = max(size, sizes.get(limit, 0))
    parts: dict[str, list[Handler]] = {}

    def add(server: grpc.aio.Server) -> None:
        server.add_generic_rpc_handlers((_Parts(parts, PART),))  # type: ignore[arg-type]

    own = await _listen(listen_at, name, add, list(sizes.items()), SHARED_REQUESTS_MAX, tls)
    return SharedServer(own, address, parts)


async def listen(
    address: Address,
    name: str,
    add: Callable[[grpc.aio.Server], None] = lambda server: None,
    *,
    options: Sequence[tuple[str, int]] = (),
    requests_max: int | None = None,
    tls: Tls | None = None,
    metrics: ProcessMetrics | None = None,
) -> HealthyServer:
    """Listens at ``address``. The server reports that it is not serving yet.

    ``add`` adds the services; ``name``: the service's name in the health service, in addition to "". More than
    ``requests_max`` concurrent requests are refused at once (RESOURCE_EXHAUSTED). Without ``tls`` connections are
    plain text.
    ``metrics``: metrics to report; ``None`` means only those common to all processes. Raises CannotListen.
    """
    from grpc_health.v1 import health_pb2

    from photon.config.metrics.service import METRICS_SERVICE, MetricsService

    metrics = metrics or ProcessMetrics()

    def add_all(server: Any, at: str) -> None:
        add(server)
        METRICS_SERVICE.add(server, MetricsService(metrics, at))

    if isinstance(address, str):
        return await _listen(address, name, lambda server: add_all(server, address), options, requests_max, tls)
    add_all(_Part(address.parts.setdefault(name, [])), f"{address.address} {name}")
    await address.own.health.set(name, health_pb2.HealthCheckResponse.NOT_SERVING)
    return HealthyServer(address.own.server, address.own.health, name, address.own.port, address)


async def _listen(
    address: str, name: str, add: Callable[[grpc.aio.Server], None], options: Sequence[tuple[str, int]],
    requests_max: int | None, tls: Tls | None,
) -> HealthyServer:  # fmt: skip
    from grpc_health.v1 import health, health_pb2, health_pb2_grpc

    server = make_server(options, tls=tls, requests_max=requests_max)
    add(server)
    servicer = health.aio.HealthServicer()  # type: ignore[attr-defined]
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    for each in ("", name):
        await servicer.set(each, health_pb2.HealthCheckResponse.NOT_SERVING)
    port = bind(server, address, name, tls)
    await server.start()
    return HealthyServer(server, servicer, name, port)


async def listen_for(
    address: Address,
    service: Service,
    servicer: object,
    *,
    also: Callable[[grpc.aio.Server], None] = lambda server: None,
    options: Sequence[tuple[str, int]] = (),
    requests_max: int | None = None,
    tls: Tls | None = None,
    metrics: ProcessMetrics | None = None,
) -> HealthyServer:
    """Listens with one service, answered by ``servicer`` within the service's size limits. ``also`` adds others."""

    def add(server: grpc.aio.Server) -> None:
        service.add(server, servicer)
        also(server)

    options = (*service.sizes, *options)
    return await listen(
        address, service.name, add, options=options, requests_max=requests_max, tls=tls, metrics=metrics
    )
