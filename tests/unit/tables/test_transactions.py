"""Transactions over both embedded stores, as a program uses them."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from photon.tables import (
    BadName,
    Conflict,
    OutcomeUnknown,
    StoreFailed,
    Tables,
    TooOld,
    resolving,
    retrying,
    transaction,
)
from photon.tables.api import SYSTEM, Cell, Mutation
from photon.tables.cell import (
    Commit,
    Lock,
    commit_meta,
    lock_meta,
    primary_line,
    read_meta,
    start_of,
    value_of,
    version_of,
)
from photon.tables.store import AtomicStore

A, B = Cell("t", "a", "x"), Cell("t", "b", "x")


def put(tables: Tables, key: str, **values: Any) -> None:
    with tables.transaction() as t:
        for column, value in values.items():
            t.table("t").row(key).set(column, value)


def x_of(tables: Tables, key: str) -> Any:
    with tables.snapshot() as now:
        return now.table("t").row(key).get("x")


def all_x(tables: Tables) -> list[Any]:
    with tables.snapshot() as now:
        return [row.get("x") for row in now.table("t").scan()]


def test_what_is_committed_is_read_by_those_who_begin_later(tables: Tables) -> None:
    put(tables, "a", x=1)
    with tables.snapshot() as before:
        put(tables, "a", x=2, y=["z", {"ü": 1.5}])
        row = before.table("t").row("a")
        assert (row.get("x"), row.get("y")) == (1, None)
    with tables.snapshot() as now:
        assert now.table("t").row("a").values() == {"x": 2, "y": ["z", {"ü": 1.5}]}


def test_a_transaction_sees_what_it_has_written(tables: Tables) -> None:
    put(tables, "b", x=1)
    with tables.transaction() as t:
        table = t.table("t")
        table.row("a").set("x", 5)
        table.row("b").delete("x")
        table.row("c").set("x", 7)
        assert [(row.key, row.get("x")) for row in table.scan()] == [("a", 5), ("c", 7)]
        assert table.row("b").get("x") is None
    with tables.snapshot() as now:
        assert [row.key for row in now.table("t").scan(columns=["x"])] == ["a", "c"]


@pytest.mark.parametrize("value", [None, b"", b"=", b"7-=7"])
def test_a_version_says_what_was_written_and_when_it_began(value: bytes | None) -> None:
    version = version_of(1234, value)
    assert (start_of(version), value_of(version)) == (1234, value)


def test_a_block_that_raises_writes_nothing(tables: Tables) -> None:
    def work(t: Any) -> None:
        t.table("t").row("a").set("x", 1)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        tables.run(work)
    with tables.snapshot() as now:
        assert list(now.table("t").scan()) == []


def test_of_two_that_write_one_cell_the_later_commit_is_a_conflict(tables: Tables) -> None:
    put(tables, "a", x=1)
    first, second = tables.begin(), tables.begin()
    for each in (first, second):
        row = each.table("t").row("a")
        row.set("x", row.get("x") + 1)
        each.table("t").row(f"of {each.start}").set("y", 1)
    first.raw.commit()
    with pytest.raises(Conflict, match="t/a/x"):
        second.raw.commit()
    with tables.snapshot() as now:
        assert {row.key for row in now.table("t").scan()} == {"a", f"of {first.start}"}


def test_blind_writes_conflict_too(tables: Tables) -> None:
    slow = tables.begin()
    put(tables, "a", x=1)
    slow.table("t").row("a").set("x", 2)
    with pytest.raises(Conflict):
        slow.raw.commit()


def test_write_skew_is_possible(tables: Tables) -> None:
    """Snapshot isolation is not serializability."""
    put(tables, "a", x=1)
    put(tables, "b", x=1)
    first, second = tables.begin(), tables.begin()
    for each, other in ((first, "b"), (second, "a")):
        seen = sum(each.table("t").row(key).get("x") for key in ("a", "b"))
        each.table("t").row(other).set("x", 1 - seen)
    first.raw.commit()
    second.raw.commit()
    assert all_x(tables) == [-1, -1]


def test_a_range_is_scanned_over_pages_in_order(tables: Tables) -> None:
    with tables.transaction() as t:
        for n in range(450):
            t.table("t").row(f"{n:03}").set("x", n)
    with tables.snapshot() as now:
        assert [row.get("x") for row in now.table("t").scan("010", "440", columns=["x"])] == list(range(10, 440))
        assert [row.key for row in now.table("t").scan(columns=["nothing"])] == []


def test_a_scan_of_a_large_table_remembers_little_of_it(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction, "ROWS_KEPT", 10)
    with tables.transaction() as t:
        for n in range(40):
            t.table("t").row(f"{n:02}").set("x", n)
    with tables.transaction() as t:
        rows = list(t.table("t").scan())
        assert len(t.raw._read) == 10
        assert [row.get("x") for row in rows] == list(range(40))
        for row in rows:
            row.set("x", row.get("x") + 1)
    assert all_x(tables) == list(range(1, 41))


def test_rows_come_in_the_order_of_their_code_points(tables: Tables) -> None:
    keys = ["a", "Z", "ä", "\U0001f600", "a!", "ﬀ", "aa"]
    for key in keys:
        put(tables, key, x=1)
    with tables.snapshot() as now:
        assert [row.key for row in now.table("t").scan()] == sorted(keys)


def test_retrying_loses_no_update_of_many_threads(tables: Tables) -> None:
    @retrying(tables)
    def add(t: Any, key: str) -> None:
        row = t.table("t").row(key)
        row.set("x", (row.get("x") or 0) + 1)

    threads = [threading.Thread(target=lambda: [add("hot") for _ in range(15)]) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert x_of(tables, "hot") == 60


def test_a_commit_of_many_cells_is_whole(tables: Tables) -> None:
    with tables.transaction() as t:
        for n in range(200):
            t.table(f"t{n % 3}").row(f"{n}").set("x", n)
    with tables.snapshot() as now:
        assert sum(1 for n in range(3) for _ in now.table(f"t{n}").scan()) == 200
    assert tables.around.store.tables() == ["t0", "t1", "t2"]


def test_a_commit_returns_with_its_primary_and_who_meets_the_others_before_finishes_them(locking: Tables) -> None:
    store, left = locking.around.store, []

    def primary_only(mutations: Sequence[Mutation]) -> bool | None:
        left.extend(mutations[1:])
        return store.mutate(mutations[:1])[0]

    store.decide = primary_only  # type: ignore[method-assign]
    with locking.transaction() as t:
        for n, key in enumerate("abc"):
            t.table("t").row(key).set("x", n)
    assert all_x(locking) == [0, 1, 2]
    assert locking.counts["rolled_forward"] == 2
    assert store.mutate(left) == [False, False], "what comes late is refused"
    put(locking, "b", x=5)


# -- other clients' locks --------------------------------------------------------------------------------------------
def lock(tables: Tables, cell: Cell, primary: Cell, start: int, *, wall_ms: int = 0, value: bytes = b"9") -> bytes:
    """A client died while it held a lock."""
    (held,) = tables.around.read_cells([cell])
    meta = lock_meta(start, wall_ms, b"elsewhere/1/1", read_meta(held.meta), primary_line(primary), value)
    assert tables.around.store.mutate([Mutation(cell, held.meta, meta)]) == [True]
    return meta


def test_an_old_lock_is_rolled_back_and_leaves_a_mark(tables: Tables) -> None:
    put(tables, "a", x=1)
    lock(tables, A, A, tables.around.timestamp())
    assert x_of(tables, "a") == 1
    assert read_meta(tables.around.read_cells([A])[0].meta).marks == 1
    put(tables, "a", x=2)


def test_a_lock_whose_primary_is_committed_is_rolled_forward(tables: Tables) -> None:
    t = tables.begin()
    t.table("t").row("a").set("x", 8)
    lock(tables, B, A, t.start, wall_ms=2**50)
    t.raw.commit()
    assert all_x(tables) == [8, 9]


def test_a_lock_without_its_primary_fences_it(tables: Tables) -> None:
    """Its prewrite may still be in flight."""
    start = tables.around.timestamp()
    lock(tables, B, A, start)
    assert x_of(tables, "b") is None
    late = lock_meta(start, 0, b"elsewhere/1/1", Commit(0, 0, 0), primary_line(A), b"9")
    assert tables.around.store.mutate([Mutation(A, None, late)]) == [False]


def test_a_living_client_s_lock_is_a_conflict_for_writers(tables: Tables) -> None:
    young_ms = int(tables.around.limits.lock_age_s * 100)
    lock(tables, A, A, tables.around.timestamp(), wall_ms=tables.around.wall_ms() - young_ms)
    with pytest.raises(Conflict):
        put(tables, "a", x=1)


@pytest.mark.parametrize(("each_ms", "shown_ms"), [(3000, [0]), (4000, [0, 4000]), (-4000, [0, -4000])])
def test_a_commit_that_takes_long_shows_that_it_goes_on(
    locking: Tables, monkeypatch: pytest.MonkeyPatch, each_ms: int, shown_ms: list[int]
) -> None:
    """Its lock is refreshed when it is a third of its maximum age; a clock may go back."""
    at, shown = locking.around.wall_ms(), []
    monkeypatch.setattr(transaction, "AT_ONCE", 1)
    monkeypatch.setattr(type(locking.around), "wall_ms", lambda _: at + now_ms)
    mutate, now_ms = locking.around.store.mutate, 0

    def slow(mutations: Sequence[Mutation], **named: Any) -> Any:
        nonlocal now_ms
        metas = [read_meta(each.meta) for each in mutations if each.cell == A]
        shown.extend(meta.wall_ms - at for meta in metas if isinstance(meta, Lock))
        now_ms = each_ms
        return mutate(mutations, **named)

    monkeypatch.setattr(locking.around.store, "mutate", slow)
    with locking.transaction() as t:
        for key in "ab":
            t.table("t").row(key).set("x", 1)
    assert shown == shown_ms


def test_one_who_was_taken_for_dead_is_told_a_conflict(locking: Tables) -> None:
    t = locking.begin()
    t.table("t").row("a").set("x", 1)
    t.table("t").row("b").set("x", 1)
    mutate, calls = locking.around.store.mutate, 0

    def slow(mutations: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2:  # its commit
            locking.resolver.settle(A, locking.around.read_cells([A])[0].meta, force=True)
        return mutate(mutations, **named)

    locking.around.store.mutate = slow  # type: ignore[method-assign]
    with pytest.raises(Conflict, match="t/a/x: was taken by another client"):
        t.raw.commit()
    with locking.snapshot() as now:
        assert list(now.table("t").scan()) == []


@pytest.mark.parametrize("done", [True, False])
def test_an_answer_that_is_lost_is_resolved_by_reading(locking: Tables, done: bool) -> None:
    mutate, calls = locking.around.store.mutate, []

    def losing(mutations: Any, **named: Any) -> Any:
        calls.append(mutations)
        if len(calls) in (1, 3):
            if done:
                mutate(mutations, **named)
            return [None] * len(mutations)
        return mutate(mutations, **named)

    locking.around.store.mutate = losing  # type: ignore[method-assign]
    with locking.transaction() as t:
        t.table("t").row("a").set("x", 1)
        t.table("t").row("b").set("x", 1)
    assert all_x(locking) == [1, 1]


def test_a_store_that_stays_away_at_the_commit_leaves_the_outcome_open(locking: Tables) -> None:
    locking.around.limits.patience_s = 0.01
    t = locking.begin()
    t.table("t").row("a").set("x", 1)
    mutate, read = locking.around.store.mutate, locking.around.store.read
    calls = 0

    def away(mutations: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        return mutate(mutations, **named) if calls == 1 else [None] * len(mutations)

    def unread(reads: Any) -> Any:
        if calls > 1:
            raise StoreFailed("away")
        return read(reads)

    locking.around.store.mutate, locking.around.store.read = away, unread  # type: ignore[method-assign]
    with pytest.raises(OutcomeUnknown):
        t.raw.commit()


def test_a_store_that_takes_nothing_any_more_is_no_conflict(locking: Tables) -> None:
    """For example a full disk: it is read, and nothing is written."""
    locking.around.limits.patience_s = 0.01
    locking.around.store.mutate = lambda mutations, **_: [None] * len(mutations)  # type: ignore[method-assign]
    with pytest.raises(StoreFailed, match="t/a/x: the store does not answer, or its disk is full"):
        put(locking, "a", x=1)
    assert locking.counts["conflicts"] == 0


def test_several_columns_are_one_read(tables: Tables) -> None:
    put(tables, "a", x=1, y=2)
    with tables.snapshot() as now:
        reads = tables.counts["reads"]
        assert now.table("t").row("a").get_many("x", "y", "z") == (1, 2, None)
        assert tables.counts["reads"] <= reads + 2, "and a look at the safe point"


@pytest.mark.parametrize("marks", [True, False])
def test_a_slow_prewrite_after_a_roll_back_fits_only_where_no_mark_was_left(
    locking: Tables, marks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule 3, and the result of a transaction without it: half of it."""
    put(locking, "a", x=1)
    put(locking, "b", x=1)
    if not marks:
        monkeypatch.setattr(resolving, "rolled_back", commit_meta)
    mutate, calls = locking.around.store.mutate, []

    def slow(mutations: Sequence[Mutation], **named: Any) -> list[bool | None]:
        calls.append(mutations)
        if len(calls) == 1:  # its first prewrites are on their way for long
            return [None] * len(mutations)
        if mutations[0].version is not None:  # and so is its commit
            locking.around.store.mutate = mutate  # type: ignore[method-assign]
            for cell in (A, B):
                locking.resolver.settle(cell, locking.around.read_cells([cell])[0].meta, force=True)
            assert mutate(calls[0][:1]) == [not marks]
        return mutate(mutations, **named)

    locking.around.store.mutate = slow  # type: ignore[method-assign]
    t = locking.begin()
    for key in ("a", "b"):
        t.table("t").row(key).set("x", 2)
    if marks:
        with pytest.raises(Conflict):
            t.raw.commit()
    else:
        t.raw.commit()
    assert all_x(locking) == ([1, 1] if marks else [2, 1])


