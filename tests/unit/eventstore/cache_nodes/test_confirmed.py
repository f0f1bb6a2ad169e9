"""What a cache node has counts where the file map confirms it, and only there; so answers never depend on nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from photon.adapters.contract import LogFile
from photon.eventstore.api import Found, PrimaryRecord
from photon.eventstore.cache import CachedRecord, Hits
from photon.eventstore.file_map import MapKind
from tests.unit.eventstore.test_tiered import Store

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


def hit(store: Store, offset: int, record: bytes, name: str = "a.log") -> CachedRecord:
    [log] = [log for log in store.map.logs() if log.file.path == name]
    return CachedRecord(log.identity, PrimaryRecord(record, log.file, offset))


def ask(store: Store, key: bytes, hits: Hits, as_of: int = 0) -> tuple[Found, int]:
    begun = store.tiers.begin([key], [as_of], hits)
    found = store.tiers.end(begun, store.reads.read(begun.wanted) if begun.wanted else ())
    record = found.records[0]
    return found.answers[0], -1 if record is None else record.offset


def test_a_confirmed_hit_saves_the_reading(tmp_path: Path) -> None:
    store = Store(tmp_path, cache_bytes=1)
    store.write("a.log", b"k1,x\nk2,y\n")
    store.read_all()
    reads = Reads(store)
    assert ask(store, b"k2", {0: [hit(store, 5, b"k2,y")]}) == (Found.FOUND, 5)
    assert reads.places == 0
    assert ask(store, b"k2", {}) == (Found.FOUND, 5)
    assert reads.places == 1
    store.close()


@pytest.mark.parametrize("kind", [MapKind.DENSE, MapKind.SPARSE])
def test_what_the_map_does_not_name_is_no_hit(tmp_path: Path, kind: MapKind) -> None:
    """As after a crash that cost the map what a node still has: not yet, until it was read again."""
    store = Store(tmp_path, cache_bytes=1, kind=kind)
    store.write("a.log", b"10.0.0.1:7:1000000,x\n")
    store.read_all()
    ahead = {0: [hit(store, 500, b"10.0.0.1:7:9000000,y")]}
    assert ask(store, b"10.0.0.1:7:9000000", ahead, as_of=1 << 62)[0] is Found.NOT_YET
    elsewhere = {0: [CachedRecord("another log", PrimaryRecord(b"10.0.0.1:7:1000000,x", LOG, 0))]}
    reads = Reads(store)
    assert ask(store, b"10.0.0.1:7:1000000", elsewhere) == (Found.FOUND, 0)
    assert reads.places == 1
    store.close()


def test_the_first_wins_though_a_node_has_only_the_second(tmp_path: Path) -> None:
    store = Store(tmp_path, cache_bytes=1)
    store.write("a.log", b"k,first\nk,second\n")
    store.write("b.log", b"k,third\n")
    store.read_all()
    assert ask(store, b"k", {0: [hit(store, 8, b"k,second"), hit(store, 0, b"k,third", "b.log")]}) == (Found.FOUND, 0)
    store.close()


def test_two_copies_of_one_record_are_one(tmp_path: Path) -> None:
    store = Store(tmp_path, cache_bytes=1)
    store.write("a.log", b"k,first\n")
    store.read_all()
    assert ask(store, b"k", {0: [hit(store, 0, b"k,first")] * 2}) == (Found.FOUND, 0)
    store.close()


def test_a_hit_inside_a_sparse_span_is_confirmed(tmp_path: Path) -> None:
    store = Store(tmp_path, cache_bytes=1, kind=MapKind.SPARSE)
    store.write("a.log", b"10.0.0.1:7:1000000,x\n10.0.0.1:7:1000001,y\n")
    store.read_all()
    reads = Reads(store)
    assert ask(store, b"10.0.0.1:7:1000001", {0: [hit(store, 21, b"10.0.0.1:7:1000001,y")]}) == (Found.FOUND, 21)
    assert reads.places == 0
    store.close()


def test_a_rewritten_log_is_read_not_trusted(tmp_path: Path) -> None:
    store = Store(tmp_path, cache_bytes=1)
    store.write("a.log", b"head,\nk,old\nx,1\n")
    store.read_all()
    stale = {0: [hit(store, 6, b"k,old")]}
    (store.logs / "a.log").write_bytes(b"head,\n")
    store.read_all()
    store.write("a.log", b"k,new\n")
    store.read_all()
    [log] = store.map.logs()
    assert log.rewritten
    begun = store.tiers.begin([b"k"], [0], stale)
    found = store.tiers.end(begun, store.reads.read(begun.wanted))
    assert found.records[0] is not None
    assert found.records[0].record == b"k,new"
    store.close()
