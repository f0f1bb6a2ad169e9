"""Growth of time and memory: ``python -m bench.growth [--axes size files joiners shards] [--clicks N]``.

*Size* and *files*: a set of 1, 3 and 10 times the clicks, and the same set in 10 to 5,000 files. *Joiners* and
*shards*: more of them. A deployment of one datacentre finds each set as a backlog.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from bench.catch_up import backlog, scratch
from bench.check import read_truth
from bench.results import Figures, Results, run_round
from bench.workload import Size, generated
from photon import __version__

CLICKS = 100_000
POINTS = {
    "size": (1, 3, 10),
    "files": (10, 100, 1_000, 5_000),
    "joiners": (1, 2, 4),
    "shards": (1, 2, 4),
}


def group(axis: str) -> str:
    """Name of the group of results for an axis."""
    return f"growth-{axis}"


def run(axis: str, point: int, clicks: int) -> Figures:
    """Measures one point of a plot."""
    size = Size(clicks * point) if axis == "size" else Size(clicks, files=point) if axis == "files" else Size(clicks)
    data, of = generated(size), {"joiners": 1, "shards": 1, axis: point}
    return backlog(data, read_truth(data.truth), joiners=of["joiners"], shards=of["shards"])


def bench(
    results: Results,
    rounds: int,
    say: Callable[[str], None],
    *,
    axes: Sequence[str] = tuple(POINTS),
    clicks: int = CLICKS,
) -> None:
    """Runs the rounds that ``results`` still lacks."""
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
    """Runs the command that the module describes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--axes", nargs="+", choices=list(POINTS), default=list(POINTS))
    parser.add_argument("--clicks", type=int, default=CLICKS)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--results", type=Path, help="directory for the results (default: not kept)")
    given = parser.parse_args()
    with scratch() as fresh:
        results = Results(given.results or fresh)
        bench(results, given.rounds, lambda line: print(line, flush=True), axes=given.axes, clicks=given.clicks)
        if any(row.problem for row in results.rows()):
            sys.exit(1)


if __name__ == "__main__":
    main()
