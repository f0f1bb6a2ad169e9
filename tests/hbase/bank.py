"""A client of the bank, or its observers, to be killed: python -m tests.hbase.bank '<JSON>'."""

from __future__ import annotations

import json
import random
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from photon.tables.api import Conflict, OutcomeUnknown, StoreFailed, TooOld
from photon.tables.observing import Worker, observer
from photon.tables.store import on_hbase
from photon.tables.tables import Tables, TransactionFace
from photon.tables.timestamps.client import RegistryOracle

TABLE = "accounts"
MOVED = "transfers"  # a row for each
COUNTED = "totals"  # how many an observer has counted, in a few rows
EACH = 100


def opened(thrift: Sequence[str], replicas: Mapping[str, str]) -> Tables:
    rows = on_hbase(thrift, "bank")
    tables = Tables(rows, RegistryOracle(replicas))
    tables.around.limits.grace_s = 0.5

    @observer(tables, table=MOVED, column="amount")
    def count(transaction: TransactionFace, moved: Any) -> None:
        row = transaction.table(COUNTED).row(moved.key[-1])
        row.set("transfers", (row.get("transfers") or 0) + 1)
        row.set("amount", (row.get("amount") or 0) + moved.get("amount"))

    return tables


def fill(tables: Tables, accounts: int) -> None:
    def work(transaction: TransactionFace) -> None:
        for number in range(accounts):
            transaction.table(TABLE).row(f"a{number:03}").set("balance", EACH)

    tables.run(work)


def balances(tables: Tables) -> dict[str, int]:
    with tables.snapshot() as now:
        return {row.key: row.get("balance") for row in now.table(TABLE).scan()}


def moved(tables: Tables) -> tuple[int, int]:
    """Transfers, and what they moved."""
    with tables.snapshot() as now:
        amounts = [row.get("amount") for row in now.table(MOVED).scan()]
    return len(amounts), sum(amounts)


def counted(tables: Tables) -> tuple[int, int]:
    """The same as the observers have it."""
    with tables.snapshot() as now:
        rows = list(now.table(COUNTED).scan())
        return sum(row.get("transfers") for row in rows), sum(row.get("amount") for row in rows)


def transfer(tables: Tables, chance: random.Random, accounts: int) -> None:
    one, other = chance.sample(range(accounts), 2)
    amount = chance.randrange(1, 10)

    def work(transaction: TransactionFace) -> None:
        bank = transaction.table(TABLE)
        names = [f"a{number:03}" for number in (one, other)]
        bank.prefetch(names, "balance")
        for name, step in zip(names, (-amount, amount), strict=True):
            row = bank.row(name)
            row.set("balance", row.get("balance") + step)
        transaction.table(MOVED).row(str(transaction.start)).set("amount", amount)

    tables.run(work)


def work_for_ever(tables: Tables, given: Mapping[str, Any]) -> None:
    def work(seed: int) -> None:
        chance = random.Random(seed)
        while True:
            try:
                transfer(tables, chance, given["accounts"])
            except (Conflict, OutcomeUnknown, StoreFailed, TooOld) as error:
                print(repr(error), flush=True)
            print("done", flush=True)

    threads = [threading.Thread(target=work, args=(given["seed"] + n,)) for n in range(given["threads"])]
    for each in threads:
        each.start()
    for each in threads:
        each.join()


def observe_for_ever(tables: Tables, threads: int) -> None:
    running = threading.Thread(target=Worker(tables).run, args=(threading.Event(),), kwargs={"threads": threads})
    running.start()
    told = 0
    while True:
        running.join(0.1)
        if (observed := tables.counts["observed"]) > told:
            print("done\n" * (observed - told), end="", flush=True)
            told = observed


def main() -> None:
    given = json.loads(sys.argv[1])
    tables = opened(given["thrift"], given["replicas"])
    if given["observes"]:
        observe_for_ever(tables, given["threads"])
    else:
        work_for_ever(tables, given)


if __name__ == "__main__":
    main()
