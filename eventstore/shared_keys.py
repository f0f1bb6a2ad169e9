"""Compares primary records that share a key, counts ambiguous keys, and reports the first.

A key identifies one primary event. If a look-up finds several places for a key, all of them are read once and
compared: byte-identical records are one event that a shipper sent again, different ones make the key *ambiguous*. The
result is remembered while the key has the same number of places, so each key is compared only once.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from photon.config.errors import UsageError
from photon.eventstore.api import PrimaryPlace, PrimaryRecord
from photon.eventstore.file_map import MapKind, MappedPlaces

KEYS_MAX = 1 << 16  # remembered keys; a forgotten one is read, and counted, again
KEY_SHOWN_BYTES = 100
DOES = {
    "first": "events are joined to the first in file order",
    "last": "events are joined to the last in file order",
    "reject": "events with this key are rejected",
}


class KnownKey(NamedTuple):
    """The result of comparing the records at a key's ``places`` places.

    ``other``: a record that differs from the winner; ``None`` if all are alike.
    """

    places: int
    other: PrimaryPlace | None


def check_rule(rule: str, kind: MapKind, *, hbase: bool) -> None:
    """Raises UsageError for a rule that the map cannot support: some maps do not find a key's last record."""
    if rule not in DOES:
        raise UsageError(f"primary.duplicates = {rule!r}: write one of {', '.join(DOES)}")
    if rule == "last" and (hbase or kind is MapKind.SPARSE):
        where = "a file map in HBase" if hbase else 'file_map = "sparse"'
        raise UsageError(
            f'primary.duplicates = "last" and {where}: it has the first records of a key, not the last one; '
            'use "first" or "reject", or a dense file map on this machine'
        )


def places_of_several(places: MappedPlaces, keys: int) -> dict[int, int]:
    """Returns row -> number of places, for rows with several. Ignores rows with spans only: most are misses."""
    if len(places.rows) < 2:
        return {}
    counts = np.bincount(places.rows, minlength=keys)
    if not (several := counts > 1).any():
        return {}
    if places.spans.any():
        several &= np.bincount(places.rows[places.spans == 0], minlength=keys) > 0
    return {row: int(counts[row]) for row in np.flatnonzero(several).tolist()}


class SharedKeys:
    """Compares records that share a key. Thread-safe. ``report`` receives the first ambiguous key."""

    def __init__(self, rule: str, report: Callable[[str], None]) -> None:
        self.rule = rule  # adapter.primary_duplicates
        self._report = report
        self._known: OrderedDict[bytes, KnownKey] = OrderedDict()
        self._lock = threading.Lock()
        self.ambiguous = 0  # keys found to be ambiguous
        self.example = ""  # one line about the first of them and the fate of its events

    def known(self, key: bytes, places: int) -> KnownKey | None:
        """Returns the result of an earlier comparison of ``places`` places; ``None`` means to compare the records
        again.
        """
        with self._lock:
            found = self._known.get(key)
            if found is None or found.places != places:
                return None
            self._known.move_to_end(key)
            return found

    def judge(
        self, key: bytes, winner: PrimaryRecord, records: Sequence[PrimaryRecord], places: int | None
    ) -> PrimaryPlace | None:
        """Compares the records at a key's places. Returns one that differs from the winner, or ``None``.

        ``places``: ``None`` if not all could be read; the next look-up then compares again.
        """
        differs = (PrimaryPlace(each.file, each.offset) for each in records if each.record != winner.record)
        other = next(differs, None)
        with self._lock:
            before = self._known.pop(key, None)
            if places is not None:
                self._known[key] = KnownKey(places, other)
                if len(self._known) > KEYS_MAX:
                    self._known.popitem(last=False)
            elif before is not None:
                self._known[key] = before
            if other is None or (before is not None and before.other is not None):
                return other
            self.ambiguous += 1
            first = not self.example
            if first:
                self.example = f"{shared(key, winner, other)}; {DOES[self.rule]} (primary.duplicates)"
        if first:
            self._report(f"several primary events have one key: {self.example}")
        return other


def shared(key: bytes, winner: PrimaryRecord, other: PrimaryPlace) -> str:
    name = key[:KEY_SHOWN_BYTES].decode("utf-8", "backslashreplace")
    return (
        f"{name!r} is in {winner.file.path}, offset {winner.offset}, and with other content in "
        f"{other.file.path}, offset {other.offset}"
    )
