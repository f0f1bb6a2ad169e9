"""The joiner as a gRPC service: one server, one engine for each join."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import grpc

from photon.config.metrics.readings import ProcessMetrics
from photon.config.rpc import Context, abort, seconds_left
from photon.config.serving import HealthyServer, listen_for
from photon.config.tls import Tls
from photon.joiner import joiner_pb2 as pb
from photon.joiner import wire
from photon.joiner.api import Joiner

REQUESTS_MAX = 256
"""Requests in flight; more are refused at once (RESOURCE_EXHAUSTED), and dispatchers try again."""
TIMEOUT_S = 30.0
"""Of a request, however long its caller would wait."""
REPLY_MARGIN_S = 0.1
"""The engine answers so much before the caller's deadline, so that the answer arrives in time."""


class JoinerService:
    """Handlers: wire to engine and back."""

    def __init__(self, joiners: Mapping[str, Joiner]) -> None:
        self._joiners = joiners

    async def Join(self, request: pb.JoinRequest, context: Context) -> pb.JoinReply:  # noqa: N802
        """See joiner.proto."""
        joiner = self._joiners.get(request.join)
        if joiner is None:
            await abort(context, grpc.StatusCode.NOT_FOUND, f"no join named {request.join!r} here")
        events = wire.asked(request)
        timeout = seconds_left(context, default=TIMEOUT_S, margin=REPLY_MARGIN_S, most=TIMEOUT_S)
        return wire.reply(await joiner.join(events, timeout=timeout))


async def start_server(
    joiners: Mapping[str, Joiner],
    address: str,
    tls: Tls | None = None,
    metrics: ProcessMetrics | None = None,
    also: Callable[[grpc.aio.Server], None] = lambda server: None,
) -> HealthyServer:
    """Listens, not serving yet: see config.serving.listen_for. ``also`` adds services beside. Raises CannotListen."""
    return await listen_for(
        address, wire.JOINER, JoinerService(joiners), also=also, requests_max=REQUESTS_MAX, tls=tls, metrics=metrics
    )
