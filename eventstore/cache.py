"""CacheEventStore: recent primary records in memory, best effort, bounded in bytes (paper, section 3.4.1).

What is kept are *segments*: the bytes of a block as read, in one cachetools LRU that counts their bytes. Keys index
into segments, so warming costs no object and no LRU step per event; a record is cut out and its key verified only
on a hit. An evicted segment leaves its index entries behind; they are dropped together once they are many.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from cachetools import LRUCache

from photon.adapters.contract import Adapter, LogFile
from photon.eventstore.api import PrimaryRecord
from photon.eventstore.index import ENTRY_BYTES, I64, U64, Mask, Run, RunIndex
from photon.eventstore.records import key_of, record_at

CACHE_BYTES_MAX = 256 << 20
SEGMENT_OVERHEAD_BYTES = 1024
"""Counted for each segment beside its bytes and entries: objects, dict and list nodes."""
OFFSET_BITS = 28
SEGMENT_BYTES_MAX = 1 << OFFSET_BITS
_OFFSET_MASK = np.uint64(SEGMENT_BYTES_MAX - 1)
_SEGMENT_SHIFT = np.uint64(OFFSET_BITS)
DEAD_ENTRIES_MIN = 1 << 16
"""Below so many entries of evicted segments a clean-up is not worth its merge."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Whole records of one log as read, each ended by a newline."""

    identity: str
    file: LogFile
    offset: int  # of data[0] in its log
    data: bytes
    entries: int

    @property
    def size(self) -> int:
        """What it is charged in the cache, its index entries included. Bytes."""
        return len(self.data) + self.entries * ENTRY_BYTES + SEGMENT_OVERHEAD_BYTES


class CachedRecord(NamedTuple):
    """A verified record, and the identity of its log."""

    identity: str
    primary: PrimaryRecord


@dataclass(frozen=True, slots=True)
class CacheCounts:
    """Counters since the start, and gauges."""

    hits: int
    misses: int
    evictions: int  # segments
    segments: int
    bytes: int
    entries: int


class _Segments(LRUCache[int, Segment]):
    """The LRU over segments. Sizes are bytes."""

    def __init__(self, maxsize: int) -> None:
        super().__init__(maxsize, getsizeof=lambda segment: segment.size)
        self.evictions = 0
        self.entries = 0

    def popitem(self) -> tuple[int, Segment]:
        number, segment = super().popitem()
        self.evictions += 1
        self.entries -= segment.entries
        return number, segment


class CacheEventStore:
    """Key -> records seen recently. ``put`` from one thread; ``look_up`` from any."""

    def __init__(self, adapter: Adapter, bytes_max: int = CACHE_BYTES_MAX) -> None:
        self._adapter = adapter
        self._segments = _Segments(bytes_max)
        self._index = RunIndex()
        self._next = 0
        self._lock = threading.Lock()  # around the LRU: its steps are not atomic
        self._hits = 0
        self._misses = 0

    def put(self, identity: str, file: LogFile, offset: int, data: bytes, hashes: U64, starts: I64) -> None:
        """Takes in a block: ``hashes[i]`` (ascending) is the key's of the record that starts at ``data[starts[i]]``.

        A block larger than the cache, or than SEGMENT_BYTES_MAX, is not kept: the cache is best effort.
        """
        segment = Segment(identity, file, offset, data, len(hashes))
        if segment.size > self._segments.maxsize or len(data) > SEGMENT_BYTES_MAX or not len(hashes):
            return
        with self._lock:
            number = self._next
            self._next += 1
            self._segments[number] = segment
            self._segments.entries += segment.entries
        self._index.insert(Run(hashes, starts.astype(np.uint64) | np.uint64(number << OFFSET_BITS)))
        dead = len(self._index) - self._segments.entries
        if dead > max(DEAD_ENTRIES_MIN, self._segments.entries // 2):
            self._drop_dead()

    def _drop_dead(self) -> None:
        with self._lock:
            live = np.sort(np.fromiter(self._segments, dtype=np.uint64, count=len(self._segments)))

        def alive(locations: U64) -> Mask:
            numbers = locations >> _SEGMENT_SHIFT
            at = np.minimum(np.searchsorted(live, numbers), len(live) - 1)
            return np.asarray(live[at] == numbers)

        if len(live):
            self._index.retain(alive)
        else:
            self._index.clear()

    def look_up(self, keys: Sequence[bytes], hashes: U64) -> dict[int, list[CachedRecord]]:
        """Row -> verified records of ``keys[row]`` that are in the cache, in no order."""
        rows, locations = self._index.look_up(hashes)
        numbers = (locations >> _SEGMENT_SHIFT).tolist()
        with self._lock:
            segments = {number: self._segments.get(number) for number in dict.fromkeys(numbers)}
        by_file: dict[LogFile, list[tuple[int, str, int, bytes]]] = {}
        files: dict[int, list[tuple[int, str, int, bytes]]] = {}
        for number, segment in segments.items():
            if segment is not None:
                files[number] = by_file.setdefault(segment.file, [])
        for row, number, start in zip(rows.tolist(), numbers, (locations & _OFFSET_MASK).tolist(), strict=True):
            segment = segments[number]
            if segment is not None:
                hit = (row, segment.identity, segment.offset + start, record_at(segment.data, start))
                files[number].append(hit)
        found: dict[int, list[CachedRecord]] = {}
        for file, hits in by_file.items():
            for row, identity, offset, record in hits:
                # Not by the scan that found it: a malformed line may look to it as though it had the key.
                if key_of(self._adapter, record, file) == keys[row]:
                    cached = CachedRecord(identity, PrimaryRecord(record, file, offset))
                    found.setdefault(row, []).append(cached)
        self._hits += len(found)
        self._misses += len(keys) - len(found)
        return found

    def counts(self) -> CacheCounts:
        """Counters and gauges of this moment."""
        with self._lock:
            return CacheCounts(
                self._hits,
                self._misses,
                self._segments.evictions,
                len(self._segments),
                int(self._segments.currsize),
                len(self._index),
            )
