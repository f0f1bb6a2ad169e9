"""Observers on a real HBase."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from deploy.hbase.standalone import Standalone
from photon.tables import Tables, Worker, observer
from photon.tables.collecting import collect
from photon.tables.oracle import MemoryOracle
from photon.tables.store import Store, on_hbase
from photon.tables.tables import Row, TransactionFace
from photon.tables.verifying import verify

CHANGES = 12


@pytest.fixture
def store(hbase: Standalone) -> Iterator[Store]:
    store = on_hbase([f"127.0.0.1:{hbase.ports.admin}"], f"contract-{uuid4().hex}")
    assert store.create()
    yield store
    store.close()


def test_observers_see_to_each_change(store: Store) -> None:
    tables = Tables(store, MemoryOracle())
    tables.around.limits.grace_s = 0.1

    @observer(tables, table="clicks", column="campaign")
    def count(transaction: TransactionFace, click: Row) -> None:
        row = transaction.table("campaigns").row(click.get("campaign"))
        row.set("clicks", (row.get("clicks") or 0) + 1)

    for number in range(CHANGES):
        with tables.transaction() as transaction:
            transaction.table("clicks").row(f"k{number}").set("campaign", f"c{number % 2}")
    worker = Worker(tables)
    worker.publish()
    assert worker.drain() == CHANGES
    assert worker.drain() == 0
    with tables.snapshot() as now:
        assert [row.get("clicks") for row in now.table("campaigns").scan()] == [CHANGES // 2] * 2
    collect(tables.around, tables.resolver, tables.system, 0.0)  # meets locks that calls without an answer left
    found = verify(tables.around, store.tables())
    assert (found.problems, found.locks, found.notifications) == ([], 0, 0)
