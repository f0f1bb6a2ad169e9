"""The contract of rows (tests/unit/rows/test_contract.py) on a real HBase, with Thrift servers that are killed."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest

from deploy.hbase.standalone import Standalone
from photon.rows.api import Cell, Change, Read, RowsFailed, TableMissing
from photon.rows.hbase.connection import Connections
from photon.rows.hbase.rows import HBaseRows
from photon.tables.api import StoreFailed
from photon.tables.oracle import MemoryOracle
from photon.tables.store import Store, on_hbase
from photon.tables.tables import Tables
from tests.hbase.thrift_servers import Thrift2
from tests.unit.rows.test_contract import *  # noqa: F403
from tests.unit.rows.test_contract import GROUPS, change


def on(*addresses: str, table: str = "rows", call_s: float = 20.0) -> HBaseRows:
    return HBaseRows(addresses, "hbase", table, GROUPS, threads=8, call_s=call_s)


@pytest.fixture(scope="module")
def rows(hbase: Standalone) -> Iterator[HBaseRows]:
    rows = on(f"127.0.0.1:{hbase.ports.admin}")
    assert rows.create()
    assert not rows.create()
    yield rows
    rows.close()


@pytest.fixture
def prefix() -> bytes:
    return uuid4().hex.encode()


def test_many_reads_are_one_round_trip(rows: HBaseRows) -> None:
    before = rows.round_trips
    rows.read([Read(b"r%d" % number, (b"m",)) for number in range(100)])
    assert rows.round_trips == before + 1


def test_a_killed_thrift_server_is_gone_round(hbase: Standalone, rows: HBaseRows, prefix: bytes) -> None:
    def changed(number: int) -> bool:
        return change(both, Change(prefix + b"%d" % number, [Cell(b"m", 1, b"1")], None)) == [True]

    with Thrift2(hbase) as second:
        both = on(second.address, f"127.0.0.1:{hbase.ports.admin}")
        try:
            assert all(map(changed, range(4)))
            second.kill()
            # Connections that stood may end in an answer that nobody knows; the next question goes elsewhere.
            answers = list(map(changed, range(4, 24)))
            assert all(answers[-10:])
            assert all(both.read([Read(prefix + b"%d" % number, (b"m",)) for number in range(4)]))
        finally:
            both.close()


def test_threads_are_spread_over_servers(hbase: Standalone, monkeypatch: pytest.MonkeyPatch) -> None:
    ask, answered = Connections.ask, set()

    def noted(connections: Connections, question: Callable[[Any], Any]) -> Any:
        answer = ask(connections, question)
        answered.add(id(connections))
        return answer

    monkeypatch.setattr(Connections, "ask", noted)
    with Thrift2(hbase) as second:
        both = on_hbase([second.address, f"127.0.0.1:{hbase.ports.admin}"], f"spread-{uuid4().hex}")
        both.create()
        tables = Tables(both, MemoryOracle())

        def work(number: int) -> None:
            for at in range(10):
                with tables.transaction() as transaction:
                    for name in ("a", "b"):
                        transaction.table("t").row(f"{number}-{at}").set(name, at)

        try:
            with ThreadPoolExecutor(8) as threads:
                list(threads.map(work, range(8)))
            both.flush()
            assert len(answered) == 2
            with tables.snapshot() as now:
                assert len(list(now.table("t").scan())) == 80
        finally:
            tables.close()


def test_no_server_is_one_line_and_a_change_never_raises() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        rows = on(f"127.0.0.1:{free.getsockname()[1]}", call_s=0.2)
        try:
            began = time.monotonic()
            [answer] = rows.change([Change(b"r", [Cell(b"m", 1, b"1")], None)])
            assert isinstance(answer, RowsFailed)
            with pytest.raises(
                RowsFailed, match=r"^HBase at 127.0.0.1:\d+ cannot read table rows: no Thrift 2 server"
            ):
                rows.read([Read(b"r", (b"m",))])
            assert time.monotonic() - began < 30
        finally:
            rows.close()


def test_a_table_that_is_not_there_names_the_command(hbase: Standalone) -> None:
    rows = on(f"127.0.0.1:{hbase.ports.admin}", table="missing")
    try:
        with pytest.raises(TableMissing, match=r" has no table missing$"):
            rows.read([Read(b"r", (b"m",))])
        with pytest.raises(StoreFailed, match=r" has no table missing; create it with photon table init$"):
            Store(rows).tables()
    finally:
        rows.close()
