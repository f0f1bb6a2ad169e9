"""``python -m bench.components.workers``: CPU time of a dispatcher alone, and of one worker that shares its state.

Reads generated lines with a joiner that answers at once, in one process: what is measured is reading, parsing,
sending, counting and committing. Ways alternate; medians of CPU time, not of wall time, as other work may run beside.
Then the CPU time of a worker at rest among three with 5,000 logs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import tempfile
import time
from pathlib import Path

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.envelope import Envelope
from photon.batch.events import Events
from photon.config.clock import NEVER_NS, SystemClock
from photon.config.disk import RealDisk
from photon.dispatcher.database import STATE_NAME, read_ledger
from photon.dispatcher.engine import Options, Policy, Surroundings
from photon.dispatcher.process import Places, Worker, open_dispatcher
from photon.dispatcher.retry import Patience
from photon.eventstore.api import Progress
from photon.idregistry.api import Digester
from photon.joiner.api import JoinAnswers, Outcome

SIDE = {"format": "jsonl", "key": "query_id", "id": "click_id", "time": {"field": "time_us", "unit": "us"}}
ADAPTER = {"primary": {"format": "jsonl", "key": "query_id"}, "foreign": SIDE}
LOGS = 20
REST_LOGS = 5000
REST_S = 10.0


class Prompt:
    """A joiner that has joined everything."""

    joined = 0

    async def join(self, events: Events, *, timeout: float) -> JoinAnswers:
        self.joined += len(events)
        return JoinAnswers.alike(len(events), Outcome.JOINED)

    async def close(self) -> None:
        return None


async def _progress() -> Progress:
    return Progress(read_past_ns=NEVER_NS)


def _world(joiner: Prompt) -> Surroundings:
    return Surroundings(
        join="clicks", datacentre="here", adapter=ConfiguredAdapter(ADAPTER),
        digester=Digester(b"0123456789abcdef", "clicks"), joiners=[joiner], progress=_progress, registry=None,
        envelope=Envelope(), clock=SystemClock(), random=random.Random(1).random,
    )  # fmt: skip


def _write(directory: Path, logs: int, lines: int) -> None:
    directory.mkdir()
    for log in range(logs):
        text = "".join(
            f'{{"click_id":"{log}-{n}","query_id":"q{n}","time_us":{10**15 + n},"more":"{"x" * 150}"}}\n'
            for n in range(lines)
        )
        (directory / f"{log:05}.log").write_text(text)


async def _read(logs: Path, base: Path, worker: Worker | None, events: int) -> float:
    """CPU seconds for all of them."""
    began, joiner = time.process_time(), Prompt()
    with open_dispatcher(
        Places(logs, base / "out", base / "state"),
        Policy(Patience(unmatched_after_ns=10**12), options=Options()),
        _world(joiner), RealDisk(), worker=worker,
    ) as engine:  # fmt: skip
        running = asyncio.create_task(engine.run())
        while joiner.joined < events or not engine.status().caught_up:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        engine.stop()
        await running
    took = time.process_time() - began
    total = read_ledger(base / "state" / STATE_NAME).total
    if (total.read, total.pending, total.balance) != (events, 0, 0):
        raise SystemExit(f"wrong ledger: {total}")
    return took


async def _rest(logs: Path, base: Path) -> float:
    """Share of a core of three workers at rest in one process, each."""

    async def serve(name: str) -> None:
        with open_dispatcher(
            Places(logs, base / "out", base / "state"),
            Policy(Patience(unmatched_after_ns=10**12)),
            _world(Prompt()), RealDisk(), worker=Worker(name),
        ) as engine:  # fmt: skip
            await engine.run()

    serving = [asyncio.create_task(serve(f"w{n}")) for n in range(3)]
    await asyncio.sleep(REST_S)  # what came was read, shares are even
    began, cpu = time.perf_counter(), time.process_time()
    await asyncio.sleep(REST_S)
    share = (time.process_time() - cpu) / (time.perf_counter() - began) / len(serving)
    for task in serving:
        task.cancel()
    await asyncio.gather(*serving, return_exceptions=True)
    return share


def main() -> None:
    """Prints JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--alone", action="store_true", help="only a dispatcher that is alone")
    given = parser.parse_args()
    took: dict[str, list[float]] = {"alone": [], "worker": []}
    if given.alone:
        del took["worker"]
    found: dict[str, object] = {"load": os.getloadavg()[0]}
    with tempfile.TemporaryDirectory() as name:
        logs = Path(name) / "logs"
        _write(logs, LOGS, given.events // LOGS)
        for round_ in range(given.rounds):
            for way, times in took.items():
                base = Path(name) / f"{way}-{round_}"
                worker = Worker("w1") if way == "worker" else None
                times.append(asyncio.run(_read(logs, base, worker, given.events // LOGS * LOGS)))
        for way, times in took.items():
            found[f"{way}, CPU s per million events"] = round(statistics.median(times) / given.events * 1e6, 2)
        if not given.alone:
            quiet = Path(name) / "quiet"
            _write(quiet, REST_LOGS, 1)
            found["worker at rest, 5,000 logs, % of a core"] = round(
                100 * asyncio.run(_rest(quiet, Path(name) / "rest")), 2
            )
    print(json.dumps(found))


if __name__ == "__main__":
    main()
