"""A replica's checks of itself: memory, rows, and its state compared with the leader's."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack

import numpy as np
import pytest
from structlog.testing import capture_logs

from photon.idregistry.api import Answer
from photon.idregistry.client.routing import RoutedRegistry
from photon.idregistry.core import commands as c
from photon.idregistry.core.outcomes import GroupFacts
from photon.idregistry.core.state_checks import Checked, Checks
from photon.idregistry.replica import self_checks, server
from photon.idregistry.replica.batching import RESUME_SHARE, MemoryLimit
from photon.idregistry.replica.server import RegistryReplica
from tests.unit.idregistry.groups import Cluster, inserts
from tests.unit.idregistry.served import answers, local, opened, routed, running, until


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "WATCH_SECONDS", 0.005)
    monkeypatch.setattr(server, "CARETAKER_SECONDS", 0.02)
    monkeypatch.setattr(self_checks, "CHECK_SECONDS", 0.02)


@pytest.fixture
async def three() -> AsyncIterator[tuple[Cluster, list[RegistryReplica]]]:
    """Replicas that apply the same entries; r1 leads."""
    cluster = Cluster(replicas=3)
    async with AsyncExitStack() as stack:
        replicas = [await stack.enter_async_context(running(cluster, "r1"))]
        for name in ("r2", "r3"):
            replicas.append(cluster.replica(name))
            replicas[-1].start()
            stack.push_async_callback(replicas[-1].stop)
        yield cluster, replicas


PATIENCE_S = 60.0


async def busy_until(registry: RoutedRegistry, incarnation: int, holds: Callable[[], bool]) -> None:
    """Inserts meanwhile: a shard that rests is not checked."""
    deadline = time.monotonic() + PATIENCE_S
    number = 1_000
    while not holds():
        assert time.monotonic() < deadline
        number += 1
        assert await answers(registry, inserts([number], incarnation, number)) == [Answer.COMMITTED]
        await asyncio.sleep(0.02)


def shard(replica: RegistryReplica) -> GroupFacts:
    return replica.describe().groups[1]


def test_the_limit_has_a_gap_between_stopping_and_going_on() -> None:
    limit = MemoryLimit(1000)
    assert [limit.update(used) for used in (0, 999, 1000)] == [False, False, True]
    assert limit.reached
    assert "1,000 bytes" in limit.reason
    assert not limit.update(int(1000 * RESUME_SHARE))
    assert limit.reached
    assert limit.update(int(1000 * RESUME_SHARE) - 1)
    assert not limit.reached
    assert limit.reason == ""
    assert not MemoryLimit(None).update(2**60)
    with pytest.raises(ValueError, match="memory limit"):
        MemoryLimit(0)


async def test_at_the_memory_limit_inserts_wait_and_clearing_makes_room() -> None:
    with capture_logs() as logs:
        cluster = Cluster(memory_limit=30_000, retention_ns=10**9)
        async with local(cluster) as (registry, incarnation, replica):
            old = inserts(range(1_000), incarnation, 1)
            taken = await registry.insert(old, timeout=3)
            assert set(taken.outcomes.tolist()) == {Answer.BELOW_BOUNDARY}  # the boundary is a second ago
            now = time.time_ns()
            young = inserts(range(1_000), incarnation, 2, times=[now] * 1_000)
            assert set(await answers(registry, young)) == {Answer.COMMITTED}
            await until(lambda: bool(shard(replica).alarms), PATIENCE_S)
            assert "registry.memory_limit is 30,000" in shard(replica).alarms[0]
            assert shard(replica).bytes >= 30_000
            more = inserts([5_000], incarnation, 3, times=[now])
            assert (await registry.insert(more, timeout=0.05)).outcomes.tolist() == [Answer.UNKNOWN]
            assert "memory_limit" in (registry.problem or "")
            seen = await registry.look_up(young.digests, young.times, timeout=3)
            assert set(seen.outcomes.tolist()) == {Answer.PRESENT}
            cleared = await registry.clear(young.digests, young.times, young.tokens, timeout=3)
            assert set(cleared.tolist()) == {Answer.CLEARED}
            bucket_end = ((now >> 43) + 1) << 43
            await server.proposed(replica._groups[1], c.encode(c.Boundary(bucket_end)), timeout=3)
            late = inserts([5_001], incarnation, 4, times=[bucket_end])
            replica.clocks.time.uncertainty_ns = 2**62  # so that it is not too new
            assert await answers(registry, late) == [Answer.COMMITTED]
            assert shard(replica).alarms == ()
    events = [each["event"] for each in logs]
    assert events.count("registry.memory_limit") == events.count("registry.memory_has_room") == 1


async def test_replicas_that_agree_say_so(three: tuple[Cluster, list[RegistryReplica]]) -> None:
    _, replicas = three
    registry = routed(replicas[0])
    incarnation = await opened(registry)
    await answers(registry, inserts(range(100), incarnation, 1))
    before = replicas[0]._shards[1].machine.applied
    await answers(registry, inserts([100], incarnation, 2))  # one that rests is not checked again

    def compared() -> bool:
        found = {shard(each).checked for each in replicas}
        (one, *others) = found
        return not others and one is not None and one.index > before

    await until(compared, PATIENCE_S)
    assert all(shard(each).alarms == () for each in replicas)


async def test_a_shard_that_rests_is_not_checked_again(three: tuple[Cluster, list[RegistryReplica]]) -> None:
    cluster, replicas = three
    await until(lambda: shard(replicas[0]).checked is not None, PATIENCE_S)
    await asyncio.sleep(0.1)
    entries = len(cluster.logs[1].commands)
    await asyncio.sleep(0.2)  # ten checks' time
    assert len(cluster.logs[1].commands) == entries


async def test_one_that_differs_is_found_and_forgiven_when_mended(
    three: tuple[Cluster, list[RegistryReplica]],
) -> None:
    cluster, replicas = three
    registry = routed(replicas[0])
    incarnation = await opened(registry)
    await answers(registry, inserts(range(100), incarnation, 1))
    cluster.groups["r3"][1].cut = True
    await answers(registry, inserts([500], incarnation, 2))
    cluster.groups["r3"][1].cut = False  # it never applied that one
    with capture_logs() as logs:
        await busy_until(registry, incarnation, lambda: bool(shard(replicas[2]).alarms))
        assert "differs from the leader's" in shard(replicas[2]).alarms[0]
        assert shard(replicas[0]).alarms == shard(replicas[1]).alarms == ()
        await until(lambda: "registry.state_differs" in [each["event"] for each in logs], PATIENCE_S)
        whole = list(replicas[0]._shards[1].machine.snapshot())
        replicas[2]._shards[1].machine.restore(whole)
        await busy_until(registry, incarnation, lambda: shard(replicas[2]).alarms == ())


async def test_rows_that_rot_in_memory_are_found() -> None:
    async with local() as (registry, incarnation, replica):
        await answers(registry, inserts(range(100), incarnation, 1))
        await asyncio.sleep(0.05)
        assert shard(replica).alarms == ()
        table = replica._shards[1].machine._table
        table._buckets[0].rows[50:51].view(np.uint8)[20] ^= 4
        await until(lambda: bool(shard(replica).alarms), PATIENCE_S)
        assert "rows in memory" in shard(replica).alarms[0]


def test_only_hashes_of_one_form_and_entry_are_compared() -> None:
    checks = Checks()
    assert checks.last is None
    checks.take(Checked(2, 10, b"a"))
    checks.compare(c.CheckState(3, 10, b"b"))
    checks.compare(c.CheckState(2, 9, b"b"))
    checks.compare(c.CheckState())
    assert checks.difference is None
    checks.compare(c.CheckState(2, 10, b"b"))
    assert checks.difference is not None
    checks.compare(c.CheckState(2, 10, b"a"))
    assert checks.difference is None
    for index in range(11, 40):
        checks.take(Checked(2, index, b"c"))
    checks.compare(c.CheckState(2, 10, b"b"))
    assert checks.difference is None
