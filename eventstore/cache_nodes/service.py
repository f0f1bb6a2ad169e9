"""A cache node as a gRPC service."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn

import grpc

from photon.config.message_bounds import bounded
from photon.config.metrics.readings import ProcessMetrics
from photon.config.serving import HealthyServer, listen
from photon.config.tls import Tls
from photon.eventstore import eventstore_pb2 as pb
from photon.eventstore import eventstore_pb2_grpc
from photon.eventstore.cache_nodes import wire
from photon.eventstore.cache_nodes.node import CacheNode
from photon.eventstore.columns import MESSAGE_BYTES_MAX, WireError
from photon.eventstore.metrics import node_metrics

SERVICE_NAME = "photon.v1.Cache"
REQUESTS_MAX = 128
"""Requests in flight; more are refused at once (RESOURCE_EXHAUSTED), and the asker goes to the logs."""
FRAME_BYTES = 1 << 20
"""Of HTTP/2: feeds are megabytes; against the usual frames of 16 KiB a node needs some 5 % less CPU."""
FEEDS_MAX = 2
"""Feeds in flight: one is taken in, one waits. A node is fed by one event store, one feed at a time."""
OPTIONS = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.http2.max_frame_size", FRAME_BYTES),
)


class CacheService(eventstore_pb2_grpc.CacheServicer):
    """Handlers: wire to node and back. Feeds are taken in by a thread of their own, so that no look-up waits for
    the index to be merged."""

    def __init__(self, node: CacheNode) -> None:
        self._node = node
        self._feeding = ThreadPoolExecutor(1, thread_name_prefix="feed")
        self._feeds = 0

    async def Feed(  # noqa: N802
        self, request: pb.CacheFeed, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.CacheFed:
        """See eventstore.proto."""
        if self._feeds >= FEEDS_MAX:
            await _abort(context, grpc.StatusCode.RESOURCE_EXHAUSTED, f"{FEEDS_MAX} feeds are under way")
        self._feeds += 1
        try:
            segments = wire.fed(request)
            await asyncio.get_running_loop().run_in_executor(self._feeding, self._node.feed, request.source, segments)
        except WireError as err:
            await _abort(context, grpc.StatusCode.INVALID_ARGUMENT, str(err))
        finally:
            self._feeds -= 1
        return pb.CacheFed()

    async def Find(  # noqa: N802
        self, request: pb.CacheFind, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.CacheFound:
        """See eventstore.proto."""
        try:
            hashes = wire.asked(request)
        except WireError as err:
            await _abort(context, grpc.StatusCode.INVALID_ARGUMENT, str(err))
        return wire.found(self._node.find(request.source, hashes))

    async def Counts(  # noqa: N802
        self, request: pb.CacheCountsRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.CacheCountsReply:
        """See eventstore.proto."""
        return wire.counts_reply(self._node.counts())

    def close(self) -> None:
        """Ends the thread."""
        self._feeding.shutdown(wait=True)


async def _abort(context: grpc.aio.ServicerContext[Any, Any], code: grpc.StatusCode, details: str) -> NoReturn:
    await context.abort(code, details)
    raise AssertionError("abort returned")


async def start_server(node: CacheNode, address: str, tls: Tls | None = None) -> tuple[HealthyServer, CacheService]:
    """Listens and serves: see config.serving.listen. Raises CannotListen."""
    service = CacheService(node)

    def add(server: grpc.aio.Server) -> None:
        handlers = {
            "Feed": grpc.unary_unary_rpc_method_handler(
                service.Feed, bounded(pb.CacheFeed.FromString, wire.FIELDS_MAX), pb.CacheFed.SerializeToString
            ),
            "Find": grpc.unary_unary_rpc_method_handler(
                service.Find, bounded(pb.CacheFind.FromString, wire.FIELDS_MAX), pb.CacheFound.SerializeToString
            ),
            "Counts": grpc.unary_unary_rpc_method_handler(
                service.Counts, pb.CacheCountsRequest.FromString, pb.CacheCountsReply.SerializeToString
            ),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE_NAME, handlers),))

    metrics = ProcessMetrics([node_metrics(node)])
    server = await listen(
        address, SERVICE_NAME, add, options=OPTIONS, requests_max=REQUESTS_MAX, tls=tls, metrics=metrics
    )
    await server.serving()
    return server, service