# -- commits in one step ---------------------------------------------------------------------------------------------
@pytest.fixture
def file(tmp_path: Path) -> Iterator[Tables]:
    with Tables.open(tmp_path / "tables.db") as tables:
        tables.around.limits.grace_s, tables.around.limits.patience_s = 0.0, 0.05
        yield tables


Made = Callable[[int, bytes | None], Sequence[Mutation]]


def test_a_file_is_written_in_one_step_without_locks(file: Tables) -> None:
    file.around.store.mutate = None  # type: ignore[method-assign, assignment]
    put(file, "a", x=1)
    t = file.begin()
    for key in "ab":
        row = t.table("t").row(key)
        row.set("x", (row.get("x") or 0) + 1)
    put(file, "b", x=3)
    with pytest.raises(Conflict, match="t/b/x: another client has written it"):
        t.raw.commit()
    assert all_x(file) == [1, 3]


@pytest.mark.parametrize("done", [True, False])
def test_a_step_whose_answer_is_lost_is_repeated_or_found(file: Tables, done: bool) -> None:
    store = file.around.store
    assert isinstance(store, AtomicStore)
    step, calls = store.commit, 0

    def losing(mutations: Made) -> bool | None:
        nonlocal calls
        calls += 1
        if calls > 1:
            return step(mutations)
        if done:
            step(mutations)
            with file.transaction() as later:
                later.table("t").row("a").set("x", 3)
        return None

    store.commit = losing  # type: ignore[method-assign]
    with file.transaction() as t:
        for key in "ab":
            t.table("t").row(key).set("x", 1)
    assert all_x(file) == ([3, 1] if done else [1, 1])
    assert t.raw.start < t.raw.commit_timestamp < file.around.timestamp()


