"""The contract of stores, held by each of them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from photon.computing.errors import ComputingError, Fenced, Retired
from photon.computing.hbase_store import HBaseStore
from photon.computing.intervals import Interval, even
from photon.computing.sqlite_store import SqliteStore
from photon.computing.store import Chunk, Commit, Due, MemoryStore, Row, Store
from tests.unit.computing.fake_thrift import FakeHBase

INTERVAL = even(2).all[1]


@pytest.fixture(params=["memory", "sqlite", "hbase"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Store]:
    """Opens the same store each time."""
    if request.param == "memory":
        memory = MemoryStore(INTERVAL)
        return lambda: memory
    if request.param == "hbase":
        server = FakeHBase()
        return lambda: HBaseStore(server.opened(), "topology", INTERVAL)
    return lambda: SqliteStore(tmp_path / "store.db", INTERVAL)


def test_all_of_a_commit_is_there(opened: Callable[[], Store]) -> None:
    store = opened()
    rows = [
        Row("c", "a", b"1", 10, None),
        Row("c", "b", b"2", 5, 7),
        Row("c", "ü", b"3", None, None, 2),
        Row("d", "a", b"4", 1),
    ]
    chunks = [Chunk("i1", "i0", 5, b"five"), Chunk("i1", "i0", 15, b"fifteen"), Chunk("i1", "publish:x", 6, b"six")]
    store.commit(store.acquire("me"), Commit(rows, chunks, (), b"standing"))
    again = opened()
    assert again.interval == INTERVAL
    assert again.standing() == b"standing"
    assert again.load("c", ["a", "ü", "none"]) == {"a": rows[0], "ü": rows[2]}
    assert again.due("c", False, 10, 9) == [Due(5, "b"), Due(10, "a")]
    assert again.due("c", False, 10, 1) == [Due(5, "b")]
    assert again.due("c", True, 10, 9) == [Due(7, "b")]
    assert list(again.aside()) == [("c", "ü", 2)]
    assert sorted(again.scan()) == sorted(rows)
    assert list(again.chunks()) == [chunks[0], chunks[2], chunks[1]]


def test_rows_are_replaced_and_removed_and_chunks_are_done(opened: Callable[[], Store]) -> None:
    store = opened()
    sequencer = store.acquire("me")
    chunks = [Chunk("i1", "i0", number, b"") for number in (5, 15)]
    store.commit(sequencer, Commit([Row("c", "a", b"1", 10), Row("c", "b", b"2", 5)], chunks))
    renewed = Chunk("i1", "i0", 15, b"renewed")
    store.commit(sequencer, Commit([Row("c", "a", b"new"), Row("c", "b", None)], [renewed], [("i1", "i0", 15)]))
    assert list(store.scan()) == [Row("c", "a", b"new")]
    assert store.due("c", False, 100, 9) == []
    assert list(store.chunks()) == [renewed]


def test_whoever_was_replaced_writes_nothing(opened: Callable[[], Store]) -> None:
    old, new = opened(), opened()
    before = old.acquire("old")
    after = new.acquire("new")
    assert after > before
    with pytest.raises(Fenced, match="another process has taken over the interval i1"):
        old.commit(before, Commit([Row("c", "a", b"1")]))
    with pytest.raises(Fenced):
        old.retire(before, ("x",))
    assert list(new.scan()) == []


def test_whatever_is_retired_is_not_used_but_may_be_revived(opened: Callable[[], Store]) -> None:
    store = opened()
    sequencer = store.acquire("me")
    store.retire(sequencer, ("x", "y"))
    assert store.successors() == ("x", "y")
    with pytest.raises(Retired, match="its keys are now in x, y"):
        store.commit(sequencer, Commit())
    with pytest.raises(Retired):
        store.acquire("me")
    store.commit(store.acquire("me", revive=True), Commit())


def test_many_keys_are_loaded_at_once(opened: Callable[[], Store]) -> None:
    store = opened()
    rows = [Row("c", f"k{n}", b"1") for n in range(1_700)]
    store.commit(store.acquire("me"), Commit(rows))
    assert len(store.load("c", [row.key for row in rows])) == 1_700


def test_a_power_cut_in_a_commit_leaves_all_of_it_or_nothing(tmp_path: Path) -> None:
    path, ways = tmp_path / "store.db", [("i1", "publish:x", 1), ("i1", "publish:x", 2)]
    store = SqliteStore(path, INTERVAL)
    assert store._db.execute("PRAGMA synchronous").fetchone() == (2,)  # the log is synced in each commit
    sequencer, wal = store.acquire("me"), path.with_name("store.db-wal")
    sizes, states = [], []
    for n, way in enumerate(ways, 1):
        rows = [Row("c", f"k{key}", b"%d" % n * 2000, n) for key in range(5)]
        store.commit(sequencer, Commit(rows, [Chunk(*way, b"x")], (), b"standing %d" % n))
        sizes.append(wal.stat().st_size)
        states.append((store.standing(), list(store.scan()), list(store.chunks())))
    log = wal.read_bytes()
    for cut in {*range(sizes[0], sizes[1], 1500), sizes[0] + 1, sizes[1] - 1, sizes[1]}:
        for tail in (b"", bytes(sizes[1] - cut)):
            copy = tmp_path / "copy.db"
            copy.with_name("copy.db-shm").unlink(missing_ok=True)
            copy.write_bytes(path.read_bytes())
            copy.with_name("copy.db-wal").write_bytes(log[:cut] + tail)
            found = SqliteStore(copy)
            whole = log[:cut] + tail == log
            assert (found.standing(), list(found.scan()), list(found.chunks())) == states[whole], (cut, len(tail))
            found.close()


def test_what_is_no_store_is_said(tmp_path: Path) -> None:
    with pytest.raises(ComputingError, match="is not there"):
        SqliteStore(tmp_path / "none.db")
    SqliteStore(tmp_path / "store.db", INTERVAL).close()
    with pytest.raises(ComputingError, match="is of the interval i1"):
        SqliteStore(tmp_path / "store.db", Interval(0, 5, "i7"))
    assert SqliteStore(tmp_path / "store.db").interval == INTERVAL
    other = sqlite3.connect(tmp_path / "other.db")
    other.execute("PRAGMA user_version = 7")
    other.close()
    with pytest.raises(ComputingError, match=r"other.db is no store of computations, or version 7"):
        SqliteStore(tmp_path / "other.db", INTERVAL)
    (tmp_path / "bytes.db").write_bytes(b"x" * 5000)
    with pytest.raises(ComputingError, match=r"bytes.db cannot be used: file is not a database"):
        SqliteStore(tmp_path / "bytes.db", INTERVAL)
