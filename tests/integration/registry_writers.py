"""Writers to a registry of real processes during disturbances, and the invariants afterwards."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator, Sequence

from photon.idregistry.api import Answer, Slot, token_of
from photon.idregistry.client.grpc_client import RegistryClient
from tests.integration.registry_processes import Processes, rows

BATCH = 200
IDS = 40_000  # drawn from this range: the writers meet on the same ids
PAUSE_S = 0.15  # pause between two batches: a load that never ends, and leaves the processors to the code under test


class Owner:
    """A slot, and the ids it came to own."""

    def __init__(self, slot: Slot, client: RegistryClient) -> None:
        self.slot = slot
        self.client = client
        self.owned: dict[int, int] = {}

    async def open(self) -> None:
        opened = None
        while opened is None:
            opened = await self.client.open_slot(self.slot, 0, b"nonce of " + self.slot.name.encode())
        assert opened.incarnation, opened.reason
        self.incarnation = opened.incarnation
        self.client.announce(self.slot, [opened.incarnation])


class Writer(Owner):
    """A joiner's part towards the registry: batches, and retries under the same tokens until it knows."""

    def __init__(self, name: str, client: RegistryClient, ids: Iterator[list[int]]) -> None:
        super().__init__(Slot(name, f"dc-{name}"), client)
        self.batches = enumerate(ids)
        self.taken: dict[int, int] = {}
        self.decided = 0
        self.unknown = 0
        self.stopped = False

    async def run(self) -> None:
        for number, ids in self.batches:
            if self.stopped:
                return
            token = token_of(self.incarnation, number)
            while ids:
                found = await self.client.insert(rows(ids, [token] * len(ids)), timeout=1.0)
                left = []
                for row, answer in enumerate(found.outcomes.tolist()):
                    if answer == Answer.COMMITTED:
                        assert self.owned.setdefault(ids[row], token) == token
                    elif answer == Answer.TAKEN:
                        self.taken[ids[row]] = int(found.owner_tokens[row])
                    else:
                        assert answer == Answer.UNKNOWN, Answer(answer)
                        left.append(ids[row])
                self.unknown += len(left)
                self.decided += len(ids) - len(left)
                ids = left
            await asyncio.sleep(PAUSE_S)


def batches(rng: random.Random, pool: range) -> Iterator[list[int]]:
    """Endless; the writers' batches overlap."""
    while True:
        yield rng.sample(pool, BATCH)


async def progress(writers: list[Writer], every: Processes, more: int) -> None:
    """Waits until ``more`` further ids are decided."""

    def decided() -> int:
        return sum(writer.decided for writer in writers)

    goal = decided() + more
    deadline = time.monotonic() + 60
    while decided() < goal:
        every.check()
        assert time.monotonic() < deadline, "the registry stands still"
        await asyncio.sleep(0.02)


async def verify(client: RegistryClient, owners: dict[int, int]) -> None:
    """Every acknowledged id is still owned by its token, and refused to another."""
    ids = list(owners)
    mine, taken = list(owners.values()), [token ^ 1 << 39 for token in owners.values()]
    for tokens, expected in ((mine, Answer.COMMITTED), (taken, Answer.TAKEN)):
        left = ids
        found = None
        deadline = time.monotonic() + 60
        while found is None or (found.outcomes == Answer.UNKNOWN).any():
            assert time.monotonic() < deadline, client.problem
            found = await client.insert(rows(left, tokens), timeout=5)
        assert set(found.outcomes.tolist()) == {expected}


async def check_writers(writers: Sequence[Writer]) -> int:
    """They have ended: no id has two owners, and each answer is true. Returns the number of ids."""
    owners: dict[int, int] = {}
    for writer in writers:
        assert not owners.keys() & writer.owned.keys()
        owners |= writer.owned
    assert all(writer.taken for writer in writers)
    for writer in writers:
        for event, token in writer.taken.items():
            assert owners.get(event, token) == token
    return len(owners)
