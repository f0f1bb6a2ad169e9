"""A shard that left and holds nothing is removed on every replica, permanently: its group, its files and its
number."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from photon.batch.ids import Ids
from photon.config.clock import SystemClock
from photon.config.disk import RealDisk
from photon.idregistry.api import Answer, Slot, token_of
from photon.idregistry.client.grpc_client import RegistryClient
from photon.idregistry.core.outcomes import Refusal
from photon.idregistry.core.resharding import Action, Ask, Resharding, Stage
from photon.idregistry.operate.resharding import apply, verified
from photon.idregistry.raft.identity import KnownGroups, group_directory, known_groups
from tests.integration.registry_processes import Processes, client_of, digests_of

N = 200
WAIT_S = 60.0


@pytest.fixture
def every(tmp_path: Path) -> Processes:
    return Processes(tmp_path)


def start(every: Processes, name: str) -> None:
    every.start(name, retention_s=1, uncertainty_s=1)


def at(time_ns: int, incarnation: int, batch: int) -> Ids:
    """Ids of one moment."""
    return Ids(
        digests_of(list(range(batch * N, batch * N + N))),
        np.full(N, time_ns, np.int64),
        np.full(N, token_of(incarnation, batch), np.uint64),
        np.ones(N, np.uint8),
        np.zeros(N, np.uint32),
    )


async def insert(client: RegistryClient, incarnation: int, batch: int, time_ns: int) -> set[int]:
    """The answers, once all are known."""
    deadline = time.monotonic() + WAIT_S
    while True:
        found = (await client.insert(at(time_ns, incarnation, batch), timeout=2.0)).outcomes
        if Answer.UNKNOWN not in found:
            return set(found.tolist())
        assert time.monotonic() < deadline, "no answers"


async def status(client: RegistryClient, replica: str, condition: Callable[[Resharding], bool]) -> Resharding:
    """Status of one replica, once the condition holds."""
    deadline = time.monotonic() + WAIT_S
    while True:
        found = await client.reshard(Ask(Action.STATUS), replica=replica, timeout=5.0)
        if isinstance(found, Resharding) and condition(found):
            return found
        assert time.monotonic() < deadline, found
        await asyncio.sleep(0.05)


async def change(client: RegistryClient, count: int) -> Resharding:
    deadline = time.monotonic() + WAIT_S
    while isinstance(await client.reshard(Ask(Action.PLAN, count), timeout=5.0), Refusal):
        assert time.monotonic() < deadline, "nothing can be planned"  # replicas compare their clocks first
        await asyncio.sleep(0.1)
    return await apply(client, count, lead_s=1.0, tries=5, timeout=20.0, limit=WAIT_S, clock=SystemClock())


async def until_removed(every: Processes, name: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while known_groups(RealDisk(), every.directory / name) != KnownGroups((0, 1), (2,)):
        assert time.monotonic() < deadline, every.output(name)
        await asyncio.sleep(0.05)


async def test_an_empty_shard_that_left_is_removed_also_where_it_is_learnt_late(every: Processes) -> None:
    try:
        for name in every.peers:
            start(every, name)
        async with client_of(every) as client:
            await removed_and_never_back(every, client)
    finally:
        for name in list(every.running):
            every.kill(name)


async def removed_and_never_back(every: Processes, client: RegistryClient) -> None:
    opened = None
    while opened is None:
        every.check()
        opened = await client.open_slot(Slot("s", "dc"), 0, b"nonce")
    client.announce(Slot("s", "dc"), [opened.incarnation])
    began_ns = time.time_ns()
    done = await change(client, 1)
    assert done.change is not None
    assert (done.change.stage, done.change.leaving) == (Stage.ACTIVATED, (2,))
    every.kill("r3")  # it hears of the removal only when it is back
    for name in ("r1", "r2"):
        assert (await status(client, name, lambda found: found.removed == (2,))).shards[0].shard == 1
        await until_removed(every, name)
    start(every, "r3")
    await until_removed(every, "r3")
    for name in every.peers:
        here = group_directory(every.directory / name, 2)
        assert not list(here.iterdir())
        every.kill(name)
        start(every, name)  # its settings still say two shards, as at the first start
    for name in every.peers:
        await status(client, name, lambda found: found.removed == (2,) and bool(found.shards[0].leader))
    assert await insert(client, opened.incarnation, 1, time.time_ns()) == {Answer.COMMITTED}
    assert await insert(client, opened.incarnation, 2, began_ns) == {Answer.BELOW_BOUNDARY}
    grown = await change(client, 2)
    assert grown.change is not None
    assert grown.change.shards == (1, 3)
    starts_ns = grown.change.starts_ns
    while time.time_ns() < starts_ns:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    assert await insert(client, opened.incarnation, 3, time.time_ns()) == {Answer.COMMITTED}
    for name in every.peers:  # a follower may apply the last entries a moment later
        shards = (await status(client, name, lambda found: sum(each.ids for each in found.shards) == 2 * N)).shards
        assert min(each.ids for each in shards) > 0
    for name, answer in (await verified(client, sorted(every.peers), timeout=WAIT_S)).items():
        assert isinstance(answer, Resharding), (name, answer)
        assert not answer.problems
    every.check()
