"""Splitting a block over a ring: every record goes to its owner, once, with its bytes and its place."""

from __future__ import annotations

import os
import random
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from photon.adapters.contract import LogFile
from photon.config.hash_ring import HashRing
from photon.eventstore import eventstore_pb2 as pb
from photon.eventstore.block_keys import block_keys, record_at
from photon.eventstore.cache_nodes import wire
from photon.eventstore.cache_nodes.feeder import split_by_owner
from photon.eventstore.index import U64, hash_keys
from tests.unit.eventstore.helpers import LineAdapter

FILE = LogFile("a.log")


def lines(draw: random.Random, count: int) -> list[bytes]:
    """Records, some bad, some longer than others, some keys twice."""
    out = []
    for number in range(count):
        key = b"k%d" % (number if draw.random() < 0.9 else draw.randrange(count))
        out.append(b"no key here" if draw.random() < 0.2 else key + b"," + b"x" * draw.randrange(60))
    return out


class Columns(NamedTuple):
    """A piece as its node reads it."""

    data: bytes
    hashes: U64
    starts: npt.NDArray[np.uint32]
    offsets: U64


def columns(piece: wire.Piece) -> Columns:
    [(segment, hashes, rows)] = wire.fed(pb.CacheFeed.FromString(wire.feed(wire.source_of(b""), [piece])))
    assert segment.gathered is not None
    assert (segment.identity, segment.file) == ("id", FILE)
    assert (rows == np.arange(len(hashes))).all()
    return Columns(segment.data, hashes, segment.gathered.starts, segment.gathered.offsets)


@pytest.mark.parametrize("nodes", [1, 2, 3, 7])
@pytest.mark.parametrize("count", [1, 2, 50, 3000])
def test_every_record_goes_to_its_owner_once(nodes: int, count: int) -> None:
    seed = int(os.environ.get("PHOTON_SEED", "11"))
    print(f"PHOTON_SEED={seed}")
    records = lines(random.Random(seed + count), count)
    data = b"".join(record + b"\n" for record in records)
    found = block_keys(LineAdapter({}), data, FILE)
    ring = HashRing(f"c{i}" for i in range(nodes))
    seen = []
    for name, encoded in split_by_owner(ring, "id", FILE, 1000, data, found.hashes, found.starts[found.order]):
        piece = columns(encoded)
        assert encoded.data_bytes == len(piece.data)
        assert (piece.hashes[1:] >= piece.hashes[:-1]).all()
        assert {ring.nodes[owner] for owner in ring.owners(piece.hashes).tolist()} == {name}
        assert len(piece.data) <= len(data)
        for hash_, start, offset in zip(
            piece.hashes.tolist(), piece.starts.tolist(), piece.offsets.tolist(), strict=True
        ):
            record = record_at(piece.data, start)
            assert start == 0 or piece.data[start - 1 : start] == b"\n"
            assert record == record_at(data, offset - 1000)
            assert int(hash_keys([record.partition(b",")[0]])[0]) == hash_
            seen.append((offset - 1000, record))
    at, expected = 0, []
    for record in records:
        if b"," in record:
            expected.append((at, record))
        at += len(record) + 1
    assert sorted(seen) == expected


def test_a_block_without_keys_goes_nowhere() -> None:
    found = block_keys(LineAdapter({}), b"bad\nbad\n", FILE)
    assert list(split_by_owner(HashRing(["a"]), "id", FILE, 0, b"bad\nbad\n", found.hashes, found.starts)) == []
