"""The event store's gRPC service."""

from __future__ import annotations

from collections.abc import Mapping

import grpc

from photon.config.metrics.readings import ProcessMetrics
from photon.config.rpc import Context, abort
from photon.config.serving import Address, HealthyServer, listen_for
from photon.config.tls import Tls
from photon.eventstore import columns
from photon.eventstore import eventstore_pb2 as pb
from photon.eventstore.api import OperatedStore

REQUESTS_MAX = 64  # in flight; further ones are refused at once (RESOURCE_EXHAUSTED), and callers retry
WAIT_MS_MAX = 10_000  # longest wait of a request for arrivals


class EventStoreService:
    def __init__(self, stores: Mapping[str, OperatedStore]) -> None:
        self._stores = stores

    async def LookUp(self, request: pb.EventLookUpRequest, context: Context) -> pb.EventLookUpReply:  # noqa: N802
        store = await self._store(request.join, context)
        return columns.reply(await store.look_up(*columns.asked(request)))

    async def Progress(self, request: pb.ProgressRequest, context: Context) -> pb.ProgressReply:  # noqa: N802
        store = await self._store(request.join, context)
        if request.details:
            return columns.details_reply(await store.details())
        return columns.progress_reply(await store.progress())

    async def Forget(self, request: pb.ForgetRequest, context: Context) -> pb.ForgetReply:  # noqa: N802
        store = await self._store(request.join, context)
        try:
            return columns.forget_reply(await store.forget(list(request.logs), apply=request.apply))
        except OSError as err:
            await abort(context, grpc.StatusCode.INTERNAL, f"not given up: {err.filename}: {err.strerror or err}")

    async def Arrived(self, request: pb.ArrivedRequest, context: Context) -> pb.ArrivedReply:  # noqa: N802
        store = await self._store(request.join, context)
        came = await store.arrived(request.epoch, request.number, min(request.wait_ms, WAIT_MS_MAX) / 1000)
        if came is None:
            await abort(context, grpc.StatusCode.UNAVAILABLE, "this store does not report arrivals")
        return columns.arrived_reply(came)

    async def Seek(self, request: pb.SeekRequest, context: Context) -> pb.SeekReply:  # noqa: N802
        store = await self._store(request.join, context)
        if len(request.keys) > columns.KEYS_MAX:
            why = f"{len(request.keys)} keys, but at most {columns.KEYS_MAX} are allowed"
            await abort(context, grpc.StatusCode.INVALID_ARGUMENT, why)
        rows = await store.seek(list(request.keys))
        if rows is None:
            await abort(context, grpc.StatusCode.UNAVAILABLE, "the file map is not available now")
        return columns.seek_reply(rows)

    async def _store(self, join: str, context: Context) -> OperatedStore:
        store = self._stores.get(join)
        if store is None:
            await abort(context, grpc.StatusCode.NOT_FOUND, f"no join named {join!r} here")
        return store


async def start_server(
    stores: Mapping[str, OperatedStore],
    address: Address,
    tls: Tls | None = None,
    metrics: ProcessMetrics | None = None,
) -> HealthyServer:
    """Listens, but does not serve yet: see config.serving.listen_for. Raises CannotListen."""
    service = EventStoreService(stores)
    return await listen_for(
        address, columns.EVENT_STORE, service, requests_max=REQUESTS_MAX, tls=tls, metrics=metrics
    )
