"""One joiner on the real disk, others in memory: python -m bench.components.joiner [events] [batch] [calls]."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import LogFile
from photon.adapters.envelope import Envelope
from photon.batch.events import Events, ForeignEvent
from photon.batch.ids import Ids
from photon.batch.records import PrimaryRecord, Records
from photon.batch.verdicts import Verdicts
from photon.config.clock import SystemClock
from photon.config.disk import RealDisk
from photon.eventstore.api import EventLookUps, LookUpCode, Progress
from photon.idregistry.api import Answer, Digester, Opened, Slot
from photon.idregistry.witness import Witness, Witnessed
from photon.joiner.api import Outcome
from photon.joiner.engine import JoinerEngine
from photon.joiner.opening import Surroundings
from photon.joiner.process import die
from photon.joiner.slot.slot import SlotPaths
from photon.joiner.verdicts import envelope_lines

SIDE = {"format": "jsonl", "key": "query_id", "time": {"field": "ts", "unit": "ns"}}


class YesRegistry:
    """Everything is committed at once."""

    async def open_slot(self, slot: Slot, last: int, nonce: bytes) -> Opened:
        return Opened(last + 1, last + 1)

    async def read_witness(self, slot: str) -> Witnessed:
        return Witnessed(0, ())

    async def extend_witness(self, slot: str, incarnation: int, end: Witness, to: Witness) -> Witnessed:
        return Witnessed(incarnation, to)

    def announce(self, slot: Slot, incarnations: Sequence[int]) -> None:
        return None

    async def insert(self, inserts: Ids, *, timeout: float) -> Verdicts:
        return Verdicts.blank(len(inserts), Answer.COMMITTED)


class DictStore:
    """Finds everything."""

    def __init__(self, records: dict[bytes, PrimaryRecord]) -> None:
        self._all = Records.of(list(records.values()))
        self._number = {key: number for number, key in enumerate(records)}

    async def look_up(self, keys: Sequence[bytes], as_of: Sequence[int]) -> EventLookUps:
        found = self._all.take(np.array([self._number[key] for key in keys]))
        return EventLookUps(bytes([LookUpCode.FOUND]) * len(keys), found)

    async def progress(self) -> Progress:
        return Progress(0)


def generate(n: int) -> tuple[dict[bytes, PrimaryRecord], list[ForeignEvent]]:
    """n primary records of about 300 bytes, and a foreign event for each."""
    digester = Digester(b"key", "clicks")
    primaries, foreigns = LogFile("queries.jsonl"), LogFile("clicks.jsonl")
    records, events = {}, []
    for i in range(n):
        key, event_id = b"10.0.0.1:77:%d" % i, b"10.0.0.2:5:%d" % i
        primary = b'{"query_id":"%b","ts":%d,"text":"%b"}' % (key, i, b"x" * 240)
        record = b'{"click_id":"%b","query_id":"%b","ts":%d,"ad":"%b"}' % (event_id, key, i, b"y" * 30)
        records[key] = PrimaryRecord(primary, primaries, i * 300)
        events.append(ForeignEvent(event_id, digester.digest(event_id), i, key, record, foreigns, i * 100, 0))
    return records, events


async def measure(n: int, batch: int, calls: int, base: Path) -> str:
    """Events/s with ``calls`` batches under way at a time."""
    records, events = generate(n)
    registry: Any = YesRegistry()
    store: Any = DictStore(records)
    world = Surroundings(registry, store, RealDisk(), SystemClock(), die, lambda: os.urandom(16))
    adapter = ConfiguredAdapter({"primary": SIDE, "foreign": SIDE})
    paths = SlotPaths(base / "state", base / "output")
    engine = JoinerEngine(Slot("s0", "dc0"), paths, world, adapter, envelope_lines(Envelope()), check_payloads=False)
    await engine.start()
    batches = iter([Events.of(events[start : start + batch]) for start in range(0, n, batch)])
    waits: list[float] = []

    async def caller() -> None:
        for some in batches:
            begin = time.perf_counter()
            answers = await engine.join(some, timeout=30.0)
            waits.append(time.perf_counter() - begin)
            joined = answers.verdicts.outcomes == Outcome.JOINED
            assert joined.all(), "everything is joined, or the figure means nothing"

    cpu, wall = time.process_time(), time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(calls)))
    assert await engine.settle(30.0)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    await engine.close()
    waits.sort()
    p50, p99 = (waits[int(len(waits) * share)] * 1000 for share in (0.5, 0.99))
    return (
        f"{n} events in batches of {batch}, {calls} at a time: {n / wall:,.0f} events/s, "
        f"{n / cpu:,.0f} per CPU second, a batch takes {p50:.1f} ms (p99 {p99:.1f})"
    )


def main() -> None:
    n, batch, calls = (int(given) for given in (sys.argv[1:] + ["100000", "1000", "8"][len(sys.argv) - 1 :]))
    with tempfile.TemporaryDirectory() as base:
        print(asyncio.run(measure(n, batch, calls, Path(base))))


if __name__ == "__main__":
    main()
