"""The registry over a distance: ``python -m bench.components.registry_regions [--round-trip MS ...] [--seconds S]``.

Three replica processes, each in a region of its own, the project's proxy between any two of them. Measured from a
client beside the leader and from one in another region: ids a second of one shard, the time of one id, and how long
after a kill -9 of the leader an id can be registered again.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from photon.batch.ids import Ids
from photon.idregistry.api import Answer, Slot, token_of
from photon.idregistry.client.grpc_client import RegistryClient
from tests.integration.registry_processes import RegionProcesses, client_of, leader_of, regions

SHARD = 1
BATCHES = (1_000, 5_000)
CALLS_AT_ONCE = 8
KILLS = 10
SINGLES = 30


@dataclass
class Load:
    """A client that registers ids nobody registered before."""

    name: str
    client: RegistryClient
    random: np.random.Generator
    incarnation: int = 0
    batch: int = 0

    async def open(self) -> None:
        slot = Slot(self.name, self.name)
        opened = None
        while opened is None:
            opened = await self.client.open_slot(slot, 0, self.name.encode())
        self.incarnation = opened.incarnation
        self.client.announce(slot, [self.incarnation])

    async def insert(self, n: int) -> float:
        """Seconds until n ids are known to be registered; the same tokens until then."""
        self.batch += 1
        rows = Ids(
            self.random.bytes(16 * n),
            np.zeros(n, np.int64),
            np.full(n, token_of(self.incarnation, self.batch), np.uint64),
            np.ones(n, np.uint8),
            np.zeros(n, np.uint32),
        )
        began = time.monotonic()
        while not ((await self.client.insert(rows, timeout=2.5)).outcomes == Answer.COMMITTED).all():
            pass
        return time.monotonic() - began

    async def ids_s(self, n: int, seconds: float) -> float:
        until = time.monotonic() + seconds
        done = 0

        async def one() -> None:
            nonlocal done
            while time.monotonic() < until:
                await self.insert(n)
                done += n

        began = time.monotonic()
        await asyncio.gather(*(one() for _ in range(CALLS_AT_ONCE)))
        return done / (time.monotonic() - began)

    async def single_ms(self) -> float:
        return 1000 * statistics.median([await self.insert(1) for _ in range(SINGLES)])


async def measure(directory: Path, round_trip_s: float, seconds: float) -> None:
    started = time.monotonic()
    async with (
        regions(directory, round_trip_s, shards=1) as (every, _),
        client_of(every, "r1") as one,
        client_of(every, "r2") as two,
        client_of(every, "r3") as three,
    ):
        await leader_of(one, every, SHARD)
        print(f"\nround trip {1000 * round_trip_s:.0f} ms; processes started and a leader: {_since(started)}")
        random = np.random.default_rng(7)
        clients = {"r1": one, "r2": two, "r3": three}
        loads = {name: Load(name, client, random) for name, client in clients.items()}
        await asyncio.gather(*(load.open() for load in loads.values()))
        leader = await leader_of(one, every, SHARD)
        other = next(name for name in every.peers if name != leader)
        for name, where in ((leader, "beside the leader"), (other, "in another region")):
            load = loads[name]
            await load.insert(1)
            single = await load.single_ms()
            rates = [f"{await load.ids_s(n, seconds):9,.0f} ids/s in batches of {n:,}" for n in BATCHES]
            print(f"  {where}: one id {single:6.1f} ms p50; {'; '.join(rates)}")
        pulse = await loads[other].client.pulse(5)
        print(f"  pulse in another region: commit {pulse.commit_s}, round trips {dict(pulse.round_trips_s)}")
        await _kills(every, loads)


async def _kills(every: RegionProcesses, loads: dict[str, Load]) -> None:
    took = []
    for _ in range(KILLS):
        watcher = next(iter(loads.values())).client
        victim = await leader_of(watcher, every, SHARD)
        survivor = next(name for name in every.peers if name != victim)
        await loads[survivor].insert(1)
        every.kill(victim)
        took.append(await loads[survivor].insert(1))
        every.start(victim)
        await _caught_up(every, victim, survivor)
    print(f"  kill -9 of the leader: {sorted(round(each, 2) for each in took)} s until an id is registered elsewhere")


async def _caught_up(every: RegionProcesses, name: str, other: str) -> None:
    """Waits until a replica has applied what another has: with one dead, both of the others must have all."""

    async def applied(name: str) -> int:
        client = RegistryClient({name: every.peers[name]})
        try:
            known = await client.describe(timeout=30)
        finally:
            await client.close()
        assert known is not None
        return known.groups[SHARD].applied

    while await applied(name) < await applied(other):  # noqa: ASYNC110 - of another process
        await asyncio.sleep(0.1)


def _since(started: float) -> str:
    return f"{time.monotonic() - started:.1f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--round-trip", type=float, nargs="*", default=[0.0, 30.0, 100.0], metavar="MS")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement of ids a second")
    given = parser.parse_args()
    for round_trip_ms in given.round_trip:
        with tempfile.TemporaryDirectory(prefix="photon-bench-") as directory:
            asyncio.run(measure(Path(directory), round_trip_ms / 1000, given.seconds))


if __name__ == "__main__":
    main()
