"""What verifying costs a record: python -m bench.components.verifier [records].

One slot's joined output of records of some 150 + 300 bytes, made as the joiner makes it; logs plain or compressed.
The registry answers at once in the same process, so all that is measured is the verifier's own CPU time.
"""

from __future__ import annotations

import asyncio
import gzip
import os
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import LINES, Joined, LogFile
from photon.adapters.envelope import Envelope
from photon.batch.records import PrimaryRecord
from photon.config.clock import SystemClock
from photon.config.disk import RealDisk
from photon.idregistry.api import Answer, Digester
from photon.verifier.alarms import AlarmLog
from photon.verifier.checker import Checker
from photon.verifier.seen_ids import SeenIds
from photon.verifier.slot_work import LineFindings
from photon.verifier.source_finder import SourceFinder, SourceSide
from photon.verifier.verifier import Verifier
from tests.lines import event_of, joined_lines

SIDE = {"format": "jsonl", "key": "q"}
FOREIGN = {**SIDE, "id": "id", "time": {"field": "t", "unit": "us"}}
NAME = "joined/s0-000001.jsonl"
T_US = 1_760_000_000_000_000
BATCH = 1000


class Clears:
    """Everything is cleared at once."""

    async def clear(self, digests: bytes, times: Any, tokens: Any, *, timeout: float) -> Any:
        return np.full(len(times), Answer.CLEARED, np.uint8)


def write(base: Path, count: int, *, packed: bool) -> tuple[Path, Path]:
    """Raw logs and the output that they make: (slot's state, output). Foreign events name primaries at random."""
    draw = random.Random(1)
    text = "".join(draw.choice("abcdefgh ") for _ in range(4000))
    queries = [
        b'{"q":"10.0.0.1:77:%d","words":"%b","user":%d}' % (T_US + n, text[n % 3000 :][:230].encode(), n % 9973)
        for n in range(count)
    ]
    order = list(range(count))
    draw.shuffle(order)
    clicks = [
        b'{"id":"10.0.1.1:9:%d","q":"10.0.0.1:77:%d","t":%d,"page":"%b"}'
        % (T_US + n, T_US + order[n], T_US + n, text[n % 3000 :][:60].encode())
        for n in range(count)
    ]
    places = []
    for name, records in (("clicks", clicks), ("queries", queries)):
        (base / name).mkdir(parents=True)
        data = b"\n".join(records) + b"\n"
        if packed:
            (base / name / f"{name}.log.gz").write_bytes(gzip.compress(data, 1))
        else:
            (base / name / f"{name}.log").write_bytes(data)
        places.append(np.concatenate([[0], np.cumsum([len(record) + 1 for record in records])]).tolist())
    state, output = base / "slots/s0", base / "output"
    (state / "verifier").mkdir(parents=True)
    (output / "joined").mkdir(parents=True)
    envelope = Envelope()
    with open(output / NAME, "wb") as file:
        for begin in range(0, count, BATCH):
            rows = range(begin, min(begin + BATCH, count))
            events = [
                event_of(b"10.0.1.1:9:%d" % (T_US + n), b"10.0.0.1:77:%d" % (T_US + order[n]), (T_US + n) * 1000,
                         clicks[n], LogFile("clicks.log"), places[0][n])
                for n in rows
            ]  # fmt: skip
            primaries = [PrimaryRecord(queries[order[n]], LogFile("queries.log"), places[1][order[n]]) for n in rows]
            payloads = [Joined(each.record, other.record) for each, other in zip(events, primaries, strict=True)]
            token = 1 << 40 | begin
            file.writelines(joined_lines(envelope, events, primaries, payloads, token=token, at_ns=time.time_ns()))
        size = file.tell()
    said = {"version": 1, "slot": "s0", "files": {NAME: size}, "rolled": []}
    (state / "durable.json").write_bytes(msgspec.json.encode(said))
    return state, output


def clearing(state: Path, output: Path) -> None:
    """One pass over everything, twins looked for."""
    disk, digester = RealDisk(), Digester(b"k" * 32, "clicks")
    alarms = AlarmLog(disk, state / "verifier", "s0")
    findings = LineFindings("s0", {"s0": alarms}, SeenIds(1 << 18), SystemClock())
    registry: Any = Clears()
    verifier = Verifier(disk, state, output, digester, registry, findings=findings)
    report = asyncio.run(verifier.run_once())
    assert (report.refused, report.unreadable, report.behind_bytes, alarms.open) == (0, 0, 0, 0)


def checking(base: Path, state: Path, output: Path) -> None:
    """Every slice, one after the other."""
    adapter = ConfiguredAdapter({"foreign": FOREIGN, "primary": SIDE})
    foreign, primary = (SourceSide(base / name, ("**/*",), LINES, False, 1 << 20) for name in ("clicks", "queries"))
    sources = SourceFinder(RealDisk(), base, adapter, foreign, primary, patience_ns=None)
    checker = Checker(RealDisk(), state, output, sources)
    while (done := checker.step(time.time_ns())) is not None:
        assert not done.found, done.found
        assert not done.unverifiable, done.gone
        checker.commit(done)
    checker.save()
    sources.close()


def measured(what: str, count: int, work: Callable[..., None], *arguments: Path) -> None:
    """Prints its CPU time a record."""
    began = time.process_time()
    work(*arguments)
    cost = (time.process_time() - began) / count * 1e6
    print(f"{what}: {cost:.1f} us of CPU a record, {1e6 / cost:,.0f}/s on a core")


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
    print(f"{count:,} records, load average {os.getloadavg()[0]:.1f}")
    for packed in (False, True):
        with tempfile.TemporaryDirectory() as directory:
            base = Path(directory)
            state, output = write(base, count, packed=packed)
            if packed:
                measured("checking, compressed logs", count, checking, base, state, output)
            else:
                print(f"{(output / NAME).stat().st_size / count:.0f} bytes of output a record")
                measured("clearing", count, clearing, state, output)
                measured("checking, plain logs", count, checking, base, state, output)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory of this process, which made the logs too: {peak:.0f} MiB")


if __name__ == "__main__":
    main()
