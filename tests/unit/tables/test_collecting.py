"""Old versions are removed when nobody reads them, and not before; later readers are refused."""

from __future__ import annotations

import threading
import time

import pytest

from photon.tables import StoreFailed, Tables, TablesError, TooOld
from photon.tables.api import Cell, Mutation, Notification
from photon.tables.cell import Commit, lock_meta, primary_line
from photon.tables.collecting import Collector
from photon.tables.standing import Watch, old_locks
from tests.unit.idregistry.raft.cluster import wait_until


def write(tables: Tables, times: int) -> None:
    for n in range(times):
        with tables.transaction() as t:
            t.table("t").row("a").set("x", n)


def test_of_several_collectors_one_works_at_a_time(tables: Tables) -> None:
    write(tables, 5)
    one, other = (
        Collector(tables.around, tables.resolver, tables.system),
        Collector(tables.around, tables.resolver, tables.system),
    )
    seen, safe_point = tables.system.look().safe_point, tables.around.timestamp()
    assert one.step(seen, safe_point) == 4
    write(tables, 3)
    assert other.step(seen, tables.around.timestamp()) == 0, "somebody else has moved it"
    assert other.step(tables.system.look().safe_point, tables.around.timestamp()) == 3


def test_a_snapshot_that_is_held_is_read_to_its_end(tables: Tables) -> None:
    write(tables, 3)
    with tables.snapshot(hold_s=60.0) as held, tables.snapshot() as other:
        write(tables, 3)
        assert tables.collect(0.0) == 2, "those that the snapshot does not read"
        assert held.table("t").row("a").get("x") == 2
        with tables.snapshot() as now:
            assert now.table("t").row("a").get("x") == 2
        tables.collect(0.0)
        assert other.start > held.start
    assert tables.system.look().held == {}
    assert tables.collect(0.0) == 3


def test_a_snapshot_that_outlasts_its_hold_is_refused_and_never_answered_wrong(tables: Tables) -> None:
    write(tables, 3)
    with tables.snapshot(hold_s=0.05) as held:
        write(tables, 3)
        time.sleep(0.1)
        assert tables.collect(0.0) == 5
        with pytest.raises(TooOld):
            held.table("t").row("a").get("x")


def test_what_cannot_be_held_is_refused(tables: Tables) -> None:
    old = tables.begin()
    tables.collect(0.0)
    with pytest.raises(TooOld):
        tables.system.hold(old.start, 60.0)
    assert tables.system.look().held == {}
    with pytest.raises(TablesError, match="the limit is 604,800"), tables.snapshot(hold_s=1e9):
        pass


def test_it_collects_by_itself_until_it_is_stopped(tables: Tables) -> None:
    tables.around.limits.keep_s = 0.02
    write(tables, 5)
    stop = threading.Event()
    running = threading.Thread(target=Collector(tables.around, tables.resolver, tables.system).run, args=(stop,))
    running.start()
    try:
        wait_until(lambda: tables.counts["collected"] == 4, 60.0)
    finally:
        stop.set()
        running.join(10)
    assert not running.is_alive()
    assert tables.counts["collected"] == 4
    assert tables.system.look().moved_ms > 0


# -- how a store stands ----------------------------------------------------------------------------------------------
def test_what_waits_is_counted_and_since_when(tables: Tables) -> None:
    watch = Watch(tables.around, tables.system)
    watch.look()
    assert (watch.standing.dirty, watch.oldest_dirty_s()) == (0, 0.0)
    assert 0 <= watch.safe_point_age_s() < 60
    tables.system.change(lambda state: type(state)(observed={"t/x": ["seen"]}))
    tables.around.store.notify([Notification("t", row, "x", start) for row, start in (("a", 7), ("b", 5), ("b", 9))])
    watch.look()
    assert (watch.standing.dirty, watch.standing.oldest, watch.standing.where) == (2, 5, "t/b/x")
    time.sleep(0.02)
    watch.look()
    assert watch.oldest_dirty_s() >= 0.02
    tables.around.store.forget([Notification("t", "b", "x", 5)])
    watch.look()
    assert watch.standing.oldest == 7
    assert watch.oldest_dirty_s() < 0.02


def test_a_store_that_is_silent_is_said(tables: Tables) -> None:
    def away(reads: object) -> None:
        raise StoreFailed("away")

    tables.around.limits.patience_s = 0.0
    tables.around.store.read = away  # type: ignore[method-assign, assignment]
    watch = Watch(tables.around, tables.system)
    watch.look()
    assert watch.standing.problem == "away"


def test_locks_that_were_left_behind_are_found(tables: Tables) -> None:
    now_ms, token = tables.around.wall_ms(), tables.around.liveness.token.encode()
    for row, wall_ms, who in (("old", 1_000, token), ("lives", now_ms, token), ("dead", now_ms, token + b"0")):
        cell = Cell("t", row, "x")
        meta = lock_meta(5, wall_ms, who, Commit(0, 0, 0), primary_line(cell), b"1")
        assert tables.around.store.mutate([Mutation(cell, None, meta)]) == [True]
    found, looked = old_locks(tables.around, 1_000)
    assert (sorted(cell.row for cell in found), looked) == (["dead", "old"], 3)
