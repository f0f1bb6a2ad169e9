"""A cache node as a gRPC service."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import grpc

from photon.config.metrics.readings import ProcessMetrics
from photon.config.rpc import Context, abort
from photon.config.serving import HealthyServer, listen_for
from photon.config.tls import Tls
from photon.eventstore import eventstore_pb2 as pb
from photon.eventstore.cache_nodes import wire
from photon.eventstore.cache_nodes.node import CacheNode
from photon.eventstore.metrics import node_metrics

REQUESTS_MAX = 128
"""Requests in flight; more are refused at once (RESOURCE_EXHAUSTED), and the asker goes to the logs."""
FRAME_BYTES = 1 << 20
"""Of HTTP/2: feeds are megabytes; against the usual frames of 16 KiB a node needs some 5 % less CPU."""
FEEDS_MAX = 2
"""Feeds in flight: one is taken in, one waits. A node is fed by one event store, one feed at a time."""


class CacheService:
    """Handlers: wire to node and back. Feeds are taken in by a thread of their own, so that no look-up waits for
    the index to be merged."""

    def __init__(self, node: CacheNode) -> None:
        self._node = node
        self._feeding = ThreadPoolExecutor(1, thread_name_prefix="feed")
        self._feeds = 0

    async def Feed(self, request: pb.CacheFeed, context: Context) -> pb.CacheFed:  # noqa: N802
        """See eventstore.proto."""
        if self._feeds >= FEEDS_MAX:
            await abort(context, grpc.StatusCode.RESOURCE_EXHAUSTED, f"{FEEDS_MAX} feeds are under way")
        self._feeds += 1
        try:
            segments = wire.fed(request)
            await asyncio.get_running_loop().run_in_executor(self._feeding, self._node.feed, request.source, segments)
        finally:
            self._feeds -= 1
        return pb.CacheFed()

    async def Find(self, request: pb.CacheFind, context: Context) -> pb.CacheFound:  # noqa: N802
        """See eventstore.proto."""
        return wire.found(self._node.find(request.source, wire.asked(request)))

    async def Counts(self, request: pb.CacheCountsRequest, context: Context) -> pb.CacheCountsReply:  # noqa: N802
        """See eventstore.proto."""
        return wire.counts_reply(self._node.counts())

    def close(self) -> None:
        """Ends the thread."""
        self._feeding.shutdown(wait=True)


async def start_server(node: CacheNode, address: str, tls: Tls | None = None) -> tuple[HealthyServer, CacheService]:
    """Listens and serves: see config.serving.listen_for. Raises CannotListen."""
    service = CacheService(node)
    metrics, frames = ProcessMetrics([node_metrics(node)]), (("grpc.http2.max_frame_size", FRAME_BYTES),)
    server = await listen_for(
        address, wire.CACHE, service, options=frames, requests_max=REQUESTS_MAX, tls=tls, metrics=metrics
    )
    await server.serving()
    return server, service
