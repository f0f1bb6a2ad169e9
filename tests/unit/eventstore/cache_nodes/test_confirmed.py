"""A cache node's records count only where the file map confirms them, so answers never depend on nodes."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence

import pytest

from photon.adapters.contract import LogFile
from photon.batch.records import PrimaryRecord
from photon.eventstore.api import LookUpCode
from photon.eventstore.file_map import MapKind
from photon.eventstore.found_records import FoundRecords
from tests.unit.eventstore.helpers import Filled, Store

LOG = LogFile("a.log")


class Reads:
    """Counts what is read from logs."""

    def __init__(self, store: Store) -> None:
        self._read = store.reads.read
        self.places = 0
        store.reads.read = self  # type: ignore[method-assign, assignment]

    def __call__(self, wanted: object, *more: object) -> object:
        self.places += len(wanted)  # type: ignore[arg-type]
        return self._read(wanted, *more)  # type: ignore[arg-type]


Hit = tuple[int, str, PrimaryRecord]


def hit(store: Store, offset: int, record: bytes, name: str = "a.log") -> Hit:
    """Record of the first row."""
    [log] = [log for log in store.map.logs() if log.file.path == name]
    return 0, log.identity, PrimaryRecord(record, log.file, offset)


def ask(store: Store, key: bytes, hits: Sequence[Hit], as_of: int = 0) -> tuple[LookUpCode, int]:
    begun = store.tiers.begin([key], [as_of], [FoundRecords.of(hits)])
    found = store.tiers.end(begun, store.reads.read(begun.wanted))
    record = found.records[0]
    return found.answers[0], -1 if record is None else record.offset


def test_a_confirmed_hit_saves_the_reading(filled: Filled) -> None:
    store = filled({"a.log": b"k1,x\nk2,y\n"}, cache_bytes=1)
    reads = Reads(store)
    assert ask(store, b"k2", [hit(store, 5, b"k2,y")]) == (LookUpCode.FOUND, 5)
    assert reads.places == 0
    assert ask(store, b"k2", []) == (LookUpCode.FOUND, 5)
    assert reads.places == 1


@pytest.mark.parametrize("kind", [MapKind.DENSE, MapKind.SPARSE])
def test_what_the_map_does_not_name_is_no_hit(filled: Filled, kind: MapKind) -> None:
    """As after a crash that cost the map entries that a node still has: not yet, until they are read again."""
    store = filled({"a.log": b"10.0.0.1:7:1000000,x\n"}, cache_bytes=1, kind=kind)
    ahead = [hit(store, 500, b"10.0.0.1:7:9000000,y")]
    assert ask(store, b"10.0.0.1:7:9000000", ahead, as_of=1 << 62)[0] is LookUpCode.NOT_YET
    elsewhere = [(0, "another log", PrimaryRecord(b"10.0.0.1:7:1000000,x", LOG, 0))]
    reads = Reads(store)
    assert ask(store, b"10.0.0.1:7:1000000", elsewhere) == (LookUpCode.FOUND, 0)
    assert reads.places == 1


def test_the_first_wins_though_a_node_has_only_the_second(filled: Filled) -> None:
    store = filled({"a.log": b"k,first\nk,second\n", "b.log": b"k,third\n"}, cache_bytes=1)
    assert ask(store, b"k", [hit(store, 8, b"k,second"), hit(store, 0, b"k,third", "b.log")]) == (LookUpCode.FOUND, 0)


def test_two_copies_of_one_record_are_one(filled: Filled) -> None:
    store = filled({"a.log": b"k,first\n"}, cache_bytes=1)
    assert ask(store, b"k", [hit(store, 0, b"k,first")] * 2) == (LookUpCode.FOUND, 0)


def test_a_hit_inside_a_sparse_span_is_confirmed(filled: Filled) -> None:
    store = filled({"a.log": b"10.0.0.1:7:1000000,x\n10.0.0.1:7:1000001,y\n"}, cache_bytes=1, kind=MapKind.SPARSE)
    reads = Reads(store)
    assert ask(store, b"10.0.0.1:7:1000001", [hit(store, 21, b"10.0.0.1:7:1000001,y")]) == (LookUpCode.FOUND, 21)
    assert reads.places == 0


def test_a_rewritten_log_is_read_not_trusted(filled: Filled) -> None:
    store = filled({"a.log": b"head,\nk,old\nx,1\n"}, cache_bytes=1)
    stale = [hit(store, 6, b"k,old")]
    (store.logs / "a.log").write_bytes(b"head,\n")
    store.read_all()
    store.write("a.log", b"k,new\n")
    store.read_all()
    [log] = store.map.logs()
    assert log.rewritten
    begun = store.tiers.begin([b"k"], [0], [FoundRecords.of(stale)])
    assert store.tiers.end(begun, store.reads.read(begun.wanted)).records[0].record == b"k,new"


@pytest.mark.parametrize("kind", [MapKind.DENSE, MapKind.SPARSE])
@pytest.mark.parametrize("round_", range(10))
def test_no_answer_depends_on_what_nodes_have(filled: Filled, kind: MapKind, round_: int) -> None:
    """Any part of the logs' records, copies of it, and things that are not there: the answers are the same."""
    seed = int(os.environ.get("PHOTON_SEED", str(1000 + round_)))
    print(f"PHOTON_SEED={seed}")
    draw = random.Random(seed)
    store = filled(cache_bytes=1, kind=kind)
    keys = [b"10.0.0.%d:7:%d" % (draw.randrange(3), 1_000_000 + n) for n in range(40)]
    records: list[tuple[bytes, str, int, bytes]] = []
    for name in ("a.log", "b.log", "c.log"):
        data = b""
        for key in draw.sample(sorted(keys), 30) if draw.random() < 0.5 else sorted(draw.choices(keys, k=30)):
            record = key + b",%d" % draw.randrange(1000)
            records.append((key, name, len(data), record))
            data += record + b"\n"
        store.write(name, data)
        if draw.random() < 0.5:
            store.read_all()
    if draw.random() < 0.7:
        store.read_all()
    asked = [*keys, b"10.0.0.1:7:5", b"no id"]
    identities = {log.file.path: log.identity for log in store.map.logs()}

    def answers(hits: Sequence[Hit]) -> tuple[list[LookUpCode], list[PrimaryRecord | None]]:
        begun = store.tiers.begin(asked, [draw.choice((0, 1 << 62))] * len(asked), [FoundRecords.of(hits)])
        found = store.tiers.end(begun, store.reads.read(begun.wanted))
        return [each if each is LookUpCode.FOUND else LookUpCode.NOT_YET for each in found.answers], found.records

    without = answers([])
    for _ in range(20):
        hits: list[Hit] = []
        for key, name, offset, record in draw.choices(records, k=draw.randrange(120)):
            wrong = draw.random()
            identity = "elsewhere" if wrong < 0.1 else identities.get(name, "unread")
            shifted = offset + draw.randrange(1, 5000) if wrong > 0.9 else offset
            if wrong > 0.9 and kind is MapKind.SPARSE:
                continue  # a record at another offset than its own: no log says so, and a span cannot tell
            hits.append((asked.index(key), identity, PrimaryRecord(record, LogFile(name), shifted)))
        assert answers(hits) == without
