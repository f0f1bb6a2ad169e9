"""The gRPC client against real grpc.aio servers, over groups of this process."""

from __future__ import annotations

import asyncio
import time

import grpc.aio
import numpy as np
import pytest

from photon.batch.ids import Ids
from photon.idregistry import registry_pb2 as pb
from photon.idregistry.api import Answer, Opened, Pulse, Slot
from photon.idregistry.client.channels import REGISTRY
from tests.unit.idregistry.groups import Cluster, digests_of, inserts, lead
from tests.unit.idregistry.served import SLOT, answers, both, closing, opened, registry, served


async def test_the_whole_contract_over_three_replicas() -> None:
    async with (
        served(Cluster(replicas=3, shards=4, id_rules={"clicks": b"rule"})) as every,
        closing(every.client()) as client,
    ):
        incarnation = await opened(client)
        assert set(await answers(client, inserts(list(range(500)), incarnation, 1))) == {Answer.COMMITTED}
        async with closing(every.client()) as other:
            second = await opened(other, Slot("other", "dc2"), b"m")
            found = await other.insert(inserts([3, 600], second, 1), timeout=60)
            assert found.outcomes.tolist() == [Answer.TAKEN, Answer.COMMITTED]
            assert found.datacentres[found.owner_datacentres[0]] == "dc1"
            assert found.owner_tokens.tolist() == [incarnation << 40 | 1, 0]
            assert (found.owner_kinds[0], found.owner_tags[0]) == (1, 3)
        rows = inserts([3, 600, 700], incarnation, 1)
        cleared = await client.clear(rows.digests, rows.times, rows.tokens, timeout=60)
        assert cleared.tolist() == [Answer.CLEARED, Answer.REFUSED, Answer.REFUSED]
        assert await answers(client, inserts([3], incarnation, 1)) == [Answer.DONE]
        seen = await client.look_up(digests_of([3, 900]), np.array([3000, 900_000]), timeout=60)
        assert seen.outcomes.tolist() == [Answer.PRESENT, Answer.ABSENT]
        assert seen.datacentres[seen.owner_datacentres[0]] == "dc1"
        known = await client.describe(timeout=60)
        assert known.id_rules == {"clicks": b"rule"}
        assert sum(group.ids for group in known.groups) == 501


@both
async def test_a_refused_open_says_the_newest(kind: str) -> None:
    async with registry(kind) as (client, _):
        first = await opened(client)
        assert await client.open_slot(SLOT, 0, b"n") == Opened(first, first)  # the same nonce
        refused = await client.open_slot(SLOT, 0, b"another")
        assert (refused.incarnation, refused.newest) == (0, first)
        assert "opened as incarnation" in refused.reason
        assert (await client.open_slot(Slot("", "dc"), 0, b"n")).incarnation == 0


async def test_hints_name_replicas_and_the_client_knows_their_addresses() -> None:
    cluster = Cluster(replicas=3)
    async with served(cluster) as every, closing(every.client()) as client:
        incarnation = await opened(client)
        assert await answers(client, inserts([1], incarnation, 1)) == [Answer.COMMITTED]
        known = await client.describe(timeout=60)
        assert {group.leader for group in known.groups} == {"r1"}
        lead(cluster, "r3")
        assert await answers(client, inserts([1, 2], incarnation, 1)) == [Answer.COMMITTED] * 2
        assert await client.open_slot(SLOT, 0, b"n") == Opened(incarnation, incarnation)


async def test_a_dead_leader_is_left_for_its_successor() -> None:
    cluster = Cluster(replicas=3)
    async with served(cluster) as every, closing(every.client()) as client:
        incarnation = await opened(client)
        assert await answers(client, inserts([1], incarnation, 1)) == [Answer.COMMITTED]
        await every.kill("r1")
        assert await answers(client, inserts([2], incarnation, 1), timeout=0.3) == [Answer.UNKNOWN]
        lead(cluster, "r2")
        assert await answers(client, inserts([1, 2], incarnation, 1)) == [Answer.COMMITTED] * 2


async def test_look_ups_go_on_at_another_replica() -> None:
    async with served(Cluster(replicas=3)) as every, closing(every.client()) as client:
        assert await answers(client, inserts([1], await opened(client), 1)) == [Answer.COMMITTED]
        for victim in ("r1", "r2"):
            await every.kill(victim)
            seen = await client.look_up(digests_of([1]), np.array([1000]), timeout=60)
            assert seen.outcomes.tolist() == [Answer.PRESENT]


