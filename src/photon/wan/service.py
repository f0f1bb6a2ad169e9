"""The control of a proxy as a gRPC service; see wan.proto."""

from __future__ import annotations

from typing import Any

import grpc

from photon.config.audit import Audited
from photon.config.metrics.readings import ProcessMetrics
from photon.config.serving import HealthyServer, listen
from photon.config.tls import Tls
from photon.wan import wan_pb2 as pb
from photon.wan import wan_pb2_grpc, wire
from photon.wan.metrics import reads
from photon.wan.proxy import Proxy

SERVICE_NAME = "photon.v1.Wan"
REQUESTS_MAX = 64
"""In flight at once."""


class WanService(wan_pb2_grpc.WanServicer):
    """Handlers: wire to proxy and back."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy

    async def Set(  # noqa: N802
        self, request: pb.SetRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.SetReply:
        """Makes all changes or none."""
        try:
            changes = wire.changes(request)
        except wire.WireError as error:
            return pb.SetReply(error=str(error))
        return pb.SetReply(error=self._proxy.set(changes))

    async def List(  # noqa: N802
        self, request: pb.ListRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.ListReply:
        """Every direction."""
        return wire.list_reply(self._proxy.directions())


async def start_server(proxy: Proxy, address: str, tls: Tls | None = None) -> HealthyServer:
    """Listens at host:port, not serving yet. Raises CannotListen."""
    metrics = ProcessMetrics([reads(proxy)])

    def add(server: grpc.aio.Server) -> None:
        wan_pb2_grpc.add_WanServicer_to_server(WanService(proxy), Audited(server))  # type: ignore[no-untyped-call]

    return await listen(address, SERVICE_NAME, add, requests_max=REQUESTS_MAX, tls=tls, metrics=metrics)
