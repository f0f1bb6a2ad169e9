"""CacheEventStore: recent primary records in memory, best effort, bounded in bytes (paper, section 3.4.1).

The one in the event store's own process, for pipelines without cache nodes. What it keeps is in segments.py; here
the key of each hit is verified by the adapter.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from photon.adapters.contract import Adapter, LogFile
from photon.eventstore.api import PrimaryRecord
from photon.eventstore.index import I64, U64
from photon.eventstore.records import key_of
from photon.eventstore.segments import DEAD_ENTRIES_MIN, CacheCounts, Located, Segment, SegmentCache

CACHE_BYTES_MAX = 256 << 20


class CachedRecord(NamedTuple):
    """A verified record, and the identity of its log."""

    identity: str
    primary: PrimaryRecord


Hits = dict[int, list[CachedRecord]]
"""Row -> verified records of the key asked in that row, in no order."""


def verified(adapter: Adapter, keys: Sequence[bytes], located: Iterable[Located]) -> Hits:
    """Those that have the asked key. Not by the scan that found it: a malformed line may look to it as though it had
    the key."""
    by_file: dict[LogFile, list[Located]] = {}
    for each in located:
        by_file.setdefault(each.file, []).append(each)
    found: Hits = {}
    for file, hits in by_file.items():
        for row, identity, _, offset, record in hits:
            if key_of(adapter, record, file) == keys[row]:
                found.setdefault(row, []).append(CachedRecord(identity, PrimaryRecord(record, file, offset)))
    return found


class CacheEventStore:
    """Key -> records seen recently. ``put`` from one thread; ``look_up`` from any."""

    def __init__(self, adapter: Adapter, bytes_max: int = CACHE_BYTES_MAX) -> None:
        self._adapter = adapter
        self._segments = SegmentCache(bytes_max)
        self._counting = threading.Lock()
        self._hits = 0
        self._misses = 0

    def put(self, identity: str, file: LogFile, offset: int, data: bytes, hashes: U64, starts: I64) -> None:
        """Takes in a block: ``hashes[i]`` (ascending) is the key's of the record that starts at ``data[starts[i]]``.

        A block larger than the cache, or than SEGMENT_BYTES_MAX, is not kept: the cache is best effort.
        """
        self._segments.put([(Segment(identity, file, offset, data, len(hashes)), hashes, starts)])

    def look_up(self, keys: Sequence[bytes], hashes: U64) -> Hits:
        """Row -> verified records of ``keys[row]`` that are in the cache, in no order."""
        return verified(self._adapter, keys, self._segments.look_up(hashes))

    def count(self, *, hits: int, misses: int) -> None:
        """Whoever looks up says what helped: what caches had and the map confirmed. From any thread."""
        with self._counting:
            self._hits += hits
            self._misses += misses

    def counts(self) -> CacheCounts:
        """Counters and gauges of this moment."""
        return replace(self._segments.counts(), hits=self._hits, misses=self._misses)


__all__ = [
    "CACHE_BYTES_MAX",
    "DEAD_ENTRIES_MIN",
    "CacheCounts",
    "CacheEventStore",
    "CachedRecord",
    "Hits",
    "verified",
]
