"""The proxy as a process: what ``photon wan serve`` runs."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable, Sequence

from photon.config.tls import Tls
from photon.lab.wan.api import Route
from photon.lab.wan.proxy import CONNECTIONS_MAX, Proxy
from photon.lab.wan.service import start_server

OTHER_FILES = 256
"""Descriptors kept for listeners, control and logs."""
STOP_GRACE_S = 1.0


async def serve(
    routes: Sequence[Route],
    *,
    control: str,
    delay_s: float,
    stop: asyncio.Event,
    tls: Tls | None = None,
    ready: Callable[[int], None] = lambda _: None,
) -> None:
    """Serves until ``stop`` is set. ``control``: host:port; ``delay_s``: one way, in every direction at the start.
    ``tls`` None: the control speaks plain text; what passes the proxy stays as it is.

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
    """How many connections the process's limit of open files allows; raises the soft limit as far as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * CONNECTIONS_MAX + routes + OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY:
        return CONNECTIONS_MAX
    return max(1, min(CONNECTIONS_MAX, (soft - routes - OTHER_FILES) // 2))
