"""Remembers recently read event ids with their places, since an id at two places is an alarm. Pure. 16 bytes per id.

It keeps 64 bits of each digest, and the place of its line. A line read again after a crash has the same place, so it
is no second one. The newest ids are in a dict, which becomes a sorted column when full; the oldest column is dropped
when there are more ids than the window holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from photon.idregistry.api import U64

RECENT_MAX = 1 << 16
OFFSET_BITS = 44  # bits of a place for its offset; the remaining bits of 64 are the file's number
FILES_MAX = 1 << 18  # numbered output files; beyond it numbers restart and the window is emptied


class SeenIds:
    def __init__(self, ids_max: int, recent_max: int = RECENT_MAX) -> None:
        self._recent_max = min(recent_max, max(ids_max // 2, 1))
        self._columns_max = max(ids_max // self._recent_max - 1, 1)
        self._recent: dict[int, int] = {}
        self._columns: list[tuple[U64, U64]] = []  # newest last: (keys sorted, places)
        self._files: dict[str, int] = {}
        self._names: list[str] = []

    def add(
        self,
        file: str,
        digests: bytes,
        offsets: Sequence[int],
        is_lost: Callable[[str, int], bool] = lambda file, offset: False,
    ) -> list[tuple[int, tuple[str, int]]]:
        """Adds lines of one file, in order. Returns (row, (file, offset) of its twin) for each id that is also
        elsewhere.

        Slots of a pipeline share its output, so a file's name is enough: the directory of a slot may have a copy.
        ``is_lost``: True if the line at this place is in a damaged range. Its event was given back, so the next line
        for it is not a second one.
        """
        number = self._number(file)
        column = np.frombuffer(digests, "<u8")[::2]
        older = self._in_columns(column)
        out = []
        recent = self._recent
        for row, (key, offset) in enumerate(zip(column.tolist(), offsets, strict=True)):
            place = number << OFFSET_BITS | offset
            twin = recent.setdefault(key, place)
            if twin != place or row in older:
                twins = [self._place(each) for each in (twin, older.get(row, place)) if each != place]
                if standing := [each for each in twins if not is_lost(*each)]:
                    out.append((row, standing[0]))
                elif twins:
                    recent[key] = place
        if len(recent) >= self._recent_max:
            self._settle()
        return out

    def _number(self, file: str) -> int:
        number = self._files.get(file)
        if number is None:
            if len(self._names) >= FILES_MAX:
                self._files, self._names, self._recent, self._columns = {}, [], {}, []
            number = self._files[file] = len(self._names)
            self._names.append(file)
        return number

    def _place(self, place: int) -> tuple[str, int]:
        return self._names[place >> OFFSET_BITS], place & ((1 << OFFSET_BITS) - 1)

    def _in_columns(self, keys: U64) -> dict[int, int]:
        """Returns row -> place, newest first."""
        found: dict[int, int] = {}
        for known, places in self._columns:
            at = np.minimum(np.searchsorted(known, keys), len(known) - 1)
            for row in np.flatnonzero(known[at] == keys).tolist():
                found[row] = int(places[at[row]])
        return found

    def _settle(self) -> None:
        keys = np.fromiter(self._recent, np.uint64, len(self._recent))
        places = np.fromiter(self._recent.values(), np.uint64, len(self._recent))
        order = np.argsort(keys)
        self._columns.append((keys[order], places[order]))
        self._recent = {}
        del self._columns[: -self._columns_max]
