"""Event ids that were read lately, and where: the same one twice is an alarm. Pure; 16 bytes an id.

Of each digest 64 bits are kept, with the place of its line. What is read again after a crash stands at its own place
and is no second one. The newest ids are in a dict; it becomes a sorted column when it is full, and the oldest column
goes when there are more ids than the window has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from photon.idregistry.api import U64

RECENT_MAX = 1 << 16
OFFSET_BITS = 44  # bits of a place for its offset; the rest of 64 number the file
FILES_MAX = 1 << 18  # output files that are numbered; then numbers restart and the window is emptied


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
        """Lines of one file, in order. (row, (file, offset) of its twin) for each that stands elsewhere too.

        Slots of a pipeline share its output, so a file's name is enough: the directory of a slot may have a copy.
        ``is_lost``: True if the line at this place is in a damaged range. Its event was given back, so the next line
        of it is no second one.
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
        """Row -> place, the newest first."""
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
