"""Three real replicas, 10 ms apart, stopped beyond every time-out and cut off: no id has two owners, none is lost."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from photon.lab.wan.client import WanClient
from photon.lab.wan.links import Fault
from tests.integration.registry_processes import SHARDS, RegionProcesses, client_of, leader_of, regions
from tests.integration.registry_writers import IDS, Writer, batches, check_writers, progress, verify

SEED = int(os.environ.get("PHOTON_SEED", "20"))
ROUNDS = 20 if os.environ.get("PHOTON_FULL") else 4
STOPPED_S = 3.0  # longer than an election, a peer's silence, and a leader's patience


async def stop_for_long(every: RegionProcesses, victim: str, writers: list[Writer]) -> None:
    """SIGSTOP, and SIGCONT: a leader wakes up in the middle of its work, and must not be believed."""
    process = every.running[victim]
    process.send_signal(signal.SIGSTOP)
    try:
        await asyncio.gather(progress(writers, every, 1_000), asyncio.sleep(STOPPED_S))
    finally:
        process.send_signal(signal.SIGCONT)


async def cut_off(
    every: RegionProcesses, wan: WanClient, victim: str, rng: random.Random, writers: list[Writer]
) -> None:
    """Cut off from both others, both ways or one, packets lost or refused; writers elsewhere continue."""
    elsewhere = [writer for writer in writers if writer.slot.name != victim]
    both = rng.random() < 0.5
    await wan.isolate(victim, rng.choice((Fault.DROP, Fault.RESET, Fault.REFUSE)), both)
    try:
        await progress(elsewhere, every, 1_000)
    finally:
        await wan.heal()


@pytest.mark.timeout(400)
async def test_pauses_and_cuts(tmp_path: Path) -> None:
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    async with regions(tmp_path, 0.01) as (every, wan), AsyncExitStack() as clients:
        writers = []
        for name in every.peers:
            client = await clients.enter_async_context(client_of(every, name))
            writers.append(Writer(name, client, batches(random.Random(f"{SEED} {name}"), range(IDS))))
            await writers[-1].open()
        tasks = [asyncio.create_task(writer.run()) for writer in writers]
        await progress(writers, every, 2_000)
        for number in range(ROUNDS):
            leader = await leader_of(rng.choice(writers).client, every, 1 + number % SHARDS)
            victim = leader if rng.random() < 0.7 else rng.choice(list(every.peers))
            if number % 2 == 0:
                await stop_for_long(every, victim, writers)
            else:
                await cut_off(every, wan, victim, rng, writers)
            for writer in writers:  # each of them makes progress again
                await progress([writer], every, 400)
        for writer in writers:
            writer.stopped = True
        await asyncio.gather(*tasks)
        owners = await check_writers(writers)
        for writer in writers:
            await verify(writer.client, writer.owned)
        print(f"{owners} ids owned, {sum(writer.unknown for writer in writers)} unknown answers retried")
        every.check()