def test_a_step_that_is_refused_after_a_lost_answer_is_a_conflict(file: Tables) -> None:
    store = file.around.store
    assert isinstance(store, AtomicStore)
    step, t = store.commit, file.begin()
    t.table("t").row("a").set("x", 1)

    def losing(mutations: Made) -> bool | None:
        store.commit = step  # type: ignore[method-assign]
        put(file, "a", x=2)
        return None

    store.commit = losing  # type: ignore[method-assign]
    with pytest.raises(Conflict, match="t/a/x"):
        t.raw.commit()
    assert all_x(file) == [2]
    assert file.counts["conflicts"] == 1


def test_a_file_that_takes_nothing_any_more_leaves_the_outcome_open(file: Tables) -> None:
    file.around.store.commit = lambda mutations: None  # type: ignore[attr-defined]
    with pytest.raises(OutcomeUnknown, match="t/a/x: the store does not answer, or its disk is full"):
        put(file, "a", x=1)


def test_a_step_notifies_observers_that_its_client_has_not_heard_of(file: Tables) -> None:
    put(file, "a", x=1)
    with Tables.open(file.around.store._rows._path) as other:  # type: ignore[attr-defined]
        other.system.change(lambda state: type(state)(observed={"t/x": ["seen"]}))
    file.around.limits.grace_s = 1e9
    put(file, "a", x=2)
    assert [each.row for each in file.around.store.dirty("t", "", 9)] == ["a"]


