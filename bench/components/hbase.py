"""The file map on a real HBase: rows/s written, look-ups/s. ``python -m bench.components.hbase`` prints JSON.

Starts an HBase of its own on free ports (PHOTON_HBASE_THRIFT and PHOTON_HBASE_ADMIN, host:port each, name one that
runs), fills a dense and a sparse map through commits, and asks both in batches: at random, and in the order of the
logs as catching up does. CPU time stands beside wall time: this process's, and that of the two JVMs.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil

from deploy.hbase import standalone
from deploy.hbase.standalone import Ports, Standalone
from photon.adapters.contract import LogFile
from photon.adapters.logs.identity import log_name
from photon.config.clock import SystemClock
from photon.config.disk import RealDisk
from photon.eventstore.file_map import MapKind, MappedBlock, MapSettings
from photon.eventstore.hbase.admin import make_table
from photon.eventstore.hbase.connection import ThriftHBase
from photon.eventstore.hbase_file_map import HBaseFileMap
from photon.eventstore.index import hash_keys
from photon.supervision.ports import free_ports

TABLE = "photon_bench"
RECORD_BYTES = 300
BLOCK_RECORDS = 14_000  # some 4 MiB, as the primary reader takes them
BATCH = 1000
PROCESSES = 50
EVENTS_PER_S = 2000.0
"""Of all processes, by the ids' timestamps: what decides how many sparse entries there are."""


@contextmanager
def hbase_at() -> Iterator[tuple[str, str, list[int]]]:
    """(Thrift, Thrift 2, process ids where they are known) of an HBase that runs."""
    named = os.environ.get("PHOTON_HBASE_THRIFT"), os.environ.get("PHOTON_HBASE_ADMIN")
    if named[0] and named[1]:
        yield named[0], named[1], []
        return
    with tempfile.TemporaryDirectory(prefix="photon-bench-hbase-") as directory:
        server = Standalone(Path(directory), standalone.fetch(), Ports(*free_ports(5)))  # type: ignore[arg-type]
        server.configure()
        try:
            server.start()
            pids = [pid for name in server.parts if (pid := server.pid(name)) is not None]
            yield f"127.0.0.1:{server.ports.thrift}", f"127.0.0.1:{server.ports.admin}", pids
        finally:
            server.stop(signal.SIGKILL)


def keys_of(first: int, count: int) -> list[bytes]:
    """Canonical ids in the order of their log."""
    step = 1e6 / EVENTS_PER_S
    return [b"10.0.%d.1:%d:%d" % (n % PROCESSES, n % PROCESSES, int(n * step)) for n in range(first, first + count)]


def block(first: int, keys: list[bytes]) -> MappedBlock:
    """Of one log."""
    hashes = hash_keys(keys)
    order = np.argsort(hashes, kind="stable")
    begin = first * RECORD_BYTES
    starts = begin + RECORD_BYTES * np.arange(len(keys), dtype=np.int64)
    end = begin + RECORD_BYTES * len(keys)
    return MappedBlock("log", LogFile("bench.log"), begin, end, keys, starts, hashes[order], order)


class Meter:
    """Things a second, and CPU microseconds a thing: Python's and the JVMs'."""

    def __init__(self, pids: list[int]) -> None:
        self._servers = [psutil.Process(pid) for pid in pids]

    def _cpu(self) -> tuple[float, float]:
        times = [server.cpu_times() for server in self._servers]
        return time.process_time(), sum(each.user + each.system for each in times)

    def __call__(self, work: Callable[[], None], count: int) -> dict[str, float]:
        wall, (own, servers) = time.perf_counter(), self._cpu()
        work()
        wall, after = time.perf_counter() - wall, self._cpu()
        out = {"per_s": round(count / wall), "python_us": round((after[0] - own) / count * 1e6, 2)}
        if self._servers:
            out["servers_us"] = round((after[1] - servers) / count * 1e6, 2)
        return out


def measure(file_map: HBaseFileMap, records: int, asked: int, rng: random.Random, timed: Meter) -> dict[str, object]:
    """Fills the map, then asks."""
    blocks = [
        block(first, keys_of(first, min(BLOCK_RECORDS, records - first)))
        for first in range(0, records, BLOCK_RECORDS)
    ]

    def fill() -> None:
        for each in blocks:
            file_map.add(each)
        file_map.commit()

    def ask(keys: list[bytes]) -> None:
        for begin in range(0, len(keys), BATCH):
            batch = keys[begin : begin + BATCH]
            found = file_map.places(batch, hash_keys(batch))
            assert set(found.rows.tolist()) == set(range(len(batch))), "a key was not found"

    out: dict[str, object] = {"records": records, "records_filled": timed(fill, records)}
    anywhere = [keys_of(rng.randrange(records), 1)[0] for _ in range(asked)]
    in_order = keys_of(records // 3, asked)
    ask(anywhere[:BATCH])
    out["look_ups_at_random"] = timed(lambda: ask(anywhere), asked)
    out["look_ups_in_order"] = timed(lambda: ask(in_order), asked)
    return out


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=300_000)
    parser.add_argument("--asked", type=int, default=50_000)
    given = parser.parse_args()
    if not os.environ.get("PHOTON_HBASE_THRIFT") and (lacking := standalone.missing()):
        print(json.dumps({"hbase": f"not measured: {lacking}"}))
        return
    figures: dict[str, object] = {"load_average": [round(each, 1) for each in os.getloadavg()]}
    rng = random.Random(7)
    with hbase_at() as (thrift, admin, pids), tempfile.TemporaryDirectory() as directory:
        for kind in MapKind:
            hbase = ThriftHBase(thrift, SystemClock())
            make_table(hbase, admin, TABLE, ttl_s=86_400)
            file_map = HBaseFileMap(
                Path(directory) / kind, MapSettings(b"bench", kind), log_name, RealDisk(), hbase, TABLE,
                clock=SystemClock(),
            )  # fmt: skip
            file_map.tend()
            figures[kind] = measure(file_map, given.records, given.asked, rng, Meter(pids))
            file_map.close()
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
