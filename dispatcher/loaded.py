"""Rows of the retry store that are in memory: on their way, or with an outcome that is not committed yet. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from photon.batch.columns import I64, RowIndexes
from photon.batch.events import Events
from photon.dispatcher.open_events import OpenEvents

ROW_BYTES = 200
"""Counted for each row of the retry store beside its id, key and record."""


@dataclass(frozen=True, slots=True, eq=False)
class StoredEvents:
    """Rows of the retry store. ``events.as_of`` is to be set by whoever knows the patience."""

    row_ids: I64
    """0: not committed yet."""
    events: Events
    first_read_ns: I64
    attempts: I64
    next_try_ns: I64
    trigger_ns: I64

    def __len__(self) -> int:
        return len(self.row_ids)

    def bytes(self) -> int:
        """What they are counted for in the store."""
        return int(self.events.sizes().sum()) + ROW_BYTES * len(self)

    @staticmethod
    def of(table: OpenEvents, rows: RowIndexes) -> StoredEvents:
        """A copy of open events, of which some may have no row yet."""
        return StoredEvents(
            table.row_id[rows],
            table.events(rows),
            table.first_read_ns[rows],
            table.attempts[rows],
            table.next_try_ns[rows],
            table.trigger_ns[rows],
        )


NOTHING_STORED = StoredEvents.of(OpenEvents(), np.empty(0, np.intp))


class LoadedRows:
    """``bytes``: of all of them."""

    def __init__(self, table: OpenEvents) -> None:
        self._table = table
        self._rows: dict[int, int] = {}  # id in the store -> row of the table; not of those that are done
        self._bytes: dict[int, int] = {}
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._bytes)

    def __contains__(self, row_id: int) -> bool:
        return row_id in self._bytes

    def add(self, rows: RowIndexes) -> None:
        """These have an id in the store, and are on their way."""
        ids = self._table.row_id[rows].tolist()
        sizes = (self._table.sizes[rows] + ROW_BYTES).tolist()
        self._rows.update(zip(ids, rows.tolist(), strict=True))
        self._bytes.update(zip(ids, sizes, strict=True))
        self.bytes += sum(sizes)

    def came(self, row_ids: Iterable[int]) -> None:
        """The primary events of these have come, if they are here: that they failed before says nothing."""
        self._table.failed[[self._rows[each] for each in row_ids if each in self._rows]] = 0

    def done(self, rows: RowIndexes) -> list[int]:
        """These have a verdict, to be committed; their ids in the store."""
        ids: list[int] = self._table.row_id[rows].tolist()
        for each in ids:
            self._rows.pop(each, None)
        return ids

    def remove(self, row_ids: Iterable[int]) -> int:
        """What became of these is about to be committed. Their bytes."""
        freed = 0
        for each in row_ids:
            self._rows.pop(each, None)
            freed += self._bytes.pop(each, 0)
        self.bytes -= freed
        return freed