# -- old versions ----------------------------------------------------------------------------------------------------
def test_old_versions_are_collected_and_those_who_would_read_them_are_told(tables: Tables) -> None:
    old = tables.begin()
    for n in range(5):
        put(tables, "a", x=n)
    assert tables.collect(0.0) == 4
    with pytest.raises(TooOld, match="safe point"):
        old.table("t").row("a").get("x")
    put(tables, "a", x=9)
    assert x_of(tables, "a") == 9
    assert tables.collect(0.0) == 1


def test_locks_are_resolved_before_versions_go(tables: Tables) -> None:
    t = tables.begin()
    t.table("t").row("a").set("x", 8)
    lock(tables, B, A, t.start)
    t.raw.commit()
    put(tables, "a", x=9)
    tables.collect(0.0)
    assert x_of(tables, "b") == 9


# -- names and values ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("key", ["", "a\0b", "x" * 1001, "ü" * 501, "\ud800"])
def test_bad_keys_are_refused(tables: Tables, key: str) -> None:
    with tables.snapshot() as now, pytest.raises(BadName, match="key of a row"):
        now.table("t").row(key)


@pytest.mark.parametrize("name", ["", "a b", "a@b", "a/b", "x" * 65, SYSTEM])
def test_bad_names_are_refused(tables: Tables, name: str) -> None:
    with tables.snapshot() as now:
        with pytest.raises(BadName, match="is not a name"):
            now.table(name)
        with pytest.raises(BadName, match="is not a name"):
            now.table("t").row("a").get(name)


