"""A client that inserts fresh ids: ``python -m bench.components.registry.load '{"addresses": …}'``; prints JSON.

Closed loop without a rate (``callers`` callers, each with one request at a time); with a rate an open loop, where
requests behind a slow one count as late.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from dataclasses import dataclass, field

import numpy as np
import uvloop

from photon.batch.ids import Ids
from photon.idregistry.api import Answer, Kind, Slot, token_of
from photon.idregistry.client.grpc_client import RegistryClient

TIMEOUT_S = 10.0


@dataclass(slots=True)
class Load:
    """One process's figures."""

    ids: int = 0
    unknown: int = 0
    latencies_ms: list[float] = field(default_factory=list)


def inserts(count: int, token: int) -> Ids:
    """Makes ``count`` ids that have never been inserted."""
    return Ids(
        digests=os.urandom(16 * count),
        times=np.full(count, time.time_ns(), np.int64),
        tokens=np.full(count, token, np.uint64),
        kinds=np.full(count, Kind.JOINED, np.uint8),
        tags=np.zeros(count, np.uint32),
    )


async def caller(
    client: RegistryClient,
    load: Load,
    incarnation: int,
    number: int,
    callers: int,
    batch: int,
    ends: float,
    rate: float,
) -> None:
    """Inserts batch after batch until the end. ``rate``: ids a second over all callers; 0 means no limit."""
    gap = callers * batch / rate if rate else 0.0
    due = time.perf_counter() + gap * number / callers
    n = number
    while True:
        if gap:
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
        began = due if gap else time.perf_counter()
        due += gap
        if began > ends:
            return
        answers = await client.insert(inserts(batch, token_of(incarnation, n)), timeout=TIMEOUT_S)
        n += callers
        committed = int((answers.outcomes == Answer.COMMITTED).sum())
        load.ids += committed
        load.unknown += batch - committed
        load.latencies_ms.append((time.perf_counter() - began) * 1e3)


async def run(given: dict[str, object]) -> Load:
    """Inserts as ``given`` says: ``addresses``, ``slot``, ``callers``, ``batch``, ``seconds``, ``rate``."""
    client = RegistryClient(given["addresses"])  # type: ignore[arg-type]
    slot = Slot(str(given["slot"]), "bench")
    load = Load()
    try:
        opened = None
        while opened is None:
            opened = await client.open_slot(slot, 0, os.urandom(16))
        client.announce(slot, [opened.incarnation])
        await client.insert(inserts(1, token_of(opened.incarnation, 1 << 30)), timeout=TIMEOUT_S)
        print("ready", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        callers, batch = int(given["callers"]), int(given["batch"])  # type: ignore[call-overload]
        rate, ends = float(given["rate"]), time.perf_counter() + float(given["seconds"])  # type: ignore[arg-type]
        each = (caller(client, load, opened.incarnation, n, callers, batch, ends, rate) for n in range(callers))
        await asyncio.gather(*each)
    finally:
        await client.close()
    return load


def main() -> None:
    """Entry point."""
    load = uvloop.run(run(json.loads(sys.argv[1])))
    print(json.dumps({"ids": load.ids, "unknown": load.unknown, "latencies_ms": load.latencies_ms}))


if __name__ == "__main__":
    main()
