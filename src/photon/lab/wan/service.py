"""The proxy as a process: implements ``photon wan serve``, and its control as a gRPC service (wan.proto)."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable, Sequence

from photon.config.metrics.readings import ProcessMetrics, Readings, Source
from photon.config.rpc import Context, WireError
from photon.config.serving import HealthyServer, listen_for
from photon.config.tls import Tls
from photon.lab.wan import wan_pb2 as pb
from photon.lab.wan import wire
from photon.lab.wan.links import Fault
from photon.lab.wan.proxy import CONNECTIONS_MAX, Proxy
from photon.supervision.routes import Route

REQUESTS_MAX = 64  # requests in flight at once
OTHER_FILES = 256  # descriptors kept for listeners, control and logs
STOP_GRACE_S = 1.0


class WanService:
    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy

    async def Set(self, request: pb.SetRequest, context: Context) -> pb.SetReply:  # noqa: N802
        try:
            changes = wire.changes(request)
        except WireError as error:
            return pb.SetReply(error=str(error))
        return pb.SetReply(error=self._proxy.set(changes))

    async def List(self, request: pb.ListRequest, context: Context) -> pb.ListReply:  # noqa: N802
        return wire.list_reply(self._proxy.directions())


async def start_server(proxy: Proxy, address: str, tls: Tls | None = None) -> HealthyServer:
    """Starts to listen at host:port, without serving yet. Raises CannotListen."""
    metrics = ProcessMetrics([reads(proxy)])
    return await listen_for(
        address, wire.CONTROL, WanService(proxy), requests_max=REQUESTS_MAX, tls=tls, metrics=metrics
    )


async def serve(
    routes: Sequence[Route],
    *,
    control: str,
    delay_s: float,
    stop: asyncio.Event,
    tls: Tls | None = None,
    ready: Callable[[int], None] = lambda _: None,
) -> None:
    """Serves until ``stop`` is set. ``control``: host:port; ``delay_s``: one-way delay at the start.
    Without ``tls`` the control uses plain text; bytes through the proxy are never changed.

    ``ready(port)`` is called with the control's port once all listen. Raises CannotListen.
    """
    proxy = Proxy(routes, delay_s=delay_s, connections_max=connections_max(len(routes)))
    await proxy.start()
    try:
        server = await start_server(proxy, control, tls)
        try:
            await server.serving()
            ready(server.port)
            await stop.wait()
        finally:
            await server.stop(STOP_GRACE_S)
    finally:
        await proxy.stop()


def connections_max(routes: int) -> int:
    """The number of connections that the limit on open files allows; first raises the soft limit if necessary."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * CONNECTIONS_MAX + routes + OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY:
        return CONNECTIONS_MAX
    return max(1, min(CONNECTIONS_MAX, (soft - routes - OTHER_FILES) // 2))


def reads(proxy: Proxy) -> Source:

    def read(into: Readings) -> None:
        for direction in proxy.directions():
            labels = {"source": direction.source, "destination": direction.destination}
            into.put("photon_wan_delay_seconds", direction.delay_s, **labels)
            into.put("photon_wan_fault", direction.fault is not Fault.NONE, **labels)

    return read
