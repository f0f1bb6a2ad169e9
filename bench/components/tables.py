"""Tables on each store, and their oracle over gRPC. ``python -m bench.components.tables`` prints JSON, a part a line.

HBase is one of its own (PHOTON_HBASE_THRIFT and PHOTON_HBASE_ADMIN name one that runs), three replicas of a registry
host its oracle, all as processes of this machine. Clients are threads. A commit moves an amount between two accounts:
it reads two cells and writes them. Beside it, of the same store in the same run: the plain conditional write of a
cell, and a transaction that writes one cell and reads nothing, as the paper compares them. ``cpu_us``: for each.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import psutil

from bench.components.hbase import hbase_at
from deploy.hbase import standalone
from photon.supervision.ports import free_ports
from photon.tables.api import Cell, Mutation, StoreFailed
from photon.tables.cell import Commit, lock_meta, primary_line
from photon.tables.locks import StoreLocks
from photon.tables.observing import Worker, observer
from photon.tables.store.hbase import HBaseRows
from photon.tables.tables import Tables
from photon.tables.timestamps.client import RegistryOracle

DIRTY = 1_000
DIED_MS = 3_600_000
WAITING = 1_000
"""Timestamps that a client of the oracle wants at a time: those of its transactions under way."""
SEEN_S = 180.0


# -- what is measured ------------------------------------------------------------------------------------------------
def together(work: Callable[[int], object], threads: int) -> float:
    """Seconds that the threads took."""
    running = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    began = time.perf_counter()
    for each in running:
        each.start()
    for each in running:
        each.join()
    return time.perf_counter() - began


class Bench:
    """Of one store."""

    def __init__(self, tables: Tables, clients: int, seconds: float, servers: Mapping[str, Sequence[int]]) -> None:
        """``servers``: their process ids."""
        self.tables = tables
        self.clients = clients
        self.seconds = seconds
        self.servers = {name: [psutil.Process(pid) for pid in pids] for name, pids in servers.items()}

    def cpu_s(self) -> dict[str, float]:
        found = {"clients": time.process_time()}
        for name, processes in self.servers.items():
            found[name] = sum(sum(each.cpu_times()[:2]) for each in processes)
        return found

    def rate(self, step: Callable[[random.Random], object]) -> dict[str, float]:
        """Steps of all clients for so long."""
        counts, times = [0] * self.clients, []
        end = time.perf_counter() + self.seconds

        def client(number: int) -> None:
            draw = random.Random(number)
            while (began := time.perf_counter()) < end:
                step(draw)
                times.append(time.perf_counter() - began)
                counts[number] += 1

        cpu = self.cpu_s()
        took = together(client, self.clients)
        self.tables.flush()
        done = sum(counts)
        found = {"per_s": round(done / took, 1), "p50_ms": round(statistics.median(times) * 1000, 2)}
        return found | {f"{name}_cpu_us": round((s - cpu[name]) / done * 1e6) for name, s in self.cpu_s().items()}

    def plain(self) -> dict[str, float]:
        """Of a cell that is absent."""

        def write(draw: random.Random) -> None:
            cell = Cell("plain", f"{draw.getrandbits(60):x}{threading.get_ident():x}", "n")
            self.tables.around.store.mutate([Mutation(cell, None, b"C1 1 1 0")])

        return self.rate(write)

    def single(self) -> dict[str, float]:
        def write(t: Any, key: str) -> None:
            t.table("single").row(key).set("n", 1)

        return self.counted(lambda draw: self.tables.run(write, f"{draw.getrandbits(60):x}"))

    def transfers(self, rows: int) -> dict[str, float]:
        table = f"accounts{rows}"

        def move(t: Any, pair: Sequence[str]) -> None:
            accounts = t.table(table)
            accounts.prefetch(pair, "n")
            for key, step in zip(pair, (1, -1), strict=True):
                row = accounts.row(key)
                row.set("n", (row.get("n") or 0) + step)

        found = self.counted(lambda draw: self.tables.run(move, [f"a{n}" for n in draw.sample(range(rows), 2)]))
        with self.tables.snapshot() as now:
            assert sum(row.get("n") for row in now.table(table).scan()) == 0
        return found

    def counted(self, step: Callable[[random.Random], object]) -> dict[str, float]:
        """With round trips and conflicts."""
        around = self.tables.around
        before, store, oracle = dict(around.counts), around.store.round_trips, around.oracle.round_trips
        found = self.rate(step)
        now = {name: around.counts[name] - before.get(name, 0) for name in around.counts}
        commits = now["commits"]
        found |= {
            "conflicts": round(now.get("conflicts", 0) / commits, 3),
            "calls": round((now.get("reads", 0) + now["mutates"]) / commits, 2),
            "store_round_trips": round((around.store.round_trips - store) / commits, 2),
            "oracle_round_trips": round((around.oracle.round_trips - oracle) / commits, 2),
        }
        return found

    def observed(self) -> dict[str, dict[str, float]]:
        """From a write to its observer's run: of DIRTY cells that are dirty at once, of others that are written
        while these are dirty, and at rest."""
        tables, seen = self.tables, dict[str, float]()
        tables.around.limits.grace_s = 0.1

        @observer(tables, table="watched", column="c", name="bench")
        def note(t: Any, row: Any) -> None:
            t.table("notes").row(row.key).set("seen", row.get("c"))
            seen.setdefault(row.key, time.perf_counter())

        def write(keys: Sequence[str]) -> None:
            def work(t: Any) -> None:
                for key in keys:
                    t.table("watched").row(key).set("c", 1)

            tables.run(work)

        def wait(count: int) -> None:
            deadline = time.monotonic() + SEEN_S
            while len(seen) < count and time.monotonic() < deadline:
                time.sleep(0.02)

        def trickle(name: str, pause_s: float) -> dict[str, float]:
            chance, written = random.Random(7), dict[str, float]()
            for n in range(100):
                key = f"{chance.randrange(DIRTY):04}-{name}{n}"
                began = time.perf_counter()
                write([key])
                written[key] = began
                time.sleep(pause_s)
            return written

        worker, stop = Worker(tables), threading.Event()
        worker.publish()
        keys = [f"{n:04}" for n in range(DIRTY)]
        for first in range(0, DIRTY, 100):
            write(keys[first : first + 100])
        tables.flush()
        running = threading.Thread(target=worker.run, args=(stop,), kwargs={"threads": self.clients})
        began = time.perf_counter()
        running.start()
        meanwhile = trickle("m", 0.005)
        wait(DIRTY + 100)
        runs_per_s = len(seen) / (max(seen.values()) - began)
        rest = trickle("r", 0.05)
        wait(DIRTY + 200)
        stop.set()
        running.join()

        def waits(written: Mapping[str, float]) -> dict[str, float]:
            found = sorted(max(seen[key] - at, 0.0) * 1000 for key, at in written.items() if key in seen)
            return {
                "p50_ms": round(statistics.median(found), 1),
                "p95_ms": round(found[len(found) * 95 // 100], 1), "seen": len(found),
            }  # fmt: skip

        burst = waits(dict.fromkeys(keys, began)) | {"runs_per_s": round(runs_per_s, 1)}
        return {"at_once": burst, "meanwhile": waits(meanwhile), "at_rest": waits(rest)}

    def cleaned(self) -> dict[str, float]:
        """A read that meets the lock of a client that died long ago, on another machine."""
        around, times = self.tables.around, []
        for n in range(50):
            cell = Cell("died", f"r{n}", "c")
            start, wall_ms = around.timestamp(), around.wall_ms() - DIED_MS
            meta = lock_meta(start, wall_ms, b"elsewhere/1/1", Commit(0, 0, 0), primary_line(cell), b"1")
            assert around.store.mutate([Mutation(cell, None, meta)]) == [True]
            began = time.perf_counter()
            with self.tables.snapshot() as now:
                assert now.table("died").row(f"r{n}").get("c") is None
            times.append(time.perf_counter() - began)
        return {"p50_ms": round(statistics.median(times) * 1000, 2)}


def oracle(addresses: Mapping[str, str], seconds: float) -> dict[str, float]:
    """Four clients that each want WAITING timestamps with one request."""
    clients = [RegistryOracle(addresses) for _ in range(4)]
    times: list[float] = []
    until = time.perf_counter() + seconds

    def work(number: int) -> None:
        while (began := time.perf_counter()) < until:
            clients[number]._take(WAITING)
            times.append(time.perf_counter() - began)

    took = together(work, len(clients))
    alone: list[float] = []
    for _ in range(200):
        began = time.perf_counter()
        clients[0].timestamp()
        alone.append(time.perf_counter() - began)
    for each in clients:
        each.close()
    return {
        "timestamps_per_s": round(len(times) * WAITING / took), "p50_ms": round(statistics.median(times) * 1000, 2),
        "alone_p50_ms": round(statistics.median(alone) * 1000, 2),
    }  # fmt: skip


# -- stores ----------------------------------------------------------------------------------------------------------
@contextmanager
def replicas(count: int = 3) -> Iterator[tuple[Mapping[str, str], list[int]]]:
    """Name -> address of a registry whose processes host the oracle, and their ids."""
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
            client = RegistryOracle(addresses, wait=60.0)
            client.timestamp()
            client.close()
            yield addresses, [each.pid for each in started]
        finally:
            for process in started:
                process.kill()
                process.wait()


@contextmanager
def on_hbase(addresses: Mapping[str, str]) -> Iterator[tuple[Tables, list[int]]]:
    with hbase_at() as (_, admin, pids):
        rows = HBaseRows([admin], "photon_bench_tables")
        rows.create()
        with Tables(rows, RegistryOracle(addresses, wait=60.0)) as tables:
            around = tables.around
            around.locks = StoreLocks(rows, around.liveness, around.clock, around.limits.lock_age_s)
            yield tables, pids


def tell(**found: object) -> None:
    print(json.dumps(found | {"load": [round(each, 1) for each in os.getloadavg()]}), flush=True)


def measure(name: str, bench: Bench) -> None:
    """Warms up first: HBase's code is interpreted in the beginning."""
    bench.transfers(1_001)
    for what, work in (
        ("plain", bench.plain), ("single", bench.single), ("rows_1000", lambda: bench.transfers(1_000)),
        ("rows_20", lambda: bench.transfers(20)), ("cleaned", bench.cleaned), ("observed", bench.observed),
    ):  # fmt: skip
        tell(store=name, **{what: work()})


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each part")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--stores", default="memory,sqlite,hbase")
    given = parser.parse_args()
    stores = given.stores.split(",")
    lacking = not os.environ.get("PHOTON_HBASE_THRIFT") and standalone.missing()
    if lacking and "hbase" in stores:
        stores.remove("hbase")
        tell(store="hbase", not_measured=lacking)
    with tempfile.TemporaryDirectory() as base:
        for name, place in (("memory", ":memory:"), ("sqlite", str(Path(base) / "tables.db"))):
            if name in stores:
                with Tables.open(place) as tables:
                    measure(name, Bench(tables, given.clients, given.seconds, {}))
    if "hbase" in stores or "oracle" in stores:
        with replicas() as (addresses, pids):
            tell(oracle=oracle(addresses, given.seconds))
            with on_hbase(addresses) if "hbase" in stores else nullcontext() as opened:
                if opened is not None:
                    tables, servers = opened[0], {"oracle": pids, "hbase": opened[1]}
                    measure("hbase", Bench(tables, given.clients, given.seconds, servers))


if __name__ == "__main__":
    try:
        main()
    except StoreFailed as failed:
        sys.exit(f"tables: {failed}")
