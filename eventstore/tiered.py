"""Answers look-ups from the cache and the logs. A look-up has two halves, with the logs read between them: that may
take long, so the engine waits for it without holding a thread.

Of all records with a key, the winner is the first by (``MappedLog.order``, offset), or the last if the join is
configured so. ``shared_keys`` compares such records. So that the cache's content does not change the winner, a hit is
checked against the file map's places, and the logs are read only for earlier places.

Invariant of a miss: the reader publishes ``read_past_ns`` after everything read up to then is in the file map, and a
look-up takes it *before* asking the map. So a key not found although read_past_ns >= as_of is ABSENT; every other
miss is NOT_YET. A key with a place that cannot be read is UNAVAILABLE, unless an earlier record is the answer anyway.
A place in a log that is gone matters only for keys without another place: these are GONE, others get the first
remaining record. If records must be compared (``reject``), and for whole sets, every place matters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, total_ordering
from typing import Any

import numpy as np

from photon.eventstore.api import EventLookUps, LookUpCode, PrimaryPlace
from photon.eventstore.file_map import PLACES_PER_KEY_MAX, FileMap, MappedPlaces
from photon.eventstore.found_records import FoundRecords, ReadResults
from photon.eventstore.index import I64, Mask, hash_keys
from photon.eventstore.logs_store import LogsEventStore
from photon.eventstore.places_to_read import PlacesToRead, PlaceToRead
from photon.eventstore.segments import CacheEventStore
from photon.eventstore.shared_keys import SharedKeys, places_of_several

NOTHING_READ_NS = -(2**63)  # a ``read_past_ns`` with which no miss is ABSENT

_NOT_YET, _ABSENT = np.uint8(LookUpCode.NOT_YET), np.uint8(LookUpCode.ABSENT)
_UNAVAILABLE = -2  # means that no known record decides the row

Order = tuple[Any, ...]  # log order, offset: the first one wins


@total_ordering
@dataclass(frozen=True, slots=True)
class _LastFirst:
    """Reverses the order if the last of several records wins."""

    order: Order

    def __lt__(self, other: _LastFirst) -> bool:
        return other.order < self.order


@dataclass(frozen=True, slots=True)
class LookUp:
    """A look-up in progress: results from caches and map, and the places to read before it can be answered."""

    keys: Sequence[bytes]
    as_of: I64
    read_past_ns: int
    hits: FoundRecords  # records in caches that the map confirms
    best: I64  # by row: index of the first one in ``hits``, or -1
    wanted: PlacesToRead
    several: dict[int, int]  # row -> places, for keys with more than one whose records are to be compared
    ambiguous: dict[int, PrimaryPlace]  # row -> another record of its key, for keys known to have one
    settled: bool  # the result of a comparison is valid until the key gets another place
    timed: bool = False  # the places are those of versions (``FileMap.versions``)


@dataclass(eq=False)
class TieredEventStore:
    """Answers look-ups from the cache and the logs. Thread-safe.

    ``given_up``: identities of logs whose records count as absent; ``gone``: identities of logs whose files are known
    to be gone. ``shared``: knows the keys that several records have.
    """

    cache: CacheEventStore
    file_map: FileMap
    logs: LogsEventStore
    log_name: Callable[[str], str]
    read_past_ns: Callable[[], int]
    given_up: Callable[[], Collection[str]] = frozenset
    shared: SharedKeys = field(default_factory=lambda: SharedKeys("first", lambda line: None))
    gone: Callable[[], Collection[str]] = frozenset

    def __post_init__(self) -> None:
        self._log_name = lru_cache(maxsize=1 << 14)(self.log_name)

    def look_up(
        self, keys: Sequence[bytes], as_of: Sequence[int], times: Sequence[int] | None = None
    ) -> EventLookUps:
        begun = self.begin(keys, as_of, (), times)
        return self.end(begun, self.logs.read(begun.wanted))

    def begin(
        self,
        keys: Sequence[bytes],
        as_of: Sequence[int],
        elsewhere: Sequence[FoundRecords] = (),
        times: Sequence[int] | None = None,
    ) -> LookUp:
        """Begins a look-up: asks the cache and the map.

        ``elsewhere``: records from cache nodes; they count only if the map confirms them. ``times``: see
        api.EventStore.
        """
        read_past_ns = self.read_past_ns()
        hashes = hash_keys(keys)
        places = self.file_map.places(keys, hashes)
        # After the map: the cache is fed before it, so it has everything in the map.
        found = self.cache.look_up(keys, hashes, elsewhere)
        if not places.complete:  # no miss is ABSENT
            read_past_ns = NOTHING_READ_NS
        named = PlacesToRead.named(keys, places, self.file_map.logs())
        confirmed, at_hand = confirmed_by_map(found, named)
        hits = found if confirmed.all() else found.take(np.flatnonzero(confirmed))
        best = self._first(hits, len(keys))
        self._count(named, int(np.count_nonzero(best >= 0)))
        several, ambiguous = self._several(keys, places)
        wanted = self._places_to_read(named, places.complete, hits, best, at_hand, several)
        settled = places.complete and not (several and any(log.rewritten for log in self.file_map.logs()))
        return LookUp(
            keys, np.asarray(as_of, np.int64), read_past_ns, hits, best, wanted, several, ambiguous, settled
        )

    def _count(self, named: PlacesToRead, hits: int) -> None:
        """Counts ``hits``, and as misses the other keys that the map has: a key that is in no log cannot be in a
        cache.
        """
        self.cache.count(hits=hits, misses=int(np.count_nonzero(np.bincount(named.rows))) - hits)

    def _first(self, hits: FoundRecords, keys: int) -> I64:
        best = np.full(keys, -1)
        best[hits.rows] = np.arange(len(hits))
        if np.count_nonzero(best >= 0) < len(hits):
            of_row: dict[int, list[int]] = {}
            for at, row in enumerate(hits.rows.tolist()):
                of_row.setdefault(row, []).append(at)
            for row, several in of_row.items():
                best[row] = min(several, key=lambda at: self._order(hits, at))
        return best

    def _several(self, keys: Sequence[bytes], places: MappedPlaces) -> tuple[dict[int, int], dict[int, PrimaryPlace]]:
        """Returns (row -> number of places, for keys to compare; row -> other record, for ambiguous keys)."""
        several, ambiguous = places_of_several(places, len(keys)), {}
        for row, count in list(several.items()):
            if (known := self.shared.known(keys[row], count)) is not None:
                del several[row]
                if known.other is not None:
                    ambiguous[row] = known.other
        return several, ambiguous

    def end(self, begun: LookUp, reads: ReadResults) -> EventLookUps:
        """Ends a look-up, once ``begun.wanted`` was read into ``reads``. Returns the answers."""
        wanted, hits = begun.wanted, begun.hits
        codes = np.where(begun.as_of <= begun.read_past_ns, _ABSENT, _NOT_YET)
        read, not_there = reads.told()
        found, read_at = FoundRecords.concat([hits, read.moved(wanted.rows)]), read.rows
        unread = np.ones(len(wanted), dtype=np.bool_)
        unread[read_at] = unread[not_there] = False
        best = begun.best.copy()
        decides = _decide_alone(begun)
        alone = decides[read_at].nonzero()[0]
        best[found.rows[len(hits) + alone]] = len(hits) + alone
        codes[wanted.rows[unread & decides]] = LookUpCode.UNAVAILABLE
        gone = self._gone_places(wanted)
        codes[wanted.rows[unread & decides & gone]] = LookUpCode.GONE
        ambiguous = begun.ambiguous
        if not decides.all() or begun.several:
            contested = (len(hits) + np.flatnonzero(~decides[read_at])).tolist()
            for at in contested:
                row = found.rows[at]
                if best[row] < 0 or self._order(found, at) < self._order(found, best[row]):
                    best[row] = at
            if begun.several:
                looked = np.bincount(wanted.rows[~unread & ~decides], minlength=len(codes))
                ambiguous = ambiguous | self._compared(begun, found, contested, looked, best)
            for at in np.flatnonzero(unread & ~decides).tolist():
                row = int(wanted.rows[at])
                undecided = self.shared.rule == "reject" and row in begun.several and row not in ambiguous
                if gone[at] and best[row] >= 0 and not undecided:
                    self.logs.troubles.elsewhere(wanted[at].log, begun.keys[row])
                    continue
                if undecided or best[row] < 0 or self._place_order(wanted[at]) < self._order(found, best[row]):
                    only_gone = gone[at] and (best[row] != _UNAVAILABLE or codes[row] == LookUpCode.GONE)
                    codes[row] = LookUpCode.GONE if only_gone else LookUpCode.UNAVAILABLE
                    best[row] = _UNAVAILABLE
        codes[best >= 0] = LookUpCode.FOUND
        answered = best[best >= 0]
        shared = {row: at for row, at in ambiguous.items() if best[row] >= 0}
        return EventLookUps(codes.tobytes(), found.records.take(answered), shared)

    def _gone_places(self, wanted: PlacesToRead) -> Mask:
        """Returns a mask of the places in logs that are gone."""
        if not (gone := self.gone()):
            return np.zeros(len(wanted), np.bool_)
        return np.isin(wanted.in_log, [number for number, log in enumerate(wanted.logs) if log.identity in gone])

    def _compared(
        self, begun: LookUp, found: FoundRecords, contested: Sequence[int], looked: I64, best: I64
    ) -> dict[int, PrimaryPlace]:
        """Returns row -> another record of its key, for rows whose records were read for comparison.

        ``looked``: by row, the number of places.
        """
        its: dict[int, dict[tuple[str, int], int]] = {row: {} for row in begun.several}
        for at in (*begun.best[list(begun.several)].tolist(), *contested):
            if at >= 0 and (row := int(found.rows[at])) in its:
                its[row][found.identity(at), int(found.records.offsets[at])] = at
        ambiguous = {}
        for row, each in its.items():
            if best[row] < 0:
                continue
            records = [found.records.row(at) for at in sorted(each.values(), key=lambda at: self._order(found, at))]
            places = begun.several[row] if begun.settled and looked[row] == begun.several[row] else None
            other = self.shared.judge(begun.keys[row], found.records.row(best[row]), records, places)
            if other is not None:
                ambiguous[row] = other
        return ambiguous

    def _places_to_read(
        self,
        named: PlacesToRead,
        complete: bool,
        hits: FoundRecords,
        best: I64,
        at_hand: Mask,
        several: Collection[int],
    ) -> PlacesToRead:
        """Returns the places whose unread record could change an answer; for rows in ``several``, all places."""
        given_up = self.given_up()
        left = ~(at_hand & (named.spans == 0))
        # Places that need a decision: all others are exact and unread, and are certainly read.
        thought = left & ((named.spans != 0) | (best[named.rows] >= 0))
        if several:
            thought |= np.isin(named.rows, list(several))
        if given_up:
            thought[:] = True
        if not thought.any():
            return named.taken(left.nonzero()[0])
        exact = self._exact_places(named)
        rows, in_log, spans, hit = (each.tolist() for each in (named.rows, named.in_log, named.spans, best))
        for at in thought.nonzero()[0].tolist():
            row, log = rows[at], named.logs[in_log[at]]
            known = complete and not log.rewritten  # otherwise an exact place may be missing
            if spans[at] and known and (row, in_log[at]) not in exact and (row, -1) not in exact:
                named.alone[at] = True
            left[at] = log.identity not in given_up and (
                (left[at] and (hit[row] < 0 or self._may_be_first(named[at], hits, hit[row])))
                or (row in several and (self.shared.rule != "first" or self.logs.is_there(log)))
            )
        return named.taken(left.nonzero()[0])

    def _may_be_first(self, place: PlaceToRead, hits: FoundRecords, best: int) -> bool:
        """True if the record at ``place`` may come before the hit ``best``."""
        offsets, identity = hits.records.offsets, place.log.identity
        if offsets[best] == place.offset and hits.identity(best) == identity:
            return False
        # Within a span an id rises strictly: except for repeats, which have exact places, a hit is its only record
        # there. If there are repeats, the hit may be one of them.
        if place.alone and any(
            hits.identity(at) == identity and place.offset <= offsets[at] < place.offset + place.span
            for at in np.flatnonzero(hits.rows == hits.rows[best]).tolist()
        ):
            return False
        return self._place_order(place) <= self._order(hits, best)

    @staticmethod
    def _exact_places(named: PlacesToRead) -> set[tuple[int, int]]:
        """Returns (row, log) of each place without a span; (row, -1) if there may be more places than returned."""
        if not named.spans.any():
            return set()
        at = np.flatnonzero(named.spans == 0)
        rows, logs = named.rows[at].tolist(), named.in_log[at].tolist()
        full = [row for row, count in Counter(rows).items() if count >= PLACES_PER_KEY_MAX]
        return {*zip(rows, logs, strict=True), *((row, -1) for row in full)}

    def _place_order(self, place: PlaceToRead) -> Order:
        order = place.log.order(self._log_name), place.offset
        return (_LastFirst(order),) if self.shared.rule == "last" else order

    def _order(self, found: FoundRecords, at: int) -> Order:
        path, offset = found.records.files[found.records.file_index[at]].path, int(found.records.offsets[at])
        order = (self._log_name(path), found.identity(at)), offset
        return (_LastFirst(order),) if self.shared.rule == "last" else order


def confirmed_by_map(found: FoundRecords, named: PlacesToRead) -> tuple[Mask, Mask]:
    """Returns masks of the records ``found`` at places that the map names, and of the places with such a record.

    Other records do not count: caches are fed before the map, so they may be ahead of it, and a cache node outlives
    this process, so it may have records that the map lost in a crash and has not read again, or a rewritten log's
    former content.
    """
    confirmed, at_hand = np.zeros(len(found), dtype=np.bool_), np.zeros(len(named), dtype=np.bool_)
    if not len(found) or not len(named):
        return confirmed, at_hand
    # All pairs of a record and a place of its row.
    order = np.argsort(named.rows, kind="stable")
    rows = named.rows[order]
    first = rows.searchsorted(found.rows)
    counts = rows.searchsorted(found.rows, "right") - first
    record = np.repeat(np.arange(len(found)), counts)
    place = order[np.arange(len(record)) + np.repeat(first - np.cumsum(counts) + counts, counts)]
    numbers = {log.identity: number for number, log in enumerate(named.logs)}
    its_log = np.array([numbers.get(identity, -1) for identity in found.identities])[found.records.file_index]
    # a span reaches beyond the part that was read; there repeats have no exact places yet.
    ends = np.array([0 if log.rewritten else log.end for log in named.logs])[named.in_log]
    stops = np.minimum(named.offsets + np.maximum(named.spans, 1), ends)
    offsets = found.records.offsets[record]
    inside = (its_log[record] == named.in_log[place]) & (named.offsets[place] <= offsets) & (offsets < stops[place])
    confirmed[record[inside]] = True
    at_hand[place[inside]] = True
    return confirmed, at_hand


def _decide_alone(begun: LookUp) -> Mask:
    """Returns a mask of wanted places that have their key's only known record: that record is the answer."""
    rows = begun.wanted.rows
    known = np.bincount(rows, minlength=len(begun.keys)) + (begun.best >= 0)
    return np.asarray(known[rows] == 1)
