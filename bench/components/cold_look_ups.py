"""Look-ups of primary events that are in no cache: look-ups a second of CPU time, and bytes read for each.

    python -m bench.components.cold_look_ups [--events N] [--seconds S] [--neighbour]

Four logs of 300-byte records, each written by eight processes whose events interleave; ids rise within a process. The
files are asked to leave the page cache before each run. *Catch-up*: batches of 1,000 keys that lie together, a tenth
of the events there. *Scattered*: batches of 100 keys from anywhere. Bytes are uncompressed ones. ``--neighbour``: how
long batches of 20 keys of a plain log take beside one who asks a big gzip log for scattered keys all the time.
``--hbase THRIFT ADMIN`` (host:port each, as ``make hbase`` shows them): plain logs, the file map in a table there.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import os
import random
import resource
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import zstandard

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.side import SideConfig, TimeConfig
from photon.config.clock import NEVER_NS, SystemClock
from photon.config.disk import RealDisk
from photon.eventstore.api import LookUpCode
from photon.eventstore.engine import EventStoreConfig, EventStoreEngine
from photon.eventstore.file_map import HBaseTable, MapKind
from photon.eventstore.hbase.admin import make_table
from photon.eventstore.hbase.connection import ThriftHBase
from photon.eventstore.log_reads import READ_THREADS, LogReads

LOGS = 4
PROCESSES = 8
RECORD_BYTES = 300
BATCHES = {"catch-up": 1000, "scattered": 100}
FRAME_BYTES = 1 << 20
TABLE = "photon_bench"
SHAPES = ("plain", "gz", "zst, one frame", "zst, frames of 1 MiB")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    file_map: str
    logs: str
    pattern: str
    per_cpu_second: float
    per_second: float
    bytes_each: float
    keys: int


def records(log: int, count: int, rng: random.Random) -> tuple[list[bytes], bytes]:
    """(keys, the log's bytes)."""
    keys, lines = [], []
    micros = 1_700_000_000_000_000
    for n in range(count):
        micros += rng.randrange(1, 2_000)
        key = b"10.0.%d.1:%d:%d" % (log, 100 + rng.randrange(PROCESSES), micros)
        line = b'{"id":"%s","query":"%s","n":%d' % (key, rng.randbytes(60).hex().encode(), n)
        lines.append(line + b',"pad":"%s"}\n' % (b"x" * (RECORD_BYTES - len(line) - 12)))
        keys.append(key)
    return keys, b"".join(lines)


def write(directory: Path, shape: str, log: int, data: bytes) -> None:
    if shape == "plain":
        (directory / f"q{log}.log").write_bytes(data)
    elif shape == "gz":
        (directory / f"q{log}.log.gz").write_bytes(gzip.compress(data, 1))
    else:
        step = len(data) if shape == "zst, one frame" else FRAME_BYTES
        packer = zstandard.ZstdCompressor(level=1)
        frames = (packer.compress(data[at : at + step]) for at in range(0, len(data), step))
        (directory / f"q{log}.log.zst").write_bytes(b"".join(frames))


def leave_page_cache(directory: Path) -> None:
    """Asks for it; what the disk has not got yet is synced first."""
    for path in directory.iterdir():
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def batches(pattern: str, keys: Sequence[Sequence[bytes]], rng: random.Random) -> Iterator[list[bytes]]:
    size = BATCHES[pattern]
    if pattern == "scattered":
        every = [key for log in keys for key in log]
        while True:
            yield rng.sample(every, size)
    share = size // len(keys)
    at = 0
    while True:
        width = 10 * share
        if at + width > len(keys[0]):
            at = 0
        yield [key for log in keys for key in rng.sample(log[at : at + width], share)]
        at += width


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def measured(
    engine: EventStoreEngine, asked: Iterator[list[bytes]], seconds: float
) -> tuple[int, float, float, float]:
    """(keys, CPU seconds, seconds, bytes per look-up)."""
    before, cpu, began = await engine.progress(), cpu_s(), time.monotonic()
    keys = 0
    while keys == 0 or time.monotonic() - began < seconds:
        batch = next(asked)
        keys += len(batch)
        while batch:  # what a busy machine does not inflate in time is asked for again, as a joiner does
            answers = (await engine.look_up(batch, [NEVER_NS] * len(batch))).answers
            if not set(answers) <= {LookUpCode.FOUND, LookUpCode.UNAVAILABLE}:
                raise SystemExit(f"answers {set(answers)}: not a benchmark")
            batch = [key for key, answer in zip(batch, answers, strict=True) if answer is LookUpCode.UNAVAILABLE]
    wall, used = time.monotonic() - began, cpu_s() - cpu
    after = await engine.progress()
    return keys, used, wall, (after.log_bytes - before.log_bytes) / keys


def hbase_table(thrift: str, admin: str) -> HBaseTable:
    """The bench's own table, made where it is not there yet."""
    client = ThriftHBase(thrift, SystemClock())
    try:
        make_table(client, admin, TABLE, ttl_s=86_400)
    finally:
        client.close()
    return HBaseTable(thrift, TABLE)


async def rows(
    base: Path, events: int, seconds: float, shapes: Sequence[str], table: HBaseTable | None = None
) -> list[Row]:
    rng = random.Random(7)
    made = [records(log, events // LOGS, rng) for log in range(LOGS)]
    keys = [each[0] for each in made]
    primary = SideConfig(format="jsonl", key="id")
    adapter = ConfiguredAdapter.from_sides(
        primary, SideConfig(format="jsonl", key="id", time=TimeConfig(field="t", unit="s"))
    )
    out = []
    for shape in shapes:
        directory = base / shape.replace(" ", "-").replace(",", "")
        directory.mkdir()
        for log, (_, data) in enumerate(made):
            write(directory, shape, log, data)
        for kind in MapKind:
            config = EventStoreConfig("bench", directory, base / f"{directory.name}-{kind}", kind=kind,
                                      once=True, cache_bytes=1, hbase=table)  # fmt: skip
            engine = EventStoreEngine(config, adapter, SystemClock(), RealDisk())
            engine.start()
            await asyncio.to_thread(engine.ended.wait)
            if engine.failure:
                raise SystemExit(engine.failure)
            for pattern in BATCHES:
                leave_page_cache(directory)
                count, cpu, wall, each = await measured(engine, batches(pattern, keys, rng), seconds)
                where = kind.value if table is None else f"{kind.value}, HBase"
                out.append(Row(where, shape, pattern, count / cpu, count / wall, each, count))
            await engine.close()
    return out


async def neighbour(base: Path, events: int, seconds: float) -> None:
    """Prints latencies alone, beside a slow log with one reading thread, and with as many as there are."""
    rng = random.Random(7)
    directory = base / "logs"
    directory.mkdir()
    plain, packed = records(0, events // 10, rng), records(1, events, rng)
    write(directory, "plain", 0, plain[1])
    write(directory, "gz", 1, packed[1])
    side = SideConfig(format="jsonl", key="id")
    adapter = ConfiguredAdapter.from_sides(
        side, SideConfig(format="jsonl", key="id", time=TimeConfig(field="t", unit="s"))
    )
    config = EventStoreConfig("bench", directory, base / "map", once=True, cache_bytes=1)
    engine = EventStoreEngine(config, adapter, SystemClock(), RealDisk())
    engine.start()
    await asyncio.to_thread(engine.ended.wait)
    print(f"load average {os.getloadavg()[0]:.1f}\n\n| | p50 ms | p99 ms |\n| --- | --- | --- |")
    for what, threads in (("alone", 0), ("beside it, one thread", 1), (f"beside it, {READ_THREADS} threads", 4)):
        stop = asyncio.Event()
        engine._reads = LogReads(engine._logs, threads=max(threads, 1))

        async def ask(keys: Sequence[bytes], count: int) -> None:
            batch = rng.sample(keys, count)
            await engine.look_up(batch, [NEVER_NS] * count)

        async def busy(stop: asyncio.Event = stop) -> None:
            while not stop.is_set():
                await ask(packed[0], 20)

        slow = asyncio.create_task(busy()) if threads else None
        took = []
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            began = time.monotonic()
            await ask(plain[0], 20)
            took.append((time.monotonic() - began) * 1e3)
        stop.set()
        if slow is not None:
            await slow
        took.sort()
        print(f"| {what} | {took[len(took) // 2]:.1f} | {took[len(took) * 99 // 100]:.1f} |")
    await engine.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=400_000)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each row")
    parser.add_argument("--shape", action="append", choices=SHAPES, help="only these")
    parser.add_argument("--neighbour", action="store_true")
    parser.add_argument("--hbase", nargs=2, metavar=("THRIFT", "ADMIN"))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as base:
        if options.neighbour:
            asyncio.run(neighbour(Path(base), options.events, options.seconds))
            return
        table = hbase_table(*options.hbase) if options.hbase else None
        shapes = options.shape or (SHAPES[:1] if table is not None else SHAPES)
        found = asyncio.run(rows(Path(base), options.events, options.seconds, shapes, table))
    if options.json:
        print(json.dumps([asdict(row) for row in found]))
        return
    print(f"{options.events:,} events in {LOGS} logs, load average {os.getloadavg()[0]:.1f}\n")
    print("| map | logs | pattern | look-ups/s of CPU | look-ups/s | KiB read each |")
    print("| --- | --- | --- | --- | --- | --- |")
    for row in found:
        print(
            f"| {row.file_map} | {row.logs} | {row.pattern} | {row.per_cpu_second:,.0f} | {row.per_second:,.0f} "
            f"| {row.bytes_each / 1024:,.1f} |"
        )


if __name__ == "__main__":
    main()
