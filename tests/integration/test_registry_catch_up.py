"""A replica that is behind the snapshot gets it from the leader while the group continues."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import numpy as np

from photon.batch.ids import Ids
from photon.idregistry.api import Answer, Slot, token_of
from photon.idregistry.client.grpc_client import RegistryClient
from tests.integration.registry_processes import Processes, client_of, insert_known, leader_of, processes

SHARD = 1
BATCH = 2_000
BATCHES = 40
LOG = {"log_bytes": 1 << 20, "log_margin": 1 << 18}  # less than all batches; their snapshot comes in several messages


def fresh(token: int) -> Ids:
    """Ids of the first of two shards or the second."""
    n = BATCH
    return Ids(
        os.urandom(16 * n),
        np.full(n, 1_000, np.int64),
        np.full(n, token, np.uint64),
        np.ones(n, np.uint8),
        np.zeros(n, np.uint32),
    )


async def ids_of(every: Processes, name: str) -> int | None:
    """Number of a replica's ids in the shard; ``None`` means that it does not answer yet."""
    client = RegistryClient({name: every.peers[name]})
    try:
        described = await client.describe(timeout=5)
    finally:
        await client.close()
    found = [group.ids for group in described.groups if group.group == SHARD] if described else []
    return found[0] if found else None


async def test_a_replica_behind_the_snapshot_catches_up_while_ids_are_inserted(tmp_path: Path) -> None:
    with processes(tmp_path, **LOG) as every:
        async with client_of(every) as client:
            slot = Slot("s", "dc")
            opened = None
            while opened is None:
                opened = await client.open_slot(slot, 0, os.urandom(16))
            client.announce(slot, [opened.incarnation])
            batch = 0

            async def insert() -> None:
                nonlocal batch
                batch += 1
                assert await insert_known(client, fresh(token_of(opened.incarnation, batch))) == {Answer.COMMITTED}

            await insert()
            behind = "r3" if await leader_of(client, every, SHARD) != "r3" else "r2"
            every.kill(behind)
            leader = await leader_of(client, every, SHARD)
            snapshot = tmp_path / leader / f"group-{SHARD:05d}" / "snapshot"
            while batch < BATCHES or not snapshot.exists():
                assert batch < 10 * BATCHES
                await insert()
            every.start(behind)
            deadline = time.monotonic() + 120
            while True:
                await insert()
                there, here = await ids_of(every, leader), await ids_of(every, behind)
                if here is not None and there is not None and here > there // 2:
                    break
                assert time.monotonic() < deadline, every.output(behind)
            assert (tmp_path / behind / f"group-{SHARD:05d}" / "snapshot").exists()
            while await ids_of(every, leader) != await ids_of(every, behind):
                assert time.monotonic() < deadline
                await asyncio.sleep(0.05)
            every.check()
