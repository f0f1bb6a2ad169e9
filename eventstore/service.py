"""The EventStore as a gRPC service: one server, one engine for each join."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import grpc

from photon.config.audit import audited_methods
from photon.config.message_bounds import bounded
from photon.config.metrics.readings import ProcessMetrics
from photon.config.serving import HealthyServer, listen
from photon.config.tls import Tls
from photon.eventstore import columns, eventstore_pb2_grpc, operating
from photon.eventstore import eventstore_pb2 as pb
from photon.eventstore.api import OperatedStore

SERVICE_NAME = "photon.v1.EventStore"
REQUESTS_MAX = 64
"""Requests in flight; more are refused at once (RESOURCE_EXHAUSTED), and callers try again."""
WAIT_MS_MAX = 10_000
"""A request for what arrives waits for no longer."""
OPTIONS = (
    ("grpc.max_receive_message_length", columns.MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", columns.MESSAGE_BYTES_MAX),
)


class EventStoreService(eventstore_pb2_grpc.EventStoreServicer):
    """Handlers: wire to engine and back."""

    def __init__(self, stores: Mapping[str, OperatedStore]) -> None:
        self._stores = stores

    async def LookUp(  # noqa: N802
        self, request: pb.EventLookUpRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.EventLookUpReply:
        """See eventstore.proto."""
        store = await self._store(request.join, context)
        try:
            keys, as_of = columns.asked(request)
        except columns.WireError as err:
            await _abort(context, grpc.StatusCode.INVALID_ARGUMENT, str(err))
        return columns.reply(await store.look_up(keys, as_of))

    async def Progress(  # noqa: N802
        self, request: pb.ProgressRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.ProgressReply:
        """See eventstore.proto."""
        store = await self._store(request.join, context)
        if request.details:
            return operating.details_reply(await store.details())
        return columns.progress_reply(await store.progress())

    async def Forget(  # noqa: N802
        self, request: pb.ForgetRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.ForgetReply:
        """See eventstore.proto."""
        return await operating.forget(await self._store(request.join, context), request, context)

    async def Arrived(  # noqa: N802
        self, request: pb.ArrivedRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.ArrivedReply:
        """See eventstore.proto."""
        store = await self._store(request.join, context)
        came = await store.arrived(request.epoch, request.number, min(request.wait_ms, WAIT_MS_MAX) / 1000)
        if came is None:
            await _abort(context, grpc.StatusCode.UNAVAILABLE, "this store tells nothing of what arrives")
        return columns.arrived_reply(came)

    async def Seek(  # noqa: N802
        self, request: pb.SeekRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.SeekReply:
        """See eventstore.proto."""
        store = await self._store(request.join, context)
        if len(request.keys) > columns.KEYS_MAX:
            why = f"{len(request.keys)} keys, at most {columns.KEYS_MAX} can be sought at once"
            await _abort(context, grpc.StatusCode.INVALID_ARGUMENT, why)
        rows = await store.seek(list(request.keys))
        if rows is None:
            await _abort(context, grpc.StatusCode.UNAVAILABLE, "the file map cannot be asked now")
        return columns.seek_reply(rows)

    async def _store(self, join: str, context: grpc.aio.ServicerContext[Any, Any]) -> OperatedStore:
        store = self._stores.get(join)
        if store is None:
            await _abort(context, grpc.StatusCode.NOT_FOUND, f"no join named {join!r} here")
        return store


async def _abort(context: grpc.aio.ServicerContext[Any, Any], code: grpc.StatusCode, details: str) -> NoReturn:
    await context.abort(code, details)
    raise AssertionError("abort returned")


async def start_server(
    stores: Mapping[str, OperatedStore],
    address: str,
    tls: Tls | None = None,
    metrics: ProcessMetrics | None = None,
) -> HealthyServer:
    """See config.serving.listen. Raises CannotListen."""

    def add(server: grpc.aio.Server) -> None:
        service = EventStoreService(stores)
        handlers = {
            "LookUp": grpc.unary_unary_rpc_method_handler(
                service.LookUp,
                bounded(pb.EventLookUpRequest.FromString, columns.FIELDS_MAX),
                pb.EventLookUpReply.SerializeToString,
            ),
            "Progress": grpc.unary_unary_rpc_method_handler(
                service.Progress, pb.ProgressRequest.FromString, pb.ProgressReply.SerializeToString
            ),
            "Forget": grpc.unary_unary_rpc_method_handler(
                service.Forget,
                bounded(pb.ForgetRequest.FromString, operating.FORGET_FIELDS_MAX),
                pb.ForgetReply.SerializeToString,
            ),
            "Arrived": grpc.unary_unary_rpc_method_handler(
                service.Arrived, pb.ArrivedRequest.FromString, pb.ArrivedReply.SerializeToString
            ),
            "Seek": grpc.unary_unary_rpc_method_handler(
                service.Seek,
                bounded(pb.SeekRequest.FromString, columns.FIELDS_MAX),
                pb.SeekReply.SerializeToString,
            ),
        }
        told = audited_methods(SERVICE_NAME, handlers)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE_NAME, told),))

    server = await listen(
        address, SERVICE_NAME, add, options=OPTIONS, requests_max=REQUESTS_MAX, tls=tls, metrics=metrics
    )
    await server.serving()
    return server
