"""``python -m bench.components.registry.memory``: one replica process with ten million ids in one bucket of time.

Its resident memory, how long a commit is held up at most while a snapshot of that size is written, and how long it
takes to start again from snapshot and log.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import uvloop

from bench.components.registry.load import inserts
from bench.components.registry.processes import Replica, usage
from photon.batch.ids import Ids
from photon.idregistry.api import Answer, Slot, token_of
from photon.idregistry.client.grpc_client import RegistryClient

TIMEOUT_S = 120.0
_PROBE_S = 0.005
_SNAPSHOT_WITHIN_S = 120.0


@dataclass(frozen=True, slots=True)
class Found:
    """What was measured. Bytes an id are of the whole process, and what it grew by since it was empty."""

    ids: int
    ids_s: float
    bytes_per_id: float
    grown_per_id: float
    peak_grown_per_id: float
    snapshot_s: float
    commit_p50_ms: float
    commit_worst_ms: float
    commit_worst_in_snapshot_ms: float
    start_s: float
    bytes_per_id_after_start: float


class Filler:
    """Inserts ids that nobody has inserted before."""

    def __init__(self, client: RegistryClient, incarnation: int) -> None:
        self._client = client
        self._incarnation = incarnation
        self._batch = 0

    async def insert(self, count: int) -> None:
        self._batch += 1
        rows = inserts(count, token_of(self._incarnation, self._batch))
        await self._insert(rows)

    async def _insert(self, rows: Ids) -> None:
        answers = await self._client.insert(rows, timeout=TIMEOUT_S)
        if not (answers.outcomes == Answer.COMMITTED).all():
            raise RuntimeError(f"not committed: {self._client.problem}")


async def filled(filler: Filler, ids: int) -> float:
    """Seconds that it took, with four requests under way."""
    left = -(-ids // 16_000)

    async def one() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await filler.insert(16_000)

    began = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(4)))
    return time.perf_counter() - began


async def through_a_snapshot(filler: Filler, writing: str) -> tuple[float, list[float], list[float]]:
    """(seconds it took, commits' latencies before it, and while it was written); ids are inserted all the while."""
    before: list[float] = []
    within: list[float] = []
    began = time.perf_counter()
    started = ended = 0.0

    async def grow() -> None:
        while not ended:
            await filler.insert(2_000)
            await asyncio.sleep(0.01)

    growing = asyncio.create_task(grow())
    while not ended:
        at = time.perf_counter()
        here = os.path.exists(writing)  # noqa: ASYNC240 - microseconds
        await filler.insert(1)
        now = time.perf_counter()
        here = here or os.path.exists(writing)  # noqa: ASYNC240
        (within if here else before).append(1e3 * (now - at))
        if here and not started:
            started = at
        if started and not here and now - started > 0.2:
            ended = now
        if now - began > _SNAPSHOT_WITHIN_S:
            raise RuntimeError("no snapshot was written")
        await asyncio.sleep(_PROBE_S)
    await growing
    return ended - started, before, within


async def measure(directory: Path, ids: int) -> Found:
    """All of it."""
    replica = Replica(directory)
    replica.start()
    client = RegistryClient({"r0": replica.address})
    try:
        slot = Slot("s", "bench")
        opened = None
        while opened is None:
            opened = await client.open_slot(slot, 0, os.urandom(16))
        client.announce(slot, [opened.incarnation])
        filler = Filler(client, opened.incarnation)
        await filler.insert(1)
        empty = replica.usage().rss
        peak = asyncio.create_task(_peak(replica))
        seconds = await filled(filler, ids)
        full = replica.usage().rss
        took, before, within = await through_a_snapshot(filler, f"{directory}/group-00001/snapshot.tmp")
        described = await client.describe(timeout=TIMEOUT_S)
        assert described is not None
        held = next(group.ids for group in described.groups if group.group == 1)
        after = replica.usage().rss
        peak.cancel()
        most = max([full, after, *await asyncio.gather(peak, return_exceptions=True)], key=_number)
    finally:
        await client.close()
        replica.stop()
    start_s = replica.start()
    again = replica.usage().rss
    replica.stop()
    return Found(
        ids=held,
        ids_s=ids / seconds,
        bytes_per_id=after / held,
        grown_per_id=(after - empty) / held,
        peak_grown_per_id=(_number(most) - empty) / held,
        snapshot_s=took,
        commit_p50_ms=float(np.median(before)),
        commit_worst_ms=max(before),
        commit_worst_in_snapshot_ms=max(within),
        start_s=start_s,
        bytes_per_id_after_start=again / held,
    )


async def _peak(replica: Replica) -> int:
    most = 0
    assert replica.process is not None
    while True:
        most = max(most, usage(replica.process.pid).rss)
        try:
            await asyncio.sleep(0.1)
        except asyncio.CancelledError:
            return most


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m bench.components.registry.memory")
    parser.add_argument("--ids", type=int, default=10_000_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="photon-bench-") as name:
        found = uvloop.run(measure(Path(name), arguments.ids))
    print(json.dumps({key: round(value, 2) for key, value in asdict(found).items()}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
