"""``python -m bench.components.registry.stalls``: the longest step of a shard with ten million ids in a bucket.

Ids are inserted all the while, first into the growing bucket, then while a snapshot is written; then the snapshot is
installed as a follower does, and a day is collected. A step is what holds up all commits of a shard: its CPU time
says how long that takes on a machine of its own, its wall time also what else ran here.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from photon.config.clock import SystemClock
from photon.config.disk import RealDisk
from photon.idregistry.api import token_of
from photon.idregistry.core import commands as c
from photon.idregistry.core.id_bucket import CLEARED
from photon.idregistry.core.id_table import IdTable
from photon.idregistry.core.sharding import single_range
from photon.idregistry.core.state_machine import ShardMachine
from photon.idregistry.raft.host import RaftHost
from photon.idregistry.raft.options import RaftOptions

GROUP = 1
BATCH = 2_000
RETENTION_BUCKETS = 10


@dataclass(slots=True)
class Steps:
    """How long single steps took at most, milliseconds."""

    count: int = 0
    cpu_ms: float = 0.0
    wall_ms: float = 0.0

    def run(self, step: Callable[[], object]) -> None:
        cpu, wall = time.thread_time(), time.perf_counter()
        step()
        self.count += 1
        self.cpu_ms = max(self.cpu_ms, 1e3 * (time.thread_time() - cpu))
        self.wall_ms = max(self.wall_ms, 1e3 * (time.perf_counter() - wall))

    def shown(self) -> dict[str, float]:
        return {"steps": self.count, "worst_cpu_ms": round(self.cpu_ms, 1), "worst_wall_ms": round(self.wall_ms, 1)}


def insert(machine_time: int, ids: int) -> bytes:
    """A batch of ids that nobody has inserted before."""
    return c.encode(
        c.Batch(
            callers=[(1, ids)],
            digests=os.urandom(16 * ids),
            times=np.full(ids, machine_time, "<i8").tobytes(),
            tokens=np.full(ids, token_of(1, 1), "<u8").tobytes(),
            kinds=b"\x01" * ids,
            tags=bytes(4 * ids),
        )
    )


def through_a_snapshot(directory: Path, machine: ShardMachine, now: int) -> tuple[Steps, float]:
    """Steps while a snapshot is written and the log is cut, and the seconds it took."""
    host = RaftHost(
        name="r",
        peers={"r": "r"},
        directory=directory,
        machines={GROUP: machine},
        disk=RealDisk(),
        clock=SystemClock(),
        options=RaftOptions(log_bytes=1, log_ratio=0.0, log_margin=1 << 20),
    )
    host.open()
    group = host.group(GROUP)
    while not group.state().is_leader:
        host.pump()
    writing = directory / f"group-{GROUP:05d}" / "snapshot.tmp"
    steps = Steps()
    began = 0.0
    while True:
        command = insert(now, BATCH)
        group.propose(command, timeout=60.0, done=lambda outcome: None)
        here = writing.exists()
        if here and not began:
            began = time.perf_counter()
        if began:
            steps.run(host.pump)
        else:
            host.pump()
        if began and not here and writing.with_name("snapshot").exists():
            for _ in range(5):
                steps.run(host.pump)
            break
    took = time.perf_counter() - began
    host.close()
    return steps, took


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m bench.components.registry.stalls")
    parser.add_argument("--ids", type=int, default=10_000_000)
    ids = parser.parse_args().ids
    found: dict[str, object] = {"ids": ids}
    now = time.time_ns()
    machine = ShardMachine()
    machine.apply(1, c.encode(c.Configure(1, single_range(1))))
    machine.apply(2, c.encode(c.Announce("slot", "dc", [1])))
    grow = Steps()
    for _ in range(ids // 10_000):
        command = insert(now, 10_000)
        grow.run(partial(machine.apply, 3, command))
    found["growing, 10,000 ids a step"] = grow.shown()
    with tempfile.TemporaryDirectory(prefix="photon-bench-") as name:
        steps, took = through_a_snapshot(Path(name), machine, now)
    found["snapshot, 2,000 ids a step"] = steps.shown() | {"seconds": round(took, 1)}
    other = ShardMachine()
    restoring = other.restoring()
    reading = Steps()
    for chunk in machine.snapshot():
        reading.run(partial(restoring.take, chunk))
    reading.run(restoring.finish)
    found["reading a snapshot, a chunk a step"] = reading.shown()
    del other
    found["collection of all"] = collection(ids)
    print(json.dumps(found, indent=1))
    return 0


def collection(ids: int) -> dict[str, float]:
    """Of a day: ten buckets, all cleared."""
    table = IdTable()
    each = ids // RETENTION_BUCKETS
    rng = np.random.default_rng(1)
    for bucket in range(RETENTION_BUCKETS):
        for _ in range(each // 10_000):
            lo, hi = rng.integers(0, 2**63, (2, 10_000), dtype=np.uint64)
            ones = np.ones(10_000, np.uint8)
            times = np.full(10_000, bucket << table.bucket_bits)
            tokens = ones.astype(np.uint64)
            table.add(lo, hi, times, tokens, ones, ones.astype(np.uint32), None, ones == 1)
            met = table.clear(lo, hi, tokens)
            assert not (met.states == CLEARED).any()
    steps = Steps()
    steps.run(lambda: table.collect(RETENTION_BUCKETS << table.bucket_bits))
    assert len(table) == 0
    return steps.shown()


if __name__ == "__main__":
    sys.exit(main())
