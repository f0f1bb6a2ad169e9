"""Cache in front of logs: the answer for each key of a batch. What is between the two halves of a look-up, reading
the logs, may take long: the engine waits for it without holding a thread.

Which record wins: of all records with a key, the first in (log order, offset), where log order is (log name
without its rotation suffix, log identity): MappedLog.order; the last where the join says so. Whether such records
differ is found out in ``shared_keys``. To hold the order whatever the cache happens to have, a hit is checked against
the file map's places: only a place before it makes the logs be read.

Invariant of a miss: the reader publishes ``read_past_ns`` after all that it read up to then is in the file map, and
it is taken *before* the look-up here. So a key that is not found although read_past_ns >= as_of is ABSENT; every
other miss is NOT_YET. A place that cannot be read is UNAVAILABLE, unless a record before it is the answer anyway.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache, total_ordering
from typing import Any

import numpy as np

from photon.eventstore.api import EventLookUps, Found, PrimaryPlace, PrimaryRecord
from photon.eventstore.cache import CachedRecord, CacheEventStore, Hits
from photon.eventstore.file_map import PLACES_PER_KEY_MAX, FileMap, MappedLog, Places
from photon.eventstore.index import Mask, hash_keys
from photon.eventstore.log_pass import Read, ReadRecord
from photon.eventstore.logs_store import LogsEventStore
from photon.eventstore.shared_keys import SharedKeys, places_of_several
from photon.eventstore.wanted import Wanted, WantedPlaces

NOTHING_READ_NS = -(2**63)
"""As ``read_past_ns``: no miss is ABSENT."""

Order = tuple[Any, ...]  # log order, offset: who comes first wins


@total_ordering
@dataclass(frozen=True, slots=True)
class _LastFirst:
    """Where the last of several records wins."""

    order: Order

    def __lt__(self, other: _LastFirst) -> bool:
        return other.order < self.order


@dataclass(frozen=True, slots=True)
class LookUp:
    """A look-up under way: what cache and map say, and the places that have to be read before it is answered."""

    keys: Sequence[bytes]
    as_of: Sequence[int]
    read_past_ns: int
    best: dict[int, CachedRecord]
    wanted: WantedPlaces
    several: dict[int, int]
    """Row -> places, of the keys with more than one whose records are to be compared."""
    ambiguous: dict[int, PrimaryPlace]
    """Row -> another record of its key, of those that are known to have one."""
    settled: bool
    """What is found by comparing holds until a key gets another place."""


class TieredEventStore:
    """Any thread may ask."""

    def __init__(
        self,
        cache: CacheEventStore,
        file_map: FileMap,
        logs: LogsEventStore,
        log_name: Callable[[str], str],
        read_past_ns: Callable[[], int],
        given_up: Callable[[], Collection[str]] = frozenset,
        shared: SharedKeys | None = None,
    ) -> None:
        """``given_up``: identities of logs whose records count as absent. ``shared``: what is known of keys that
        several records have; None: nothing yet."""
        self._shared = shared or SharedKeys("first", lambda line: None)
        self._cache = cache
        self._map = file_map
        self._logs = logs
        self._log_name = lru_cache(maxsize=1 << 14)(log_name)
        self._read_past_ns = read_past_ns
        self._given_up = given_up

    def look_up(self, keys: Sequence[bytes], as_of: Sequence[int]) -> EventLookUps:
        """See api.EventStore. Reads the logs in this thread."""
        begun = self.begin(keys, as_of)
        return self.end(begun, self._logs.read(begun.wanted) if begun.wanted else ())

    def begin(self, keys: Sequence[bytes], as_of: Sequence[int], elsewhere: Hits | None = None) -> LookUp:
        """Asks cache and map. ``elsewhere``: what cache nodes had, asked before; it counts where the map confirms
        it."""
        read_past_ns = self._read_past_ns()
        hashes = hash_keys(keys)
        places = self._map.places(keys, hashes)
        cached = self._cache.look_up(keys, hashes)  # after the map: it is fed before it, so it has what the map names
        if not places.complete:  # no miss is ABSENT
            read_past_ns = NOTHING_READ_NS
        hits: Hits = {}
        for found in (cached, elsewhere):
            if found:
                self._add_confirmed(hits, found, places)
        self._cache.count(hits=len(hits), misses=len(keys) - len(hits))
        best: dict[int, CachedRecord] = {
            row: each[0] if len(each) == 1 else min(each, key=self._order) for row, each in hits.items()
        }
        several, ambiguous = self._several(keys, places)
        wanted = self._places_to_read(keys, places, hits, best, several)
        settled = places.complete and not (several and any(log.rewritten for log in self._map.logs()))
        return LookUp(keys, as_of, read_past_ns, best, wanted, several, ambiguous, settled)

    def _several(self, keys: Sequence[bytes], places: Places) -> tuple[dict[int, int], dict[int, PrimaryPlace]]:
        """Row -> places, where it has to be found out whether several records differ; and where that is known."""
        several, ambiguous = places_of_several(places, len(keys)), {}
        for row, count in list(several.items()):
            if (known := self._shared.known(keys[row], count)) is not None:
                del several[row]
                if known.other is not None:
                    ambiguous[row] = known.other
        return several, ambiguous

    def end(self, begun: LookUp, reads: Sequence[ReadRecord]) -> EventLookUps:
        """The answers, when its places were read (``reads`` is aligned with ``begun.wanted``)."""
        best, as_of, read_past_ns = begun.best, begun.as_of, begun.read_past_ns
        answers = [Found.ABSENT if read_past_ns >= at else Found.NOT_YET for at in as_of]
        records: list[PrimaryRecord | None] = [None] * len(begun.keys)
        contested = []
        for at, (row, decides, read) in enumerate(
            zip(begun.wanted.rows.tolist(), _decide_alone(begun).tolist(), reads, strict=True)
        ):
            if not decides:
                contested.append(at)
            elif read.outcome is Read.FOUND:
                answers[row] = Found.FOUND
                records[row] = PrimaryRecord(read.record, read.file, read.offset)
            elif read.outcome is Read.UNAVAILABLE:
                answers[row] = Found.UNAVAILABLE
        read_places = [(begun.wanted[at], reads[at]) for at in contested]
        before = {row: best[row] for row in begun.several if row in best}
        unavailable = self._improve(read_places, best)
        ambiguous = begun.ambiguous
        if begun.several:
            ambiguous = ambiguous | self._compared(begun, before, read_places, best)
        for row, found in best.items():
            answers[row], records[row] = Found.FOUND, found.primary
        for row, order in unavailable.items():
            undecided = self._shared.rule == "reject" and row in begun.several and row not in ambiguous
            if undecided or row not in best or order < self._order(best[row]):
                answers[row], records[row] = Found.UNAVAILABLE, None
        return EventLookUps.of(
            answers, records, {row: at for row, at in ambiguous.items() if records[row] is not None}
        )

    def _compared(
        self,
        begun: LookUp,
        before: dict[int, CachedRecord],
        read_places: Sequence[tuple[Wanted, ReadRecord]],
        best: dict[int, CachedRecord],
    ) -> dict[int, PrimaryPlace]:
        """Row -> another record of its key, of the rows whose records were read to be compared."""
        found: dict[int, dict[tuple[str, int], CachedRecord]] = {row: {} for row in begun.several}
        for row, hit in before.items():
            found[row][hit.identity, hit.primary.offset] = hit
        looked = Counter[int]()
        for want, read in read_places:
            if want.row in found and read.outcome is not Read.UNAVAILABLE:
                looked[want.row] += 1
                if read.outcome is Read.FOUND:
                    primary = PrimaryRecord(read.record, read.file, read.offset)
                    found[want.row][want.log.identity, read.offset] = CachedRecord(want.log.identity, primary)
        ambiguous = {}
        for row, hits in found.items():
            if row not in best:
                continue
            records = [hit.primary for hit in sorted(hits.values(), key=self._order)]
            places = begun.several[row] if begun.settled and looked[row] == begun.several[row] else None
            other = self._shared.judge(begun.keys[row], best[row].primary, records, places)
            if other is not None:
                ambiguous[row] = other
        return ambiguous

    def _add_confirmed(self, hits: Hits, found: Hits, places: Places) -> None:
        """Adds those of ``found`` whose place the map names. Caches are fed before the map, so that what the map has
        need not be read from a log; and a cache node outlives this process, so it may hold what the map lost with a
        crash and has not read again yet, or what stood in a log before it was rewritten. None of these counts.
        """
        logs = self._map.logs()
        columns = (places.rows, places.logs, places.offsets, places.spans)
        for row, number, offset, span in zip(*(column.tolist() for column in columns), strict=True):
            log = logs[number]
            for hit in found.get(row, ()):
                # A span reaches beyond what was read; there repeats have no exact places yet.
                inside = offset <= hit.primary.offset < min(offset + max(span, 1), log.end)
                if inside and hit.identity == log.identity and not log.rewritten:
                    hits.setdefault(row, []).append(hit)

    def _places_to_read(
        self,
        keys: Sequence[bytes],
        places: Places,
        hits: dict[int, list[CachedRecord]],
        best: dict[int, CachedRecord],
        several: Collection[int] = (),
    ) -> WantedPlaces:
        """Those whose record is not at hand and could change an answer; of rows in ``several`` all that are there."""
        logs = self._map.logs()
        given_up = self._given_up()
        numbers = places.logs.tolist()
        alone = np.zeros(len(numbers), dtype=np.bool_)
        look = np.arange(len(numbers)) if given_up else np.flatnonzero(self._matter(places, best))
        needless = []
        exact = self._exact_places(places)
        for at in look.tolist():
            row, number, offset, span = int(places.rows[at]), numbers[at], int(places.offsets[at]), places.spans[at]
            log = logs[number]
            known = places.complete and not log.rewritten  # else an exact place may be missing
            alone[at] = span and known and not ((row, number) in exact or (row, -1) in exact)
            if log.identity in given_up or not (
                self._may_be_first(log, offset, int(span), bool(alone[at]), best.get(row), hits.get(row, ()))
                or (row in several and (self._shared.rule != "first" or self._logs.is_there(log)))
            ):
                needless.append(at)
        columns = (places.rows, places.offsets, places.spans, places.anchors, alone)
        if needless:
            left = np.delete(np.arange(len(numbers)), needless)
            columns = tuple(column[left] for column in columns)  # type: ignore[assignment]
            numbers = [numbers[at] for at in left.tolist()]
        asked = [keys[row] for row in columns[0].tolist()]
        return WantedPlaces(asked, [logs[number] for number in numbers], *columns)

    @staticmethod
    def _matter(places: Places, best: Collection[int]) -> Mask:
        """Places that need a thought: all others are exact, have no record at hand, and are read for certain."""
        mask: Mask = np.asarray(places.spans != 0)
        if best:
            mask |= np.isin(places.rows, np.fromiter(best, dtype=np.int64, count=len(best)))
        return mask

    def _may_be_first(
        self,
        log: MappedLog,
        offset: int,
        span: int,
        alone: bool,
        found: CachedRecord | None,
        hits: Sequence[CachedRecord],
    ) -> bool:
        """Whether what stands there may come before what caches ``found``."""
        if found is None:
            return True
        if found.primary.offset == offset and found.identity == log.identity:
            return False
        # Within a span an id rises strictly: but for repeats, which have exact places, a hit is its only record
        # there. Where there are repeats, the hit may be one of them.
        stop = offset + max(span, 1)
        if (alone or not span) and any(
            hit.identity == log.identity and offset <= hit.primary.offset < stop for hit in hits
        ):
            return False
        return self._place_order(log, offset) <= self._order(found)

    @staticmethod
    def _exact_places(places: Places) -> set[tuple[int, int]]:
        """(row, log number) of each place without a span; (row, -1) where there may be more than are named."""
        if not places.spans.any():
            return set()
        at = np.flatnonzero(places.spans == 0)
        rows, logs = places.rows[at].tolist(), places.logs[at].tolist()
        full = [row for row, count in Counter(rows).items() if count >= PLACES_PER_KEY_MAX]
        return {*zip(rows, logs, strict=True), *((row, -1) for row in full)}

    def _improve(
        self, read_places: Sequence[tuple[Wanted, ReadRecord]], best: dict[int, CachedRecord]
    ) -> dict[int, Order]:
        """Improves ``best`` by what was read; row -> the first place that could not be read."""
        unavailable: dict[int, Order] = {}
        for want, read in read_places:
            if read.outcome is Read.FOUND:
                found = CachedRecord(want.log.identity, PrimaryRecord(read.record, read.file, read.offset))
                now = best.get(want.row)
                if now is None or self._order(found) < self._order(now):
                    best[want.row] = found
            elif read.outcome is Read.UNAVAILABLE:
                order = self._place_order(want.log, want.offset)
                unavailable[want.row] = min(order, unavailable.get(want.row, order))
        return unavailable

    def _place_order(self, log: MappedLog, offset: int) -> Order:
        order = log.order(self._log_name), offset
        return (_LastFirst(order),) if self._shared.rule == "last" else order

    def _order(self, hit: CachedRecord) -> Order:
        order = (self._log_name(hit.primary.file.path), hit.identity), hit.primary.offset
        return (_LastFirst(order),) if self._shared.rule == "last" else order


def _decide_alone(begun: LookUp) -> Mask:
    """The wanted places that are the only record that is known of their keys: what stands there is the answer."""
    rows = begun.wanted.rows
    known = np.bincount(rows, minlength=len(begun.keys))
    if begun.best:
        known[list(begun.best)] += 1
    return np.asarray(known[rows] == 1)
