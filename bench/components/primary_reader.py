"""The primary reader over thousands of logs: CPU at rest, and how soon a new line is found.

python -m bench.components.primary_reader [--logs N] [--seconds S]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import tempfile
import time
from pathlib import Path

from photon.config.clock import SystemClock
from photon.config.disk import RealDisk
from photon.eventstore.api import LookUpCode
from photon.eventstore.engine import EventStoreConfig, EventStoreEngine
from tests.unit.eventstore.helpers import LineAdapter

LINES = 40
POLL_S = 0.002
PAUSE_S = 0.1
SETTLE_S = 2.0


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def measured(base: Path, logs: int, seconds: float) -> None:
    """Prints a table."""
    directory = base / "logs"
    for number in range(logs):
        path = directory / str(number % 50) / f"{number}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"k%d,1\n" % number)
    config = EventStoreConfig("bench", directory, base / "map")
    engine = EventStoreEngine(config, LineAdapter({}), SystemClock(), RealDisk(), print)
    began = cpu_s()
    engine.start()
    while (await engine.progress()).events < logs:  # noqa: ASYNC110 - the store tells nobody
        await asyncio.sleep(0.05)
    first = cpu_s() - began
    await asyncio.sleep(SETTLE_S)
    began, wall = cpu_s(), time.monotonic()
    await asyncio.sleep(seconds)
    idle = (cpu_s() - began) / (time.monotonic() - wall)
    took = []
    with (directory / "7" / "7.log").open("ab", buffering=0) as file:
        for number in range(LINES):
            written = time.monotonic()
            file.write(b"new%d,1\n" % number)
            while (await engine.look_up([b"new%d" % number], [0])).answers != [LookUpCode.FOUND]:  # noqa: ASYNC110
                await asyncio.sleep(POLL_S)
            took.append((time.monotonic() - written) * 1e3)
            await asyncio.sleep(PAUSE_S)
    await engine.close()
    took.sort()
    print(f"{logs:,} logs, load average {os.getloadavg()[0]:.1f}\n\n| | |\n| --- | --- |")
    print(f"| CPU until all were read once, s | {first:.2f} |")
    print(f"| CPU at rest, % of a core | {100 * idle:.1f} |")
    print(f"| new line found after, ms: median, longest of {LINES} | {took[LINES // 2]:.1f}, {took[-1]:.1f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=int, default=5000)
    parser.add_argument("--seconds", type=float, default=8.0, help="at rest")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as base:
        asyncio.run(measured(Path(base), options.logs, options.seconds))


if __name__ == "__main__":
    main()
