"""What a million parked events cost the fresh ones: ``python -m bench.components.parked [--rows N] [--events N]``.

A dispatcher process over a real state and real foreign logs; its joiner answers at once in the same process: *not
yet* for what is parked, *joined* for the rest. So all that is measured is the dispatcher's own. The goals (issue of
tailing and retries): below 100 MB of memory, and less than 10 % of the throughput of fresh events.

Runs take turns, without and with the parked events; what is compared is CPU time, the least of each kind.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import LogFile
from photon.adapters.envelope import Envelope
from photon.batch.events import Events
from photon.config.clock import SystemClock
from photon.config.disk import RealDisk
from photon.dispatcher.database import STATE_NAME
from photon.dispatcher.engine import DispatcherEngine, Options, Policy, Surroundings
from photon.dispatcher.ledger import Verdict, cell
from photon.dispatcher.limits import Limits
from photon.dispatcher.open_events import StoredEvents
from photon.dispatcher.process import Places, open_dispatcher, state_rule
from photon.dispatcher.retry import COMPLETE_NS, NOT_YET_BACKOFF, Patience
from photon.dispatcher.state import Changes, State
from photon.eventstore.api import Progress
from photon.idregistry.api import Digester
from photon.joiner.api import WAIT_NS, ForeignEvent, JoinAnswers, Outcome

SIDE = {"format": "jsonl", "key": "query_id", "id": "click_id", "time": {"field": "ts", "unit": "ns"}}
DIGESTER = Digester(b"0123456789abcdef", "clicks")
PARKED = b"parked-"
HOUR_NS = 3_600_000_000_000
CHUNK, BATCH = 20_000, 1000
WINDOW_BYTES = 16 << 20
"""Of events read ahead: small, so that what is parked is seen beside it."""


def adapter() -> ConfiguredAdapter:
    """Reads the lines that ``line`` writes."""
    return ConfiguredAdapter({"primary": {k: v for k, v in SIDE.items() if k != "id"}, "foreign": SIDE})


def line(key: bytes, event_id: bytes, time_ns: int) -> bytes:
    """A foreign record of some 200 bytes."""
    return b'{"click_id":"%b","query_id":"%b","ts":%d,"ad":"%b"}' % (event_id, key, time_ns, b"y" * 120)


def park(directory: Path, rows: int) -> None:
    """A state with so many events that wait for their primaries, in the midst of their back-off."""
    now_ns, file, draw = time.time_ns(), LogFile("clicks-old.jsonl"), random.Random(7).random
    state = State(directory / STATE_NAME, rule=state_rule("clicks", adapter(), DIGESTER))
    for begin in range(0, rows, CHUNK):
        rows_now = min(CHUNK, rows - begin)
        events = []
        for n in range(begin, begin + rows_now):
            key, event_id = PARKED + b"%d" % n, b"10.0.0.2:5:%d" % n
            record, digest = line(key, event_id, now_ns), DIGESTER.digest(event_id)
            events.append(ForeignEvent(event_id, digest, now_ns, key, record, file, n * 200, WAIT_NS))
        # Those of a batch are tried again together.
        tries = [now_ns + int(draw() * NOT_YET_BACKOFF.most * 1e9) for _ in range(0, rows_now, BATCH)]
        ones = np.ones(rows_now, np.int64)
        stored = StoredEvents(
            row_ids=0 * ones,
            events=Events.of(events),
            first_read_ns=now_ns * ones,
            attempts=12 * ones,
            next_try_ns=np.repeat(np.array(tries, np.int64), BATCH)[:rows_now],
            trigger_ns=COMPLETE_NS * ones,
        )
        state.commit(Changes(stored=stored, cells={cell(now_ns, Verdict.READ): rows_now}))
    state.close()


class InstantJoiner:
    """Knows by the key what to answer."""

    def __init__(self) -> None:
        self.parked = 0

    async def join(self, events: Events, *, timeout: float) -> JoinAnswers:
        parked = [key.startswith(PARKED) for key in events.keys]
        self.parked += sum(parked)
        answers = JoinAnswers.alike(len(events), Outcome.JOINED)
        answers.verdicts.outcomes[parked] = Outcome.NOT_YET
        return answers

    async def close(self) -> None: ...


def resident() -> dict[str, float]:
    """MB of this process: now, and at its most."""
    text = Path("/proc/self/status").read_text()
    return {name: int(text.split(f"{name}:")[1].split()[0]) / 1000 for name in ("VmRSS", "VmHWM")}


async def run(root: Path, events: int) -> dict[str, Any]:
    """Reads all fresh events; what that took."""
    joiner = InstantJoiner()

    async def progress() -> Progress:
        return Progress(read_past_ns=time.time_ns())

    limits = Limits(window_bytes=WINDOW_BYTES, spill_bytes=WINDOW_BYTES * 3 // 4)
    opened = time.process_time()
    with open_dispatcher(
        Places(root / "foreign", root / "output", root / "state"),
        Policy(Patience(unmatched_after_ns=HOUR_NS), limits, Options()),
        Surroundings(join="clicks", datacentre="here", adapter=adapter(), digester=DIGESTER, joiners=[joiner],
                     progress=progress, registry=None, envelope=Envelope(), clock=SystemClock(),
                     random=random.Random(1).random),
        RealDisk(),
    ) as engine:  # fmt: skip
        open_s = time.process_time() - opened
        cpu, wall = time.process_time(), time.perf_counter()
        serving = asyncio.create_task(engine.run())
        while _joined(engine) < events:  # noqa: ASYNC110 -- what is waited for has no event
            await asyncio.sleep(0.02)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        parked, memory = joiner.parked, resident()
        idle_cpu, idle_wall = time.process_time(), time.perf_counter()
        await asyncio.sleep(3.0)
        idle_cpu = (time.process_time() - idle_cpu) / (time.perf_counter() - idle_wall)
        idle_parked = joiner.parked - parked
        engine.stop()
        await serving
    return {
        "cpu_us": cpu / events * 1e6, "wall_s": wall, "retried": parked, "open_cpu_s": open_s, "idle_cores": idle_cpu,
        "idle_retried_s": idle_parked / 3.0, **memory,
    }  # fmt: skip


def _joined(engine: DispatcherEngine) -> int:
    return engine.status().verdicts[Verdict.JOINED]


def measured(root: Path, events: int) -> dict[str, Any]:
    """``run`` in a process of its own."""
    command = [sys.executable, "-m", "bench.components.parked", "--run", str(root), "--events", str(events)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--events", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--run", type=Path)
    args = parser.parse_args()
    if args.run is not None:
        print(json.dumps(asyncio.run(run(args.run, args.events))))
        return
    best: dict[str, list[dict[str, Any]]] = {"without": [], "with": []}
    with tempfile.TemporaryDirectory() as base:
        parked = Path(base) / "parked"
        parked.mkdir()
        park(parked, args.rows)
        print(f"{args.rows} parked events: {(parked / STATE_NAME).stat().st_size / 1e6:.0f} MB of disk")
        for number in range(args.rounds):
            for kind, runs in best.items():
                root = Path(base) / f"{kind}-{number}"
                (root / "foreign").mkdir(parents=True)
                now_ns = time.time_ns()
                rows = (line(b"k%d" % n, b"10.0.0.1:9:%d" % n, now_ns + n) + b"\n" for n in range(args.events))
                (root / "foreign" / "clicks.jsonl").write_bytes(b"".join(rows))
                if kind == "with":
                    shutil.copytree(parked, root / "state")
                runs.append(measured(root, args.events))
                shutil.rmtree(root)
                print(kind, {name: round(value, 2) for name, value in runs[-1].items()}, flush=True)
    least = {kind: min(run["cpu_us"] for run in runs) for kind, runs in best.items()}
    memory = {kind: max(run["VmHWM"] for run in runs) for kind, runs in best.items()}
    print(
        f"{args.rows} parked, load average {os.getloadavg()[0]:.0f}: CPU us of a fresh event {least['without']:.1f} "
        f"without, {least['with']:.1f} with ({100 * (least['with'] / least['without'] - 1):+.1f} %); peak memory "
        f"{memory['without']:.0f} MB without, {memory['with']:.0f} MB with"
    )


if __name__ == "__main__":
    main()
