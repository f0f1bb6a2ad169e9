"""``make bench``: ``python -m bench quick``. ``make bench-full``:
``python -m bench full [--fresh] [--only GROUP …]``.

*quick*: one round of the catch-up of a million queries by Photon, plain Python and DuckDB. *full*: all benchmarks
in alternating rounds; each finished round is kept, so that an interrupted run resumes where it was. At the end
the figures go to ``bench/results.json``, and from there to ``docs/benchmarks.md`` with its plots.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time

from bench import catch_up, computations, growth, live, report, restart, sustained
from bench.catch_up import LIMIT_S, QUICK, SYSTEMS, scratch
from bench.goals import SIZES
from bench.live import LATENCY, LIVE
from bench.results import Results
from bench.workload import cache_root

ROUNDS = 3
GROUPS = ("catch-up", "live", "sustained", "restart", "growth", "computations")


def say(line: str) -> None:
    """Prints progress, with the minutes since the start."""
    print(f"[{(time.monotonic() - BEGAN) / 60:6.1f} min] {line}", flush=True)


BEGAN = time.monotonic()


def quick() -> int:
    """Runs the short form, some minutes. Exit code 1 if an output was wrong or a system was unavailable."""
    with scratch() as directory:
        results = Results(directory)
        catch_up.bench(results, [SIZES[0]], QUICK, 1, say)
        rows = results.rows()
    print()
    print(report.catch_up_table(rows, SIZES[0].words()))
    return int(any(row.problem for row in rows))


def full(only: list[str], rounds: int, limit_s: float, *, fresh: bool) -> int:
    """Runs all benchmarks, which takes hours. Exit code 1 if a row has no figures."""
    directory = cache_root() / "results"
    if fresh:
        shutil.rmtree(directory, ignore_errors=True)
    results = Results(directory)
    say(f"results are kept below {directory}; those already there are not measured again (unless --fresh)")
    if "catch-up" in only:
        catch_up.bench(results, SIZES, [system.name for system in SYSTEMS], rounds, say, limit_s=limit_s)
    if "live" in only:
        live.bench(results, LATENCY, list(LIVE), rounds, say)
    if "sustained" in only:
        sustained.bench(results, 1, say)
    if "restart" in only:
        restart.bench(results, rounds, say)
    if "growth" in only:
        growth.bench(results, 1, say)
    if "computations" in only:
        names = [system.name for system in computations.SYSTEMS]
        computations.bench(results, [*computations.KEYS, computations.LARGE], names, rounds, say)
    rows = results.rows()
    report.publish(rows)
    say(f"written: {report.KEPT.name} and docs/benchmarks.md; commit them")
    for row in rows:
        if row.problem:
            say(f"no figure: {row.group}, {row.name}: {row.problem}")
    return int(any(row.problem for row in rows))


def main() -> int:
    """Runs the command that the module describes."""
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["quick", "full"])
    parser.add_argument("--fresh", action="store_true", help="discard the measurements of earlier runs")
    parser.add_argument("--only", nargs="+", choices=GROUPS, default=list(GROUPS))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds of one catch-up; %(default)g")
    given = parser.parse_args()
    return quick() if given.what == "quick" else full(given.only, given.rounds, given.limit, fresh=given.fresh)


if __name__ == "__main__":
    sys.exit(main())
