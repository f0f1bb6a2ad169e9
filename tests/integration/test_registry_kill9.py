"""Three real replica processes under kill -9 of leaders and followers: no id has two owners, none is lost."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from pathlib import Path

import pytest

from tests.integration.registry_processes import SHARDS, client_of, leader_of, processes
from tests.integration.registry_writers import IDS, Writer, batches, check_writers, progress, verify

SEED = int(os.environ.get("PHOTON_SEED", "20"))
ROUNDS = 20 if os.environ.get("PHOTON_FULL") else 5


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
            owners = await check_writers(writers)
            for name in list(every.running):
                every.kill(name)
            for name in every.peers:
                every.start(name)
            for writer in writers:
                await verify(writer.client, writer.owned)
            print(f"{owners} ids owned, {sum(writer.unknown for writer in writers)} unknown answers retried")
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
