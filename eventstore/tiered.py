"""Cache in front of logs: the answer for each key of a batch. Synchronous; the thread-shell is the engine.

Which record wins: of all records with a key, the first in (log order, offset), where log order is (log name
without its rotation suffix, log identity): MappedLog.order. To hold that whatever the cache happens to have, a hit is
checked against the file map's places: only a record before it makes the logs be read.

Invariant of a miss: the reader publishes ``read_past_ns`` after all that it read up to then is in the file map, and
it is taken *before* the look-up here. So a key that is not found although read_past_ns >= as_of is ABSENT; every
other miss is NOT_YET. A place that cannot be read is UNAVAILABLE, unless a record before it is the answer anyway.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import lru_cache

from photon.eventstore.api import EventLookUps, Found, PrimaryRecord
from photon.eventstore.cache import CachedRecord, CacheEventStore
from photon.eventstore.file_map import FileMap, MappedLog
from photon.eventstore.index import hash_keys
from photon.eventstore.logs_store import LogsEventStore, Read, Wanted

NOTHING_READ_NS = -(2**63)
"""As ``read_past_ns``: no miss is ABSENT."""

Order = tuple[tuple[str, str], int]  # log order, offset


class TieredEventStore:
    """Any thread may ask; reading logs takes turns."""

    def __init__(
        self,
        cache: CacheEventStore,
        file_map: FileMap,
        logs: LogsEventStore,
        log_name: Callable[[str], str],
        read_past_ns: Callable[[], int],
    ) -> None:
        self._cache = cache
        self._map = file_map
        self._logs = logs
        self._log_name = lru_cache(maxsize=1 << 14)(log_name)
        self._read_past_ns = read_past_ns
        self._reading = threading.Lock()

    def look_up(self, keys: Sequence[bytes], as_of: Sequence[int]) -> EventLookUps:
        """See api.EventStore."""
        read_past_ns = self._read_past_ns()
        hashes = hash_keys(keys)
        # The cache is fed after the map: what it has, the map has.
        cached = self._cache.look_up(keys, hashes)
        places = self._map.places(keys, hashes)
        logs = self._map.logs()
        best: list[tuple[Order, PrimaryRecord] | None] = [None] * len(keys)
        at: dict[int, set[tuple[str, int]]] = {}
        for row, hits in cached.items():
            at[row] = {(hit.identity, hit.offset) for hit in hits}
            best[row] = min(((self._order(hit), _primary(hit)) for hit in hits), key=lambda pair: pair[0])
        wanted = []
        columns = (places.rows, places.logs, places.offsets, places.spans, places.anchors)
        for row, number, offset, span, anchor in zip(*(column.tolist() for column in columns), strict=True):
            want = Wanted(row, keys[row], logs[number], offset, span, anchor)
            if not self._is_answered(want, best[row], at.get(row)):
                wanted.append(want)
        unavailable = self._read(wanted, best) if wanted else {}
        answers = []
        for row, found in enumerate(best):
            if row in unavailable and (found is None or unavailable[row] < found[0]):
                answers.append(Found.UNAVAILABLE)
                best[row] = None
            elif found is not None:
                answers.append(Found.FOUND)
            else:
                answers.append(Found.ABSENT if read_past_ns >= as_of[row] else Found.NOT_YET)
        return EventLookUps(answers, [None if found is None else found[1] for found in best])

    def _is_answered(
        self, want: Wanted, best: tuple[Order, PrimaryRecord] | None, at: set[tuple[str, int]] | None
    ) -> bool:
        """Whether reading this place cannot change the answer."""
        if best is None or at is None:
            return False
        identity = want.log.identity
        if not want.span:
            return (identity, want.offset) in at or self._place_order(want.log, want.offset) > best[0]
        # Within a span an id rises strictly, so a hit in it is its only record there; repeats have exact places.
        stop = want.offset + want.span
        if any(identity == each and want.offset <= offset < stop for each, offset in at):
            return True
        return self._place_order(want.log, want.offset) > best[0]

    def _read(self, wanted: Sequence[Wanted], best: list[tuple[Order, PrimaryRecord] | None]) -> dict[int, Order]:
        """Reads places and improves ``best``; row -> the first place that could not be read."""
        unavailable: dict[int, Order] = {}
        with self._reading:
            reads = self._logs.read(wanted)
        for want, read in zip(wanted, reads, strict=True):
            if read.outcome is Read.FOUND:
                order = self._place_order(want.log, read.offset)
                now = best[want.row]
                if now is None or order < now[0]:
                    best[want.row] = (order, PrimaryRecord(read.record, read.file, read.offset))
            elif read.outcome is Read.UNAVAILABLE:
                order = self._place_order(want.log, want.offset)
                unavailable[want.row] = min(order, unavailable.get(want.row, order))
        return unavailable

    def _place_order(self, log: MappedLog, offset: int) -> Order:
        return log.order(self._log_name), offset

    def _order(self, hit: CachedRecord) -> Order:
        return (self._log_name(hit.file.path), hit.identity), hit.offset


def _primary(hit: CachedRecord) -> PrimaryRecord:
    return PrimaryRecord(hit.record, hit.file, hit.offset)
