"""The contract of every RowStore."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from photon.tables.api import Cell, Held, Mutation, Notification, Read, RowStore, StoreFailed
from photon.tables.store.memory import MemoryRows
from photon.tables.store.sqlite import SqliteRows

A, B = Cell("t", "a", "x"), Cell("t", "b", "x")


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RowStore]:
    made: RowStore = MemoryRows() if request.param == "memory" else SqliteRows(tmp_path / "t.db")
    yield made
    made.close()


def test_a_mutation_is_done_where_the_meta_is_as_expected(store: RowStore) -> None:
    assert store.mutate([Mutation(A, None, b"1"), Mutation(A, None, b"2"), Mutation(B, b"0", b"1")]) == [
        True,
        False,
        False,
    ]
    assert store.mutate([Mutation(A, b"1", b"2", b"v5", 5, notify=3)]) == [True]
    assert store.mutate([Mutation(A, b"2", b"3", b"v9", 9)]) == [True]
    assert store.mutate([Mutation(A, b"2", b"4", b"v10", 10, notify=4)]) == [False]
    reads = [
        Read("t", "a", ("x",), 4),
        Read("t", "a", None, 8),
        Read("t", "a", ("x", "y"), 9),
        Read("u", "a", None, 9),
    ]
    assert store.read(reads) == [
        {"x": Held(b"3")},
        {"x": Held(b"3", 5, b"v5")},
        {"x": Held(b"3", 9, b"v9")},
        {},
    ]
    assert sorted(store.versions(A, 0)) == [(5, b"v5"), (9, b"v9")]
    assert store.versions(A, 5) == [(9, b"v9")]
    assert store.dirty("t", "", 9) == [Notification("t", "a", "x", 3)]


def test_the_first_decides(store: RowStore) -> None:
    store.mutate([Mutation(A, None, b"1")])
    both = [Mutation(A, b"0", b"2"), Mutation(B, None, b"2")]
    assert store.mutate(both, first_decides=True) == [False, False]
    assert store.mutate(both) == [False, True]
    assert store.mutate([Mutation(A, b"1", b"2"), Mutation(B, b"0", b"2")], first_decides=True) == [True, False]


def test_a_scan_has_its_bounds(store: RowStore) -> None:
    for n in range(5):
        store.mutate([Mutation(Cell("t", f"{n}", "x"), None, b"1", b"v", 5)])
    store.mutate([Mutation(Cell("t", "1", "y"), None, b"1")])
    store.mutate([Mutation(Cell("u", "1", "x"), None, b"1")])
    assert [row for row, _ in store.scan("t", "1", "4", None, 9, 9)] == ["1", "2", "3"]
    assert [row for row, _ in store.scan("t", "1", None, ["x"], 9, 2)] == ["1", "2"]
    assert store.scan("t", "", None, ["y"], 9, 9) == [("1", {"y": Held(b"1")})]
    assert store.tables() == ["t", "u"]


def test_notifications_are_forgotten_one_by_one(store: RowStore) -> None:
    found = [Notification("t", "a", "x", start) for start in (3, 5, 7)]
    store.notify([*found, found[0]])
    store.forget([found[1], Notification("t", "a", "x", 6)])
    assert store.dirty("t", "", 9) == [found[0], found[2]]
    assert store.dirty("t", "", 1) == found[:1]
    assert store.dirty("t", "b", 9) == []


def test_versions_go_that_nobody_reads_at_the_safe_point(store: RowStore) -> None:
    for row in ("a", "b"):
        meta = None
        for commit in (2, 4, 6, 8):
            store.mutate([Mutation(Cell("t", row, "x"), meta, b"%d" % commit, b"v", commit)])
            meta = b"%d" % commit
    removed, at = store.collect("t", 7, "", 1)
    assert (removed, at) == (2, "b")
    assert store.collect("t", 7, "b", 1) == (2, None)
    assert sorted(commit for commit, _ in store.versions(A, 0)) == [6, 8]
    assert store.collect("t", 9, "", 9)[0] == 2


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "other.db")
    other.execute("CREATE TABLE x (y)")
    other.commit()
    other.close()
    with pytest.raises(StoreFailed, match="something else"):
        SqliteRows(tmp_path / "other.db")
    (tmp_path / "text.db").write_text("hello " * 100)
    with pytest.raises(StoreFailed, match="not a database"):
        SqliteRows(tmp_path / "text.db")
