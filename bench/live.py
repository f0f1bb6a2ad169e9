"""Latency under load, and the load borne: ``python -m bench.live [--rate N …] [--seconds S] [--round-trip MS]``.

One datacentre, three registry replicas, ``photon up``. A process writes clicks at the rate and ten times as many
queries; another watches the output. Latency of a click: from the end of the write of its line (of its query's, if
that comes later) until its joined line is seen in the output; *published*: until it is below the published length,
synced. The first seconds are left out.

``--early``: percentage of clicks that come 1 to 10 s before their query. ``--hopeless``: number of clicks that name
no query and wait from the beginning on; when all else is done everything is killed, the queries of a thousand of them
are written, and all is restarted: *back*, from when it is up until these are joined.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sqlite3
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.catch_up import scratch
from bench.deployed import UNMATCHED_AFTER_S, Deployed, Feeding, Watch, deployed, follow
from bench.feeder import CLICK, NOWHERE, QUERY, table
from bench.measure import kill_tree
from bench.results import BenchmarkFailed, Figures, Results, Row, run_round
from bench.workload import cache_root
from photon import __version__
from photon.dispatcher.database import STATE_NAME

LATENCY, SUSTAINED = "live", "sustained"
WARM_S = 5.0
SETTLE_S = 120.0
BYTES_A_CLICK = 10 * 280 + 170 + 2 * 760  # bytes on disk: its queries, itself, its joined line in output and redo log
PATIENT_S = 24 * 3600.0  # while clicks wait in vain, nothing is called unmatched
HOPELESS_AT_ONCE = 10_000
BACK = 1_000  # clicks, of those that waited in vain, whose queries come while everything is down
GROWS = 0.01  # share of the rate: a backlog that rises by less is not growing
CURVE = (1_000, 2_000, 5_000, 10_000, 15_000, 20_000, 33_334)
CURVE_S = 40.0
GOAL_RATE = 33_334
GOAL_S = 300.0


@dataclass(frozen=True, slots=True)
class Load:
    """The offered load."""

    rate: float
    seconds: float
    round_trip_s: float | None = None
    joiners: int = 1
    shards: int = 1
    early: float = 0.0  # share of clicks that come 1 to 10 s before their query
    hopeless: int = 0  # clicks that wait in vain meanwhile
    together: bool = False  # all services of the datacentre in one process
    replicas_together: bool = False  # the replica also runs in that process
    latency_s: float | None = None  # ``limits.latency`` if not its default


LATE = Load(2_000.0, 60.0, early=0.2, hopeless=100_000)  # load for measuring late primaries
LIVE = (
    Load(2_000.0, 60.0),
    Load(2_000.0, 60.0, together=True),
    Load(2_000.0, 60.0, together=True, replicas_together=True),
    Load(2_000.0, 60.0, together=True, latency_s=0.0),
    Load(100.0, 60.0),
    Load(100.0, 60.0, together=True),
    Load(100.0, 60.0, together=True, replicas_together=True),
    Load(2_000.0, 60.0, round_trip_s=0.1),
    LATE,
)


def run(load: Load) -> Figures:
    """Measures one load. Raises BenchmarkFailed."""
    needed = load.rate * load.seconds * BYTES_A_CLICK
    root = cache_root()
    root.mkdir(parents=True, exist_ok=True)
    if shutil.disk_usage(root).free < 1.2 * needed:
        raise BenchmarkFailed(f"not run: it needs {needed / 2**30:.0f} GiB, but less is free in the cache")
    with (
        scratch() as directory,
        deployed(
            directory,
            joiners=load.joiners,
            shards=load.shards,
            round_trip_s=load.round_trip_s,
            unmatched_after_s=PATIENT_S if load.hopeless else UNMATCHED_AFTER_S,
            together=load.together,
            replicas_together=load.replicas_together,
            latency_s=load.latency_s,
        ) as running,
    ):
        _wait_in_vain(running, load.hopeless)
        watch = Watch(running)
        try:
            feeding = Feeding(running, rate=load.rate, seconds=load.seconds, early=load.early)
            try:
                usage = follow(running, feeding)
            finally:
                feeding.kill()
            fed = dict(np.load(feeding.file))
            drained = running.settled(int((fed["ready_ns"] > 0).sum()), SETTLE_S)
            watch.end()
        finally:
            watch.kill()
        back_s = _back(running) if load.hopeless else None
        seen = dict(np.load(watch.file))
    found = figures(fed, seen, rate=load.rate)
    # If more was offered than is borne, unjoined clicks are no fault: the joined ones are the figure.
    if drained is None and found["growth"] < GROWS and (lost := found["lost"]):
        raise BenchmarkFailed(f"{lost:,.0f} clicks were not joined {SETTLE_S:g} s after the last line")
    return {
        **found,
        "cores": round(usage.cpu_s / usage.wall_s, 2),
        "peak_mib": round(usage.peak_mib),
        "drained_s": round(drained or 0.0, 2),
        **({} if back_s is None else {"back_s": round(back_s, 2)}),
    }


def _wait_in_vain(running: Deployed, count: int) -> None:
    """Writes ``count`` clicks without queries; waits until all are in the retry store. Raises BenchmarkFailed."""
    numbers, now_us = np.arange(count), time.time_ns() // 1000
    with open(running.place.foreign / "hopeless.log", "wb") as log:
        for at in range(0, count, HOPELESS_AT_ONCE):
            some = numbers[at : at + HOPELESS_AT_ONCE]
            log.write(table(CLICK, at=some, percent=NOWHERE + some, hash=np.full(len(some), now_us)))
    deadline = time.monotonic() + SETTLE_S
    while count and _stored(running) < count:
        if time.monotonic() > deadline:
            raise BenchmarkFailed(f"after {SETTLE_S:g} s not all of {count:,} clicks wait in the retry store")
        time.sleep(0.5)


def _stored(running: Deployed) -> int:
    """Counts the events in the retry store that were tried at least once."""
    path = running.place.state / STATE_NAME
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30.0)) as db:
        return int(db.execute("SELECT count(*) FROM retries WHERE attempts > 0").fetchone()[0])


def _back(running: Deployed) -> float:
    """Kills everything and restarts it. Returns the seconds from when it is up until the clicks whose queries came
    meanwhile are joined. Raises BenchmarkFailed."""
    joined = running.joined()
    kill_tree(running.up.pid)
    running.up.wait()
    numbers = np.arange(BACK)
    queries = table(QUERY, at=NOWHERE + numbers, hash=np.full(BACK, time.time_ns() // 1000))
    (running.place.primary / "back.log").write_bytes(queries)
    running.start()
    running.ready()
    back_s = running.settled(joined + BACK, SETTLE_S)
    if back_s is None:
        raise BenchmarkFailed(
            f"{BACK:,} clicks whose queries had come were not joined {SETTLE_S:g} s after a restart"
        )
    return back_s


def figures(fed: Mapping[str, NDArray[Any]], seen: Mapping[str, NDArray[Any]], *, rate: float) -> dict[str, float]:
    """Computes figures from the notes of ``bench.feeder`` and ``bench.tail``. Raises BenchmarkFailed if wrong."""
    ready = fed["ready_ns"]
    wanted = ready > 0
    epoch = int(fed["epoch_us"])
    written = _first_seen(seen["numbers"] - epoch, seen["at_ns"], len(ready))
    published = _first_seen(seen["durable_numbers"] - epoch, seen["durable_at_ns"], len(ready))
    if doubled := len(seen["numbers"]) - int((written > 0).sum()):
        raise BenchmarkFailed(f"wrong output: {doubled:,} records beyond the first of a click")
    if invented := int((written[~wanted] > 0).sum()):
        raise BenchmarkFailed(f"wrong output: {invented:,} clicks joined that name no query")
    if wrong := int((seen["keys"] - epoch != fed["query"][seen["numbers"] - epoch]).sum()):
        raise BenchmarkFailed(f"wrong output: {wrong:,} clicks with another query")
    began = int(fed["wrote_ns"][0])
    counted = wanted & (written > 0) & (ready > began + WARM_S * 1e9)
    if not counted.any():
        raise BenchmarkFailed("nothing was joined after the first seconds")
    found: dict[str, float] = {"lost": int((wanted & (written == 0)).sum())}
    found["offered_s"] = round((len(ready) - 1) / ((int(fed["wrote_ns"][-1]) - began) / 1e9))
    for name, moments, chosen in (
        ("", written, counted),
        ("published_", published, counted & (published > 0)),
        ("in_order_", written, counted & ~fed["before"]),
        ("before_", written, counted & fed["before"]),
    ):
        if chosen.any():
            late = (moments[chosen] - ready[chosen]) / 1e6
            for share in (50, 90, 99):
                found[f"{name}p{share}_ms"] = round(float(np.percentile(late, share)), 1)
    offered = np.sort(ready[wanted & (ready > began + WARM_S * 1e9)])  # including those never joined
    found["growth"] = round(growth(offered, np.sort(written[counted])) / rate, 4)
    in_time = (written > 0) & (written <= int(fed["wrote_ns"][-1]))
    found["joined_s"] = round(int(in_time.sum()) / ((int(fed["wrote_ns"][-1]) - began) / 1e9))
    return found


def _first_seen(numbers: NDArray[Any], moments: NDArray[Any], count: int) -> NDArray[np.int64]:
    """Returns when each number was first seen; 0 means never."""
    out = np.zeros(count, np.int64)
    out[numbers[::-1]] = moments[::-1]
    return out


def growth(ready: NDArray[Any], seen: NDArray[Any]) -> float:
    """Events a second by which the backlog grows in the last two thirds of the load. Both arrays: sorted ns."""
    begin, end = ready[0] + (ready[-1] - ready[0]) // 3, ready[-1]
    moments = np.linspace(begin, end, 50)
    backlog = np.searchsorted(ready, moments, side="right") - np.searchsorted(seen, moments, side="right")
    return float(np.polyfit((moments - begin) / 1e9, backlog, 1)[0]) if end > begin else 0.0


def bench(results: Results, group: str, loads: list[Load], rounds: int, say: Callable[[str], None]) -> None:
    """Runs the rounds that ``results`` still lacks."""
    for number in range(1, rounds + 1):
        for load in loads:
            row = _row(results, group, load)
            if run_round(results, row, number, partial(run, load)):
                say(f"  round {number}  {row.name:<44} {_shown(row)}")


def row_name(load: Load) -> str:
    """Name of a load's row."""
    name = f"{load.rate:,.0f} clicks/s, {load.seconds:g} s"
    name += f", replicas {round(load.round_trip_s * 1000)} ms apart" if load.round_trip_s else ""
    name += f", {load.early:.0%} early" if load.early else ""
    name += f", {load.hopeless:,} hopeless" if load.hopeless else ""
    name += ", together" if load.together else ""
    name += " with its replica" if load.replicas_together else ""
    return name + (f", latency {load.latency_s * 1000:g} ms" if load.latency_s is not None else "")


