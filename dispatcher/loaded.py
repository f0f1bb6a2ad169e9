"""Rows of the retry store that are in memory: on their way, or with an outcome that is not committed yet. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from photon.dispatcher.events import Item
from photon.dispatcher.state import row_bytes


class LoadedRows:
    """``bytes``: of all of them."""

    def __init__(self) -> None:
        self._items: dict[int, Item] = {}
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, row_id: int) -> bool:
        return row_id in self._items

    def add(self, items: Iterable[Item]) -> None:
        """These have a row, and are on their way."""
        for item in items:
            self._items[item.row_id] = item
            self.bytes += row_bytes(item.event)

    def came(self, row_ids: Iterable[int]) -> None:
        """The primary events of these have come, if they are here: that they failed before says nothing."""
        for row_id in row_ids:
            if (item := self._items.get(row_id)) is not None:
                item.failed = 0

    def remove(self, items: Iterable[Item]) -> None:
        """What became of these is committed; or they were never here."""
        for item in items:
            if self._items.pop(item.row_id, None) is not None:
                self.bytes -= row_bytes(item.event)
