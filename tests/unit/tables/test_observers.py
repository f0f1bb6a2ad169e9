"""Observers over both embedded stores."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from photon.tables import Conflict, Tables, TablesError, Worker, observer, observing, retrying, transaction
from photon.tables.api import Cell, Mutation
from photon.tables.cell import lock_meta, primary_line, read_meta, rolled_back
from photon.tables.observing import BATCH, ObserverFailed
from photon.tables.oracle import MemoryOracle
from photon.tables.store import in_memory
from photon.tables.surroundings import Limits, Surroundings
from tests.unit.idregistry.raft.cluster import wait_until


def counting(tables: Tables) -> None:
    @observer(tables, table="clicks", column="campaign")
    def count(t: Any, row: Any) -> None:
        total = t.table("campaigns").row(row.get("campaign"))
        total.set("clicks", (total.get("clicks") or 0) + 1)


def click(tables: Tables, key: str, campaign: str) -> None:
    with tables.transaction() as t:
        t.table("clicks").row(key).set("campaign", campaign)


def program_beside(tables: Tables) -> Tables:
    """Another program on the same store."""
    made = Tables(tables.around.store, tables.around.oracle)
    made.around.limits.grace_s = 0.0
    return made


def counted(tables: Tables) -> dict[str, int]:
    with tables.snapshot() as now:
        return {row.key: row.get("clicks") for row in now.table("campaigns").scan()}


def test_each_change_is_seen_once(tables: Tables) -> None:
    counting(tables)
    for n in range(7):
        click(tables, f"k{n}", f"c{n % 2}")
    assert Worker(tables).drain() == 7
    assert Worker(tables).drain() == 0
    assert counted(tables) == {"c0": 4, "c1": 3}
    assert tables.around.store.dirty("clicks", "", 10) == []


def test_changes_between_two_runs_are_one_run(tables: Tables) -> None:
    counting(tables)
    for _ in range(3):
        click(tables, "k", "c")
    assert Worker(tables).drain() == 1
    click(tables, "k", "c")
    assert Worker(tables).drain() == 1
    assert counted(tables) == {"c": 2}


def test_of_two_runs_for_one_change_one_commits(tables: Tables) -> None:
    started = threading.Barrier(2)

    @observer(tables, table="clicks", column="campaign")
    def count(t: Any, row: Any) -> None:
        row.get("campaign")
        started.wait(60)
        t.table("runs").row(str(t.start)).set("x", 1)

    click(tables, "k", "c")
    locks = (each.around.locks for each in (tables, program_beside(tables)))
    workers = [threading.Thread(target=Worker(tables, locks=each).step) for each in locks]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    with tables.snapshot() as now:
        assert len(list(now.table("runs").scan())) == 1


def test_a_new_observer_sees_what_is_there_and_writers_elsewhere_notify_it(tables: Tables) -> None:
    click(tables, "old", "c")
    other = program_beside(tables)
    counting(tables)
    worker = Worker(tables)
    worker.publish()
    click(other, "new", "c")
    assert worker.drain() == 2
    worker.publish()
    assert worker.drain() == 0
    assert counted(tables) == {"c": 2}


def test_an_observer_that_moves_to_another_column_sees_what_is_there(tables: Tables) -> None:
    counting(tables)
    Worker(tables).publish()
    with tables.transaction() as t:
        t.table("clicks").row("k").set("price", 1)
    moved = program_beside(tables)
    seen = []

    @observer(moved, table="clicks", column="price", name="count")
    def priced(t: Any, row: Any) -> None:
        seen.append(row.key)

    worker = Worker(moved)
    worker.publish()
    assert (worker.drain(), seen) == (1, ["k"])
    worker.publish()
    assert worker.drain() == 0


def test_a_notification_waits_for_the_observers_of_all_programs(tables: Tables) -> None:
    counting(tables)
    other = program_beside(tables)

    @observer(other, table="clicks", column="campaign")
    def copied(t: Any, row: Any) -> None:
        t.table("copies").row(row.key).set("campaign", row.get("campaign"))

    here, there = Worker(tables), Worker(other)
    here.publish()
    there.publish()
    click(tables, "k", "c")
    tables.system.look()
    assert here.drain() == 1
    assert len(tables.around.store.dirty("clicks", "", 10)) == 1
    assert there.drain() == 1
    assert tables.around.store.dirty("clicks", "", 10) == []


def test_a_program_that_has_not_heard_of_an_observer_forgets_none_of_its_notifications() -> None:
    store, oracle = in_memory(), MemoryOracle()
    known, fresh = (Tables(store, oracle, Surroundings(store, oracle, limits=Limits(grace_s=0.02))) for _ in range(2))
    counting(known)
    worker = Worker(known)
    worker.publish()
    seen = []

    @observer(fresh, table="clicks", column="price")
    def priced(t: Any, row: Any) -> None:
        seen.append(row.key)

    there = Worker(fresh)
    there.publish()
    with fresh.transaction() as t:
        t.table("clicks").row("k").set("price", 1)
    time.sleep(0.02)
    assert worker.step() == 0
    there.drain()
    assert seen == ["k"]


def test_an_observer_that_raises_holds_up_nobody_else(tables: Tables) -> None:
    seen = []

    @observer(tables, table="clicks", column="campaign")
    def picky(t: Any, row: Any) -> None:
        if row.key == "bad":
            raise ValueError("bad")
        seen.append(row.key)

    for key in ("a", "bad", "z"):
        click(tables, key, "c")
    worker = Worker(tables)
    worker.step()
    worker.step()
    assert sorted(seen) == ["a", "z"]
    assert [each.row for each in tables.around.store.dirty("clicks", "", 10)] == ["bad"]
    assert tables.counts["observers_failed"] == 1


def test_an_end_of_work_waits_for_other_workers_and_names_what_raises(tables: Tables) -> None:
    met = []

    @observer(tables, table="clicks", column="campaign")
    def picky(t: Any, row: Any) -> None:
        if row.key == "bad":
            raise ValueError("bad\nline")
        if not met.append(row.key) and len(met) == 1:
            assert Worker(tables).drain() == 1, "another worker comes first"
        t.table("runs").row(row.key).set("n", len(met))

    click(tables, "k", "c")
    assert Worker(tables).drain() == 0
    assert met == ["k", "k"]
    click(tables, "bad", "c")
    with pytest.raises(ObserverFailed, match="observer picky of clicks/bad/campaign raises ValueError"):
        Worker(tables).drain()


def _hang() -> None:
    while True:
        pass


def _exit() -> None:
    sys.exit(3)


def _base() -> None:
    raise GeneratorExit


@pytest.mark.parametrize("breaks", [_hang, _exit, _base])
@pytest.mark.parametrize("once", [True, False])
def test_an_observer_costs_its_own_cell_only(tables: Tables, breaks: Callable[[], None], once: bool) -> None:
    """Other cells and other observers of its cell run regardless; and it is retried."""
    broken = [True]

    @observer(tables, table="clicks", column="campaign", time_limit_s=0.1)
    def first(t: Any, row: Any) -> None:
        if row.key in ("a", "m") and broken:
            breaks()
        t.table("first").row(row.key).set("n", 1)

    @observer(tables, table="clicks", column="campaign")
    def second(t: Any, row: Any) -> None:
        t.table("second").row(row.key).set("n", 1)

    def done(table: str) -> str:
        with tables.snapshot() as now:
            return "".join(row.key for row in now.table(table).scan())

    for key in "abmz":
        click(tables, key, "c")
    worker = Worker(tables)
    worker.publish()
    if once:
        with pytest.raises(ObserverFailed, match=r"the observer first of clicks/a/campaign .* and 1 more") as failed:
            worker.drain()
        assert failed.value.exit_code == 3
        assert [cell.split("/")[1] for cell in failed.value.cells] == ["a", "m"]
        assert (done("first"), done("second")) == ("bz", "abmz")
    else:
        stop = threading.Event()
        running = threading.Thread(target=worker.run, args=(stop,), kwargs={"threads": 2})
        running.start()
        until = time.monotonic() + 60
        while (done("first"), done("second")) != ("bz", "abmz") and time.monotonic() < until:
            time.sleep(0.02)
        assert (done("first"), done("second")) == ("bz", "abmz")
        stop.set()
        running.join(60)
        assert not running.is_alive()
    broken.clear()
    Worker(tables).drain()
    assert done("first") == "abmz"


def test_an_observer_without_a_cell_left_for_its_acknowledgement_has_failed(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction, "CELLS_MAX", 5)

    @observer(tables, table="clicks", column="campaign")
    def much(t: Any, row: Any) -> None:
        for n in range(5):
            t.table("much").row(row.key).set(f"n{n}", n)

    click(tables, "k", "c")
    worker = Worker(tables)
    assert (worker.step(), tables.counts["observers_failed"]) == (0, 1)
    with pytest.raises(ObserverFailed, match=r"the observer much of clicks/k/campaign raises .*more than 5 cells"):
        worker.drain()


def test_an_unexpected_error_of_a_thread_ends_the_worker(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that its process is restarted, rather than counted as up with fewer threads."""

    @observer(tables, table="clicks", column="campaign")
    def nothing(t: Any, row: Any) -> None: ...

    stop, worker = threading.Event(), Worker(tables)
    monkeypatch.setattr(worker, "step", lambda: 1 / 0)
    late = threading.Timer(10, stop.set)
    late.start()
    with pytest.raises(ZeroDivisionError):
        worker.run(stop, threads=2)
    late.cancel()


