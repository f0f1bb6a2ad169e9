"""What cache nodes take and give: python -m bench.components.cache. Prints a table, or with -o json one object.

- warm-up: a log of 300-byte records through follower, primary reader and cache; events for each CPU second of the
  reading process (all its threads) and of the nodes. Into the cache of the own process, with and without the dense
  file map that a real reader fills too; and into node processes, without it.
- look-ups: batches of 1,000 keys that nodes have, several batches under way; per second of wall time, and CPU.
- hit ratio: an event store over the demo's arrival pattern, with nodes of a small size, asked for what is clicked;
  and over the join benchmark's, all there at once, with a cache in the proportion that it has there.

CPU time is what counts here: wall time says what else the machine does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import tempfile
import time
from collections.abc import Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.generated_logs import write
from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.logs.api import LogPosition
from photon.adapters.logs.follower import Follower
from photon.adapters.logs.identity import log_name
from photon.config.clock import SystemClock
from photon.config.disk import RealDisk
from photon.eventstore.api import LookUpCode
from photon.eventstore.cache_nodes.nodes import CacheNodes
from photon.eventstore.cache_nodes.wire import source_of
from photon.eventstore.engine import EventStoreConfig, EventStoreEngine, open_map
from photon.eventstore.file_map import MappedBlock, MapSettings, MapTotals
from photon.eventstore.found_records import FoundRecords
from photon.eventstore.index import hash_keys
from photon.eventstore.primary_reader import BlockCache, PrimaryReader
from photon.eventstore.segments import CACHE_BYTES_MAX, CacheEventStore
from photon.lab.demo.generator import Disorder, Generator, Line
from photon.supervision.ports import free_ports
from photon.supervision.supervisor import Service, Supervisor

SIDE = {"format": "jsonl", "key": "query_id"}
FOREIGN = SIDE | {"id": "click_id", "time": {"field": "time_us", "unit": "us"}}
SOURCE = source_of(b"bench")
NODE_BYTES = 1 << 30
JOIN_CLICKS = 100_000
"""Of the join benchmark; its cache has the default size."""
BATCH = 1000
UNDER_WAY = 8


def adapter() -> ConfiguredAdapter:
    return ConfiguredAdapter({"primary": SIDE, "foreign": FOREIGN})


def write_log(directory: Path, events: int) -> list[bytes]:
    """Records of 300 bytes in one log; their keys."""
    directory.mkdir()
    keys, filler = [], "x" * 214
    with open(directory / "queries.log", "wb") as file:
        for number in range(events):
            key = f"10.0.{number % 256}.{number // 256 % 256}:{1000 + number % 7}:{1700000000000000 + number * 37}"
            record = f'{{"query_id":"{key}","time_us":{1700000000000000 + number * 37},"q":"{filler}"}}\n'
            file.write(record.encode())
            keys.append(key.encode())
    print(f"{events:,} records of {(directory / 'queries.log').stat().st_size / events:.0f} bytes", flush=True)
    return keys


class NoMap:
    """A file map that keeps nothing."""

    def positions(self) -> list[LogPosition]:
        return []

    def add(self, block: MappedBlock) -> None:
        pass

    def commit(self) -> None:
        pass

    def all_read(self) -> None:
        pass

    def totals(self, *, exact: bool = False) -> MapTotals:
        return MapTotals(events=1)


def read_all(logs: Path, cache: BlockCache, file_map: Any) -> None:
    """Follower and primary reader to the end of the logs."""
    follower = Follower(logs, has_header=False, max_record=1 << 20, positions=[])
    reader = PrimaryReader(follower, adapter(), cache, file_map, SystemClock(), once=True)
    while not reader.done:
        reader.step()
    follower.close()


@asynccontextmanager
async def node_processes(directory: Path, count: int, size: int = NODE_BYTES):  # type: ignore[no-untyped-def]
    """``photon serve cache`` as it is run; (supervisor, name -> address)."""
    addresses = {f"c{i}": f"127.0.0.1:{port}" for i, port in enumerate(free_ports(count), 1)}
    file = directory / "photon.toml"
    tables = "".join(
        f'[datacentre.east.caches.{name}]\naddress = "{address}"\nsize = {size}\n'
        for name, address in addresses.items()
    )
    file.write_text(
        '[join.clicks.primary]\nformat = "jsonl"\nkey = "query_id"\n[join.clicks.foreign]\nformat = "jsonl"\n'
        'key = "query_id"\nid = "click_id"\ntime = { field = "time_us", unit = "us" }\n[datacentre.east]\n'
        'join = "clicks"\nprimary = "p"\nforeign = "f"\noutput = "o"\nstate = "s"\neventstore = "127.0.0.1:1"\n'
        'joiners.east-1.address = "127.0.0.1:2"\n' + tables
    )
    supervisor = Supervisor()
    await supervisor.start(
        [
            Service(
                name,
                ("serve", "cache", name, "--config", str(file), "--stop-with-parent"),
                directory / f"{name}.log",
                address,
                "photon.v1.Cache",
            )
            for name, address in addresses.items()
        ]
    )
    try:
        await supervisor.ready(60)
        yield supervisor, addresses
    finally:
        await supervisor.stop()


def cpu_s(supervisor: Supervisor, names: Sequence[str]) -> float:
    """CPU seconds of these processes so far."""
    total = 0
    for name in names:
        parts = Path(f"/proc/{supervisor.pid(name)}/stat").read_text().rsplit(")", 1)[1].split()
        total += int(parts[11]) + int(parts[12])
    return total / os.sysconf("SC_CLK_TCK")


def own_cache(logs: Path, events: int, *, map_in: Path | None) -> float:
    """Events for each CPU second, into the cache of this process."""
    file_map: Any = NoMap()
    if map_in is not None:
        file_map, _ = open_map(map_in, MapSettings(b"rule"), log_name, RealDisk(), SystemClock(), None)
    began = time.process_time()
    read_all(logs, CacheEventStore(adapter(), NODE_BYTES), file_map)
    took = time.process_time() - began
    if map_in is not None:
        file_map.close()
    return events / took


@dataclass(frozen=True, slots=True)
class Fed:
    """A warm-up of node processes."""

    reader_per_s: float
    nodes_per_s: float
    looked_up_per_s: float
    asker_per_s: float
    found: float


async def nodes(root: Path, logs: Path, keys: Sequence[bytes], count: int) -> Fed:
    """Feeds nodes, then asks them."""
    async with node_processes(root, count) as (supervisor, addresses):
        cache = CacheNodes(SOURCE, time.monotonic)
        cache.set_nodes(addresses)
        before, began = cpu_s(supervisor, list(addresses)), time.process_time()
        await asyncio.to_thread(read_all, logs, cache, NoMap())
        size = (logs / "queries.log").stat().st_size
        while sum(state.fed_bytes for state in await cache.states()) < size:  # noqa: ASYNC110 -- of processes
            await asyncio.sleep(0.05)
        reader_s, nodes_s = time.process_time() - began, cpu_s(supervisor, list(addresses)) - before
        asked, found, wall_s, asker_s = await look_ups(cache, keys)
        await cache.close()
    return Fed(len(keys) / reader_s, len(keys) / nodes_s, asked / wall_s, asked / asker_s, found / asked)


async def look_ups(cache: CacheNodes, keys: Sequence[bytes]) -> tuple[int, int, float, float]:
    """(keys asked, found, seconds, CPU seconds of this process)."""
    draw = random.Random(5)
    batches = [hash_keys(draw.sample(keys, BATCH)) for _ in range(100)]
    found = 0

    async def ask(mine: Sequence[Any]) -> None:
        nonlocal found
        for hashes in mine:
            asked = cache.ask(hashes)
            await asked.complete()
            found += len(np.unique(FoundRecords.concat(asked.located()).rows))

    wall, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(ask(batches[i::UNDER_WAY]) for i in range(UNDER_WAY)))
    return len(batches) * BATCH, found, time.perf_counter() - wall, time.process_time() - cpu


async def hit_ratio(root: Path, clicks: int, seconds: float, count: int, size: int) -> dict[str, float]:
    """An event store over the demo's stream, faster than it would run, asked for each click when it arrives."""
    disorder = Disorder(malformed=0.0)
    generator = Generator(9, clicks=clicks, seconds=seconds, disorder=disorder)
    lines = sorted(generator.lines(), key=lambda line: line.at_us)
    logs = root / "queries"
    logs.mkdir()
    async with node_processes(root, count, size) as (_, addresses):
        engine = EventStoreEngine(
            EventStoreConfig("clicks", logs, root / "map"), adapter(), SystemClock(), RealDisk()
        )
        engine.nodes.set_nodes(addresses)
        engine.start()
        found = await replay(engine, lines, logs / "queries-0000.log")
        progress = await engine.progress()
        states = await engine.nodes.states()
        await engine.close()
    counted = [state.counts for state in states if state.counts is not None]
    return {
        "found": found,
        "hits": progress.cache_hits,
        "ratio": progress.cache_hits / max(1, found),
        "evictions": sum(each.cache.evictions for each in counted),
        "held_mib": sum(each.cache.bytes for each in counted) / (1 << 20),
        "primary_mib": sum(len(line.data) for line in lines if line.primary) / (1 << 20),
    }


