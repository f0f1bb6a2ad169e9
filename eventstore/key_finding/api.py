"""What the primary reader asks of whoever finds the keys of its blocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from photon.adapters.logs.api import Block
from photon.eventstore.block_keys import BlockKeys


class KeyFinder(Protocol):
    """One thread gives, takes and closes."""

    def give(self, block: Block) -> None:
        """The keys of this one will be wanted."""
        ...

    def found(self, *, everything: bool) -> Iterator[tuple[Block, BlockKeys]]:
        """Blocks in the order they were given, each once, with their keys; ``everything``: all that were given, else
        a few of the last may stay for the next call. Raises AdapterBroken."""
        ...

    def close(self) -> None:
        """Nothing more will be given. May be called again."""
        ...
