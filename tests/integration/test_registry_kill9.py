"""Three real replica processes under kill -9 of leaders and followers: no id has two owners, none is lost."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from photon.idregistry.api import Answer, Slot, token_of
from photon.idregistry.client import RegistryClient
from tests.integration.registry_processes import SHARDS, Processes, client_of, leader_of, processes, rows

SEED = int(os.environ.get("PHOTON_SEED", "20"))
ROUNDS = 20 if os.environ.get("PHOTON_FULL") else 5
BATCH = 200
IDS = 40_000  # drawn from: the writers meet on the same ids


class Writer:
    """A joiner's part towards the registry: a slot, batches, and retries under the same tokens until it knows."""

    def __init__(self, name: str, client: RegistryClient, ids: Iterator[list[int]]) -> None:
        self.slot = Slot(name, f"dc-{name}")
        self.client = client
        self.batches = enumerate(ids)
        self.owned: dict[int, int] = {}
        self.taken: dict[int, int] = {}
        self.decided = 0
        self.unknown = 0
        self.stopped = False

    async def open(self) -> None:
        opened = None
        while opened is None:
            opened = await self.client.open_slot(self.slot, 0, b"nonce of " + self.slot.name.encode())
        assert opened.incarnation, opened.reason
        self.incarnation = opened.incarnation
        self.client.announce(self.slot, [opened.incarnation])

    async def run(self) -> None:
        for number, ids in self.batches:
            if self.stopped:
                return
            token = token_of(self.incarnation, number)
            while ids:
                found = await self.client.insert(rows(ids, [token] * len(ids)), timeout=1.0)
                left = []
                for row, answer in enumerate(found.answers.tolist()):
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


def batches(rng: random.Random, pool: range) -> Iterator[list[int]]:
    """Without end; the writers' batches overlap."""
    while True:
        yield rng.sample(pool, BATCH)


async def progress(writers: list[Writer], every: Processes, more: int) -> None:
    """Until so many further ids are decided."""

    def decided() -> int:
        return sum(writer.decided for writer in writers)

    goal = decided() + more
    deadline = time.monotonic() + 20
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
        deadline = time.monotonic() + 20
        while found is None or (found.answers == Answer.UNKNOWN).any():
            assert time.monotonic() < deadline, client.problem
            found = await client.insert(rows(left, tokens), timeout=5)
        assert set(found.answers.tolist()) == {expected}


@pytest.mark.timeout(120)
async def test_kill_9_of_leaders_and_followers(tmp_path: Path) -> None:
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    pool = range(IDS)
    with processes(tmp_path) as every:
        async with client_of(every) as one, client_of(every) as two, client_of(every) as watcher:
            writers = []
            for name, client in (("a", one), ("b", two)):
                writers.append(Writer(name, client, batches(random.Random(f"{SEED} {name}"), pool)))
                await writers[-1].open()
            tasks = [asyncio.create_task(writer.run()) for writer in writers for _ in range(2)]
            await progress(writers, every, 2_000)
            for number in range(ROUNDS):
                leader = await leader_of(watcher, every, 1 + number % SHARDS)
                followers = [name for name in every.peers if name != leader]
                victim = leader if number % 2 == 0 else rng.choice(followers)
                every.kill(victim)
                await progress(writers, every, 1_000)
                every.start(victim)
                await progress(writers, every, rng.randrange(500, 3_000))
            for writer in writers:
                writer.stopped = True
            await asyncio.gather(*tasks)
            owned = [writer.owned for writer in writers]
            assert not owned[0].keys() & owned[1].keys()
            assert all(writer.taken for writer in writers)
            owners = {**owned[0], **owned[1]}
            for writer in writers:
                for event, token in writer.taken.items():
                    assert owners.get(event, token) == token
            for name in list(every.running):
                every.kill(name)
            for name in every.peers:
                every.start(name)
            for writer in writers:
                await verify(writer.client, writer.owned)
            print(f"{len(owners)} ids owned, {sum(writer.unknown for writer in writers)} unknown answers retried")
            every.check()


@pytest.mark.timeout(60)
async def test_sigterm_ends_cleanly_and_another_set_up_is_refused(tmp_path: Path) -> None:
    with processes(tmp_path) as every:
        async with client_of(every) as client:
            writer = Writer("a", client, iter([[1, 2, 3]]))
            await writer.open()
            await writer.run()
        for process in every.running.values():
            process.send_signal(signal.SIGTERM)
        for name, process in list(every.running.items()):
            assert process.wait(15) == 0, every.output(name)
            del every.running[name]
        for name in every.peers:
            every.start(name, shards=SHARDS + 1)
        for name, process in list(every.running.items()):
            assert process.wait(20) == 1, every.output(name)
            del every.running[name]
            complaint = every.output(name).rstrip().splitlines()[-1]
            assert complaint.startswith("error: registry"), complaint
            print(complaint)
