"""The gRPC health service of a process that serves nothing else."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from photon.config.errors import PhotonError

GRACE_S = 1.0


@contextlib.asynccontextmanager
async def health_service(address: str | None, name: str) -> AsyncIterator[None]:
    """Says SERVING under ``name`` and "" at ``host:port`` while inside; nothing without an address."""
    if address is None:
        yield
        return
    server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
    servicer = health.aio.HealthServicer()  # type: ignore[attr-defined]
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    try:
        server.add_insecure_port(address)
    except RuntimeError:
        raise PhotonError(f"{address}: cannot listen there; is the port in use?") from None
    await server.start()
    for each in ("", name):
        await servicer.set(each, health_pb2.HealthCheckResponse.SERVING)
    try:
        yield
    finally:
        await servicer.enter_graceful_shutdown()
        await server.stop(GRACE_S)
