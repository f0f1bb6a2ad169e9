"""WanClient: controls the directions between regions in a running proxy."""

from __future__ import annotations

from collections.abc import Sequence

import grpc

from photon.config.errors import PhotonError
from photon.config.rpc import WireError
from photon.config.tls import Towards, open_channel, unreachable
from photon.lab.wan import wan_pb2 as pb
from photon.lab.wan import wire
from photon.lab.wan.links import Change, DirectionNow, Fault

TIMEOUT_S = 5.0  # time-out of one request; the control is near, regardless of the delays
OPTIONS = (("grpc.enable_http_proxy", 0),)


class WanError(PhotonError):
    """The proxy refused or is unreachable; probably nothing was changed."""


class WanClient:
    """Controls a proxy. Every method raises WanError. Create it inside the event loop that will use it."""

    def __init__(self, address: str, to: Towards | None = None) -> None:
        """``address``: host:port of the control (``wan.control``). Without ``to`` it is plain text."""
        self._address = address
        self._tls = to is not None
        self._channel = open_channel(address, OPTIONS, to)
        self._stub = wire.CONTROL.stub(self._channel)

    async def set(self, changes: Sequence[Change]) -> None:
        """Makes all changes or none."""
        try:
            reply: pb.SetReply = await self._stub.Set(wire.set_request(changes), timeout=TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            raise self._unreachable(error) from None
        if reply.error:
            raise WanError(f"the proxy at {self._address}: {reply.error}")

    async def directions(self) -> Sequence[DirectionNow]:
        """The current state of every direction, sorted by name."""
        try:
            reply = await self._stub.List(pb.ListRequest(), timeout=TIMEOUT_S)
            return wire.directions(reply)
        except grpc.aio.AioRpcError as error:
            raise self._unreachable(error) from None
        except WireError as error:
            raise WanError(f"the proxy at {self._address}: {error}") from None

    async def cut(self, a: str, b: str, fault: Fault = Fault.DROP, both: bool = True) -> None:
        """Applies a fault from ``a`` to ``b``, and back unless ``both`` is false."""
        await self.set([Change(*pair, fault=fault) for pair in _pairs(a, b, both)])

    async def isolate(self, region: str, fault: Fault = Fault.DROP, both: bool = True) -> None:
        """Applies a fault from a region to every other, and back unless ``both`` is false."""
        others = [each for each in await self.directions() if region == each.source]
        if not others:
            raise WanError(f"the proxy at {self._address}: no connections go to or from {region!r}")
        await self.set([Change(*pair, fault=fault) for o in others for pair in _pairs(region, o.destination, both)])

    async def delay(self, a: str, b: str, delay_s: float, both: bool = True) -> None:
        """Sets the one-way delay in seconds from ``a`` to ``b``, and back unless ``both`` is false."""
        await self.set([Change(*pair, delay_s=delay_s) for pair in _pairs(a, b, both)])

    async def heal(self, a: str | None = None, b: str | None = None) -> None:
        """Lifts all faults; with ``a``, only those from and to that region; with ``b`` too, only those between them.

        Delays stay.
        """
        if a is not None and b is not None:
            pairs = _pairs(a, b, True)
        else:
            wanted = a if a is not None else b
            now = [(each.source, each.destination) for each in await self.directions()]
            pairs = [pair for pair in now if wanted is None or wanted in pair]
            if wanted is not None and not pairs:
                raise WanError(f"the proxy at {self._address}: no connections go to or from {wanted!r}")
        await self.set([Change(*pair, fault=Fault.NONE) for pair in pairs])

    async def close(self) -> None:
        await self._channel.close(None)

    def _unreachable(self, error: grpc.aio.AioRpcError) -> WanError:
        why = unreachable(error, tls=self._tls)
        return WanError(f"the proxy at {self._address} does not answer: {why}; is `photon wan serve` running there?")


def _pairs(a: str, b: str, both: bool) -> list[tuple[str, str]]:
    return [(a, b), (b, a)] if both else [(a, b)]
