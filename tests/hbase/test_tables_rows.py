"""The rows of tables on a real HBase: what the store promises, one Thrift server or two, whole or killed."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest

from deploy.hbase.standalone import Standalone
from photon.eventstore.hbase.connection import Connections
from photon.tables.api import SYSTEM, Cell, Mutation, Notification, Read, StoreFailed
from photon.tables.oracle import MemoryOracle
from photon.tables.store.hbase import HBaseRows
from photon.tables.tables import Tables
from tests.hbase.thrift_servers import Thrift2


@pytest.fixture(scope="module")
def rows(hbase: Standalone) -> Iterator[HBaseRows]:
    rows = HBaseRows([f"127.0.0.1:{hbase.ports.admin}"], "rows")
    assert rows.create()
    assert not rows.create()
    yield rows
    rows.close()


@pytest.fixture
def table() -> str:
    return f"t{uuid4().hex}"


def mutate(rows: HBaseRows, mutations: list[Mutation], *, first_decides: bool = False) -> list[bool | None]:
    """Again where the answer was lost: these servers hang up after a second. What was done is then refused, which is
    told from a real refusal by reading."""
    answers = rows.mutate(mutations, first_decides=first_decides)
    for row, (mutation, answer) in enumerate(zip(mutations, answers, strict=True)):
        if answer is None:
            [again] = rows.mutate([mutation])
            table, key, column = mutation.cell
            held = rows.read([Read(table, key, [column], 1)])[0].get(column)
            answers[row] = again or (held is not None and held.meta == mutation.meta)
    return answers


def test_a_mutation_is_done_only_where_the_meta_is_as_expected(rows: HBaseRows, table: str) -> None:
    cell = Cell(table, "ä", "c")
    assert mutate(rows, [Mutation(cell, b"x", b"1")]) == [False]
    assert mutate(rows, [Mutation(cell, None, b"1")]) == [True]
    assert mutate(rows, [Mutation(cell, None, b"2")]) == [False]
    assert mutate(rows, [Mutation(cell, b"1", b"2", version=b"v", commit=7)]) == [True]
    [read] = rows.read([Read(table, "ä", ["c", "d"], 7)])
    assert read["c"] == (b"2", 7, b"v")
    assert "d" not in read


def test_a_read_gives_the_newest_version_that_it_may_see(rows: HBaseRows, table: str) -> None:
    cell = Cell(table, "r", "c")
    commits = [5, 900, 2**53 + 1]
    for before, commit in zip([None, *commits], commits, strict=False):
        expected = None if before is None else b"%d" % before
        assert mutate(rows, [Mutation(cell, expected, b"%d" % commit, b"v%d" % commit, commit)]) == [True]
    seen = [read["c"] for read in rows.read([Read(table, "r", None, upto) for upto in (1, 4, 5, 899, 900, 2**60)])]
    assert [held.commit for held in seen] == [0, 0, 5, 5, 900, 2**53 + 1]
    assert {held.meta for held in seen} == {b"%d" % (2**53 + 1)}
    assert sorted(rows.versions(cell, 5)) == [(900, b"v900"), (2**53 + 1, b"v%d" % (2**53 + 1))]
    assert rows.collect(table, 900, "", 10) == (1, None)
    assert rows.versions(cell, 0) == sorted(rows.versions(cell, 5), reverse=True)


def test_the_first_may_decide(rows: HBaseRows, table: str) -> None:
    cells = [Cell(table, f"r{number}", "c") for number in range(5)]
    fits = [Mutation(cell, None, b"1") for cell in cells]
    assert mutate(rows, [fits[0]._replace(expected=b"x"), *fits[1:]], first_decides=True) == [False] * 5
    assert rows.read([Read(table, cell.row, None, 1) for cell in cells]) == [{}] * 5
    assert mutate(rows, fits, first_decides=True) == [True] * 5
    assert mutate(rows, fits) == [False] * 5


def test_the_others_follow_the_one_that_decides(rows: HBaseRows, table: str) -> None:
    cells = [Cell(table, f"r{number}", "c") for number in range(50)]
    fits = [Mutation(cell, None, b"1") for cell in cells]
    assert rows.decide([fits[0]._replace(expected=b"x"), *fits[1:]]) is False
    rows.flush()
    assert rows.scan(table, "", None, None, 1, 1) == []
    done = rows.decide(fits)
    rows.flush()
    found = [bool(read) for read in rows.read([Read(table, cell.row, None, 1) for cell in cells])]
    assert done is None or found[0], "an answer may be lost, as these servers hang up after a second"
    assert sum(found[1:]) >= (45 if done else 0)


def test_who_works_on_a_row_stands_in_it_and_is_no_notification(rows: HBaseRows, table: str) -> None:
    names = [f"r{number}" for number in range(5)]
    rows.claim(table, names, b"1 me")
    rows.notify([Notification(table, "r4", "c", 7)])
    assert rows.claims(table, [*names, "r5"]) == [b"1 me"] * 5 + [None]
    assert rows.dirty(table, "", 2) == [Notification(table, "r4", "c", 7)]
    rows.unclaim(table, names[:2])
    assert rows.claims(table, names) == [None, None, b"1 me", b"1 me", b"1 me"]
    assert rows.scan(table, "", None, None, 9, 9) == []


def test_rows_are_scanned_in_order_within_their_table(rows: HBaseRows, table: str) -> None:
    names = ["", "a", "a\U0001f600", "b", "é"]
    for name in names:
        for other in (table, table + "x"):
            assert mutate(rows, [Mutation(Cell(other, name, "c"), None, b"1", b"v", 3)]) == [True]
    assert [row for row, _ in rows.scan(table, "", None, None, 3, 10)] == names
    assert [row for row, _ in rows.scan(table, "a", "b", ["c"], 3, 10)] == ["a", "a\U0001f600"]
    assert [row for row, _ in rows.scan(table, "a", None, None, 3, 2)] == ["a", "a\U0001f600"]
    assert rows.scan(table, "", None, ["other"], 3, 10) == []
    assert {table, table + "x"} <= set(rows.tables())
    mutate(rows, [Mutation(Cell(SYSTEM, "r", "c"), None, b"1")])
    assert SYSTEM not in rows.tables()


def test_notifications_come_with_the_mutation_and_go_one_by_one(rows: HBaseRows, table: str) -> None:
    one = Notification(table, "r1", "c", 9)
    assert mutate(rows, [Mutation(Cell(table, "r1", "c"), b"x", b"1", notify=8)]) == [False]
    assert mutate(rows, [Mutation(Cell(table, "r1", "c"), None, b"1", notify=9)]) == [True]
    more = [Notification(table, "r1", "c", 3), Notification(table, "r0", "d", 256), Notification(table, "r0", "d", 5)]
    rows.notify(more)
    assert rows.dirty(table, "", 10) == sorted([one, *more])
    assert rows.dirty(table, "r1", 1) == [more[0]]
    rows.forget([one, more[1]])
    assert rows.dirty(table, "", 10) == [more[2], more[0]]
    assert rows.scan(table, "r0", "r1", None, 9, 5) == []


def test_many_reads_are_one_round_trip(rows: HBaseRows, table: str) -> None:
    before = rows.round_trips
    rows.read([Read(table, f"r{number}", None, 5) for number in range(100)])
    assert rows.round_trips == before + 1


def test_a_killed_thrift_server_is_gone_round(hbase: Standalone, rows: HBaseRows, table: str) -> None:
    with Thrift2(hbase) as second:
        both = HBaseRows([second.address, f"127.0.0.1:{hbase.ports.admin}"], "rows")
        try:
            for number in range(4):
                assert mutate(both, [Mutation(Cell(table, f"r{number}", "c"), None, b"1")]) == [True]
            second.kill()
            # Connections that stood may end in an answer that nobody knows; the next question goes elsewhere.
            answers = [
                mutate(both, [Mutation(Cell(table, f"s{number}", "c"), None, b"1")])[0] for number in range(20)
            ]
            assert answers[-10:] == [True] * 10
            assert len(both.read([Read(table, f"r{number}", None, 5) for number in range(4)])) == 4
        finally:
            both.close()


def test_threads_are_spread_over_servers(
    hbase: Standalone, rows: HBaseRows, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask, answered = Connections.ask, set()

    def noted(connections: Connections, question: Callable[[Any], Any]) -> Any:
        answer = ask(connections, question)
        answered.add(id(connections))
        return answer

    monkeypatch.setattr(Connections, "ask", noted)
    with Thrift2(hbase) as second:
        both = HBaseRows([second.address, f"127.0.0.1:{hbase.ports.admin}"], "rows")
        tables = Tables(both, MemoryOracle())

        def work(number: int) -> None:
            for at in range(10):
                with tables.transaction() as transaction:
                    for name in ("a", "b"):
                        transaction.table(table).row(f"{number}-{at}").set(name, at)

        try:
            with ThreadPoolExecutor(8) as threads:
                list(threads.map(work, range(8)))
            both.flush()
            assert len(answered) == 2
            with tables.snapshot() as now:
                assert len(list(now.table(table).scan())) == 80
        finally:
            tables.close()


def test_no_server_is_one_line_and_a_mutation_never_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("photon.tables.store.hbase.CALL_SECONDS_MAX", 0.2)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        rows = HBaseRows([f"127.0.0.1:{free.getsockname()[1]}"], "rows")
        try:
            began = time.monotonic()
            assert rows.mutate([Mutation(Cell("t", "r", "c"), None, b"1")]) == [None]
            with pytest.raises(
                StoreFailed, match=r"^HBase at 127.0.0.1:\d+ does not read table rows: no Thrift 2 server"
            ):
                rows.read([Read("t", "r", None, 1)])
            assert time.monotonic() - began < 30
        finally:
            rows.close()


def test_a_table_that_is_not_there_names_the_command(hbase: Standalone) -> None:
    rows = HBaseRows([f"127.0.0.1:{hbase.ports.admin}"], "missing")
    try:
        with pytest.raises(StoreFailed, match=r" has no table missing: photon table init makes it$"):
            rows.read([Read("t", "r", None, 1)])
    finally:
        rows.close()
