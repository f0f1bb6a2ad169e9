"""What every store of rows promises (tests/unit/tables/test_stores.py), and observers over it, on a real HBase."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from deploy.hbase.standalone import Standalone
from photon.tables import Tables, Worker, observer
from photon.tables.collecting import collect
from photon.tables.oracle import MemoryOracle
from photon.tables.store.hbase import HBaseRows
from photon.tables.tables import Row, TransactionFace
from photon.tables.verifying import verify
from tests.unit.tables.test_stores import (
    test_a_scan_has_its_bounds,
    test_notifications_are_forgotten_one_by_one,
    test_the_first_decides,
    test_versions_go_that_nobody_reads_at_the_safe_point,
)

__all__ = [
    "test_a_scan_has_its_bounds",
    "test_notifications_are_forgotten_one_by_one",
    "test_the_first_decides",
    "test_versions_go_that_nobody_reads_at_the_safe_point",
]
CHANGES = 12


@pytest.fixture
def store(hbase: Standalone) -> Iterator[HBaseRows]:
    store = HBaseRows([f"127.0.0.1:{hbase.ports.admin}"], f"contract-{uuid4().hex}")
    assert store.create()
    yield store
    store.close()


def test_observers_see_to_each_change(store: HBaseRows) -> None:
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