def _row(results: Results, group: str, load: Load) -> Row:
    trip = round((load.round_trip_s or 0.0) * 1000)
    name = row_name(load)
    command = f"python -m bench.live --rate {load.rate:g} --seconds {load.seconds:g}"
    command += f" --round-trip {trip}" if trip else ""
    command += f" --early {100 * load.early:g}" if load.early else ""
    command += f" --hopeless {load.hopeless}" if load.hopeless else ""
    command += " --together" if load.together else ""
    command += " --replicas-together" if load.replicas_together else ""
    command += f" --latency {load.latency_s * 1000:g}" if load.latency_s is not None else ""
    row = results.row(
        group, name, command, {"rate": f"{load.rate:g}", "seconds": f"{load.seconds:g}", "round_trip_ms": str(trip)}
    )
    row.versions = {"photon": __version__}
    return row


def _shown(row: Row) -> str:
    if row.problem:
        return row.problem
    last = row.rounds[-1].figures
    steady = "" if last["growth"] < GROWS else "  BACKLOG GROWS"
    return (
        f"p50 {last['p50_ms']:,.0f}  p90 {last['p90_ms']:,.0f}  p99 {last['p99_ms']:,.0f} ms  "
        f"{last['joined_s']:,.0f} joined/s  {last['cores']:.2f} cores{steady}"
        + (f"  back {last['back_s']:.2f} s" if "back_s" in last else "")
    )


