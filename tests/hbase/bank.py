"""A client of the bank, to be killed: python -m tests.hbase.bank '<JSON>'. It moves money for ever."""

from __future__ import annotations

import json
import random
import sys
import threading
from collections.abc import Mapping, Sequence

from photon.tables.api import Conflict, OutcomeUnknown, StoreFailed, TooOld
from photon.tables.store.hbase import HBaseRows
from photon.tables.tables import Tables, TransactionFace
from photon.tables.timestamps.client import RegistryOracle

TABLE = "accounts"
EACH = 100


def opened(thrift: Sequence[str], replicas: Mapping[str, str]) -> Tables:
    return Tables(HBaseRows(thrift, "bank"), RegistryOracle(replicas))


def fill(tables: Tables, accounts: int) -> None:
    def work(transaction: TransactionFace) -> None:
        for number in range(accounts):
            transaction.table(TABLE).row(f"a{number:03}").set("balance", EACH)

    tables.run(work)


def balances(tables: Tables) -> dict[str, int]:
    with tables.snapshot() as now:
        return {row.key: row.get("balance") for row in now.table(TABLE).scan()}


def transfer(tables: Tables, chance: random.Random, accounts: int) -> None:
    one, other = chance.sample(range(accounts), 2)
    amount = chance.randrange(1, 10)

    def work(transaction: TransactionFace) -> None:
        source, target = (transaction.table(TABLE).row(f"a{number:03}") for number in (one, other))
        source.set("balance", source.get("balance") - amount)
        target.set("balance", target.get("balance") + amount)

    tables.run(work)


def main() -> None:
    given = json.loads(sys.argv[1])
    tables = opened(given["thrift"], given["replicas"])

    def work(seed: int) -> None:
        chance = random.Random(seed)
        while True:
            try:
                transfer(tables, chance, given["accounts"])
            except (Conflict, OutcomeUnknown, StoreFailed, TooOld) as error:
                print(repr(error), flush=True)
            print("transfer", flush=True)

    threads = [threading.Thread(target=work, args=(given["seed"] + n,)) for n in range(given["threads"])]
    for each in threads:
        each.start()
    for each in threads:
        each.join()


if __name__ == "__main__":
    main()
