"""Keys found in the thread that wants them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from photon.adapters.contract import Adapter
from photon.adapters.logs.api import Block
from photon.eventstore.block_keys import BlockKeys, block_keys


class FoundHere:
    """KeyFinder."""

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter
        self._given: deque[Block] = deque()

    def give(self, block: Block) -> None:
        """See KeyFinder."""
        self._given.append(block)

    def found(self, *, everything: bool) -> Iterator[tuple[Block, BlockKeys]]:
        """See KeyFinder; nothing stays."""
        while self._given:
            block = self._given.popleft()
            yield block, block_keys(self._adapter, block.data, block.file)

    def close(self) -> None:
        """See KeyFinder."""
