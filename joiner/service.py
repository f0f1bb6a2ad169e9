"""The joiner's gRPC service."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import grpc
import grpc.aio

from photon.config.metrics.readings import ProcessMetrics
from photon.config.rpc import Context, abort, seconds_left
from photon.config.serving import Address, HealthyServer, listen_for
from photon.config.tls import Tls
from photon.joiner import joiner_pb2 as pb
from photon.joiner import wire
from photon.joiner.api import Joiner

REQUESTS_MAX = 256  # in flight; further ones are refused at once (RESOURCE_EXHAUSTED), and dispatchers retry
TIMEOUT_S = 30.0  # limit of a request, however long its caller would wait
REPLY_MARGIN_S = 0.1  # the engine answers this long before the caller's deadline, so that the answer arrives in time


class JoinerService:
    def __init__(self, joiners: Mapping[str, Joiner]) -> None:
        self._joiners = joiners

    async def Join(self, request: pb.JoinRequest, context: Context) -> pb.JoinReply:  # noqa: N802
        joiner = self._joiners.get(request.join)
        if joiner is None:
            await abort(context, grpc.StatusCode.NOT_FOUND, f"no join named {request.join!r} here")
        events = wire.asked(request)
        timeout = seconds_left(context, default=TIMEOUT_S, margin=REPLY_MARGIN_S, most=TIMEOUT_S)
        return wire.reply(await joiner.join(events, timeout=timeout))


async def start_server(
    joiners: Mapping[str, Joiner],
    address: Address,
    tls: Tls | None = None,
    metrics: ProcessMetrics | None = None,
    also: Callable[[grpc.aio.Server], None] = lambda server: None,
) -> HealthyServer:
    """Listens, but does not serve yet: see config.serving.listen_for.

    ``also`` adds further services. Raises CannotListen.
    """
    return await listen_for(
        address, wire.JOINER, JoinerService(joiners), also=also, requests_max=REQUESTS_MAX, tls=tls, metrics=metrics
    )