def main() -> None:
    """Runs the command that the module describes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, nargs="+", default=[2_000.0], help="clicks/s; 10 × as many queries")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--round-trip", type=float, default=0.0, help="ms between the replicas' regions")
    parser.add_argument("--joiners", type=int, default=1)
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--early", type=float, default=0.0, help="percentage of clicks written before their query")
    parser.add_argument("--hopeless", type=int, default=0, help="number of clicks that never get a query")
    parser.add_argument("--together", action="store_true", help="run the datacentre's services in one process")
    parser.add_argument("--replicas-together", action="store_true", help="run its replica there, too")
    parser.add_argument("--latency", type=float, help="limits.latency in ms (default: that of Photon)")
    parser.add_argument("--results", type=Path, help="directory for the results (default: not kept)")
    given = parser.parse_args()
    trip = given.round_trip / 1000 or None
    more = given.joiners, given.shards, given.early / 100, given.hopeless, given.together, given.replicas_together
    latency_s = None if given.latency is None else given.latency / 1000
    loads = [Load(rate, given.seconds, trip, *more, latency_s) for rate in given.rate]
    with scratch() as fresh:
        results = Results(given.results or fresh)
        bench(results, LATENCY, loads, 1, lambda line: print(line, flush=True))
        if any(row.problem for row in results.rows()):
            sys.exit(1)


if __name__ == "__main__":
    main()
