"""JoinerClient: api.Joiner over gRPC."""

from __future__ import annotations

import asyncio

import grpc

from photon.batch.events import Events
from photon.config.rpc import WireError, back_off, serves
from photon.config.tls import Towards, open_channel, unreachable
from photon.joiner import wire
from photon.joiner.api import JoinAnswers, Outcome

OPTIONS = (*wire.JOINER.sizes, *back_off(100, 250))  # the server is near, and events wait for it


class JoinerClient:
    """A client of one join's joiner at an address.

    After any failure the outcome is RETRY, as the events' fate is unknown.
    """

    def __init__(self, address: str, join: str, to: Towards | None = None) -> None:
        """Call it inside the event loop that will use it. ``to``: ``None`` means plain text."""
        self._join = join
        self._tls = to is not None
        self._channel = open_channel(address, OPTIONS, to)
        self._stub = wire.JOINER.stub(self._channel)
        self._closed = False
        self.error = ""  # why the last request failed; empty if it did not

    async def join(self, events: Events, *, timeout: float) -> JoinAnswers:
        """See api.Joiner. Splits a batch that is too large for one message, and sends the parts one after another."""
        parts = events.parts(wire.EVENTS_MAX, wire.REQUEST_BYTES_MAX)
        if len(parts) == 1:
            return await self._ask(events, timeout)
        return JoinAnswers.concat([await self._ask(part, timeout) for part in parts])

    async def _ask(self, events: Events, timeout: float) -> JoinAnswers:
        try:
            message = await self._stub.Join(wire.request(self._join, events), timeout=timeout)
            answers = wire.answered(message, len(events))
        except grpc.aio.AioRpcError as error:
            full = error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            return self._unknown(
                len(events), f"the joiner cannot be reached: {unreachable(error, tls=self._tls)}", overloaded=full
            )
        except asyncio.CancelledError:
            if not self._closed or _cancelled():
                raise
            return self._unknown(len(events), "the joiner is gone")
        except WireError as error:
            return self._unknown(len(events), f"the joiner's answer cannot be read: {error}")
        self.error = ""
        return answers

    def _unknown(self, n: int, reason: str, *, overloaded: bool = False) -> JoinAnswers:
        self.error = reason
        return JoinAnswers.alike(n, Outcome.RETRY, reason, overloaded=overloaded, failed=not overloaded)

    async def serves(self, timeout: float) -> bool | None:
        """True if the joiner reports that it serves; ``None`` if there is no answer within ``timeout`` seconds."""
        try:
            return await serves(self._channel, wire.JOINER.name, timeout)
        except asyncio.CancelledError:
            if not self._closed or _cancelled():
                raise
            return None

    async def close(self) -> None:
        """Closes the channel. The fate of requests in progress is then unknown."""
        self._closed = True
        await self._channel.close(None)


def _cancelled() -> bool:
    """True if this task was cancelled, rather than the call it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
