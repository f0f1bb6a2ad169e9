"""Transfers between two cells: a transaction of Photon's tables next to the same in plain SQLite.

``python -m bench.transfers [--transfers N] [--rounds N]``: CPU time of a transfer, in turns, with the same durability
(write-ahead log, ``synchronous = NORMAL``). It reports medians of the rounds and of their ratios.
"""

from __future__ import annotations

import argparse
import random
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from statistics import median

import orjson

from bench.catch_up import scratch
from photon.tables import Tables

ACCOUNTS = 1_000
BALANCE = 1_000
Pair = tuple[str, str]


def plain(file: Path) -> tuple[Callable[[Sequence[Pair]], None], Callable[[], int]]:
    """Returns a function that does transfers, and one that returns the sum of all balances."""
    db = sqlite3.connect(file, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = NORMAL")
    db.execute("CREATE TABLE accounts (name TEXT PRIMARY KEY, balance BLOB) WITHOUT ROWID")
    db.execute("BEGIN")
    db.executemany("INSERT INTO accounts VALUES (?, ?)", ((f"a{n}", orjson.dumps(BALANCE)) for n in range(ACCOUNTS)))
    db.execute("COMMIT")
    read = "SELECT balance FROM accounts WHERE name = ?"
    write = "UPDATE accounts SET balance = ? WHERE name = ?"

    def transfer(pairs: Sequence[Pair]) -> None:
        run = db.execute
        for source, target in pairs:
            run("BEGIN IMMEDIATE")
            (less,), (more,) = run(read, (source,)).fetchone(), run(read, (target,)).fetchone()
            run(write, (orjson.dumps(orjson.loads(less) - 1), source))
            run(write, (orjson.dumps(orjson.loads(more) + 1), target))
            run("COMMIT")

    return transfer, lambda: sum(orjson.loads(each) for (each,) in db.execute("SELECT balance FROM accounts"))


def photon(tables: Tables) -> tuple[Callable[[Sequence[Pair]], None], Callable[[], int]]:
    """Returns the same two functions as ``plain``, for Photon's tables."""
    with tables.transaction() as t:
        for n in range(ACCOUNTS):
            t.table("accounts").row(f"a{n}").set("balance", BALANCE)

    def transfer(pairs: Sequence[Pair]) -> None:
        for source, target in pairs:
            with tables.transaction() as t:
                accounts = t.table("accounts")
                less, more = accounts.row(source), accounts.row(target)
                less.set("balance", less.get("balance") - 1)
                more.set("balance", more.get("balance") + 1)

    def total() -> int:
        with tables.snapshot() as now:
            return sum(row.get("balance") for row in now.table("accounts").scan())

    return transfer, total


def main() -> None:
    """Runs the command that the module describes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transfers", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    chance = random.Random(1)
    names = [f"a{n}" for n in range(ACCOUNTS)]
    with scratch() as work, closing(Tables.open(work / "photon.db")) as tables:
        systems = {"Photon": photon(tables), "SQLite": plain(work / "plain.db")}
        taken: dict[str, list[float]] = {name: [] for name in systems}
        for _ in range(given.rounds):
            pairs = [(a, b) for a, b in (chance.sample(names, 2) for _ in range(given.transfers))]
            for name, (transfer, _) in systems.items():
                began = time.process_time()
                transfer(pairs)
                taken[name].append((time.process_time() - began) / given.transfers * 1e6)
        for name, (_, total) in systems.items():
            if total() != ACCOUNTS * BALANCE:
                raise SystemExit(f"{name}: the balances add up to {total()}, not {ACCOUNTS * BALANCE}")
    ratios = [ours / theirs for ours, theirs in zip(taken["Photon"], taken["SQLite"], strict=True)]
    for name, each in taken.items():
        print(f"{name}: {median(each):.1f} µs of CPU a transfer")
    print(f"ratio: {median(ratios):.2f}; rounds of {given.transfers:,}: {min(ratios):.2f} to {max(ratios):.2f}")


if __name__ == "__main__":
    main()
