"""``python -m bench.components.registry.idle``: three replica processes with 1, 16, 64 and 256 groups at rest.

CPU and resident memory of one process, on average, once the groups have come to rest.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.components.registry.processes import end, spawn, usage, wait_ready
from photon.supervision.ports import free_ports

REPLICAS = 3


def measure(directory: Path, shards: int, settle_s: float, seconds: float) -> tuple[float, float, float]:
    """(CPU per cent, resident MiB, seconds until all served) of a replica process."""
    names = [f"r{n}" for n in range(REPLICAS)]
    peers = {name: f"127.0.0.1:{port}" for name, port in zip(names, free_ports(REPLICAS), strict=True)}
    began = time.perf_counter()
    processes = [
        spawn({"name": name, "peers": peers, "directory": str(directory / name), "shards": shards}) for name in names
    ]
    try:
        for process in processes:
            wait_ready(process)
        ready = time.perf_counter() - began
        time.sleep(settle_s)
        before = [usage(process.pid) for process in processes]
        at = time.perf_counter()
        time.sleep(seconds)
        after = [usage(process.pid) for process in processes]
        took = time.perf_counter() - at
    finally:
        for process in processes:
            end(process)
    cpu = sum(b.cpu_s - a.cpu_s for a, b in zip(before, after, strict=True)) / took / REPLICAS
    return 100 * cpu, sum(each.rss for each in after) / REPLICAS / 2**20, ready


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m bench.components.registry.idle")
    parser.add_argument("--shards", type=int, nargs="*", default=[1, 16, 64, 256])
    parser.add_argument("--settle", type=float, default=8.0, help="seconds before it is measured")
    parser.add_argument("--seconds", type=float, default=10.0)
    arguments = parser.parse_args()
    table = Table(box=None, pad_edge=False)
    for column in ("shards", "CPU %", "RSS MiB", "served after s"):
        table.add_column(column, justify="right")
    for shards in arguments.shards:
        with tempfile.TemporaryDirectory(prefix="photon-bench-") as name:
            cpu, rss, ready = measure(Path(name), shards, arguments.settle, arguments.seconds)
        table.add_row(str(shards), f"{cpu:.1f}", f"{rss:.0f}", f"{ready:.1f}")
    Console(width=80).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
