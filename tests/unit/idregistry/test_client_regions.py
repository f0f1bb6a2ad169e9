"""The client with replicas in other regions: delays, silent cuts, healing, through the project's own proxy."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from statistics import median

import numpy as np

from photon.batch.ids import Ids
from photon.idregistry.api import Answer
from photon.idregistry.client.channels import REQUESTS_OUTSTANDING_MAX
from photon.idregistry.client.grpc_client import LOOK_UP_SECONDS_MIN, TRY_SECONDS_MAX, GrpcBackend, RegistryClient
from photon.lab.wan.links import Change, Fault
from photon.lab.wan.proxy import Proxy
from photon.supervision.routes import Route
from tests.unit.idregistry.groups import Cluster, digests_of, inserts, lead
from tests.unit.idregistry.served import Served, answers, opened, served

PATIENCE_S = 30.0


@dataclass
class Regions:
    """Each replica is in a region of the same name, and a client elsewhere."""

    every: Served
    client: RegistryClient
    proxy: Proxy

    async def distance(self, **round_trips_s: float) -> None:
        self._set([Change("here", name, delay_s=seconds / 2) for name, seconds in round_trips_s.items()])
        self._set([Change(name, "here", delay_s=seconds / 2) for name, seconds in round_trips_s.items()])
        assert (await self.client.pulse(PATIENCE_S)).round_trips_s.keys() == self.every.addresses.keys()

    def fault(self, name: str, fault: Fault, *, back: Fault | None = None) -> None:
        self._set([Change("here", name, fault=fault), Change(name, "here", fault=fault if back is None else back)])

    def _set(self, changes: list[Change]) -> None:
        assert self.proxy.set(changes) == ""

    async def asked(self) -> str:
        """The replicas that answer a look-up now."""
        before = self.every.look_ups.copy()
        seen = await self.client.look_up(digests_of([1]), np.array([1000]), timeout=60)
        assert seen.outcomes[0] != Answer.UNKNOWN, self.client.problem
        return " ".join((self.every.look_ups - before).elements())

    async def until_asked(self, name: str) -> None:
        await self.until(lambda found: found == name)

    async def until(self, enough: Callable[[str], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not enough(found := await self.asked()):
            assert time.monotonic() < deadline, found
            await asyncio.sleep(0.05)

    def connected(self, name: str) -> bool:
        backend = self.client._backend
        assert isinstance(backend, GrpcBackend)
        return backend._channels.connected(name)


@asynccontextmanager
async def regions(cluster: Cluster) -> AsyncIterator[Regions]:
    async with served(cluster) as every:
        routes = [Route("127.0.0.1:0", "here", name, address) for name, address in every.addresses.items()]
        proxy = Proxy(routes)
        await proxy.start()
        ports = {name: f"127.0.0.1:{proxy.port(number)}" for number, name in enumerate(every.addresses)}
        client = RegistryClient(ports)
        try:
            yield Regions(every, client, proxy)
        finally:
            await client.close()
            await proxy.stop()


async def test_look_ups_go_to_the_nearest_and_follow_the_distances() -> None:
    async with regions(Cluster(replicas=3)) as there:
        await there.distance(r1=0.16, r2=0.02, r3=0.08)
        await there.until_asked("r2")
        assert [await there.asked() for _ in range(5)] == ["r2"] * 5
        pulse = await there.client.pulse(5)
        assert sorted(pulse.round_trips_s, key=lambda name: pulse.round_trips_s[name]) == ["r2", "r3", "r1"]
        assert pulse.round_trips_s["r3"] >= 0.08
        await there.distance(r2=0.3)
        await there.until_asked("r3")


async def test_a_replica_that_resets_is_left_at_once_and_taken_again_after_it() -> None:
    async with regions(Cluster(replicas=3)) as there:
        await there.distance(r1=0.25, r2=0.02, r3=0.06)
        await there.until_asked("r2")
        there.fault("r2", Fault.RESET)
        assert await there.asked() == "r3"
        there.fault("r2", Fault.NONE)
        await there.until_asked("r2")


async def test_a_silent_cut_costs_one_try_is_noticed_and_ends() -> None:
    async with regions(Cluster(replicas=3)) as there:
        await there.distance(r1=0.25, r2=0.02, r3=0.06)
        await there.until_asked("r2")
        there.fault("r2", Fault.DROP)
        cut = time.monotonic()
        assert await there.asked() == "r3"
        assert time.monotonic() - cut >= LOOK_UP_SECONDS_MIN
        took = []
        for _ in range(20):  # nobody waits for it a second time
            started = time.monotonic()
            assert await there.asked() == "r3"
            took.append(time.monotonic() - started)
        assert median(took) < LOOK_UP_SECONDS_MIN  # a busy machine may hold up some
        while there.connected("r2"):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        assert (await there.client.pulse(1.0)).round_trips_s.keys() == {"r1", "r3"}
        there.fault("r2", Fault.NONE)
        await there.until_asked("r2")


async def test_one_that_is_cut_off_from_the_leader_is_not_asked() -> None:
    cluster = Cluster(replicas=3)
    async with regions(cluster) as there:
        await there.distance(r1=0.25, r2=0.04, r3=0.01)
        incarnation = await opened(there.client)
        await there.until_asked("r3")
        for group in cluster.groups["r3"].values():
            group.cut = True
        assert await answers(there.client, inserts([1], incarnation, 1)) == [Answer.COMMITTED]
        seen = await there.client.look_up(digests_of([1]), np.array([1000]), timeout=60)
        assert seen.outcomes.tolist() == [Answer.PRESENT]  # r3 would say absent
        await there.until_asked("r2")
        for group in cluster.groups["r3"].values():
            group.cut = False
        await there.until_asked("r3")


async def test_while_one_replica_hangs_requests_to_others_flow() -> None:
    cluster = Cluster(replicas=3, shards=2)
    async with regions(cluster) as there:
        lead(cluster, "r2", [2])
        incarnation = await opened(there.client)
        of_first, of_second = [inserts([number], incarnation, number) for number in (2, 1)]
        for rows in (of_first, of_second):
            assert await answers(there.client, rows) == [Answer.COMMITTED]
        there.fault("r1", Fault.DROP)
        waiting = [
            asyncio.create_task(answers(there.client, _again(of_first, number), 1.5 * TRY_SECONDS_MAX))
            for number in range(2 * REQUESTS_OUTSTANDING_MAX)
        ]
        await asyncio.sleep(0)
        took = []
        for _ in range(10):
            started = time.monotonic()
            assert await answers(there.client, of_second) == [Answer.COMMITTED]
            took.append(time.monotonic() - started)
        assert median(took) < TRY_SECONDS_MAX / 2
        assert not any(task.done() for task in waiting)
        assert await asyncio.gather(*waiting) == [[Answer.UNKNOWN]] * len(waiting)
        lead(cluster, "r3", [1])
        assert await answers(there.client, of_first) == [Answer.COMMITTED]
        there.fault("r1", Fault.NONE)
        lead(cluster, "r1", [1])
        assert await answers(there.client, of_first) == [Answer.COMMITTED]


async def test_a_cut_leader_costs_one_try_before_its_successor_is_asked() -> None:
    cluster = Cluster(replicas=3)
    async with regions(cluster) as there:
        incarnation = await opened(there.client)
        assert await answers(there.client, inserts([1], incarnation, 1)) == [Answer.COMMITTED]
        there.fault("r1", Fault.DROP, back=Fault.NONE)  # requests are lost, replies would pass
        lead(cluster, "r3")
        assert await answers(there.client, inserts([1, 2], incarnation, 1), 10) == [Answer.COMMITTED] * 2


def _again(rows: Ids, number: int) -> Ids:
    """The same id under another token."""
    return Ids(rows.digests, rows.times, rows.tokens + np.uint64(100 + number), rows.kinds, rows.tags)