def test_the_time_of_the_store_is_not_the_observer_s(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    @observer(tables, table="clicks", column="campaign", time_limit_s=0.1)
    def reads(t: Any, row: Any) -> None:
        monkeypatch.setattr(tables.around, "read", slow)
        t.table("other").row("k").get("n")
        monkeypatch.undo()
        t.table("runs").row(row.key).set("n", 1)

    read = tables.around.read

    def slow(*args: Any) -> Any:
        until = time.monotonic() + 0.4
        while time.monotonic() < until:
            pass
        return read(*args)

    click(tables, "k", "c")
    assert Worker(tables).drain() == 1


def test_a_process_ends_though_an_observer_does_not_come_back(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observing, "LEAVE_S", 0.1)
    blocked, stop, met = threading.Event(), threading.Event(), threading.Event()

    @observer(tables, table="clicks", column="campaign", time_limit_s=0)
    def blocks(t: Any, row: Any) -> None:
        met.set()
        blocked.wait(20)

    click(tables, "k", "c")
    running = threading.Thread(target=Worker(tables).run, args=(stop,), kwargs={"threads": 1})
    running.start()
    assert met.wait(10)
    stop.set()
    running.join(60)
    assert not running.is_alive()
    blocked.set()
    for thread in threading.enumerate():  # the one that was left behind ends before its store is closed
        if thread.name.startswith("observer-"):
            thread.join(10)


def test_a_row_at_which_another_worker_is_met_comes_last_once_more(tables: Tables) -> None:
    tried = []

    @observer(tables, table="clicks", column="campaign")
    def contended(t: Any, row: Any) -> None:
        tried.append(row.key)
        if tried == ["a"]:
            raise Conflict("another worker commits")

    for key in ("a", "b"):
        click(tables, key, "c")
    assert Worker(tables).step() == 2
    assert (tried, tables.counts["observers_met"]) == (["a", "b", "a"], 1)


def test_a_cell_locked_anew_is_waited_for_and_not_spun_at(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    counting(tables)
    click(tables, "k", "c")
    worker = Worker(tables)
    worker.publish()
    cell = Cell("clicks", "k", "campaign")
    [held] = tables.around.read_cells([cell])
    before = read_meta(held.meta)
    token, now_ms = tables.around.liveness.token.encode(), tables.around.wall_ms()
    lock = lock_meta(10**9, now_ms, token, before, primary_line(cell), b'"d"')
    assert tables.around.store.mutate([Mutation(cell, held.meta, lock, notify=10**9)]) == [True]
    monkeypatch.setattr(observing, "TRIES_S", 0.3)
    with pytest.raises(Conflict, match="locked by live clients"):
        worker.drain()
    assert 3 < tables.counts["scans"] < 60
    assert tables.around.store.mutate([Mutation(cell, lock, rolled_back(before))]) == [True]
    assert worker.drain() == 0
    assert counted(tables) == {"c": 1}
    assert tables.around.store.dirty("clicks", "", 10) == []


def test_who_runs_is_heard_of_by_every_writer(tables: Tables) -> None:
    other = program_beside(tables)
    counting(other)
    stop = threading.Event()
    stop.set()
    Worker(other).run(stop)
    tables.system.look()
    click(tables, "k", "c")
    assert [each.row for each in tables.around.store.dirty("clicks", "", 10)] == ["k"]


def test_threads_share_the_work(tables: Tables) -> None:
    counting(tables)

    @observer(tables, table="campaigns", column="clicks")
    def copied(t: Any, row: Any) -> None:
        t.table("copies").row(row.key).set("clicks", row.get("clicks"))

    @retrying(tables)
    def write(t: Any, n: int) -> None:
        t.table("clicks").row(f"k{n}").set("campaign", f"c{n % 5}")

    stop = threading.Event()
    running = threading.Thread(target=Worker(tables).run, args=(stop,), kwargs={"threads": 3})
    running.start()
    for n in range(60):
        write(n)
    dirty = tables.around.store.dirty
    wait_until(lambda: not any(dirty(table, "", 1) for table in ("clicks", "campaigns")), 60.0)
    stop.set()
    running.join()
    assert counted(tables) == {f"c{n}": 12 for n in range(5)}
    with tables.snapshot() as now:
        assert [row.get("clicks") for row in now.table("copies").scan()] == [12] * 5


def test_a_worker_takes_some_rows_at_once_and_leaves_some_to_others(tables: Tables) -> None:
    counting(tables)
    for n in range(2 * BATCH + 3):
        click(tables, f"k{n:02}", f"c{n}")
    store, forgot = tables.around.store, []
    forget = store.forget
    store.forget = lambda gone: (forgot.append(len(gone)), forget(gone))[1]  # type: ignore[method-assign]
    taken = tables.around.locks.acquire("clicks", ["k00", "k03"], 2)
    worker, woken = Worker(tables), []
    worker._wake = lambda: woken.append(True)  # type: ignore[method-assign]
    assert worker.step() == BATCH
    assert forgot == [BATCH], "in one call"
    assert woken == [True], "there is something left for another thread"
    assert {each.row for each in store.dirty("clicks", "", 2)} == set(taken)
    tables.around.locks.release("clicks", taken)
    while worker.step():
        pass
    assert counted(tables) == {f"c{n}": 1 for n in range(2 * BATCH + 3)}
    woken.clear()
    click(tables, "last", "c0")
    assert (worker.step(), woken) == (1, [])


def test_two_observers_of_one_name_are_refused(tables: Tables) -> None:
    counting(tables)
    with pytest.raises(TablesError, match="two observers"):
        counting(tables)
