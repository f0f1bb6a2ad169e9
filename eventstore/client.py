"""EventStoreClient: api.EventStore over gRPC."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import grpc

from photon.config.clock import NS_PER_S
from photon.config.errors import PhotonError
from photon.config.rpc import WireError, back_off
from photon.config.tls import Towards, open_channel, unreachable
from photon.eventstore import columns
from photon.eventstore import eventstore_pb2 as pb
from photon.eventstore.api import Details, EventLookUps, Forgotten, KeyArrivals, Progress
from photon.eventstore.tiered import NOTHING_READ_NS

TIMEOUT_SECONDS = 10.0
OPTIONS = (*columns.EVENT_STORE.sizes, *back_off(100, 250))  # the server is near, and events wait for it


class EventStoreUnreachable(PhotonError):
    """The event store did not answer an operator. One line."""


class EventStoreClient:
    """A client of one join's event store at an address. Any failure makes its keys UNAVAILABLE."""

    def __init__(
        self,
        address: str,
        join: str,
        *,
        timeout: float = TIMEOUT_SECONDS,
        to: Towards | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """``timeout`` in seconds, for each request. ``to``: ``None`` means plain text.

        Call it inside the event loop that will use it.
        """
        self._join = join
        self._timeout = timeout
        self._tls = to is not None
        self._channel = open_channel(address, OPTIONS, to)
        self._stub = columns.EVENT_STORE.stub(self._channel)
        self._last = Progress(read_past_ns=NOTHING_READ_NS)
        self._monotonic = monotonic
        self._heard = monotonic()
        self.error = ""  # why the last request failed; empty if it did not

    async def look_up(
        self, keys: Sequence[bytes], as_of: Sequence[int], times: Sequence[int] | None = None
    ) -> EventLookUps:
        parts: list[EventLookUps] = []
        for part in columns.request_slices(keys):
            at, stop = part.start, part.stop
            while at < stop:
                then = None if times is None else times[at:stop]
                found = await self._ask(columns.request(self._join, keys[at:stop], as_of[at:stop], then))
                parts.append(found)
                at += len(found)
        return EventLookUps.concat(parts)

    async def _ask(self, request: pb.EventLookUpRequest) -> EventLookUps:
        """Returns answers for a prefix of the keys, at least one."""
        try:
            message = await self._stub.LookUp(request, timeout=self._timeout)
            found = columns.answered(message, len(request.keys))
        except (grpc.aio.AioRpcError, WireError) as err:
            self.error = self._line(err)
            return EventLookUps.unavailable(len(request.keys))
        self.error = ""
        return found

    async def progress(self) -> Progress:
        """Returns the store's progress; if it is unreachable, the last known one, which is safe: it only lags."""
        asked = self._monotonic()
        try:
            message = await self._stub.Progress(pb.ProgressRequest(join=self._join), timeout=self._timeout)
        except grpc.aio.AioRpcError as err:
            self.error = self._line(err)
            since_ns = int((self._monotonic() - self._heard) * NS_PER_S)
            last = self._last
            now_ns = last.now_ns + since_ns if last.now_ns else 0
            return replace(last, read_past_age_ns=last.read_past_age_ns + since_ns, now_ns=now_ns)
        self.error = ""
        self._last, self._heard = (
            columns.progress_of(message),
            asked,
        )  # time of the request, as a busy process may see the answer late
        return self._last

    async def arrived(self, epoch: int, number: int, wait_s: float) -> KeyArrivals | None:
        request = pb.ArrivedRequest(join=self._join, epoch=epoch, number=number, wait_ms=int(wait_s * 1000))
        try:
            return columns.came_of(await self._stub.Arrived(request, timeout=wait_s + self._timeout))
        except grpc.aio.AioRpcError:  # the parallel request for progress reports why
            return None

    async def seek(self, keys: Sequence[bytes]) -> list[int] | None:
        rows: list[int] = []
        for part in columns.request_slices(keys):
            try:
                message = await self._stub.Seek(
                    pb.SeekRequest(join=self._join, keys=keys[part]), timeout=self._timeout
                )
                rows += [part.start + row for row in columns.sought_of(message, part.stop - part.start)]
            except (grpc.aio.AioRpcError, WireError):
                return None
        return rows

    async def details(self) -> Details:
        """See api.OperatedStore. Raises EventStoreUnreachable."""
        request = pb.ProgressRequest(join=self._join, details=True)
        try:
            return columns.details_of(await self._stub.Progress(request, timeout=self._timeout))
        except grpc.aio.AioRpcError as err:
            raise EventStoreUnreachable(self._line(err)) from None

    async def forget(self, logs: Sequence[str], *, apply: bool) -> Forgotten:
        """See api.OperatedStore. Raises EventStoreUnreachable; the request may have been executed then."""
        request = pb.ForgetRequest(join=self._join, logs=logs, apply=apply)
        try:
            return columns.forgotten_of(await self._stub.Forget(request, timeout=self._timeout))
        except grpc.aio.AioRpcError as err:
            raise EventStoreUnreachable(self._line(err)) from None

    async def close(self) -> None:
        await self._channel.close(None)

    def _line(self, err: Exception) -> str:
        if isinstance(err, grpc.aio.AioRpcError):
            return f"event store: {unreachable(err, tls=self._tls)}"
        return f"event store: {err}"
