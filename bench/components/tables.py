"""Commits/s of tables: ``python -m bench.components.tables [--seconds S] [--clients N] [--accounts N]``.

Clients are threads that move an amount between two accounts: a transaction that reads two cells and writes them.
Beside it, the plain conditional write of one cell on the same store. Goals: 2,000 commits/s on SQLite and 20,000 in
memory with 8 clients; a machine that others use gives less, so commits per second of this process' CPU stand beside.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from photon.tables import Tables
from photon.tables.api import Cell, Mutation


def move(t: Any, one: str, other: str) -> None:
    accounts = t.table("accounts")
    accounts.prefetch((one, other), "n")
    left, right = accounts.row(one), accounts.row(other)
    left.set("n", (left.get("n") or 0) - 1)
    right.set("n", (right.get("n") or 0) + 1)


def together(clients: int, seconds: float, step: Callable[[random.Random], object]) -> tuple[float, float]:
    """Steps of all clients a second, and a second of CPU."""
    counts, end = [0] * clients, time.perf_counter() + seconds

    def client(n: int) -> None:
        draw = random.Random(n)
        while time.perf_counter() < end:
            step(draw)
            counts[n] += 1

    threads = [threading.Thread(target=client, args=(n,)) for n in range(clients)]
    wall, cpu = time.perf_counter(), time.process_time()
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return sum(counts) / (time.perf_counter() - wall), sum(counts) / (time.process_time() - cpu)


def measured(tables: Tables, clients: int, accounts: int, seconds: float) -> dict[str, float]:
    def commit(draw: random.Random) -> None:
        one, other = draw.sample(range(accounts), 2)
        tables.run(move, f"a{one}", f"a{other}")

    store = tables.around.store

    def plain(draw: random.Random) -> None:
        cell = Cell("plain", f"a{draw.randrange(accounts)}", "n")
        (held,) = tables.around.read_cells([cell])
        store.mutate([Mutation(cell, held.meta, b"%d" % draw.getrandbits(60))])

    tables.counts.clear()
    wall, cpu = together(clients, seconds, commit)
    counts = tables.counts
    trips = (counts["reads"] + counts["mutates"] + 2 * counts["commits"]) / counts["commits"]
    conflicts = counts["conflicts"] / counts["commits"]
    with tables.snapshot() as now:
        assert sum(row.get("n") for row in now.table("accounts").scan()) == 0
    plain_wall, plain_cpu = together(clients, seconds, plain)
    return {
        "commits_s": round(wall), "commits_cpu_s": round(cpu), "conflicts_a_commit": round(conflicts, 4),
        "round_trips_a_commit": round(trips, 2), "plain_s": round(plain_wall), "plain_cpu_s": round(plain_cpu),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--accounts", type=int, default=10_000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as base:
        for name, place in (("memory", ":memory:"), ("sqlite", str(Path(base) / "tables.db"))):
            for accounts in (args.accounts, 20):
                with Tables.open(place) as tables:
                    found = measured(tables, args.clients, accounts, args.seconds)
                print(json.dumps({"store": name, "clients": args.clients, "accounts": accounts, **found}), flush=True)


if __name__ == "__main__":
    main()
