"""The control of a proxy as a gRPC service; see wan.proto."""

from __future__ import annotations

from photon.config.metrics.readings import ProcessMetrics
from photon.config.rpc import Context, WireError
from photon.config.serving import HealthyServer, listen_for
from photon.config.tls import Tls
from photon.lab.wan import wan_pb2 as pb
from photon.lab.wan import wire
from photon.lab.wan.metrics import reads
from photon.lab.wan.proxy import Proxy

REQUESTS_MAX = 64
"""In flight at once."""


class WanService:
    """Handlers: wire to proxy and back."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy

    async def Set(self, request: pb.SetRequest, context: Context) -> pb.SetReply:  # noqa: N802
        """Makes all changes or none."""
        try:
            changes = wire.changes(request)
        except WireError as error:
            return pb.SetReply(error=str(error))
        return pb.SetReply(error=self._proxy.set(changes))

    async def List(self, request: pb.ListRequest, context: Context) -> pb.ListReply:  # noqa: N802
        """Every direction."""
        return wire.list_reply(self._proxy.directions())


async def start_server(proxy: Proxy, address: str, tls: Tls | None = None) -> HealthyServer:
    """Listens at host:port, not serving yet. Raises CannotListen."""
    metrics = ProcessMetrics([reads(proxy)])
    return await listen_for(
        address, wire.CONTROL, WanService(proxy), requests_max=REQUESTS_MAX, tls=tls, metrics=metrics
    )