async def replay(engine: EventStoreEngine, lines: Sequence[Line], log: Path) -> int:
    """Writes what arrives in each 100 ms, waits until it is read, asks for its clicks; a click whose query is not
    there yet is asked again in the next step, as dispatchers do. How many were found."""
    waiting: list[bytes] = []
    found = at = written = 0
    with open(log, "ab", buffering=0) as file:  # noqa: ASYNC230 -- one small write a step
        while at < len(lines):
            end, due = at, lines[at].at_us + 100_000
            while end < len(lines) and lines[end].at_us <= due:
                end += 1
            data = b"".join(line.data for line in lines[at:end] if line.primary)
            waiting += [json.loads(line.data)["query_id"].encode() for line in lines[at:end] if not line.primary]
            file.write(data)
            written += len(data)
            at = end
            while (await engine.progress()).bytes_read < written:  # noqa: ASYNC110 -- of a thread
                await asyncio.sleep(0.002)
            answers = (await engine.look_up(waiting, [1 << 62] * len(waiting))).answers
            found += answers.count(LookUpCode.FOUND)
            waiting = [key for key, answer in zip(waiting, answers, strict=True) if answer is not LookUpCode.FOUND]
    return found


async def backlog_ratio(root: Path, clicks: int, cache_bytes: int) -> dict[str, float]:
    """The join benchmark's stream, all there at once: clicks are asked for in their order while the queries are being
    read, as fast as the event store answers. The cache of the own process."""
    generator = Generator(20, clicks=clicks, seconds=clicks / 10, disorder=Disorder(malformed=0.0), keep_truth=False)
    written = write(generator.lines(), root, files=20)
    keys = [
        json.loads(line)["query_id"].encode()
        for path in sorted(written.foreign.iterdir())
        for line in path.read_bytes().splitlines()
    ]
    config = EventStoreConfig("clicks", written.primary, root / "map", cache_bytes=cache_bytes)
    engine = EventStoreEngine(config, adapter(), SystemClock(), RealDisk())
    engine.start()
    waiting: list[bytes] = []
    found = at = 0
    while at < len(keys) or (waiting and (await engine.progress()).bytes_read < written.primary_bytes):
        waiting += keys[at : at + BATCH]
        at += BATCH
        answers = (await engine.look_up(waiting, [1 << 62] * len(waiting))).answers
        found += answers.count(LookUpCode.FOUND)
        waiting = [key for key, answer in zip(waiting, answers, strict=True) if answer is not LookUpCode.FOUND]
        if len(waiting) > BATCH:  # ahead of the reader, as a dispatcher would not be for long
            await asyncio.sleep(0.01)
    found += (await engine.look_up(waiting, [0] * len(waiting))).answers.count(LookUpCode.FOUND)
    counts, progress = engine.cache_counts(), await engine.progress()
    await engine.close()
    return {
        "found": found,
        "read": progress.log_reads,
        "ratio": counts.hits / max(1, found),
        "evictions": counts.evictions,
        "cache_mib": cache_bytes / (1 << 20),
        "primary_mib": written.primary_bytes / (1 << 20),
    }


