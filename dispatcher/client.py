"""Asking a dispatcher how it is doing."""

from __future__ import annotations

import grpc

from photon.config.rpc import Service, back_off
from photon.config.tls import Towards, open_channel
from photon.dispatcher import dispatcher_pb2 as pb

DISPATCHER = Service(pb.DESCRIPTOR, "Dispatcher")


class DispatcherClient:
    """One dispatcher at an address. Make it on the event loop it is used on; ``close`` it."""

    def __init__(self, address: str, to: Towards | None = None) -> None:
        """``to`` None: plain text."""
        self._channel = open_channel(address, back_off(100, 1000, attempt_ms=1000), to)
        self._stub = DISPATCHER.stub(self._channel)

    async def status(self, timeout: float) -> pb.StatusReply | None:
        """What it says of itself; None when it does not answer within ``timeout`` seconds."""
        try:
            answer: pb.StatusReply = await self._stub.Status(pb.StatusRequest(), timeout=timeout)
        except grpc.aio.AioRpcError:
            return None
        return answer

    async def close(self) -> None:
        """Closes the channel."""
        await self._channel.close(None)