@pytest.mark.parametrize(("value", "why"), [
    (None, "delete"), ({1, 2}, "JSON"), ("x" * (1 << 20), "limit"), (math.nan, "NaN or infinity"),
    ({"null": [1.0, {"a": -math.inf}]}, "NaN or infinity"),
])  # fmt: skip
def test_bad_values_are_refused(tables: Tables, value: object, why: str) -> None:
    with tables.snapshot() as now, pytest.raises(BadName, match=why):
        now.table("t").row("a").set("x", value)


def test_null_within_a_value_is_one(tables: Tables) -> None:
    with tables.transaction() as t:
        t.table("t").row("a").set("x", {"null": [None, 1.5]})
    assert x_of(tables, "a") == {"null": [None, 1.5]}


def test_a_damaged_cell_is_told(tables: Tables) -> None:
    tables.around.store.mutate([Mutation(A, None, b"C1 x")])
    with pytest.raises(StoreFailed, match="cannot read"):
        put(tables, "a", x=1)


def test_a_cell_s_meta_reads_as_it_was_written() -> None:
    primary = Cell("t", 'a "b"\n', "x")
    meta = lock_meta(7, 1000, b"host/1/2", Commit(3, 2, 1), primary_line(primary), b'"\\n\n="')
    assert read_meta(meta) == Lock(7, 1000, "host/1/2", Commit(3, 2, 1), primary, b'"\\n\n="')
