"""A cache node as a process: what ``photon serve cache`` runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from photon.config.tls import Tls
from photon.eventstore.cache_nodes.node import CacheNode
from photon.eventstore.cache_nodes.service import start_server

STOP_GRACE_SECONDS = 1.0


async def serve(
    *,
    address: str,
    bytes_max: int,
    ready: Callable[[int], None],
    stop: asyncio.Event,
    tls: Tls | None = None,
) -> None:
    """Serves at ``address`` (host:port or unix:/path) until ``stop``; ``tls`` None: in plain text.

    ``ready(port)`` is called once it serves. Keeps
    nothing on disk: what it held is gone when it returns. Raises CannotListen.
    """
    server, service = await start_server(CacheNode(bytes_max), address, tls)
    try:
        ready(server.port)
        await stop.wait()
    finally:
        await server.stop(STOP_GRACE_SECONDS)
        service.close()
