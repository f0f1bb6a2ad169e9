"""A cache node: records by hash, of one source, over the wire and back."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import numpy as np
import pytest

from photon.adapters.contract import LogFile
from photon.batch.records import PrimaryRecord
from photon.eventstore import eventstore_pb2 as pb
from photon.eventstore.cache_nodes import wire
from photon.eventstore.cache_nodes.service import CacheNode, serve
from photon.eventstore.cache_nodes.wire import CACHE, Piece
from photon.eventstore.columns import WireError
from photon.eventstore.index import U64, hash_keys
from photon.eventstore.segments import PER_HASH_MAX
from tests.unit.eventstore.helpers import listed

SOURCE = wire.source_of(b"rule")
OTHER = wire.source_of(b"another rule")
FILE = LogFile("a.log", b"head")


def piece_of(records: dict[bytes, tuple[int, bytes]], identity: str = "id", file: LogFile = FILE) -> Piece:
    """key -> (offset in the log, record)."""
    keys = list(records)
    hashes = hash_keys(keys)
    order = np.argsort(hashes)
    lines = [record + b"\n" for _, record in records.values()]
    starts = np.cumsum([0, *map(len, lines)])[:-1]
    offsets = np.array([offset for offset, _ in records.values()], dtype=np.uint64)
    return wire.piece(identity, file, lines, hashes[order], starts[order], offsets[order])


def fed(node: CacheNode, source: bytes, *pieces: Piece) -> None:
    message = pb.CacheFeed.FromString(wire.feed(source, pieces))
    node.feed(message.source, wire.fed(message))


def found(node: CacheNode, source: bytes, *keys: bytes) -> list[tuple[int, str, PrimaryRecord]]:
    question = pb.CacheFind.FromString(wire.find(source, hash_keys(keys)).SerializeToString())
    answer = wire.found(node.find(question.source, wire.asked(question)))
    return listed(wire.located(pb.CacheFound.FromString(answer.SerializeToString()), np.arange(len(keys))))


def test_records_come_back_with_their_places() -> None:
    node = CacheNode(1 << 20)
    fed(
        node,
        SOURCE,
        piece_of({b"k1": (1000, b"one"), b"k2": (5000, b"two\r")}),
        piece_of({b"k3": (7, b"three")}, "jd"),
    )
    assert found(node, SOURCE, b"k3", b"none", b"k2", b"k1") == [
        (0, "jd", PrimaryRecord(b"three", FILE, 7)),
        (2, "id", PrimaryRecord(b"two", FILE, 5000)),
        (3, "id", PrimaryRecord(b"one", FILE, 1000)),
    ]
    counts = node.counts()
    assert (counts.cache.hits, counts.cache.misses, counts.cache.segments, counts.cache.entries) == (3, 1, 2, 3)
    assert counts.fed_bytes == len(b"one\ntwo\r\nthree\n")
    assert counts.fed_events == 3
    assert wire.counts_of(pb.CacheCountsReply.FromString(wire.counts_reply(counts).SerializeToString())) == counts


@pytest.mark.parametrize("size", [0, 1, 127, 128, 20_000, 3_000_000])
def test_what_is_encoded_by_hand_is_protobuf(size: int) -> None:
    hashes, starts, offsets = np.array([5, 9], "u8"), np.array([0, 3], "i8"), np.array([7, 1 << 39], "u8")
    made = wire.feed(SOURCE, [wire.piece("id\u00e9", FILE, [b"ab\n", b"x" * size], hashes, starts, offsets)] * 2)
    segment = pb.CacheSegment(
        identity="id\u00e9",
        file=pb.LogFileName(path=FILE.path, header=FILE.header),
        data=b"ab\n" + b"x" * size,
        hashes=hashes.tobytes(),
        starts=starts.astype("<u4").tobytes(),
        offsets=offsets.tobytes(),
    )
    assert made == pb.CacheFeed(source=SOURCE, segments=[segment] * 2).SerializeToString()


def test_another_source_replaces_all() -> None:
    node = CacheNode(1 << 20)
    fed(node, SOURCE, piece_of({b"k": (1, b"old")}))
    assert found(node, OTHER, b"k") == []
    fed(node, OTHER, piece_of({b"l": (2, b"new")}))
    assert found(node, SOURCE, b"k") == []
    assert found(node, OTHER, b"k") == []
    assert [each.record for _, _, each in found(node, OTHER, b"l")] == [b"new"]


def test_bytes_stay_bounded_and_the_recent_stay() -> None:
    node = CacheNode(1 << 18)
    for number in range(200):
        fed(node, SOURCE, piece_of({b"%d-%d" % (number, i): (i, b"x" * 100) for i in range(100)}))
        assert node.counts().cache.bytes <= 1 << 18
    assert node.counts().cache.evictions > 100
    assert len(found(node, SOURCE, b"199-0", b"199-99", b"0-0")) == 2


def test_of_one_key_with_many_records_some_are_given() -> None:
    node = CacheNode(1 << 20)
    for number in range(50):
        fed(node, SOURCE, piece_of({b"hot": (number, b"x"), b"cold%d" % number: (number, b"y")}))
    rows = [row for row, _, _ in found(node, SOURCE, b"cold7", b"hot", b"cold8")]
    assert rows == [0, *[1] * PER_HASH_MAX, 2]


def test_an_answer_is_bounded_in_bytes() -> None:
    node = CacheNode(1 << 20)
    fed(node, SOURCE, piece_of({b"%d" % i: (i, b"x" * 100) for i in range(10)}))
    answer = wire.found(node.find(SOURCE, hash_keys([b"%d" % i for i in range(10)])), bytes_max=350)
    assert wire.located(answer, np.arange(10)).rows.tolist() == [0, 1, 2]


def columns(data: bytes, hashes: list[int], starts: list[int], offsets: list[int]) -> pb.CacheFeed:
    in_order = {"hashes": (hashes, "<u8"), "starts": (starts, "<u4"), "offsets": (offsets, "<u8")}
    made = {name: np.array(values, dtype=dtype).tobytes() for name, (values, dtype) in in_order.items()}
    return pb.CacheFeed(source=SOURCE, segments=[pb.CacheSegment(data=data, **made)])


def one(rows: bytes = bytes(4), records: bytes = b"a", offsets: bytes = bytes(8), **more: Any) -> pb.CacheFound:
    """An answer of one record."""
    return pb.CacheFound(rows=rows, log_indexes=bytes(4), sizes=b"\1\0\0\0", offsets=offsets, records=records, **more)


@pytest.mark.parametrize(
    "message",
    [
        columns(b"a\n", [1, 2], [0], [0, 0]),
        columns(b"a\n", [1, 2], [0, 0], [0]),
        columns(b"a\nb\n", [2, 1], [0, 2], [0, 2]),
        columns(b"a\n", [1], [2], [0]),
        columns(b"a\n", [1], [0], [1 << 63]),
        pb.CacheFeed(source=b"short"),
        pb.CacheFeed(source=SOURCE, segments=[pb.CacheSegment(hashes=b"123")]),
    ],
)
def test_a_feed_that_does_not_fit_together_is_refused(message: pb.CacheFeed) -> None:
    with pytest.raises(WireError):
        wire.fed(message)


@pytest.mark.parametrize(
    "message",
    [
        pb.CacheFound(rows=b"1234"),
        one(records=b"ab"),
        one(rows=b"\5\0\0\0"),
        one(),  # of a log that is not there
        one(offsets=b"\xff" * 8, logs=[pb.CachedLog(identity="id")]),
    ],
)
def test_an_answer_that_does_not_fit_together_is_refused(message: pb.CacheFound) -> None:
    with pytest.raises(WireError):
        wire.located(message, np.arange(3))


@pytest.mark.parametrize("hashes", [b"123", bytes(8 * (wire.HASHES_MAX + 1))], ids=["odd", "too many"])
def test_a_question_that_does_not_fit_is_refused(hashes: bytes) -> None:
    with pytest.raises(WireError):
        wire.asked(pb.CacheFind(source=SOURCE, hashes=hashes))


async def test_served_over_grpc() -> None:
    stop = asyncio.Event()
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve(address="127.0.0.1:0", bytes_max=1 << 20, ready=port.set_result, stop=stop))
    async with grpc.aio.insecure_channel(f"127.0.0.1:{await port}") as channel:
        stub = CACHE.stub(channel)
        fed_one = wire.feed(SOURCE, [piece_of({b"k": (3, b"record")})])
        await stub.Feed(pb.CacheFeed.FromString(fed_one), timeout=60)
        asked: U64 = hash_keys([b"none", b"k"])
        answer = await stub.Find(wire.find(SOURCE, asked), timeout=60)
        assert listed(wire.located(answer, np.array([10, 20]))) == [(20, "id", PrimaryRecord(b"record", FILE, 3))]
        counts = wire.counts_of(await stub.Counts(pb.CacheCountsRequest(), timeout=60))
        assert (counts.cache.hits, counts.cache.misses, counts.bytes_max) == (1, 1, 1 << 20)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.Feed(pb.CacheFeed(source=b"short"), timeout=60)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    stop.set()
    await serving
