"""A consistent-hash ring with virtual nodes, which assigns keys to named nodes. Pure; any room may import it.

Each node is at POINTS places of a circle of 64-bit numbers, drawn by hashing its name; a key belongs to the node of
the first place at or after its own hash. So a new node takes 1/n of the keys, in small pieces from all others, a
removed node leaves its keys to all others in proportion, and no other key moves (paper, section 3.4.1). The places
depend on names alone: the same names give the same ring.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import xxhash

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]

POINTS = 256  # Places of each node. Each node's share is 1/n, within 1/sqrt(POINTS) of it: some 6 %.
NODES_MAX = 1024


class HashRing:
    """A ring; immutable. ``nodes``: sorted names; owners are indices into them."""

    def __init__(self, nodes: Iterable[str], points: int = POINTS) -> None:
        """Raises ValueError for more than NODES_MAX names, or a name given twice."""
        self.nodes = tuple(sorted(nodes))
        if len(self.nodes) > NODES_MAX or len(set(self.nodes)) != len(self.nodes):
            raise ValueError(f"a ring has up to {NODES_MAX} nodes, with distinct names; there are {len(self.nodes)}")
        places = [
            (xxhash.xxh3_64_intdigest(f"{name}\n{i}"), n) for n, name in enumerate(self.nodes) for i in range(points)
        ]
        places.sort()  # if two nodes share a place, the first name counts, everywhere
        self._places = np.array([place for place, _ in places], dtype=np.uint64)
        self._owners = np.array([owner for _, owner in places], dtype=np.int64)

    def __len__(self) -> int:
        return len(self.nodes)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, HashRing) and np.array_equal(self._places, other._places) and self.nodes == other.nodes
        )

    def __hash__(self) -> int:
        return hash(self.nodes)

    def owners(self, hashes: U64) -> I64:
        """Returns the index of each 64-bit hash's node. Raises ValueError if the ring is empty."""
        if not self.nodes:
            raise ValueError("a ring without nodes has no owners")
        at = np.searchsorted(self._places, hashes)
        at[at == len(self._places)] = 0  # the circle closes
        return self._owners[at]
