"""A cache node: one process of the cache, as a gRPC service.

It knows neither keys nor adapters, so it needs no join's configuration and runs no user code: records are stored
under the hashes of their keys, and the event store checks returned records against the key and the file map.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import grpc

from photon.config.metrics.readings import ProcessMetrics, Readings, Source
from photon.config.rpc import Context, abort
from photon.config.serving import Address, HealthyServer, listen_for
from photon.config.telemetry.spans import span
from photon.config.tls import Tls
from photon.eventstore import eventstore_pb2 as pb
from photon.eventstore.cache_nodes import wire
from photon.eventstore.cache_nodes.wire import NodeCounts
from photon.eventstore.found_records import NO_RECORDS, FoundRecords
from photon.eventstore.index import I64, U64
from photon.eventstore.segments import Segment, SegmentCache


class CacheNode:
    """One node's records. Call ``feed`` from one thread, other methods from any."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._cache = SegmentCache(bytes_max)
        self._source = b""
        self._lock = threading.Lock()  # around source and counters
        self._hits = self._misses = 0
        self._fed_bytes = self._fed_events = 0

    def feed(self, source: bytes, segments: Sequence[tuple[Segment, U64, I64]]) -> None:
        """Stores records. A different ``source`` replaces all records, as its keys have another meaning."""
        if source != self._source:
            with self._lock:
                self._source = b""
            self._cache.clear()
            with self._lock:
                self._source = source
        self._cache.put(segments)
        with self._lock:
            self._fed_bytes += sum(len(segment.data) for segment, _, _ in segments)
            self._fed_events += sum(segment.entries for segment, _, _ in segments)

    def find(self, source: bytes, hashes: U64) -> FoundRecords:
        """Returns the records under these hashes, unverified. Empty if the node holds another source."""
        with self._lock:
            same = source == self._source
        located = self._cache.look_up(hashes) if same else NO_RECORDS
        hits = len(set(located.rows.tolist()))
        with self._lock:
            if source != self._source:  # changed meanwhile: these may be of either source
                located, hits = NO_RECORDS, 0
            self._hits += hits
            self._misses += len(hashes) - hits
        return located

    def counts(self) -> NodeCounts:
        with self._lock:
            cache = replace(self._cache.counts(), hits=self._hits, misses=self._misses)
            return NodeCounts(cache, self._bytes_max, self._fed_bytes, self._fed_events)


# Requests in flight; more are refused at once (RESOURCE_EXHAUSTED), and the event store reads the logs.
REQUESTS_MAX = 128
# Of HTTP/2: feeds are megabytes, and a node needs some 5 % less CPU than with the usual frames of 16 KiB.
FRAME_BYTES = 1 << 20
# Feeds in flight: one being processed, one waiting. A node is fed by one event store, one feed at a time.
FEEDS_MAX = 2


class CacheService:
    """The gRPC handlers of a cache node.

    Feeds are processed on a separate thread, so that no look-up waits for an index merge.
    """

    def __init__(self, node: CacheNode) -> None:
        self._node = node
        self._feeding = ThreadPoolExecutor(1, thread_name_prefix="feed")
        self._feeds = 0

    async def Feed(self, request: pb.CacheFeed, context: Context) -> pb.CacheFed:  # noqa: N802
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
        hashes = wire.asked(request)
        with span("cache.find", keys=len(hashes)) as traced:
            located = self._node.find(request.source, hashes)
            if traced is not None:
                traced.note(found=len(located))
        return wire.found(located)

    async def Counts(self, request: pb.CacheCountsRequest, context: Context) -> pb.CacheCountsReply:  # noqa: N802
        return wire.counts_reply(self._node.counts())

    def close(self) -> None:
        self._feeding.shutdown(wait=True)


async def start_server(
    node: CacheNode, address: Address, tls: Tls | None = None
) -> tuple[HealthyServer, CacheService]:
    """Listens and serves: see config.serving.listen_for. Raises CannotListen."""
    service = CacheService(node)
    metrics, frames = ProcessMetrics([node_metrics(node)]), (("grpc.http2.max_frame_size", FRAME_BYTES),)
    server = await listen_for(
        address, wire.CACHE, service, options=frames, requests_max=REQUESTS_MAX, tls=tls, metrics=metrics
    )
    await server.serving()
    return server, service


STOP_GRACE_SECONDS = 1.0


async def serve(
    *, address: Address, bytes_max: int, ready: Callable[[int], None], stop: asyncio.Event, tls: Tls | None = None
) -> None:
    """Serves at ``address`` (host:port or unix:/path) until ``stop``; ``tls``: ``None`` means plain text.

    ``ready(port)`` is called once it serves. Keeps its records only in memory. Raises CannotListen.
    """
    server, service = await start_server(CacheNode(bytes_max), address, tls)
    try:
        ready(server.port)
        await stop.wait()
    finally:
        await server.stop(STOP_GRACE_SECONDS)
        service.close()


def node_metrics(node: CacheNode) -> Source:
    def read(into: Readings) -> None:
        counts = node.counts()
        into.put_all(
            "photon_cache",
            {
                "hits_total": counts.cache.hits,
                "misses_total": counts.cache.misses,
                "evictions_total": counts.cache.evictions,
                "fed_bytes_total": counts.fed_bytes,
                "fed_events_total": counts.fed_events,
                "bytes": counts.cache.bytes,
                "limit_bytes": counts.bytes_max,
                "entries": counts.cache.entries,
                "segments": counts.cache.segments,
            },
        )

    return read
