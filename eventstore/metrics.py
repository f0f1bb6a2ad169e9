"""Metrics of an event store and of a cache node, read from their counters."""

from __future__ import annotations

from photon.config.clock import Clock
from photon.config.metrics.readings import Readings, Source
from photon.eventstore.api import ALL_BUT_ENDS_NS, OperatedStore
from photon.eventstore.cache_nodes.node import CacheNode


def store_metrics(join: str, store: OperatedStore, clock: Clock) -> Source:
    async def read(into: Readings) -> None:
        progress = await store.progress()
        passed = progress.read_past_ns
        into.put_all(
            "photon_eventstore",
            {
                "events_total": progress.events,
                "duplicates_total": progress.duplicates,
                "bad_records_total": progress.bad_records,
                "ambiguous_keys_total": progress.ambiguous,
                "cache_hits_total": progress.cache_hits,
                "cache_misses_total": progress.cache_misses,
                "cache_evictions_total": progress.cache_evictions,
                "log_reads_total": progress.log_reads,
                "log_read_bytes_total": progress.log_bytes,
                "lag_seconds": 0.0 if passed >= ALL_BUT_ENDS_NS else max(clock.now_ns() - passed, 0) / 1e9,
                "lag_bytes": max(progress.bytes_known - progress.bytes_read, 0),
                "logs": progress.files,
                "cache_bytes": progress.cache_bytes,
                "missing_logs": progress.missing_logs,
                "missing_keys": progress.missing_keys,
                "sought_keys": progress.sought_keys,
                "sought_dropped_total": progress.sought_dropped,
                "sought_came_total": progress.sought_came,
            },
            join=join,
        )

    return read


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
