"""Keeps recent records in memory as *segments*, bounded in bytes. Every cache is built on it.

A segment holds records of one log as read. Segments are in a cachetools LRU that counts bytes. Key hashes index into
segments, so storing costs no object and no LRU step per event; a record is cut out on a hit. An evicted segment's
index entries stay, and are dropped together once there are many.

``CacheEventStore`` is the cache in the event store's own process, for pipelines without cache nodes (paper, section
3.4.1); it has the adapter verify the key of each hit.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from cachetools import LRUCache

from photon.adapters.containment import Guard, primary_keys_of
from photon.adapters.contract import Adapter, LogFile
from photon.eventstore.block_keys import record_at
from photon.eventstore.found_records import NO_RECORDS, FoundRecords
from photon.eventstore.index import ENTRY_BYTES, I64, U64, Mask, Run, RunIndex, sorted_run

U32 = npt.NDArray[np.uint32]

# Overhead counted for each segment in addition to its bytes and entries: objects, dict and list nodes.
SEGMENT_OVERHEAD_BYTES = 1024
PLACE_BYTES = 12  # for each record of a gathered segment: its start, and its offset in its log
OFFSET_BITS = 28
SEGMENT_BYTES_MAX = 1 << OFFSET_BITS
PER_HASH_MAX = 16  # limit of records of one hash returned by a look-up, in any order: the file map has the first
DEAD_ENTRIES_MIN = 1 << 16  # with fewer entries of evicted segments, cleaning up is not worth a merge
_OFFSET_MASK = np.uint64(SEGMENT_BYTES_MAX - 1)
_SEGMENT_SHIFT = np.uint64(OFFSET_BITS)


@dataclass(frozen=True, slots=True)
class Gathered:
    """The places of a segment's n records, if it is not one contiguous part of its log."""

    starts: U32  # n: in the segment's data
    offsets: U64  # n: in the log


@dataclass(frozen=True, slots=True)
class Segment:
    """Whole records of one log as read, each ended by a newline.

    They are one contiguous part of the log from ``offset``, or ``gathered`` from several parts.
    """

    identity: str
    file: LogFile
    offset: int  # of data[0] in its log
    data: bytes
    entries: int
    gathered: Gathered | None = None

    @property
    def size(self) -> int:
        """The bytes counted towards the cache's limit, including index entries."""
        each = ENTRY_BYTES if self.gathered is None else ENTRY_BYTES + PLACE_BYTES
        return len(self.data) + self.entries * each + SEGMENT_OVERHEAD_BYTES

    def start_of(self, low: int) -> int:
        """Returns the start of a record in ``data``. ``low``: the low bits of its location."""
        return low if self.gathered is None else int(self.gathered.starts[low])

    def offset_of(self, low: int) -> int:
        return self.offset + low if self.gathered is None else int(self.gathered.offsets[low])


@dataclass(frozen=True, slots=True)
class CacheCounts:
    hits: int = 0
    misses: int = 0
    evictions: int = 0  # segments
    segments: int = 0
    bytes: int = 0
    entries: int = 0


class _Segments(LRUCache[int, Segment]):
    def __init__(self, maxsize: int) -> None:
        super().__init__(maxsize, getsizeof=lambda segment: segment.size)
        self.evictions = 0
        self.entries = 0

    def popitem(self) -> tuple[int, Segment]:
        number, segment = super().popitem()
        self.evictions += 1
        self.entries -= segment.entries
        return number, segment


