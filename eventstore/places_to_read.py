"""Places in logs to read, as columns: a look-up has a thousand places, most of which need no object."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from photon.eventstore.file_map import MappedLog, MappedPlaces
from photon.eventstore.index import I64, Mask

RECORD_GUESS_BYTES = 4096  # first read for one record; a longer record costs a second read
SEARCH_BYTES = 1 << 16  # first read of a span, doubled each time


class PlaceToRead(NamedTuple):
    """One place to read; see file_map.MappedPlaces for span and anchor."""

    key: bytes
    log: MappedLog
    offset: int
    span: int
    anchor: int
    alone: bool = False  # the key has no exact place in this log, so it occurs at most once in the span


@dataclass(frozen=True, slots=True, eq=False)
class PlacesToRead:
    """n places. The fields from ``rows`` on are aligned columns."""

    keys: Sequence[bytes]  # all requested ones: place i is for keys[rows[i]]
    logs: Sequence[MappedLog]  # place i is in logs[in_log[i]]
    rows: I64
    in_log: I64
    offsets: I64
    spans: I64
    anchors: I64
    alone: Mask

    @classmethod
    def named(cls, keys: Sequence[bytes], places: MappedPlaces, logs: Sequence[MappedLog]) -> PlacesToRead:
        """Builds columns from the file map's places for ``keys``. ``logs``: all logs, by number."""
        numbers = places.logs.tolist()
        at = {number: index for index, number in enumerate(dict.fromkeys(numbers))}
        in_log, alone = np.array([at[number] for number in numbers], np.int64), np.zeros(len(numbers), np.bool_)
        columns = (places.rows, in_log, places.offsets, places.spans, places.anchors, alone)
        return cls(keys, [logs[number] for number in at], *columns)

    @classmethod
    def of(cls, wanted: Sequence[PlaceToRead]) -> PlacesToRead:
        """Builds columns from single places, each with its own row."""
        logs: dict[int, int] = {}
        known: list[MappedLog] = []
        for each in wanted:
            if logs.setdefault(each.log.number, len(known)) == len(known):
                known.append(each.log)
        numbers = [(logs[each.log.number], each.offset, each.span, each.anchor) for each in wanted]
        in_log, offsets, spans, anchors = np.array(numbers, dtype=np.int64).reshape(-1, 4).T
        alone = np.array([each.alone for each in wanted], dtype=np.bool_)
        return cls(
            [each.key for each in wanted], known, np.arange(len(wanted)), in_log, offsets, spans, anchors, alone
        )

    @classmethod
    def joined(cls, parts: Sequence[PlacesToRead]) -> PlacesToRead:
        """Concatenates the parts; at least one, all in the same log."""
        before = np.cumsum([0, *(len(part.keys) for part in parts)])
        return cls(
            [key for part in parts for key in part.keys],
            [parts[0][0].log],
            np.concatenate([part.rows + first for part, first in zip(parts, before, strict=False)]),
            np.zeros(sum(map(len, parts)), dtype=np.int64),
            np.concatenate([part.offsets for part in parts]),
            np.concatenate([part.spans for part in parts]),
            np.concatenate([part.anchors for part in parts]),
            np.concatenate([part.alone for part in parts]),
        )

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, at: int) -> PlaceToRead:
        return PlaceToRead(
            self.keys[self.rows[at]],
            self.logs[self.in_log[at]],
            int(self.offsets[at]),
            int(self.spans[at]),
            int(self.anchors[at]),
            bool(self.alone[at]),
        )

    def __iter__(self) -> Iterator[PlaceToRead]:
        return map(self.__getitem__, range(len(self)))

    def taken(self, indexes: I64) -> PlacesToRead:
        return PlacesToRead(
            self.keys,
            self.logs,
            self.rows[indexes],
            self.in_log[indexes],
            self.offsets[indexes],
            self.spans[indexes],
            self.anchors[indexes],
            self.alone[indexes],
        )

    def stops(self) -> I64:
        return self.offsets + np.minimum(self.spans, SEARCH_BYTES) + RECORD_GUESS_BYTES

    def by_log(self) -> list[tuple[MappedLog, I64]]:
        """Returns each log that has places, with the indexes of those places."""
        if len(self.logs) == 1:
            return [(self.logs[0], np.arange(len(self)))] if len(self) else []
        each = ((log, np.flatnonzero(self.in_log == number)) for number, log in enumerate(self.logs))
        return [(log, indexes) for log, indexes in each if len(indexes)]
