"""Three real replica processes under kill -9 of leaders and followers: no id has two owners, none is lost."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from photon.embedded.supervisor import free_ports
from photon.idregistry.api import Answer, Inserts, Slot, token_of
from photon.idregistry.client import RegistryClient

ROOT = Path(__file__).resolve().parents[2]
SEED = int(os.environ.get("PHOTON_SEED", "20"))
ROUNDS = 20 if os.environ.get("PHOTON_FULL") else 5
SHARDS = 2
BATCH = 200
IDS = 40_000  # drawn from: the writers meet on the same ids


def _peers() -> dict[str, str]:
    return {f"r{number}": f"127.0.0.1:{port}" for number, port in enumerate(free_ports(3))}


@dataclass
class Processes:
    """The replicas' processes."""

    directory: Path
    peers: dict[str, str] = field(default_factory=_peers)
    running: dict[str, subprocess.Popen[str]] = field(default_factory=dict)

    def start(self, name: str, **more: str | int) -> None:
        settings = {"name": name, "peers": self.peers, "directory": str(self.directory / name), "shards": SHARDS}
        log = open(self.directory / f"{name}.out", "a")  # noqa: SIM115 (the child's)
        with log:
            self.running[name] = subprocess.Popen(
                [sys.executable, "-m", "tests.integration.registry_replica", json.dumps(settings | more)],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": f"{ROOT}/src:{ROOT}"},
                stdout=log,
                stderr=subprocess.STDOUT,
                text=True,
            )

    def kill(self, name: str) -> None:
        process = self.running.pop(name)
        process.kill()
        process.wait(10)

    def output(self, name: str) -> str:
        return (self.directory / f"{name}.out").read_text()

    def check(self) -> None:
        for name, process in self.running.items():
            assert process.poll() is None, self.output(name)


@contextmanager
def processes(directory: Path) -> Iterator[Processes]:
    every = Processes(directory)
    try:
        for name in every.peers:
            every.start(name)
        yield every
    finally:
        for name in list(every.running):
            every.kill(name)


@asynccontextmanager
async def client_of(every: Processes) -> AsyncIterator[RegistryClient]:
    client = RegistryClient(every.peers)
    try:
        yield client
    finally:
        await client.close()


def digests_of(ids: list[int]) -> bytes:
    return b"".join(i.to_bytes(8, "little") + (i * 0x9E3779B97F4A7C15 % 2**64).to_bytes(8, "little") for i in ids)


def rows(ids: list[int], tokens: list[int]) -> Inserts:
    n = len(ids)
    return Inserts(
        digests_of(ids),
        np.array(ids, np.int64),
        np.array(tokens, np.uint64),
        np.ones(n, np.uint8),
        np.zeros(n, np.uint32),
    )


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


async def leader_of(client: RegistryClient, every: Processes, group: int) -> str:
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline:
        known = await client.describe(timeout=2)
        for facts in known.groups if known else ():
            if facts.group == group and facts.leader in every.running:
                return facts.leader
        await asyncio.sleep(0.02)
    raise AssertionError("no leader")


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