class SegmentCache:
    """Maps key hashes to records. Call ``put`` from one thread, ``look_up`` from any."""

    def __init__(self, bytes_max: int) -> None:
        self._segments = _Segments(bytes_max)
        self._index = RunIndex()
        self._next = 0
        self._lock = threading.Lock()  # around the LRU: its steps are not atomic

    def put(self, segments: Sequence[tuple[Segment, U64, I64]]) -> None:
        """Adds segments. ``hashes[i]`` (ascending) is the key hash of the record at byte ``starts[i]`` of the data,
        or of record number ``starts[i]`` if gathered.

        A segment larger than the cache, or than SEGMENT_BYTES_MAX, is not kept: the cache is best effort.
        """
        runs = []
        for segment, hashes, starts in segments:
            fits = segment.size <= self._segments.maxsize and len(segment.data) <= SEGMENT_BYTES_MAX
            if not fits or not len(hashes):
                continue
            with self._lock:
                number = self._next
                self._next += 1
                self._segments[number] = segment
                self._segments.entries += segment.entries
            runs.append(Run(hashes, starts.astype(np.uint64) | np.uint64(number << OFFSET_BITS)))
        if not runs:
            return
        self._index.insert(runs[0] if len(runs) == 1 else _joined(runs))
        dead = len(self._index) - self._segments.entries
        if dead > max(DEAD_ENTRIES_MIN, self._segments.entries // 2):
            self._drop_dead()

    def _drop_dead(self) -> None:
        with self._lock:
            live = np.fromiter(self._segments, dtype=np.int64, count=len(self._segments))
        if not len(live):
            self._index.clear()
            return
        first, last = int(live.min()), int(live.max())
        lives = np.zeros(last - first + 3, dtype=np.bool_)  # one more on either side
        lives[live - first + 1] = True

        def alive(locations: U64) -> Mask:
            numbers = (locations >> _SEGMENT_SHIFT).astype(np.int64)
            return np.asarray(lives[np.clip(numbers, first - 1, last + 1) - first + 1])

        self._index.retain(alive)

    def look_up(self, hashes: U64) -> FoundRecords:
        """Returns the records under the requested hashes, by ascending row, at most PER_HASH_MAX per hash.

        Their keys are not verified.
        """
        rows, locations = self._index.look_up(hashes)
        if not len(rows):
            return NO_RECORDS
        if len(rows) > PER_HASH_MAX:
            few = np.ones(len(rows), dtype=np.bool_)
            few[PER_HASH_MAX:] = rows[PER_HASH_MAX:] != rows[:-PER_HASH_MAX]
            rows, locations = rows[few], locations[few]
        numbers = (locations >> _SEGMENT_SHIFT).tolist()
        with self._lock:
            asked = {number: self._segments.get(number) for number in dict.fromkeys(numbers)}
        segments = {number: segment for number, segment in asked.items() if segment is not None}
        logs: dict[tuple[str, LogFile], int] = {}
        in_log = {
            number: logs.setdefault((segment.identity, segment.file), len(logs))
            for number, segment in segments.items()
        }
        lows = (locations & _OFFSET_MASK).tolist()
        if len(segments) < len(asked):  # some were evicted
            held = [at for at, number in enumerate(numbers) if number in segments]
            rows, numbers, lows = rows[held], [numbers[at] for at in held], [lows[at] for at in held]
        of = [segments[number] for number in numbers]
        return FoundRecords.columns(
            logs,
            rows,
            [in_log[number] for number in numbers],
            [segment.offset_of(low) for segment, low in zip(of, lows, strict=True)],
            [record_at(segment.data, segment.start_of(low)) for segment, low in zip(of, lows, strict=True)],
        )

    def clear(self) -> None:
        """Drops all segments. Call it on the thread that puts."""
        self._index.clear()
        with self._lock:
            empty = _Segments(int(self._segments.maxsize))
            empty.evictions = self._segments.evictions
            self._segments = empty

    def counts(self) -> CacheCounts:
        """Returns the cache's gauges; the caller adds hits and misses."""
        with self._lock:
            return CacheCounts(
                evictions=self._segments.evictions,
                segments=len(self._segments),
                bytes=int(self._segments.currsize),
                entries=len(self._index),
            )


def _joined(runs: Sequence[Run]) -> Run:
    return sorted_run(np.concatenate([run.hashes for run in runs]), np.concatenate([run.locations for run in runs]))


CACHE_BYTES_MAX = 256 << 20


def verified(adapter: Adapter, keys: Sequence[bytes], located: FoundRecords) -> FoundRecords:
    """Drops records that do not have the requested key.

    The adapter decides, since the scan may see a key in a malformed line.
    """
    asked = [keys[row] for row in located.rows.tolist()]
    its = primary_keys_of(Guard(adapter), located.records)
    if its == asked:
        return located
    return located.take(np.flatnonzero([key == want for key, want in zip(its, asked, strict=True)]))


class CacheEventStore:
    """Finds recent records by key. Call ``put`` from one thread, ``look_up`` from any."""

    def __init__(self, adapter: Adapter, bytes_max: int = CACHE_BYTES_MAX) -> None:
        self._adapter = adapter
        self._segments = SegmentCache(bytes_max)
        self._counting = threading.Lock()
        self._hits = 0
        self._misses = 0

    def put(self, identity: str, file: LogFile, offset: int, data: bytes, hashes: U64, starts: I64) -> None:
        """Adds a block. ``hashes[i]`` (ascending) is the key hash of the record at ``data[starts[i]]``.

        A block larger than the cache, or than SEGMENT_BYTES_MAX, is not kept: the cache is best effort.
        """
        self._segments.put([(Segment(identity, file, offset, data, len(hashes)), hashes, starts)])

    def look_up(self, keys: Sequence[bytes], hashes: U64, elsewhere: Sequence[FoundRecords] = ()) -> FoundRecords:
        """Returns the verified records of ``keys``, from this cache and from ``elsewhere``; row i is ``keys[i]``."""
        found = [each for each in (self._segments.look_up(hashes), *elsewhere) if len(each)]
        return verified(self._adapter, keys, FoundRecords.concat(found)) if found else NO_RECORDS

    def count(self, *, hits: int, misses: int) -> None:
        """Counts the results of look-ups. Thread-safe."""
        with self._counting:
            self._hits += hits
            self._misses += misses

    def counts(self) -> CacheCounts:
        return replace(self._segments.counts(), hits=self._hits, misses=self._misses)
