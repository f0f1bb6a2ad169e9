"""Looks up all records of a key, for joins whose answer depends on each of them (``Matching.whole_sets``).

A key is answered only once its set is final, when everything written up to the requested time has been read. A set
whose records cannot all be read is UNAVAILABLE or GONE, never returned in part. Each place is a separate record, and
records with the same bytes count separately. Records are in file order, as in ``TieredEventStore``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from photon.eventstore.api import SET_BYTES_MAX, SET_MAX, EventLookUps, LookUpCode
from photon.eventstore.block_keys import hash_versions
from photon.eventstore.file_map import MappedPlaces
from photon.eventstore.found_records import FoundRecords, ReadResults
from photon.eventstore.index import hash_keys
from photon.eventstore.places_to_read import PlacesToRead
from photon.eventstore.tiered import NOTHING_READ_NS, LookUp, TieredEventStore, confirmed_by_map


class WholeSets(TieredEventStore):
    """Looks up whole sets. Thread-safe."""

    def begin(
        self,
        keys: Sequence[bytes],
        as_of: Sequence[int],
        elsewhere: Sequence[FoundRecords] = (),
        times: Sequence[int] | None = None,
    ) -> LookUp:
        """See TieredEventStore. ``several``: row -> places, for keys that have too many.

        With ``times`` a key's set consists of the records that ``FileMap.versions`` finds.
        """
        asked_of, read_past_ns = np.asarray(as_of, np.int64), self.read_past_ns()
        final = (asked_of != NOTHING_READ_NS) & (asked_of <= read_past_ns)
        asked = keys if final.all() else [key if it else b"" for key, it in zip(keys, final.tolist(), strict=True)]
        hashes = hash_keys(asked)
        given_up = self.given_up()
        if times is None:
            places = self.file_map.places(asked, hashes)
            found = self.cache.look_up(asked, hashes, elsewhere)
        else:
            gone = {log.number for log in self.file_map.logs() if log.identity in given_up}
            places = self.file_map.versions(hashes, np.asarray(times, np.int64), gone)
            found = self._versions_at_hand(asked, places)
        if not places.complete:
            read_past_ns = NOTHING_READ_NS
        named = PlacesToRead.named(keys, places, self.file_map.logs())
        counts = np.bincount(named.rows, minlength=len(keys))
        many = {row: int(counts[row]) for row in np.flatnonzero(counts > SET_MAX).tolist()}
        right, at_hand = confirmed_by_map(found, named)
        hits = found.take(np.flatnonzero(right & final[found.rows]))
        self._count(named, len(np.unique(hits.rows)))
        out = [number for number, log in enumerate(named.logs) if log.identity in given_up]
        left = ~at_hand & final[named.rows] & (counts[named.rows] <= SET_MAX) & ~np.isin(named.in_log, out)
        none = np.full(len(keys), -1)
        wanted = named.taken(np.flatnonzero(left))
        timed = times is not None
        return LookUp(keys, asked_of, read_past_ns, hits, none, wanted, many, {}, settled=True, timed=timed)

    def _versions_at_hand(self, keys: Sequence[bytes], places: MappedPlaces) -> FoundRecords:
        """Returns the cached records at places that ``FileMap.versions`` returned."""
        assert places.times is not None
        rows, times = np.unique(np.column_stack((places.rows, places.times)), axis=0).T
        asked = [keys[row] for row in rows.tolist()]
        return self.cache.look_up(asked, hash_versions(asked, times)).moved(rows)

    def end(self, begun: LookUp, reads: ReadResults) -> EventLookUps:
        """See TieredEventStore."""
        codes = np.where(
            (begun.as_of != NOTHING_READ_NS) & (begun.as_of <= begun.read_past_ns),
            np.uint8(LookUpCode.ABSENT),
            np.uint8(LookUpCode.NOT_YET),
        )
        final = codes == LookUpCode.ABSENT
        wanted = begun.wanted
        read, not_there = reads.told()
        found = FoundRecords.concat([begun.hits, read.moved(wanted.rows)])
        sets: dict[int, dict[tuple[str, int], int]] = {}
        for at, row in enumerate(found.rows.tolist()):
            if final[row]:
                sets.setdefault(row, {})[found.identity(at), int(found.records.offsets[at])] = at
        unread = np.ones(len(wanted), dtype=np.bool_)
        unread[read.rows] = unread[not_there] = False
        codes[list(sets)] = LookUpCode.FOUND
        if begun.timed:  # the map's record was not there, and another may be older
            stale = np.unique(wanted.rows[not_there])
            codes[stale[codes[stale] == LookUpCode.ABSENT]] = LookUpCode.UNAVAILABLE
        sizes = {row: sum(len(found.records.records[at]) for at in each.values()) for row, each in sets.items()}
        codes[[row for row, size in sizes.items() if size > SET_BYTES_MAX]] = LookUpCode.TOO_MANY
        codes[[row for row in begun.several if final[row]]] = LookUpCode.TOO_MANY
        unread &= final[wanted.rows]
        gone = self._gone_places(wanted)
        codes[wanted.rows[unread & gone]] = LookUpCode.GONE
        codes[wanted.rows[unread & ~gone]] = LookUpCode.UNAVAILABLE
        rows = np.flatnonzero(codes == LookUpCode.FOUND).tolist()
        order = [sorted(sets[row].values(), key=lambda at: self._order(found, at)) for row in rows]
        chosen = np.array([at for each in order for at in each], np.intp)
        counts = np.array(list(map(len, order)), np.uint32)
        return EventLookUps(codes.tobytes(), found.records.take(chosen), {}, counts)
