"""Tables' cells over rows; the rows themselves: tests/unit/rows."""

from __future__ import annotations

from photon.tables.api import SYSTEM, Cell, Held, Mutation, Notification, Read
from photon.tables.store import in_memory

A, B = Cell("t", "ä", "x"), Cell("t", "b", "x")


def test_a_mutation_is_done_where_the_meta_is_as_expected() -> None:
    store = in_memory()
    both = [Mutation(A, None, b"1"), Mutation(A, None, b"2"), Mutation(B, b"0", b"1")]
    assert store.mutate(both) == [True, False, False]
    assert store.mutate([Mutation(A, b"1", b"2", b"v5", 5, notify=3)]) == [True]
    assert store.mutate([Mutation(A, b"2", b"3", b"v9", 9)]) == [True]
    assert store.mutate([Mutation(A, b"2", b"4", b"v10", 10, notify=4)]) == [False]
    reads = [
        Read("t", "ä", ("x",), 0),
        Read("t", "ä", None, 8),
        Read("t", "ä", ("x", "y"), 9),
        Read("u", "ä", None, 9),
    ]
    assert store.read(reads) == [
        {"x": Held(b"3")},
        {"x": Held(b"3", 5, b"v5")},
        {"x": Held(b"3", 9, b"v9")},
        {},
    ]
    assert sorted(store.versions(A, 0)) == [(5, b"v5"), (9, b"v9")]
    assert store.versions(A, 5) == [(9, b"v9")]
    assert store.dirty("t", "", 9) == [Notification("t", "ä", "x", 3)]
    assert store.mutate([]) == []


def test_the_first_decides() -> None:
    store = in_memory()
    store.mutate([Mutation(A, None, b"1")])
    both = [Mutation(A, b"0", b"2"), Mutation(B, None, b"2")]
    assert store.mutate(both, first_decides=True) == [False, False]
    assert store.decide(both) is False
    assert store.mutate(both) == [False, True]
    assert store.mutate([Mutation(A, b"1", b"2"), Mutation(B, b"0", b"2")], first_decides=True) == [True, False]


def test_a_scan_stays_in_its_table() -> None:
    store, names = in_memory(), ["", "a", "a\U0001f600", "b", "é"]
    for name in names:
        for table in ("t", "tx", SYSTEM):
            store.mutate([Mutation(Cell(table, name, "x"), None, b"1", b"v", 5)])
    store.mutate([Mutation(Cell("t", "a", "y"), None, b"1")])
    assert [row for row, _ in store.scan("t", "", None, None, 9, 9)] == names
    assert [row for row, _ in store.scan("t", "a", "b", ["x"], 9, 9)] == ["a", "a\U0001f600"]
    assert store.scan("t", "", None, ["y"], 9, 9) == [("a", {"y": Held(b"1")})]
    assert store.tables() == ["t", "tx"]


def test_notifications_are_forgotten_one_by_one() -> None:
    store = in_memory()
    found = [Notification("t", row, column, start) for row, column, start in (
        ("a", "d", 5), ("a", "d", 256), ("b", "c", 3), ("b", "c", 9),
    )]  # fmt: skip
    store.claim("t", ["b"], b"1 me")
    store.notify([*reversed(found), found[0]])
    assert store.dirty("t", "", 9) == found
    assert store.dirty("t", "", 1) == found[:1]
    assert store.dirty("t", "b", 1) == [found[2]]
    store.forget([found[1], Notification("t", "a", "d", 6)])
    assert store.dirty("t", "", 9) == [found[0], *found[2:]]
    assert store.claims("t", ["a", "b"]) == [None, b"1 me"]
    store.unclaim("t", ["b"])
    assert store.claims("t", ["b"]) == [None]


def test_versions_go_that_nobody_reads_at_the_safe_point() -> None:
    store = in_memory()
    for row in ("ä", "b"):
        meta = None
        for commit in (2, 4, 6, 8):
            store.mutate([Mutation(Cell("t", row, "x"), meta, b"%d" % commit, b"v", commit)])
            meta = b"%d" % commit
    assert store.collect("t", 7, "", 1) == (2, "ä")
    assert store.collect("t", 7, "ä", 1) == (2, None)
    assert sorted(commit for commit, _ in store.versions(A, 0)) == [6, 8]
    assert store.collect("t", 9, "", 9) == (2, None)
