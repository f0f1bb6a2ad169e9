"""A gRPC server with its health service: what every service process listens with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from photon.config.errors import PhotonError

NO_SHARED_PORT = ("grpc.so_reuseport", 0)
"""Two processes on one port would take each other's requests: the second one must fail instead."""


class CannotListen(PhotonError):
    """The address cannot be had; one line."""


@dataclass(frozen=True, slots=True)
class HealthyServer:
    """A server that listens. ``port`` means nothing for a unix socket."""

    server: grpc.aio.Server
    health: Any  # grpc_health.v1.health.aio.HealthServicer, which has no types
    name: str
    port: int

    async def serving(self) -> None:
        """Says that requests are welcome."""
        for each in ("", self.name):
            await self.health.set(each, health_pb2.HealthCheckResponse.SERVING)

    async def stop(self, grace_s: float = 5.0) -> None:
        """Says not serving, lets requests in flight end within ``grace_s`` seconds, stops."""
        await self.health.enter_graceful_shutdown()
        await self.server.stop(grace_s)


async def listen(
    address: str,
    name: str,
    add: Callable[[grpc.aio.Server], None] = lambda server: None,
    *,
    options: Sequence[tuple[str, int]] = (),
    requests_max: int | None = None,
) -> HealthyServer:
    """Listens at ``host:port`` (port 0: a free one) or ``unix:/path``; not serving yet.

    ``add`` adds the services; ``name`` is what health is reported under, besides "". More than ``requests_max``
    requests in flight are refused at once (RESOURCE_EXHAUSTED). Raises CannotListen.
    """
    server = grpc.aio.server(options=(*options, NO_SHARED_PORT), maximum_concurrent_rpcs=requests_max)
    add(server)
    servicer = health.aio.HealthServicer()  # type: ignore[attr-defined]
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    for each in ("", name):
        await servicer.set(each, health_pb2.HealthCheckResponse.NOT_SERVING)
    try:
        port = server.add_insecure_port(address)
    except RuntimeError:
        raise CannotListen(f"{address}: {name} cannot listen there; is the port in use?") from None
    await server.start()
    return HealthyServer(server, servicer, name, port)
