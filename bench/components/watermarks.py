"""How far watermarks are behind: ``python -m bench.components.watermarks [--seconds S]``.

Deployments of one datacentre and of two under ``photon up``, with one registry replica; clicks with their queries at
100 and at 2,000 a second in each copy of the logs. Ten times a second the journals are read as ``photon watermark``
does: lag is the time since the least percentile of all datacentres, and since the exact one, less what was promised
(``written_within`` and ``clock.uncertainty``). The first seconds are left out. ``behind``: the share of the records
that were published behind a pair whose percentile is newer; 1 % may be.

Over it a topology of three computations, one behind the other, in two intervals of keys, in this process: how far the
watermark of the first is behind, and by how much more each further one's, a hundred times a second, whatever its
owners do; the mean too, as MillWheel has it.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import subprocess
import sys
import tempfile
import threading
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from bench.measure import kill_tree
from bench.results import BenchmarkFailed
from photon.assembly import computing
from photon.computing import Computation, Context, Record, Topology
from photon.computing.engine import Engine
from photon.config.disk import RealDisk
from photon.config.loader import load
from photon.config.settings import Settings
from photon.fleet.watermarks import JoinWatermark, over_all, watermarks
from photon.library.output import Output
from photon.outputs.cursor import Cursor, OutputLog, Position
from photon.outputs.watermarks import pairs_of, read_journal
from photon.supervision.ports import free_ports

RATES = (100, 2_000)
DATACENTRES = (("east",), ("east", "west"))
PROMISE_S, UNCERTAINTY_S = 1.0, 0.5
WARM_S, EVERY_S, WRITE_S = 8.0, 0.1, 0.01
STAGES = ("first", "second", "third")
STAGES_S = 0.01
READY_S, STOP_S = 120.0, 60.0
HEAD = """
key_file = "key"
clock = {{ uncertainty = "{uncertainty}s" }}
[join.clicks]
unmatched_after = "1s"
written_within = "{promise}s"
[join.clicks.primary]
format = "jsonl"
key = "q"
[join.clicks.foreign]
format = "jsonl"
key = "q"
id = "id"
time = {{ field = "t", unit = "s" }}
[registry.replicas.r1]
address = "127.0.0.1:{port}"
directory = "r1"
"""
DATACENTRE = """
[datacentre.{name}]
join = "clicks"
primary = "{name}/queries"
foreign = "{name}/clicks"
output = "{name}/output"
state = "{name}/state"
eventstore = "127.0.0.1:{ports[0]}"
dispatcher = "127.0.0.1:{ports[1]}"
verifier = "127.0.0.1:{ports[2]}"
joiners.{name}-1.address = "127.0.0.1:{ports[3]}"
"""


class Feed(threading.Thread):
    """Writes pairs into all copies of the logs, at a rate."""

    def __init__(self, base: Path, names: Sequence[str], rate: int) -> None:
        super().__init__(daemon=True)
        self._base, self._names, self._rate, self.ended = base, names, rate, threading.Event()

    def run(self) -> None:
        """Until ``ended``."""
        begun, written = time.monotonic(), 0
        while not self.ended.wait(WRITE_S):
            due, now = int((time.monotonic() - begun) * self._rate), time.time()
            numbers = range(written, due)
            queries = b"".join(b'{"q":"q%d","words":"some words"}\n' % n for n in numbers)
            clicks = b"".join(b'{"id":"c%d","q":"q%d","t":%.6f}\n' % (n, n, now) for n in numbers)
            for name, (kind, data) in itertools.product(self._names, (("queries", queries), ("clicks", clicks))):
                with open(self._base / name / kind / "a.log", "ab") as log:
                    log.write(data)
            written = due


@contextmanager
def running(base: Path, names: Sequence[str]) -> Iterator[Settings]:
    """A deployment that is up. Raises BenchmarkFailed."""
    ports = [iter(free_ports(1 + 4 * len(names)))] * 4
    text = HEAD.format(uncertainty=UNCERTAINTY_S, promise=PROMISE_S, port=next(ports[0]))
    text += "".join(DATACENTRE.format(name=name, ports=[next(port) for port in ports]) for name in names)
    file = base / "photon.toml"
    file.write_text(text)
    (base / "key").write_bytes(b"k" * 32)
    for name, kind in itertools.product(names, ("queries", "clicks")):
        (base / name / kind).mkdir(parents=True)
    with open(base / "up.log", "wb") as said:
        command = [sys.executable, "-m", "photon", "up", str(file), "--no-logs"]
        up = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
    try:
        yield load(file, environment={})
    finally:
        up.terminate()
        try:
            up.wait(STOP_S)
        except subprocess.TimeoutExpired:
            kill_tree(up.pid)


class Pass(Computation):
    """To the next one, under another key."""

    def __init__(self, name: str) -> None:
        self.name = name

    def process_record(self, ctx: Context, record: Record) -> None:
        """See Computation."""
        ctx.produce(self.name, {"key": ctx.key})


class Stages(threading.Thread):
    """Runs computations over a deployment until ``ended``; ``lags``: seconds that each stage is behind the one
    before, the first one behind the clock."""

    def __init__(self, base: Path) -> None:
        super().__init__(daemon=True)
        self.ended, self.lags = threading.Event(), [list[float]() for _ in STAGES]
        topology, stream = Topology("stages"), "joined"
        topology.joined(str(base / "photon.toml"), stream=stream)
        for name in STAGES:
            key = self._first_key if stream == "joined" else self._key
            topology.add(Pass(name), {stream: key}, [name])
            stream = name
        self._site = computing.Site(topology, base, base / "computing")
        self._site.intervals(2)

    @staticmethod
    def _first_key(record: Record) -> str:
        return str(record.value["primary"]["q"])[-2:]

    @staticmethod
    def _key(record: Record) -> str:
        return str(record.value["key"])[::-1]

    def run(self) -> None:
        """See the class."""
        running = computing.Running(self._site)
        looking = threading.Thread(target=self._look, args=([owner.engine for owner in running._owners],))
        looking.start()
        try:
            running.run(self.ended)
        finally:
            self.ended.set()
            looking.join()
            running.close()

    def _look(self, engines: Sequence[Engine]) -> None:
        while not self.ended.wait(STAGES_S):
            before, found = time.time_ns(), [each.watermarks() for each in engines]
            for name, lags in zip(STAGES, self.lags, strict=True):
                mark = min(each[name].percentile_ns for each in found)
                lags.append((before - mark) / 1e9)
                before = mark


def behind(settings: Settings, base: Path, since_ns: int) -> float:
    """The share of the records from ``since_ns`` on that stand behind a pair whose percentile is newer."""
    late = total = 0
    for name, pipeline in settings.datacentre.items():
        pairs = pairs_of(read_journal(RealDisk(), base / pipeline.state))
        for batch in Output.of_deployment(base / "photon.toml", name).batches():
            log = OutputLog(batch.slot, batch.kind)
            begins = [pair.cursor.positions.get(log, Position(0, 0)) for pair in pairs]
            number, end = Cursor.decode(batch.cursor, "cursor").positions[log]
            at = end - len(batch.data)
            for line in batch.data.splitlines(keepends=True):
                time_ns, before = json.loads(line)["event_time_ns"], bisect_right(begins, (number, at))
                if time_ns >= since_ns:
                    late += before > 0 and time_ns < (pairs[before - 1].percentile_ns or 0)
                    total += 1
                at += len(line)
    return late / max(total, 1)


def measure(names: Sequence[str], rate: int, seconds: float) -> dict[str, list[float]]:
    """Lags in seconds. Raises BenchmarkFailed."""
    with tempfile.TemporaryDirectory() as directory:
        base = Path(directory)
        with running(base, names) as settings:
            feed = Feed(base, names, rate)
            feed.start()
            deadline = time.monotonic() + READY_S
            while _look(settings, base).exact_ns is None:
                if time.monotonic() > deadline:
                    raise BenchmarkFailed(f"no watermark after {READY_S:g} s: {(base / 'up.log').read_text()}")
                time.sleep(EVERY_S)
            time.sleep(WARM_S)
            lags: dict[str, list[float]] = {"percentile": [], "exact": []}
            stages = Stages(base)
            stages.start()
            time.sleep(WARM_S)
            begun_ns, first = time.time_ns(), len(stages.lags[0])
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                found, now_ns = _look(settings, base), time.time_ns()
                lags["percentile"].append((now_ns - (found.percentile_ns or 0)) / 1e9)
                lags["exact"].append((now_ns - (found.exact_ns or 0)) / 1e9 - PROMISE_S - UNCERTAINTY_S)
                time.sleep(EVERY_S)
            taken = len(stages.lags[0])
            feed.ended.set()
            stages.ended.set()
            feed.join()
            stages.join()
            lags |= {name: found[first:taken] for name, found in zip(STAGES, stages.lags, strict=True)}
            lags["behind"] = [100 * behind(settings, base, begun_ns)]
        return lags


def _look(settings: Settings, base: Path) -> JoinWatermark:
    found = asyncio.run(watermarks(settings, base, list(settings.datacentre), lambda: None))
    return over_all(found)[0]


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description="How far watermarks are behind.")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each run")
    options = parser.parse_args()
    columns = ("datacentres", "clicks/s", "percentile, s", "exact beyond the promise, s", "first stage, s (mean)",
               "second beyond, s (mean)", "third beyond, s (mean)", "behind, %")  # fmt: skip
    print(f"| {' | '.join(columns)} |\n|{' --- |' * len(columns)}")
    for names, rate in itertools.product(DATACENTRES, RATES):
        lags = measure(names, rate, options.seconds)
        bad = lags.pop("behind")[0]
        said = [_said(found, mean=which in STAGES) for which, found in lags.items()]
        print(f"| {len(names)} | {rate:,} | {' | '.join(said)} | {bad:.2f} |", flush=True)


def _said(lags: Sequence[float], *, mean: bool) -> str:
    quantiles = " / ".join(f"{np.quantile(lags, share):.2f}" for share in (0.5, 0.95))
    return f"{quantiles} ({np.mean(lags):.3f})" if mean else quantiles


if __name__ == "__main__":
    main()
