"""KeeperClient: ``copies.api.Keeper`` over gRPC."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, TypeVar

import grpc

from photon.config.rpc import WireError, back_off
from photon.config.tls import Towards, open_channel, unreachable
from photon.joiner.copies import copies_pb2 as pb
from photon.joiner.copies import wire
from photon.joiner.copies.api import CopyAnswer, CopyBytes, CopyOf, Extension

OPTIONS = (*wire.COPIES.sizes, *back_off(100, 2000))

M = TypeVar("M")


class KeeperClient:
    """A client of one keeper. Opens its channel with the first request, on that request's event loop."""

    def __init__(self, address: str, to: Towards | None = None) -> None:
        """``to``: ``None`` means plain text."""
        self._address = address
        self._to = to
        self._channel: grpc.aio.Channel | None = None
        self._made: Any = None
        self.error = ""  # why the last request failed; empty if it did not

    @property
    def _stub(self) -> Any:
        if self._made is None:
            self._channel = open_channel(self._address, OPTIONS, self._to)
            self._made = wire.COPIES.stub(self._channel)
        return self._made

    async def open(self, of: CopyOf, incarnation: int, *, timeout: float) -> CopyAnswer | None:
        message = pb.OpenCopy(datacentre=of.datacentre, slot=of.slot, incarnation=incarnation)
        return self._answer(await self._asked(self._stub.Open(message, timeout=timeout)))

    async def look(self, of: CopyOf, *, timeout: float) -> CopyAnswer | None:
        message = pb.LookCopy(datacentre=of.datacentre, slot=of.slot)
        return self._answer(await self._asked(self._stub.Look(message, timeout=timeout)))

    async def extend(self, of: CopyOf, extension: Extension, *, timeout: float) -> CopyAnswer | None:
        message = wire.extension_out(of, extension)
        return self._answer(await self._asked(self._stub.Extend(message, timeout=timeout)))

    async def read(self, of: CopyOf, log: int, number: int, offset: int, *, timeout: float) -> CopyBytes | None:
        message = pb.ReadCopy(datacentre=of.datacentre, slot=of.slot, log=log, number=number, offset=offset)
        piece = await self._asked(self._stub.Read(message, timeout=timeout))
        return None if piece is None else wire.piece_in(piece)

    async def _asked(self, call: Awaitable[M]) -> M | None:
        try:
            answer = await call
        except grpc.aio.AioRpcError as error:
            self.error = unreachable(error, tls=self._to is not None)
            return None
        self.error = ""
        return answer

    def _answer(self, message: pb.CopyState | None) -> CopyAnswer | None:
        if message is None:
            return None
        try:
            return wire.answer_in(message)
        except WireError as error:
            self.error = f"its answer cannot be read: {error}"
            return None

    async def close(self) -> None:
        if self._channel is not None:
            await self._channel.close(None)
