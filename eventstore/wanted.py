"""Places in logs that have to be read, as columns: a look-up has a thousand of them, and most need no object."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from photon.eventstore.file_map import MappedLog
from photon.eventstore.index import I64, Mask

RECORD_GUESS_BYTES = 4096
"""Read for one record at first; a longer one costs a second read."""
SEARCH_BYTES = 1 << 16
"""Of a span so much is read at first, then twice as much each time."""


class Wanted(NamedTuple):
    """One place to read (file_map.Places has the meaning of span and anchor)."""

    row: int
    key: bytes
    log: MappedLog
    offset: int
    span: int
    anchor: int
    alone: bool = False
    """The key has no exact place in this log: within the span it stands once at most."""


@dataclass(frozen=True, slots=True)
class WantedPlaces:
    """n of them, aligned."""

    keys: list[bytes]
    logs: list[MappedLog]
    rows: I64
    offsets: I64
    spans: I64
    anchors: I64
    alone: Mask

    @classmethod
    def of(cls, wanted: Sequence[Wanted]) -> WantedPlaces:
        """The same."""
        numbers = np.array([(each.row, each.offset, each.span, each.anchor) for each in wanted], dtype=np.int64)
        rows, offsets, spans, anchors = numbers.reshape(-1, 4).T
        alone = np.array([each.alone for each in wanted], dtype=np.bool_)
        return cls([each.key for each in wanted], [each.log for each in wanted], rows, offsets, spans, anchors, alone)

    @classmethod
    def joined(cls, parts: Sequence[WantedPlaces]) -> WantedPlaces:
        """All of them, one part after the other; there is one at least."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            [key for part in parts for key in part.keys],
            [log for part in parts for log in part.logs],
            np.concatenate([part.rows for part in parts]),
            np.concatenate([part.offsets for part in parts]),
            np.concatenate([part.spans for part in parts]),
            np.concatenate([part.anchors for part in parts]),
            np.concatenate([part.alone for part in parts]),
        )

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, at: int) -> Wanted:
        return Wanted(
            int(self.rows[at]),
            self.keys[at],
            self.logs[at],
            int(self.offsets[at]),
            int(self.spans[at]),
            int(self.anchors[at]),
            bool(self.alone[at]),
        )

    def __iter__(self) -> Iterator[Wanted]:
        return map(self.__getitem__, range(len(self)))

    def taken(self, indexes: I64) -> WantedPlaces:
        """Some of them."""
        few = indexes.tolist()
        return WantedPlaces(
            [self.keys[i] for i in few],
            [self.logs[i] for i in few],
            self.rows[indexes],
            self.offsets[indexes],
            self.spans[indexes],
            self.anchors[indexes],
            self.alone[indexes],
        )

    def stops(self) -> I64:
        """Of each: bytes up to here are read at first."""
        return self.offsets + np.minimum(self.spans, SEARCH_BYTES) + RECORD_GUESS_BYTES

    def by_log(self) -> dict[int, I64]:
        """Log number -> indexes of the places in it."""
        numbers = np.fromiter((log.number for log in self.logs), dtype=np.int64, count=len(self))
        order = np.argsort(numbers, kind="stable")
        parts = np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1) if len(order) else []
        return {int(numbers[part[0]]): part for part in parts}
