"""A replica and the routing above it, over groups of this process."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import numpy as np
import pytest

from photon.batch.ids import Ids
from photon.idregistry import registry_pb2 as pb
from photon.idregistry.api import Answer, Slot
from photon.idregistry.core import commands as c
from photon.idregistry.core.outcomes import Refusal, SlotClaim, Status
from photon.idregistry.replica.batching import ENTRIES_IN_FLIGHT, QUEUED_IDS_MAX
from photon.idregistry.replica.proposing import proposed
from photon.idregistry.replica.server import Machines, RegistryReplica
from photon.idregistry.replica.service import RegistryServicer
from photon.idregistry.replica.shard_server import ShardServer
from tests.unit.idregistry.groups import Cluster, LocalGroup, Log, digests_of, inserts, lead
from tests.unit.idregistry.served import SLOT, answers, local, opened, routed, running, until


def served(replica: RegistryReplica) -> ShardServer:
    server = replica.shard(1)
    assert isinstance(server, ShardServer)
    return server


async def test_a_replica_stops_while_its_proposals_are_answered() -> None:
    """In Python 3.11 ``asyncio.wait_for`` loses a cancellation that comes together with the result."""
    group = LocalGroup("r1", Log(), Machines(range(1, 2)).shards[1])

    async def propose() -> None:
        while True:
            await proposed(group, c.encode(c.Barrier()), timeout=60)

    for _ in range(20):
        task = asyncio.create_task(propose())
        await asyncio.sleep(0)  # the outcome is on its way to the loop
        task.cancel()
        await asyncio.wait([task], timeout=60)
        assert task.cancelled()


async def test_insert_clear_look_up_over_shards() -> None:
    async with local(Cluster(shards=3)) as (registry, incarnation, replica):
        assert await answers(registry, inserts([], incarnation, 1)) == []
        assert set(await answers(registry, inserts(list(range(100)), incarnation, 1))) == {Answer.COMMITTED}
        other = await opened(registry, Slot("other", "dc2"), nonce=b"m")
        found = await registry.insert(inserts([5, 100, 7], other, 1), timeout=3)
        assert found.outcomes.tolist() == [Answer.TAKEN, Answer.COMMITTED, Answer.TAKEN]
        assert [found.datacentres[found.owner_datacentres[row]] for row in (0, 2)] == ["dc1", "dc1"]
        assert found.owner_tags.tolist() == [5, 0, 7]
        rows = inserts([5, 100], incarnation, 1)
        cleared = await registry.clear(rows.digests, rows.times, rows.tokens, timeout=3)
        assert cleared.tolist() == [Answer.CLEARED, Answer.REFUSED]
        seen = await registry.look_up(digests_of([5, 200]), np.array([5000, 200_000]), timeout=3)
        assert seen.outcomes.tolist() == [Answer.PRESENT, Answer.ABSENT]
        assert [group.ids for group in replica.describe().groups] == [0, 34, 34, 33]


async def test_concurrent_requests_share_entries() -> None:
    cluster = Cluster()
    async with local(cluster) as (registry, incarnation, _):
        await answers(registry, inserts([0], incarnation, 0))
        before = len(cluster.logs[1].commands)
        cluster.logs[1].hold = True
        first = [asyncio.create_task(answers(registry, inserts([i], incarnation, i))) for i in range(1, 11)]
        await asyncio.sleep(0.05)  # all are queued or held
        cluster.logs[1].release()
        assert await asyncio.gather(*first) == [[Answer.COMMITTED]] * 10
        assert len(cluster.logs[1].commands) - before <= 2


async def test_too_new_is_not_inserted() -> None:
    async with local() as (registry, incarnation, _):
        now = time.time_ns()
        rows = inserts([1, 2, 3], incarnation, 1, [now + 60 * 10**9, 0, now + 10**9])
        for _ in range(2):
            assert await answers(registry, rows) == [Answer.TOO_NEW, Answer.COMMITTED, Answer.COMMITTED]
        seen = await registry.look_up(digests_of([1]), rows.times[:1], timeout=1)
        assert seen.outcomes.tolist() == [Answer.ABSENT]


@pytest.mark.parametrize("shards", [1, 3])
async def test_an_id_that_is_known_has_its_answer_though_it_comes_with_a_time_of_the_future(shards: int) -> None:
    """A copy stamped by a clock that is a day ahead would wait for a day, in the dispatcher or in a redo log."""
    async with local(Cluster(shards=shards)) as (registry, incarnation, _):
        now = time.time_ns()
        tomorrow = now + 24 * 3600 * 10**9
        for time_ns in (now, tomorrow):
            assert await answers(registry, inserts([1], incarnation, 1, [time_ns])) == [Answer.COMMITTED]
        other = await opened(registry, Slot("other", "dc2"), nonce=b"m")
        rows = inserts([1, 2], other, 1, [tomorrow, tomorrow])
        assert await answers(registry, rows) == [Answer.TAKEN, Answer.TOO_NEW]


async def test_unknown_is_answered_and_the_same_token_learns_the_truth() -> None:
    cluster = Cluster()
    async with local(cluster) as (registry, incarnation, _):
        await answers(registry, inserts([0], incarnation, 0))
        cluster.logs[1].lose_replies = True
        assert await answers(registry, inserts([1], incarnation, 1), timeout=0.2) == [Answer.UNKNOWN]
        cluster.logs[1].lose_replies = False
        assert await answers(registry, inserts([1], incarnation, 1)) == [Answer.COMMITTED]
        assert await answers(registry, inserts([1], incarnation, 2)) == [Answer.TAKEN]


async def test_without_a_leader_all_is_unknown_within_the_time_out() -> None:
    cluster = Cluster()
    async with local(cluster) as (registry, incarnation, _):
        lead(cluster, None)
        started = time.monotonic()
        assert await answers(registry, inserts([1, 2], incarnation, 1), timeout=0.3) == [Answer.UNKNOWN] * 2
        assert time.monotonic() - started < 30
        cleared = await registry.clear(digests_of([1]), np.zeros(1, np.int64), np.ones(1, np.uint64), timeout=0.1)
        assert cleared.tolist() == [Answer.UNKNOWN]
        lead(cluster, "r1")
        assert await answers(registry, inserts([1, 2], incarnation, 1)) == [Answer.COMMITTED] * 2


async def test_a_newer_process_of_the_slot_makes_the_older_stale() -> None:
    async with local() as (old, first, replica):
        new = routed(replica)
        assert await answers(old, inserts([1], first, 1)) == [Answer.COMMITTED]
        second = await opened(new, last=first, nonce=b"m")
        new.announce(SLOT, [first, second])
        assert await answers(new, inserts([1], first, 1)) == [Answer.COMMITTED]  # redone under its old token
        assert await answers(old, inserts([2], first, 2)) == [Answer.STALE_INCARNATION]


async def test_a_stranger_is_not_believed() -> None:
    async with local() as (registry, incarnation, replica):
        await opened(registry, Slot("other", "dc2"), nonce=b"m")
        ids = inserts([1], incarnation, 1)
        assert (await served(replica).insert(incarnation, None, ids, timeout=1)).status is Status.UNKNOWN_CALLER
        claim = SlotClaim(Slot("other", "dc2"), (incarnation,))
        outcome = await served(replica).insert(incarnation, claim, ids, timeout=1)
        assert outcome.status is Status.REFUSED
        assert "belongs to slot slot" in outcome.reason


@pytest.mark.parametrize(
    ("retention_ns", "answer"), [(None, Answer.COMMITTED), (3600 * 10**9, Answer.BELOW_BOUNDARY)]
)
async def test_the_boundary_moves_only_with_retention(retention_ns: int | None, answer: Answer) -> None:
    async with local(Cluster(retention_ns=retention_ns)) as (registry, incarnation, _):
        assert await answers(registry, inserts([1], incarnation, 1)) == [answer]


async def test_a_full_queue_is_overloaded() -> None:
    cluster = Cluster()
    async with local(cluster) as (registry, incarnation, replica):
        await answers(registry, inserts([0], incarnation, 0))
        cluster.logs[1].hold = True
        n = c.MAX_ENTRY_IDS
        ids = inserts([1] * n, incarnation, 1)

        def asked(many: int) -> list[asyncio.Task[Any]]:
            return [
                asyncio.create_task(served(replica).insert(incarnation, None, ids, timeout=60)) for _ in range(many)
            ]

        waiting = asked(QUEUED_IDS_MAX // n)
        for _ in range(8):  # the handlers queue, then the pump takes what may be in flight
            await asyncio.sleep(0)
        waiting += asked(ENTRIES_IN_FLIGHT + 1)
        await asyncio.sleep(0.01)
        cluster.logs[1].release()
        outcomes = await asyncio.gather(*waiting)
        kinds = [outcome.status if isinstance(outcome, Refusal) else None for outcome in outcomes]
        assert kinds == [*[None] * (len(kinds) - 1), Status.OVERLOADED]


class Context:
    def time_remaining(self) -> float:
        return 1.0


@pytest.mark.parametrize("what", ["digests", "times", "kinds", "kind", "token", "size", "shard"])
async def test_malformed_requests_are_refused(what: str) -> None:
    async with running(Cluster()) as replica:
        n = c.MAX_ENTRY_IDS + 1 if what == "size" else 2
        columns = Ids.encode([inserts([1] * n, 1, 1)])
        if what in columns:
            columns[what] = columns[what][:-1]
        elif what == "kind":
            columns["kinds"] = b"\x01\x05"
        elif what == "token":
            columns["tokens"] = bytes(16)
        request = pb.InsertRequest(shard=9 if what == "shard" else 1, caller=1, **columns)
        service: Any = RegistryServicer(replica)
        outcome = await service.Insert(request, Context())
        assert outcome.status == (pb.STATUS_UNKNOWN if what == "shard" else pb.STATUS_REFUSED)
        assert outcome.reason
        for method, of in ((service.LookUp, pb.LookUpRequest), (service.Clear, pb.ClearRequest)):
            refused = await method(of(shard=1, digests=b"x" * 15, times=bytes(8)), Context())
            assert (refused.status, refused.answers) == (pb.STATUS_REFUSED, b"")


async def test_another_set_up_is_a_conflict() -> None:
    cluster = Cluster(shards=2, id_rules={"clicks": b"one"})
    async with running(cluster) as replica:
        assert replica.describe().id_rules == {"clicks": b"one"}
    cluster.id_rules = {"clicks": b"two", "orders": b"one"}
    async with running(cluster) as replica:
        assert replica.conflict is not None
        assert "of join clicks" in await asyncio.wait_for(replica.conflict, 60)
    cluster.id_rules = {}
    async with running(cluster) as replica:
        assert replica.ready
        assert replica.describe().id_rules == {"clicks": b"one"}


async def test_a_join_is_added_to_a_registry_that_runs_replica_by_replica() -> None:
    cluster = Cluster(replicas=2, id_rules={"clicks": b"one"})
    async with running(cluster, "r1"):
        cluster.id_rules = {"clicks": b"one", "orders": b"two"}
        async with running(cluster, "r2") as follower:  # ready, or nobody would restart the next
            assert follower.describe().id_rules == {"clicks": b"one"}
            lead(cluster, "r2")
            await until(lambda: follower.ready)
            assert follower.describe().id_rules == {"clicks": b"one", "orders": b"two"}


async def test_a_follower_points_to_the_leader_and_answers_look_ups() -> None:
    cluster = Cluster(replicas=2)
    async with running(cluster, "r1") as leader, running(cluster, "r2") as follower:
        registry = routed(leader)
        incarnation = await opened(registry)
        await answers(registry, inserts([1], incarnation, 1))
        ids = inserts([2], incarnation, 1)
        outcome = await served(follower).insert(incarnation, None, ids, timeout=1)
        assert outcome == Refusal(Status.NOT_LEADER, leader="r1")
        assert await follower.open_slot(SLOT, 0, b"n", timeout=1) == Refusal(Status.NOT_LEADER, leader="r1")
        seen = served(follower).look_up(Ids.of(digests_of([1, 2]), np.array([1000, 2000], np.int64)))
        assert seen.outcomes.tolist() == [Answer.PRESENT, Answer.ABSENT]


async def test_insert_needs_an_announcement() -> None:
    async with running(Cluster()) as replica:
        registry = routed(replica)
        with pytest.raises(RuntimeError, match="announce"):
            await registry.insert(inserts([1], 1, 1), timeout=1)
        with pytest.raises(ValueError, match="no incarnation"):
            registry.announce(SLOT, [])
