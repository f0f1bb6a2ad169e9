"""How time and memory grow: ``python -m bench.growth [--axes size files joiners shards] [--clicks N]``.

*Size* and *files*: ``photon join --once --replicas 3`` over a set of 1, 3 and 10 times the clicks, and over the same
set in 10 to 5,000 files. *Joiners* and *shards*: a deployment of one datacentre that finds the set as a backlog.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from bench.catch_up import PHOTON, SYSTEMS, scratch
from bench.catch_up import run as join_once
from bench.check import check, of_photon, output_lines, read_truth
from bench.deployed import deployed
from bench.measure import cpu_s, resident
from bench.results import BenchmarkFailed, Figures, Results, run_round
from bench.workload import Size, generated
from photon import __version__

CLICKS = 100_000
POINTS = {
    "size": (1, 3, 10),
    "files": (10, 100, 1_000, 5_000),
    "joiners": (1, 2, 4),
    "shards": (1, 2, 4),
}
SAMPLE_S = 0.25
BACKLOG_S = 1_800.0


def group(axis: str) -> str:
    """Of the results."""
    return f"growth-{axis}"


def once(size: Size) -> Figures:
    """``photon join --once``."""
    data = generated(size)
    [photon] = (system for system in SYSTEMS if system.name == PHOTON)
    return join_once(photon, data, read_truth(data.truth))


def backlog(size: Size, *, joiners: int = 1, shards: int = 1) -> Figures:
    """A deployment that is up finds all logs at once. Raises BenchmarkFailed."""
    data = generated(size)
    truth = read_truth(data.truth)
    with scratch() as directory, deployed(directory, joiners=joiners, shards=shards) as running:
        before, began, peak = cpu_s(running.pids()), time.monotonic(), 0
        for side, place in ((data.queries, running.place.primary), (data.clicks, running.place.foreign)):
            for log in sorted(side.iterdir()):
                os.link(log, place / log.name)
        while running.joined() < len(truth):
            peak = max(peak, resident(running.pids()))
            if time.monotonic() - began > BACKLOG_S:
                raise BenchmarkFailed(f"{running.joined():,} of {len(truth):,} clicks joined after {BACKLOG_S:g} s")
            time.sleep(SAMPLE_S)
        wall, cpu = time.monotonic() - began, cpu_s(running.pids()) - before
        running.stop()
        verdict = check(output_lines(running.place.output / "joined"), truth, of_photon)
        if verdict.problems:
            raise BenchmarkFailed(f"wrong output: {verdict.problems}")
    return {
        "wall_s": round(wall, 2),
        "cpu_s": round(cpu, 2),
        "peak_mib": round(peak / 2**20),
        "clicks_s": round(len(truth) / wall),
    }


def run(axis: str, point: int, clicks: int) -> Figures:
    """One point of a plot."""
    if axis == "size":
        return once(Size(clicks * point))
    if axis == "files":
        return once(Size(clicks, files=point))
    return backlog(Size(clicks), joiners=point if axis == "joiners" else 1, shards=point if axis == "shards" else 1)


def bench(
    results: Results,
    rounds: int,
    say: Callable[[str], None],
    *,
    axes: Sequence[str] = tuple(POINTS),
    clicks: int = CLICKS,
) -> None:
    """Rounds that are not there yet."""
    for number in range(1, rounds + 1):
        for axis in axes:
            for point in POINTS[axis]:
                name = f"{axis} {point}"
                command = f"python -m bench.growth --axes {axis} --clicks {clicks}"
                row = results.row(group(axis), name, command, {"x": str(point), "clicks": str(clicks)})
                row.versions = {"photon": __version__}
                if run_round(results, row, number, partial(run, axis, point, clicks)):
                    last = row.rounds[-1].figures if row.rounds else {}
                    told = (
                        row.problem
                        or f"{last['wall_s']:7.2f} s  {last['cpu_s']:7.2f} s CPU  {last['peak_mib']:,.0f} MiB"
                    )
                    say(f"  round {number}  {name:<20} {told}")


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--axes", nargs="+", choices=list(POINTS), default=list(POINTS))
    parser.add_argument("--clicks", type=int, default=CLICKS)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--results", type=Path, help="where rows are kept; nowhere when unset")
    given = parser.parse_args()
    with scratch() as fresh:
        results = Results(given.results or fresh)
        bench(results, given.rounds, lambda line: print(line, flush=True), axes=given.axes, clicks=given.clicks)
        if any(row.problem for row in results.rows()):
            sys.exit(1)


if __name__ == "__main__":
    main()
