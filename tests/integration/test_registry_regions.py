"""Three real replicas in three regions, with a round trip between them: elections, kill -9, a region that is cut."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from photon.idregistry.api import Answer, Slot, token_of
from photon.idregistry.client.grpc_client import RegistryClient
from photon.idregistry.core.sharding import shards_of, single_range
from photon.idregistry.replica.lead_placement import PERIOD_S
from photon.lab.wan.client import WanClient
from tests.integration.registry_processes import SHARDS, RegionProcesses, client_of, leader_of, regions, rows
from tests.integration.registry_writers import Owner

SHARD = 1
ROUND_TRIPS_S = [0.03, 0.1, 0.2] if os.environ.get("PHOTON_FULL") else [0.1]
PATIENCE_S = 30.0
FAIL_OVER_S = 10.0  # time for an election and a client's search for the winner, on a busy machine
_batches = count()


def shard_of(number: int) -> int:
    (shard,) = shards_of(rows([number], [0]).digests, single_range(SHARDS)[0].shards)
    return int(shard)


class Caller(Owner):
    """Registers new ids of the shard, one by one."""

    def __init__(self, name: str, client: RegistryClient, start: int) -> None:
        super().__init__(Slot(name, name), client)
        self.ids = (number for number in count(start) if shard_of(number) == SHARD)

    async def one(self, timeout: float = PATIENCE_S) -> float:
        """Registers the next id; returns the seconds until its answer was known. Same token until then, like a
        joiner."""
        number, token = next(self.ids), token_of(self.incarnation, next(_batches))
        began = time.monotonic()
        while True:
            found = await self.client.insert(rows([number], [token]), timeout=2.5)
            if found.outcomes[0] == Answer.COMMITTED:
                self.owned[number] = token
                return time.monotonic() - began
            assert found.outcomes[0] == Answer.UNKNOWN, Answer(int(found.outcomes[0]))
            assert time.monotonic() - began < timeout, self.client.problem


@asynccontextmanager
async def everywhere(
    directory: Path, round_trip_s: float, **more: Any
) -> AsyncIterator[tuple[RegionProcesses, WanClient, dict[str, RegistryClient], dict[str, Caller]]]:
    """Three regions with a client and a caller in each; ``more`` as in ``regions``."""
    async with regions(directory, round_trip_s, **more) as (every, wan), AsyncExitStack() as stack:
        clients = {name: await stack.enter_async_context(client_of(every, name)) for name in every.peers}
        found = {name: Caller(name, client, 1_000_000 * n) for n, (name, client) in enumerate(clients.items())}
        await asyncio.gather(*(caller.open() for caller in found.values()))
        yield every, wan, clients, found


async def check_owners(everyone: dict[str, Caller], client: RegistryClient) -> None:
    """Every id has the owner that was told so."""
    client.announce(Slot("r1", "r1"), [everyone["r1"].incarnation])
    ids = {number: token for caller in everyone.values() for number, token in caller.owned.items()}
    for number, token in ids.items():
        row, until = rows([number], [token]), time.monotonic() + PATIENCE_S
        seen = await client.look_up(row.digests, row.times, timeout=10)
        while seen.outcomes[0] == Answer.ABSENT and time.monotonic() < until:  # a hint: the nearest may be behind
            await asyncio.sleep(0.05)
            seen = await client.look_up(row.digests, row.times, timeout=10)
        assert seen.outcomes[0] == Answer.PRESENT
        assert seen.datacentres[seen.owner_datacentres[0]] == f"r{1 + number // 1_000_000}"


@pytest.mark.timeout(180)
@pytest.mark.parametrize("round_trip_s", ROUND_TRIPS_S)
async def test_a_leader_is_elected_replaced_and_reached_over_a_distance(tmp_path: Path, round_trip_s: float) -> None:
    async with everywhere(tmp_path, round_trip_s) as (every, _, clients, everyone):
        leader = await leader_of(clients["r1"], every, SHARD)
        other = next(name for name in every.peers if name != leader)
        near = sorted([await everyone[leader].one() for _ in range(20)])[10]
        far = sorted([await everyone[other].one() for _ in range(20)])[10]
        print(f"leader {leader}: p50 of one id {1000 * near:.0f} ms there, {1000 * far:.0f} ms in another region")
        assert near >= round_trip_s
        assert far >= 2 * round_trip_s
        pulse = await clients[other].pulse(5)
        assert pulse.commit_s is not None
        assert pulse.commit_s >= round_trip_s
        assert pulse.round_trips_s[other] < round_trip_s <= pulse.round_trips_s[leader]
        for _ in range(2):
            victim = await leader_of(clients[other], every, SHARD)
            survivor = next(name for name in every.peers if name != victim)
            every.kill(victim)
            took = await everyone[survivor].one(FAIL_OVER_S + 2 * round_trip_s)
            print(f"kill -9 of {victim}: {took:.2f} s until an id is registered from {survivor}")
            every.start(victim)
            await everyone[victim].one()
        await check_owners(everyone, clients[other])
        every.check()


def lead_moves(every: RegionProcesses) -> list[int]:
    """Number of times each replica has handed over leadership; elections, which a busy machine may cause, do not
    count."""
    return [every.output(name).count("registry.lead_moves") for name in every.peers]


@pytest.mark.timeout(180)
async def test_the_lead_moves_to_those_who_insert_and_stays_where_two_share_the_work(tmp_path: Path) -> None:
    near = {name: [name] for name in ("r1", "r2", "r3")}
    async with everywhere(tmp_path, 0.05, near=near) as (every, _, clients, everyone):
        first = await leader_of(clients["r1"], every, SHARD)
        caller, other = (everyone[name] for name in every.peers if name != first)

        async def leads(*busy: Caller) -> str:
            """The leader after some more ids of each."""
            await asyncio.gather(*(each.one() for each in busy for _ in range(5)))
            return await leader_of(busy[0].client, every, SHARD)

        until = time.monotonic() + PATIENCE_S
        while await leads(caller) != caller.slot.name:
            assert time.monotonic() < until, every.output(first)
        assert "registry.lead_moves" in every.output(first)
        moves, both = lead_moves(every), time.monotonic()
        while time.monotonic() - both < 4 * PERIOD_S:
            await leads(caller, other)
        assert lead_moves(every) == moves, every.output(caller.slot.name)
        every.kill(caller.slot.name)  # nobody near is left: it stays with the elected one
        elected = await leads(other)
        assert elected != caller.slot.name
        await check_owners(everyone, other.client)


@pytest.mark.timeout(180)
async def test_a_region_that_is_cut_off_waits_and_goes_on_after_it(tmp_path: Path) -> None:
    async with everywhere(tmp_path, 0.03) as (every, wan, clients, everyone):
        leader = await leader_of(clients["r1"], every, SHARD)
        rest = [name for name in every.peers if name != leader]
        for caller in everyone.values():
            await caller.one()
        await wan.isolate(leader)
        cut = time.monotonic()
        waiting = asyncio.create_task(everyone[leader].one())
        await asyncio.gather(*(everyone[name].one(FAIL_OVER_S) for name in rest))
        print(f"region of the leader cut: {time.monotonic() - cut:.2f} s until both others have registered ids")
        for _ in range(20):
            await asyncio.gather(*(everyone[name].one() for name in rest))
        assert not waiting.done()
        await wan.heal()
        healed = time.monotonic()
        await waiting
        print(f"healed: {time.monotonic() - healed:.2f} s until the region that was cut has registered its id")
        assert time.monotonic() - healed < FAIL_OVER_S
        await check_owners(everyone, clients[leader])
        every.check()
