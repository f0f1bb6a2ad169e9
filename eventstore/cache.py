"""CacheEventStore: recent primary records in memory, best effort, bounded in bytes (paper, section 3.4.1).

The one in the event store's own process, for pipelines without cache nodes. What it keeps is in segments.py; here
the key of each hit is verified by the adapter.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from photon.adapters.containment import Guard, primary_keys_of
from photon.adapters.contract import Adapter, LogFile
from photon.eventstore.found_records import NO_RECORDS, FoundRecords
from photon.eventstore.index import I64, U64
from photon.eventstore.segments import DEAD_ENTRIES_MIN, CacheCounts, Segment, SegmentCache

CACHE_BYTES_MAX = 256 << 20


def verified(adapter: Adapter, keys: Sequence[bytes], located: FoundRecords) -> FoundRecords:
    """Drops records that do not have the asked key. The adapter decides, not the scan: to the scan a malformed line
    may look as though it had the key."""
    asked = [keys[row] for row in located.rows.tolist()]
    its = primary_keys_of(Guard(adapter), located.records)
    if its == asked:
        return located
    return located.take(np.flatnonzero([key == want for key, want in zip(its, asked, strict=True)]))


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

    def look_up(self, keys: Sequence[bytes], hashes: U64, elsewhere: Sequence[FoundRecords] = ()) -> FoundRecords:
        """Records of ``keys[row]`` that are in this cache, and those of what was found ``elsewhere``: verified."""
        found = [each for each in (self._segments.look_up(hashes), *elsewhere) if len(each)]
        return verified(self._adapter, keys, FoundRecords.concat(found)) if found else NO_RECORDS

    def count(self, *, hits: int, misses: int) -> None:
        """Counts what caches had and the map confirmed. From any thread."""
        with self._counting:
            self._hits += hits
            self._misses += misses

    def counts(self) -> CacheCounts:
        return replace(self._segments.counts(), hits=self._hits, misses=self._misses)


__all__ = [
    "CACHE_BYTES_MAX",
    "DEAD_ENTRIES_MIN",
    "CacheCounts",
    "CacheEventStore",
]
