"""Computations over what is published: records a second, latency, and what a small cache costs.

``python -m bench.components.computing [--records N] [--peers] [--hbase]``. Throughput: one process reads published
files, counts seconds of each of 1,000 keys, sums the counts by second, and publishes the sums, exactly once (SQLite,
every commit synced). ``--peers``: so do Bytewax and Flink over the same file, with recovery, one after the other in
environments of their own, and all sums are compared; of theirs the time that they take over one record, which is that
of their start, is taken off. ``--hbase``: with the state in an HBase of one machine (see ``hbase.py``). Latency: one
computation that passes records on, at 2,000 a second, from when a record is there until it may leave: for strong
productions after the commit, for weak ones before it. Cache: CPU seconds where all rows are in memory, and where a
tenth of them is. Processes (``--processes``, nothing else): ``photon compute run`` with 1 to 4 of them, two
computations under different keys, strong productions, from when a record is published until the second one has it.
Wall clock of a busy machine is a lower bound of its speed; CPU seconds suffer less.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from bench.components.hbase import hbase_at
from bench.peers.environments import BYTEWAX, FLINK, Environment, Unavailable
from bench.results import BenchmarkFailed
from photon.assembly.computing import Running, Site, keep_in_hbase
from photon.computing import SECOND_NS, Computation, Context, Record, Timer, Topology, seconds
from photon.computing.engine import Engine, Limits
from photon.computing.hbase_rows import VersionedRows
from photon.computing.hbase_store import HBaseStore
from photon.computing.intervals import HASHES, even, hash_of
from photon.computing.publisher import Publisher
from photon.computing.sqlite_store import SqliteStore
from photon.computing.store import Store
from photon.computing.wire import Ack, Input, Item, Watermark
from photon.config.disk import RealDisk

T_NS = 1_760_000_000 * SECOND_NS
KEYS = 1_000
TABLE = "computing_bench"
RATE = 2_000
TICK_S = 0.001
LATENCY_S, WARM_S = 10.0, 5.0


class Took(NamedTuple):
    """Seconds."""

    wall: float
    cpu: float

    def less(self, other: Took) -> Took:
        return Took(self.wall - other.wall, self.cpu - other.cpu)

    def rates(self, records: int) -> str:
        """For people."""
        return f"{records / self.wall:,.0f} records/s ({records / self.cpu:,.0f} a CPU second)"


class Count(Computation):
    """Keyed by user: records in each second."""

    def process_record(self, ctx: Context, record: Record) -> None:
        end = seconds(record.time_ns) + SECOND_NS
        ctx.state[str(end)] = ctx.state.get(str(end), 0) + 1
        ctx.set_timer("end", end)

    def process_timer(self, ctx: Context, timer: Timer) -> None:
        ctx.produce("counts", {"second": timer.time_ns, "count": ctx.state.pop(str(timer.time_ns))})


class Total(Computation):
    """Keyed by second."""

    def process_record(self, ctx: Context, record: Record) -> None:
        ctx.state["sum"] = ctx.state.get("sum", 0) + record.value["count"]
        ctx.set_timer("end", record.time_ns)

    def process_timer(self, ctx: Context, timer: Timer) -> None:
        ctx.produce("totals", {"second": timer.time_ns, "count": ctx.state.pop("sum")})


def windows() -> Topology:
    """Both, over the directory ``in``."""
    made = Topology("windows")
    joined = made.joined("in")
    made.add(Count(), {joined: lambda record: record.value["foreign"]["user"]}, ["counts"])
    made.add(Total(), {"counts": lambda record: str(record.value["second"])}, ["totals"])
    made.publish("totals", "totals")
    return made


def recorded(base: Path, records: int) -> Counter[int]:
    """Publishes them below ``in``, in one file. How many there are of each second since 1970."""
    publisher = Publisher(RealDisk(), base / "in", "in", roll_bytes=1 << 40)
    for at in range(0, records, 10_000):
        numbers = range(at, min(at + 10_000, records))
        publisher.publish(Item(n, "", "", T_NS + n * 100_000, _value(n), "in") for n in numbers)
    publisher.close()
    return Counter((T_NS + n * 100_000) // SECOND_NS for n in range(records))


def throughput(base: Path, truth: Counter[int], thrift: str = "") -> Took:
    """Over what is recorded there. ``truth``: what is to come of it; ``thrift``: of the HBase that has the state.
    Raises BenchmarkFailed."""
    site = Site(windows(), base, base / "state")
    if thrift:
        keep_in_hbase(site, [thrift], TABLE, 1, [], durable=False)
        site = Site(windows(), base, base / "state")
    site.intervals()
    begun, cpu = time.perf_counter(), time.process_time()
    running = Running(site, once=True)
    try:
        running.run(threading.Event())
    finally:
        running.close()
    took = Took(time.perf_counter() - begun, time.process_time() - cpu)
    lines = (base / "totals" / "joined" / "i0-000001.jsonl").read_bytes().splitlines()
    found = [msgspec.json.decode(line)["foreign"] for line in lines]
    _same("photon", Counter({each["second"] // SECOND_NS - 1: each["count"] for each in found}), truth)
    return took


def _same(who: str, found: Counter[int], truth: Counter[int]) -> None:
    if found != truth:
        wrong = [(each, found[each], truth[each]) for each in sorted(truth | found) if found[each] != truth[each]]
        raise BenchmarkFailed(f"{who}: second, found, truth: {wrong[:5]}")


def _value(n: int) -> bytes:
    return msgspec.msgpack.encode({"user": f"user {n % KEYS}", "cents": n % 100, "terms": "rain coat and boots"})


class Pass(Computation):
    """A stage that does nothing."""

    def process_record(self, ctx: Context, record: Record) -> None:
        ctx.produce("out", record.value)


class Nothing(Computation):
    """The next stage, of another owner."""

    idempotent = True

    def process_record(self, ctx: Context, record: Record) -> None: ...


HERE = [key for key in (f"k{n}" for n in range(4 * KEYS)) if hash_of(key) < HASHES // 2][:KEYS]
THERE = next(key for key in (f"k{n}" for n in range(KEYS)) if hash_of(key) >= HASHES // 2)


class WeakPass(Pass):
    idempotent = True
    dedup = False


def latency(store: Store, computation: Computation) -> tuple[float, float]:
    """p50 and p95, milliseconds. ``store``: of the first of two intervals."""
    made = Topology("pass")
    made.add(computation, {made.source("in"): lambda record: record.value["key"]}, ["out"])
    made.add(Nothing(), {"out": lambda record: THERE})
    intervals = even(2)
    engine = Engine(made, store, intervals)
    delays: list[float] = []
    begun, sent, position = time.perf_counter(), 0, 0
    while (now := time.perf_counter() - begun) < LATENCY_S:
        due = int(now * RATE)
        if due == sent:
            time.sleep(TICK_S / 4)
            continue
        records = [Record({"key": HERE[n % KEYS], "at": n / RATE}, T_NS + n) for n in range(sent, due)]
        sent, position = due, position + 1
        engine.take(Input("in", engine.position("in"), str(position).encode(), records, Watermark()), time.time_ns())
        for message in engine.weak():
            at = time.perf_counter() - begun
            delays += [at - item.decoded()["at"] for item in message.items]
            engine.acknowledged(Ack(message.sender, message.target, 0, tuple(item.id for item in message.items)))
        engine.commit()
        for message in engine.outgoing():
            at = time.perf_counter() - begun
            delays += [at - item.decoded()["at"] for item in message.items]
            engine.acknowledged(Ack(message.sender, message.target, message.upto))
    delays.sort()
    return 1e3 * delays[len(delays) // 2], 1e3 * delays[len(delays) * 95 // 100]


class Keep(Computation):
    def process_record(self, ctx: Context, record: Record) -> None:
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        ctx.state.setdefault("kept", "x" * 200)


def cache(base: Path, name: str, cache_bytes: int, rounds: int = 6, keys: int = 20_000) -> float:
    """CPU seconds."""
    made = Topology("keep")
    made.add(Keep(), {made.source("in"): lambda record: record.value})
    store = SqliteStore(base / f"{name}.db", even(1).all[0])
    engine = Engine(made, store, even(1), limits=Limits(cache_bytes=cache_bytes))
    cpu = time.process_time()
    for batch, some in enumerate(_batches(rounds, keys)):
        engine.take(Input("in", engine.position("in"), str(batch).encode(), some), 0)
        engine.commit()
    took = time.process_time() - cpu
    store.close()
    return took


def _batches(rounds: int, keys: int) -> Iterator[Sequence[Record]]:
    for at in range(rounds):
        for begin in range(0, keys, 2_000):
            yield [Record(f"key {n}", T_NS + at) for n in range(begin, begin + 2_000)]


SPREAD = """
import os
import time

