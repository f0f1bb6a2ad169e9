"""From a block to what each node of a ring is fed: pure, by columns; nothing is parsed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import compress

import numpy as np

from photon.adapters.contract import LogFile
from photon.config.hash_ring import HashRing
from photon.eventstore.cache_nodes.wire import Piece, piece
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
        yield ring.nodes[0], piece(identity, file, (data,), hashes, starts, offsets)
        return
    owners = ring.owners(hashes)
    order = np.argsort(starts)  # record j of the block, in the order of its places, is hashes[order[j]]
    begins = starts[order]
    by_place = owners[order]
    lengths = np.diff(begins, append=len(data))
    # Neighbours with one owner are cut out together.
    first = np.flatnonzero(np.concatenate(([True], by_place[1:] != by_place[:-1])))
    cuts = [*begins[first].tolist(), len(data)]
    parts = list(map(data.__getitem__, map(slice, cuts, cuts[1:])))
    owners_of_parts = by_place[first]
    new_starts = np.empty(len(order), dtype=np.uint32)  # of hashes[i], in its owner's data
    for owner, name in enumerate(ring.nodes):
        mine = np.flatnonzero(by_place == owner)
        if not len(mine):
            continue
        its = lengths[mine]
        new_starts[order[mine]] = np.cumsum(its) - its
        rows = np.flatnonzero(owners == owner)  # ascending hashes
        its_parts = list(compress(parts, (owners_of_parts == owner).tolist()))
        yield name, piece(identity, file, its_parts, hashes[rows], new_starts[rows], offsets[rows])
