"""Rows of the retry store that are in memory: on their way, or with an outcome that is not committed yet. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from photon.dispatcher.events import Item
from photon.dispatcher.state import row_bytes


class LoadedRows:
    """``bytes``: of all of them."""

    def __init__(self) -> None:
        self._sizes: dict[int, int] = {}
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._sizes)

    def __contains__(self, row_id: int) -> bool:
        return row_id in self._sizes

    def add(self, items: Iterable[Item]) -> None:
        """These have a row, and are on their way."""
        for item in items:
            self._sizes[item.row_id] = size = row_bytes(item.event)
            self.bytes += size

    def remove(self, items: Iterable[Item]) -> None:
        """What became of these is committed; or they were never here."""
        for item in items:
            self.bytes -= self._sizes.pop(item.row_id, 0)