from photon.computing import Computation, Topology

found = []


class Pass(Computation):
    def process_record(self, ctx, record):
        ctx.produce("passed", record.value["foreign"])


class Arrive(Computation):
    def process_record(self, ctx, record):
        found.append(f"{record.value['at']} {time.time() - record.value['at']}\\n")
        if len(found) == 100:
            with open(f"delays/{os.getpid()}", "a") as file:
                file.writelines(found)
            found.clear()


topology = Topology("spread")
joined = topology.joined("in")
topology.add(Pass(), {joined: lambda record: record.value["foreign"]["user"]}, ["passed"])
topology.add(Arrive(), {"passed": lambda record: str(record.value["n"] % 1009)})
"""


def spread(base: Path, processes: int, seconds: float = LATENCY_S) -> tuple[float, float]:
    """p50 and p95, milliseconds, with so many processes."""
    (base / "delays").mkdir(parents=True)
    (base / "spread.py").write_text(SPREAD)
    publisher = Publisher(RealDisk(), base / "in", "in")
    command = [
        sys.executable,
        "-m",
        "photon",
        "compute",
        "run",
        "spread.py",
        "--processes",
        str(processes),
        "--quiet",
    ]
    running = subprocess.Popen(command, cwd=base, stdout=subprocess.DEVNULL)
    sent, begun, measured = 0, time.time(), float("inf")
    try:
        while (now := time.time()) < measured + seconds:
            if measured == float("inf") and any((base / "delays").iterdir()):
                measured = now + WARM_S
            due = int((now - begun) * RATE)
            publisher.publish(Item(n, "", "", T_NS + n, _spread(n, now), "in") for n in range(sent, due))
            sent = due
            time.sleep(5 * TICK_S)
    finally:
        publisher.close()
        running.terminate()
        running.wait()
    lines = [line.split() for file in (base / "delays").iterdir() for line in file.read_text().splitlines()]
    delays = sorted(float(delay) for at, delay in lines if float(at) >= measured)
    return 1e3 * delays[len(delays) // 2], 1e3 * delays[len(delays) * 95 // 100]


def _spread(n: int, now: float) -> bytes:
    return msgspec.msgpack.encode({"user": f"user {n % KEYS}", "n": n, "at": now})


@dataclass(frozen=True, slots=True)
class Peer:
    """``sums``: second -> records, of what it has written below a directory; ``last``: whether that of the last
    second is among them."""

    name: str
    script: str
    environment: Environment
    sums: Callable[[Path], Counter[int]]
    last: bool = True
    prints_cpu: bool = False
    """Seconds of what its script does not wait for."""

    def over(self, lines: Path, state: Path) -> Took:
        """Of its processes. Raises Unavailable."""
        script = Path(__file__).parents[1] / "peers" / self.script
        python = self.environment.python()
        before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        given = {**os.environ, "PYTHONPATH": str(script.parent)}
        done = subprocess.run([str(python), str(script), str(lines), str(state)], env=given, capture_output=True)
        if done.returncode:
            said = [line for line in done.stderr.decode(errors="replace").splitlines() if line.strip()] or [""]
            why = next((line for line in reversed(said) if line.startswith("Caused by")), said[-1])
            raise Unavailable(f"ended with {done.returncode}: {why}")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        if self.prints_cpu:
            cpu += float(done.stdout.split()[-1])
        return Took(time.perf_counter() - begun, cpu)

    def beside(self, base: Path, truth: Counter[int]) -> str:
        """Over the same lines, and what it took, for people. Raises Unavailable, BenchmarkFailed."""
        start = base / f"{self.name}-start"
        recorded(start, 1)
        idle = self.over(start / "in" / "joined", start / "state")
        took = self.over(base / "in" / "joined", base / self.name)
        found = self.sums(base / self.name / "out")
        if not self.last:
            truth = Counter({second: n for second, n in truth.items() if second < max(truth)})
            found = Counter({second: n for second, n in found.items() if second in truth})
        _same(self.name, found, truth)
        return f"{took.less(idle).rates(truth.total())}; its start took {idle.wall:.1f} s, {idle.cpu:.1f} of CPU"


def _bytewax_sums(out: Path) -> Counter[int]:
    """It writes each new sum of a second."""
    found = Counter[int]()
    for second, n in (line.split() for line in out.read_text().splitlines()):
        found[int(second)] = max(found[int(second)], int(n))
    return found


def _flink_sums(out: Path) -> Counter[int]:
    """``"2025-10-09 08:53:20.000",10000``, in files whose names end in nothing."""
    found = Counter[int]()
    for file in out.glob("part-*"):
        for line in file.read_text().splitlines():
            moment, n = line.rsplit(",", 1)
            at = datetime.fromisoformat(moment.strip('"')).replace(tzinfo=UTC)
            found[round(at.timestamp())] += int(n)
    return found


PEERS = (
    Peer("bytewax", "bytewax_windows.py", BYTEWAX, _bytewax_sums, last=False),
    Peer("flink", "flink_windows.py", FLINK, _flink_sums, prints_cpu=True),
)


def main() -> None:
    """Prints what was measured."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--processes", action="store_true")
    parser.add_argument("--hbase", action="store_true")
    given = parser.parse_args()
    if given.processes:
        for processes in range(1, 5):
            with tempfile.TemporaryDirectory(prefix="photon-computing-") as directory:
                p50, p95 = spread(Path(directory), processes)
            print(f"{processes} processes at {RATE:,}/s: p50 {p50:.1f} ms, p95 {p95:.1f} ms", flush=True)
        return
    with tempfile.TemporaryDirectory(prefix="photon-computing-") as directory:
        base = Path(directory)
        truth = recorded(base, given.records)
        print(f"two stages, exactly once: {throughput(base, truth).rates(given.records)}", flush=True)
        if given.hbase:
            with hbase_at() as (_, thrift, _), tempfile.TemporaryDirectory(prefix="photon-computing-") as other:
                took = throughput(Path(other), recorded(Path(other), given.records), thrift)
                rows = VersionedRows([thrift], TABLE)
                strong = latency(HBaseStore(rows, "pass", even(2).all[0]), Pass())
                rows.close()
            print(f"the same in HBase: {took.rates(given.records)}")
            print("one stage at {:,}/s in HBase: p50 {:.1f} ms, p95 {:.1f} ms".format(RATE, *strong))
        if given.peers:
            for peer in PEERS:
                try:
                    print(f"{peer.name}, recovery on: {peer.beside(base, truth)}", flush=True)
                except Unavailable as why:
                    print(f"{peer.name}: {why}")
        for computation in (Pass(), WeakPass()):
            name = "weak, no dedup" if computation.idempotent else "strong, exactly once"
            store = SqliteStore(base / f"{type(computation).__name__}.db", even(2).all[0])
            print(
                "one stage at {:,}/s, {}: p50 {:.1f} ms, p95 {:.1f} ms".format(
                    RATE, name, *latency(store, computation)
                )
            )
            store.close()
        memory = cache(base, "memory", 1 << 30)
        tenth = cache(base, "tenth", 20_000 * 560 // 10)
        print(f"state = 10 x cache: {tenth / memory:.2f} x the CPU of all in memory")


if __name__ == "__main__":
    main()