async def test_a_pulse_measures_every_replica_that_answers_and_the_slowest_leader() -> None:
    cluster = Cluster(replicas=3, shards=2)
    lead(cluster, "r2", [2])
    async with served(cluster) as every, closing(every.client()) as client:
        idle = await client.pulse(5)
        assert idle.round_trips_s.keys() == {"r1", "r2", "r3"}
        assert all(0 < round_trip_s < 5 for round_trip_s in idle.round_trips_s.values())
        assert idle.commit_s is None
        incarnation = await opened(client)
        assert set(await answers(client, inserts(list(range(50)), incarnation, 1))) == {Answer.COMMITTED}
        known = [every.replicas[name].describe().groups for name in ("r1", "r2")]
        slowest = max(known[0][1].commit_ms_p50, known[1][2].commit_ms_p50)
        assert (await client.pulse(5)).commit_s == pytest.approx(slowest / 1000)
        await every.kill("r1")
        left = await client.pulse(5)
        assert left.round_trips_s.keys() == {"r2", "r3"}
        assert left.commit_s == pytest.approx(known[1][2].commit_ms_p50 / 1000)
        for name in ("r2", "r3"):
            await every.kill(name)
        assert await client.pulse(0.5) == Pulse({}, None)


@both
async def test_the_deadline_means_unknown(kind: str) -> None:
    async with registry(kind, shards=1) as (client, cluster):
        incarnation = await opened(client)
        assert await answers(client, inserts([0], incarnation, 0)) == [Answer.COMMITTED]
        cluster.logs[1].hold = True
        started = time.monotonic()
        assert await answers(client, inserts([1], incarnation, 1), timeout=0.3) == [Answer.UNKNOWN]
        assert time.monotonic() - started < 30
        cluster.logs[1].release()
        assert await answers(client, inserts([1], incarnation, 1)) == [Answer.COMMITTED]
        assert await answers(client, inserts([1], incarnation, 2)) == [Answer.TAKEN]


async def test_an_unreachable_registry_raises_nothing() -> None:
    async with served(Cluster()) as every:
        client = every.client()
        await every.kill("r1")
        async with closing(client):
            client.announce(SLOT, [1])
            assert await answers(client, inserts([1, 2], 1, 1), timeout=0.3) == [Answer.UNKNOWN] * 2
            seen = await client.look_up(digests_of([1]), np.array([1]), timeout=0.3)
            assert seen.outcomes.tolist() == [Answer.UNKNOWN]
            rows = inserts([1], 1, 1)
            cleared = await client.clear(rows.digests, rows.times, rows.tokens, timeout=0.3)
            assert cleared.tolist() == [Answer.UNKNOWN]
            async with asyncio.timeout(30):
                while "registry" not in client.problem:  # on a busy machine the refusal itself may be late
                    assert await client.describe(timeout=0.3) is None


async def test_a_batch_larger_than_a_message_is_split() -> None:
    async with served(Cluster()) as every, closing(every.client()) as client:
        incarnation = await opened(client)
        n = 40_000
        rows = Ids(
            np.random.default_rng(4).bytes(16 * n),
            np.arange(n, dtype=np.int64),
            np.full(n, incarnation << 40, np.uint64),
            np.ones(n, np.uint8),
            np.zeros(n, np.uint32),
        )
        assert set(await answers(client, rows, timeout=20)) == {Answer.COMMITTED}


async def test_malformed_and_oversized_messages_are_refused() -> None:
    async with served(Cluster()) as every, grpc.aio.insecure_channel(every.addresses["r1"]) as channel:
        stub = REGISTRY.stub(channel)
        reply = await stub.Insert(pb.InsertRequest(shard=1, caller=1, digests=b"x" * 17), timeout=60)
        assert reply.status == pb.STATUS_REFUSED
        assert "multiple of 16" in reply.reason
        reply = await stub.LookUp(pb.LookUpRequest(shard=7), timeout=60)
        assert reply.status == pb.STATUS_UNKNOWN
        assert "not opened shard 7" in reply.reason
        reply = await stub.Clear(pb.ClearRequest(shard=1, digests=bytes(16)), timeout=60)
        assert reply.status == pb.STATUS_REFUSED
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.Insert(pb.InsertRequest(shard=1, digests=bytes(5 << 20)), timeout=60)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
