"""Tables on HBase and the oracle over gRPC. ``python -m bench.components.tables_services`` prints JSON.

Starts an HBase of its own (PHOTON_HBASE_THRIFT and PHOTON_HBASE_ADMIN name one that runs), and three replicas of a
registry that host the oracle, as processes. A commit is a read-modify-write of two cells, as a transfer between two
accounts; the plain write beside it is HBase's checkAndPut alone. Stands by ``tables.py``, which needs no server.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.components.hbase import hbase_at
from deploy.hbase import standalone
from photon.supervision.ports import free_ports
from photon.tables.api import Cell, Mutation, StoreFailed
from photon.tables.cell import Commit, lock_meta, primary_line
from photon.tables.observing import Worker, observer
from photon.tables.store.hbase import HBaseRows
from photon.tables.tables import Tables, TransactionFace
from photon.tables.timestamps.client import RegistryOracle

CLIENTS = 8
DIRTY = 1_000
DIED_MS = 3_600_000
BATCHES = 1_000
"""Timestamps that a client of the oracle waits for at a time: its transactions under way."""


@contextmanager
def replicas(count: int = 3) -> Iterator[Mapping[str, str]]:
    """name -> address of a registry whose processes host the oracle."""
    with tempfile.TemporaryDirectory(prefix="photon-bench-oracle-") as directory:
        addresses = {f"r{n}": f"127.0.0.1:{port}" for n, port in enumerate(free_ports(count), 1)}
        lines = ['key_file = "key"', "[tables]", 'thrift = ["127.0.0.1:1"]']
        for name, address in addresses.items():
            lines += [f"[registry.replicas.{name}]", f'address = "{address}"', f'directory = "{name}"']
        file = Path(directory) / "photon.toml"
        file.write_text("\n".join(lines) + "\n")
        (file.parent / "key").write_bytes(bytes(32))
        (file.parent / "key").chmod(0o600)
        started = [
            subprocess.Popen(
                [sys.executable, "-m", "photon", "serve", "registry", name, "--config", str(file)],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )
            for name in addresses
        ]  # fmt: skip
        try:
            yield addresses
        finally:
            for process in started:
                process.kill()
                process.wait()


def together(work: Callable[[int], object], threads: int) -> float:
    """Seconds that the threads took."""
    running = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    began = time.perf_counter()
    for each in running:
        each.start()
    for each in running:
        each.join()
    return time.perf_counter() - began


def transfers(tables: Tables, table: str, rows: int, each: int) -> dict[str, float]:
    """CLIENTS threads; all is done in the end, whatever conflicts there are."""
    counts, store = tables.around.counts, tables.around.store
    before, trips = dict(counts), getattr(store, "round_trips", 0)
    times: list[float] = []

    def work(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(each):
            pair = chance.sample(range(rows), 2)

            def move(transaction: TransactionFace, pair: list[int] = pair) -> None:
                accounts = transaction.table(table)
                accounts.prefetch([f"a{n}" for n in pair], "balance")
                cells = [accounts.row(f"a{n}") for n in pair]
                for cell, step in zip(cells, (1, -1), strict=True):
                    cell.set("balance", (cell.get("balance") or 0) + step)

            began = time.perf_counter()
            tables.run(move)
            times.append(time.perf_counter() - began)

    seconds = together(work, CLIENTS)
    commits = CLIENTS * each
    conflicts = counts["conflicts"] - before.get("conflicts", 0)
    return {
        "commits_per_s": commits / seconds,
        "p50_ms": statistics.median(times) * 1000,
        "conflicts_per_commit": conflicts / commits,
        "round_trips_per_commit": (getattr(store, "round_trips", 0) - trips) / commits,
    }


def plain(rows: HBaseRows, each: int) -> dict[str, float]:
    """checkAndPut alone: of a cell that is absent."""

    def work(number: int) -> None:
        for at in range(each):
            rows.mutate([Mutation(Cell(f"plain{time.time_ns()}", f"{number}-{at}", "c"), None, b"1", b"v", 2)])

    return {"writes_per_s": CLIENTS * each / together(work, CLIENTS)}


def observed(tables: Tables) -> dict[str, float]:
    """From a write to its observer's run, while DIRTY other cells are dirty."""
    seen: dict[str, float] = {}
    tables.around.limits.grace_s = 0.1
    table = f"watched{time.time_ns()}"

    def note(transaction: TransactionFace, row: Any) -> None:
        seen.setdefault(row.key, time.perf_counter())

    observer(tables, table=table, column="c", name="bench")(note)
    worker, stop = Worker(tables), threading.Event()
    worker.publish()
    written: dict[str, float] = {}
    for first in range(0, DIRTY, 100):
        with tables.transaction() as transaction:
            for n in range(first, first + 100):
                transaction.table(table).row(f"dirty{n:04}").set("c", 1)
    running = threading.Thread(target=worker.run, args=(stop,), kwargs={"threads": CLIENTS})
    running.start()
    chance = random.Random(7)
    for n in range(100):
        key = f"dirty{chance.randrange(DIRTY):04}-{n}"
        with tables.transaction() as transaction:
            transaction.table(table).row(key).set("c", 1)
        written[key] = time.perf_counter()
        time.sleep(0.02)
    deadline = time.monotonic() + 120
    while (len(seen) < DIRTY + 100) and time.monotonic() < deadline:
        time.sleep(0.05)
    stop.set()
    running.join()
    waits = sorted(max(seen[key] - at, 0.0) for key, at in written.items() if key in seen)
    return {
        "p50_ms": statistics.median(waits) * 1000,
        "p95_ms": waits[len(waits) * 95 // 100] * 1000,
        "seen": len(seen),
    }


def cleaned(tables: Tables) -> dict[str, float]:
    """A read that meets the lock of a client that died long ago."""
    table, times = f"died{time.time_ns()}", []
    for n in range(50):
        cell = Cell(table, f"r{n}", "c")
        start = tables.around.timestamp()
        wall_ms = tables.around.wall_ms() - DIED_MS
        meta = lock_meta(start, wall_ms, b"elsewhere/1/1", Commit(0, 0, 0), primary_line(cell), b"1")
        assert tables.around.store.mutate([Mutation(cell, None, meta)]) == [True]
        began = time.perf_counter()
        with tables.snapshot() as now:
            assert now.table(table).row(f"r{n}").get("c") is None
        times.append(time.perf_counter() - began)
    return {"p50_ms": statistics.median(times) * 1000}


def oracle(addresses: Mapping[str, str], seconds: float) -> dict[str, float]:
    """Four clients that each wait for BATCHES timestamps with one request, as that many transactions would."""
    clients = [RegistryOracle(addresses) for _ in range(4)]
    got = [0] * len(clients)
    times: list[float] = []
    until = time.perf_counter() + seconds

    def work(number: int) -> None:
        while time.perf_counter() < until:
            began = time.perf_counter()
            clients[number]._take(BATCHES)
            got[number] += BATCHES
            times.append(time.perf_counter() - began)

    took = together(work, len(clients))
    for each in clients:
        each.close()
    return {"timestamps_per_s": sum(got) / took, "request_p50_ms": statistics.median(times) * 1000}


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", type=int, default=200, help="of each client")
    parser.add_argument("--seconds", type=float, default=5.0, help="of the oracle")
    given = parser.parse_args()
    figures: dict[str, object] = {"load_average": [round(each, 1) for each in os.getloadavg()]}
    with replicas() as addresses:
        client = RegistryOracle(addresses, wait=60.0)
        client.timestamp()
        figures["oracle"] = oracle(addresses, given.seconds)
        if not os.environ.get("PHOTON_HBASE_THRIFT") and (lacking := standalone.missing()):
            figures["hbase"] = f"not measured: {lacking}"
        else:
            with hbase_at() as (_, admin, _pids):
                rows = HBaseRows([admin], "photon_bench_tables")
                rows.create()
                with Tables(rows, client) as tables:
                    transfers(tables, "warm", 1000, 10)
                    figures["hbase"] = {
                        "plain": plain(rows, given.commits),
                        "rows_1000": transfers(tables, f"t{time.time_ns()}", 1000, given.commits),
                        "rows_20": transfers(tables, f"t{time.time_ns()}", 20, given.commits // 2),
                        "observed": observed(tables),
                        "cleaned": cleaned(tables),
                    }
    print(json.dumps(figures, indent=2, default=str))


if __name__ == "__main__":
    try:
        main()
    except StoreFailed as failed:
        sys.exit(f"tables_services: {failed}")
