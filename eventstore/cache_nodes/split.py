"""From a block to what each node of a ring is fed: pure, by columns, no object per event."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from photon.adapters.contract import LogFile
from photon.config.hash_ring import HashRing
from photon.eventstore.cache_nodes.wire import Piece
from photon.eventstore.index import I64, U64


def split(
    ring: HashRing, identity: str, file: LogFile, offset: int, data: bytes, hashes: U64, starts: I64
) -> Iterator[tuple[str, Piece]]:
    """(node, its records) of a block: ``hashes[i]`` (ascending) is the key's of the record that begins at
    ``data[starts[i]]``. Records keep their order; what stands between them (lines without a key) goes with the record
    before, or is left out."""
    if not len(hashes):
        return
    offsets = starts.astype(np.uint64) + np.uint64(offset)
    if len(ring) == 1:
        yield ring.nodes[0], Piece(identity, file, data, hashes, starts, offsets)
        return
    owners = ring.owners(hashes)
    order = np.argsort(starts)  # by place: record j of the block is hashes[order[j]]
    begins = starts[order]
    lengths = np.diff(begins, append=len(data))
    by_place = owners[order]
    bytes_ = np.frombuffer(data, dtype=np.uint8)[begins[0] :]
    place = np.empty(len(order), dtype=np.int64)  # of hashes[i] in the block
    place[order] = np.arange(len(order))
    for owner, name in enumerate(ring.nodes):
        mine = by_place == owner
        rows = np.flatnonzero(owners == owner)  # ascending hashes
        if not len(rows):
            continue
        kept = np.where(mine, lengths, 0)
        new_starts = np.cumsum(kept) - kept
        gathered = bytes_[np.repeat(mine, lengths)].tobytes()
        yield name, Piece(identity, file, gathered, hashes[rows], new_starts[place[rows]], offsets[rows])
