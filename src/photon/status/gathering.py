"""Asks processes for their metrics over gRPC, all at once, each for a bounded time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio
import orjson

from photon.config.metrics import metrics_pb2 as pb
from photon.config.metrics.service import METRICS_SERVICE
from photon.config.tls import open_channel, unreachable
from photon.status.targets import Target

ASK_S = 1.5
RECONNECT_MS = 2_000
"""A process that has come back is found again within so long."""
_OPTIONS = (("grpc.max_reconnect_backoff_ms", RECONNECT_MS),)


@dataclass(frozen=True, slots=True)
class Heard:
    """What one process said. ``problem`` set: nothing."""

    target: Target
    text: str = ""
    details: dict[str, Any] = field(default_factory=dict)
    problem: str = ""

    @property
    def up(self) -> bool:
        return not self.problem


class Gatherer:
    """Keeps a channel to each process. On one event loop."""

    def __init__(self) -> None:
        self._channels: dict[Target, grpc.aio.Channel] = {}

    async def gather(self, targets: Iterable[Target]) -> list[Heard]:
        """In the order of the targets. Channels to others are closed."""
        wanted = list(dict.fromkeys(targets))
        for gone in self._channels.keys() - set(wanted):
            await self._channels.pop(gone).close(None)
        return list(await asyncio.gather(*map(self.ask, wanted)))

    async def close(self) -> None:
        """Of all channels."""
        for channel in self._channels.values():
            await channel.close(None)
        self._channels.clear()

    async def ask(self, target: Target) -> Heard:
        """One process."""
        channel = self._channels.get(target)
        if channel is None:
            channel = self._channels[target] = open_channel(target.address, _OPTIONS, target.to)
        stub = METRICS_SERVICE.stub(channel)
        try:
            reply = await stub.Read(pb.MetricsRequest(details=True), timeout=ASK_S)
            details = orjson.loads(reply.details or b"{}")
            return Heard(target, reply.text.decode(), details if isinstance(details, dict) else {})
        except grpc.aio.AioRpcError as error:
            return Heard(target, problem=unreachable(error, tls=target.to is not None))
        except ValueError as error:
            return Heard(target, problem=f"its answer cannot be read: {error}")