async def run(options: argparse.Namespace, root: Path) -> dict[str, Any]:
    """All rows."""
    logs = root / "logs"
    keys = write_log(logs, options.events)
    out: dict[str, Any] = {"load": os.getloadavg()[0], "events": options.events}
    out["own_cache_per_cpu_s"] = max(own_cache(logs, options.events, map_in=None) for _ in range(options.repeat))
    out["own_cache_and_map_per_cpu_s"] = own_cache(logs, options.events, map_in=root / "own-map")
    for count in options.nodes:
        (root / f"n{count}").mkdir()
        fed = await nodes(root / f"n{count}", logs, keys, count)
        out[f"nodes_{count}"] = {name: getattr(fed, name) for name in Fed.__slots__}
    (root / "ratio").mkdir()
    out["hit_ratio"] = await hit_ratio(root / "ratio", options.clicks, options.clicks / 200, 3, 1 << 20)
    (root / "backlog").mkdir()
    backlog = 10 * options.clicks
    out["backlog"] = await backlog_ratio(root / "backlog", backlog, CACHE_BYTES_MAX * backlog // JOIN_CLICKS)
    out["load_after"] = os.getloadavg()[0]
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=400_000)
    parser.add_argument("--clicks", type=int, default=4_000, help="of the hit ratio's stream, ten queries each")
    parser.add_argument("--nodes", type=int, nargs="*", default=[1, 2, 3])
    parser.add_argument("--repeat", type=int, default=3, help="warm-ups of the own cache; the best counts")
    parser.add_argument("-o", dest="output", choices=["table", "json"], default="table")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        out = asyncio.run(run(options, Path(directory)))
    if options.output == "json":
        print(json.dumps(out))
        return
    for name, value in out.items():
        shown = value if isinstance(value, dict) else {"": value}
        print(f"{name:30}", "  ".join(f"{key} {each:,.2f}" for key, each in shown.items()))


if __name__ == "__main__":
    main()
