"""The sustained load: ``python -m bench.sustained`` offers two million clicks a minute for five minutes, and measures
latency at rising loads up to there. A load is sustained if the backlog does not grow and every click comes out once.

The runs are those of ``bench.live``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from bench.catch_up import scratch
from bench.live import CURVE, CURVE_S, GOAL_RATE, GOAL_S, SUSTAINED, Load
from bench.live import bench as bench_live
from bench.results import Results

CURVE_GROUP = "curve"


def bench(results: Results, rounds: int, say: Callable[[str], None]) -> None:
    """Runs missing rounds: the curve, then the goal."""
    bench_live(results, CURVE_GROUP, [Load(rate, CURVE_S) for rate in CURVE], rounds, say)
    bench_live(results, SUSTAINED, [Load(GOAL_RATE, GOAL_S)], 1, say)


def main() -> None:
    """Runs the command that the module describes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, help="directory for the results (default: not kept)")
    given = parser.parse_args()
    with scratch() as fresh:
        bench(Results(given.results or fresh), 1, lambda line: print(line, flush=True))


if __name__ == "__main__":
    main()
