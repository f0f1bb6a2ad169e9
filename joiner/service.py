"""The joiner as a gRPC service: one server, one engine for each join."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import grpc

from photon.config.message_bounds import bounded
from photon.config.metrics.readings import ProcessMetrics
from photon.config.serving import HealthyServer, listen
from photon.config.tls import Tls
from photon.joiner import joiner_pb2 as pb
from photon.joiner import joiner_pb2_grpc, wire
from photon.joiner.api import Joiner

SERVICE_NAME = "photon.v1.Joiner"
REQUESTS_MAX = 256
"""Requests in flight; more are refused at once (RESOURCE_EXHAUSTED), and dispatchers try again."""
DEFAULT_TIMEOUT_S = 30.0
"""For callers that set no deadline."""
REPLY_MARGIN_S = 0.1
"""The engine answers so much before the caller's deadline, so that the answer arrives in time."""
OPTIONS = (
    ("grpc.max_receive_message_length", wire.MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", wire.MESSAGE_BYTES_MAX),
)


class JoinerService(joiner_pb2_grpc.JoinerServicer):
    """Handlers: wire to engine and back."""

    def __init__(self, joiners: Mapping[str, Joiner]) -> None:
        self._joiners = joiners

    async def Join(  # noqa: N802
        self, request: pb.JoinRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.JoinReply:
        """See joiner.proto."""
        joiner = self._joiners.get(request.join)
        if joiner is None:
            await _abort(context, grpc.StatusCode.NOT_FOUND, f"no join named {request.join!r} here")
        try:
            events = wire.asked(request)
        except wire.WireError as error:
            await _abort(context, grpc.StatusCode.INVALID_ARGUMENT, str(error))
        left = context.time_remaining()
        timeout = DEFAULT_TIMEOUT_S if left is None else max(0.0, min(DEFAULT_TIMEOUT_S, left) - REPLY_MARGIN_S)
        return wire.reply(await joiner.join(events, timeout=timeout))


async def _abort(context: grpc.aio.ServicerContext[Any, Any], code: grpc.StatusCode, details: str) -> NoReturn:
    await context.abort(code, details)
    raise AssertionError("abort returned")


async def start_server(
    joiners: Mapping[str, Joiner],
    address: str,
    tls: Tls | None = None,
    metrics: ProcessMetrics | None = None,
    also: Callable[[grpc.aio.Server], None] = lambda server: None,
) -> HealthyServer:
    """Listens, not serving yet: see config.serving.listen. ``also`` adds services beside. Raises CannotListen."""

    def add(server: grpc.aio.Server) -> None:
        join = grpc.unary_unary_rpc_method_handler(
            JoinerService(joiners).Join,
            bounded(pb.JoinRequest.FromString, wire.FIELDS_MAX),
            pb.JoinReply.SerializeToString,
        )
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE_NAME, {"Join": join}),))
        also(server)

    return await listen(
        address, SERVICE_NAME, add, options=OPTIONS, requests_max=REQUESTS_MAX, tls=tls, metrics=metrics
    )
