"""A cache node: what one process of the cache keeps and answers. No sockets, no clock.

It knows neither keys nor adapters, so it needs no join's configuration and runs no user's code: records go in under
the hashes of their keys, and the event store verifies what comes out, against the key and against the file map.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

from photon.eventstore.cache_nodes.wire import NodeCounts
from photon.eventstore.found_records import NO_RECORDS, FoundRecords
from photon.eventstore.index import I64, U64
from photon.eventstore.segments import Segment, SegmentCache


class CacheNode:
    """``feed`` from one thread; the rest from any."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._cache = SegmentCache(bytes_max)
        self._source = b""
        self._lock = threading.Lock()  # around source and counters
        self._hits = self._misses = 0
        self._fed_bytes = self._fed_events = 0

    def feed(self, source: bytes, segments: Sequence[tuple[Segment, U64, I64]]) -> None:
        """Takes records in. Records of another source replace all that is held: their keys mean something else."""
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
        """Records under these hashes, unverified; none of another source."""
        with self._lock:
            same = source == self._source
        located = self._cache.look_up(hashes) if same else NO_RECORDS
        hits = len(set(located.rows.tolist()))
        with self._lock:
            if source != self._source:  # changed meanwhile: these may be of either
                located, hits = NO_RECORDS, 0
            self._hits += hits
            self._misses += len(hashes) - hits
        return located

    def counts(self) -> NodeCounts:
        with self._lock:
            cache = replace(self._cache.counts(), hits=self._hits, misses=self._misses)
            return NodeCounts(cache, self._bytes_max, self._fed_bytes, self._fed_events)
