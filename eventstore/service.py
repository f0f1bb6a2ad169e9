"""The EventStore as a gRPC service: one server, one engine for each join."""

from __future__ import annotations

from collections.abc import Mapping

import grpc

from photon.config.metrics.readings import ProcessMetrics
from photon.config.rpc import Context, abort
from photon.config.serving import HealthyServer, listen_for
from photon.config.tls import Tls
from photon.eventstore import columns, operating
from photon.eventstore import eventstore_pb2 as pb
from photon.eventstore.api import OperatedStore

REQUESTS_MAX = 64
"""Requests in flight; more are refused at once (RESOURCE_EXHAUSTED), and callers try again."""
WAIT_MS_MAX = 10_000
"""A request for what arrives waits for no longer."""


class EventStoreService:
    """Handlers: wire to engine and back."""

    def __init__(self, stores: Mapping[str, OperatedStore]) -> None:
        self._stores = stores

    async def LookUp(self, request: pb.EventLookUpRequest, context: Context) -> pb.EventLookUpReply:  # noqa: N802
        """See eventstore.proto."""
        store = await self._store(request.join, context)
        keys, as_of = columns.asked(request)
        return columns.reply(await store.look_up(keys, as_of))

    async def Progress(self, request: pb.ProgressRequest, context: Context) -> pb.ProgressReply:  # noqa: N802
        """See eventstore.proto."""
        store = await self._store(request.join, context)
        if request.details:
            return operating.details_reply(await store.details())
        return columns.progress_reply(await store.progress())

    async def Forget(self, request: pb.ForgetRequest, context: Context) -> pb.ForgetReply:  # noqa: N802
        """See eventstore.proto."""
        return await operating.forget(await self._store(request.join, context), request, context)

    async def Arrived(self, request: pb.ArrivedRequest, context: Context) -> pb.ArrivedReply:  # noqa: N802
        """See eventstore.proto."""
        store = await self._store(request.join, context)
        came = await store.arrived(request.epoch, request.number, min(request.wait_ms, WAIT_MS_MAX) / 1000)
        if came is None:
            await abort(context, grpc.StatusCode.UNAVAILABLE, "this store tells nothing of what arrives")
        return columns.arrived_reply(came)

    async def Seek(self, request: pb.SeekRequest, context: Context) -> pb.SeekReply:  # noqa: N802
        """See eventstore.proto."""
        store = await self._store(request.join, context)
        if len(request.keys) > columns.KEYS_MAX:
            why = f"{len(request.keys)} keys, at most {columns.KEYS_MAX} can be sought at once"
            await abort(context, grpc.StatusCode.INVALID_ARGUMENT, why)
        rows = await store.seek(list(request.keys))
        if rows is None:
            await abort(context, grpc.StatusCode.UNAVAILABLE, "the file map cannot be asked now")
        return columns.seek_reply(rows)

    async def _store(self, join: str, context: Context) -> OperatedStore:
        store = self._stores.get(join)
        if store is None:
            await abort(context, grpc.StatusCode.NOT_FOUND, f"no join named {join!r} here")
        return store


async def start_server(
    stores: Mapping[str, OperatedStore],
    address: str,
    tls: Tls | None = None,
    metrics: ProcessMetrics | None = None,
) -> HealthyServer:
    """See config.serving.listen_for. Raises CannotListen."""
    service = EventStoreService(stores)
    server = await listen_for(
        address, columns.EVENT_STORE, service, requests_max=REQUESTS_MAX, tls=tls, metrics=metrics
    )
    await server.serving()
    return server
