"""Behaviour of the service as a whole: ``python -m bench.service_level run|overload|draw``.

``run``: compressed days with faults, one after the other on one deployment. Each adds a row once it is verified, so
later runs add to earlier ones, and an interrupted run continues with the next day. ``overload``: twice the sustained
load. ``draw``: writes the page and its charts from all rows.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bench.results import BenchmarkFailed
from bench.service_level import day, overload, page, rows
from photon.config.errors import PhotonError

ROOT = Path("build") / "service-level"


def main() -> int:
    """Runs the command that the module describes."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.service_level",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parts = parser.add_subparsers(dest="what", required=True)
    run = parts.add_parser("run", help="compressed days with faults")
    run.add_argument("--hours", type=float, default=2.0, help="total hours; %(default)g")
    run.add_argument("--day", type=float, default=30.0, metavar="MINUTES", help="minutes of one day; %(default)g")
    run.add_argument("--rate", type=int, default=500, help="events a second, on average; %(default)s")
    run.add_argument("--directory", type=Path, default=ROOT, help="directory of the deployment; %(default)s")
    over = parts.add_parser("overload", help="twice the sustained load")
    over.add_argument("--minutes", type=float, default=10.0, help="%(default)g")
    over.add_argument("--rate", type=float, help="sustained clicks a second; default: measured")
    parts.add_parser("draw", help="write the page from all rows")
    given = parser.parse_args()
    good = True
    try:
        if given.what == "run":
            for _ in range(max(1, round(given.hours * 60 / given.day))):
                found = day.run(given.directory.absolute(), minutes=given.day, rate=given.rate, say=say)
                good &= _kept(found)
        elif given.what == "overload":
            good = _kept(overload.run(minutes=given.minutes, rate=given.rate, say=say))
    except (PhotonError, BenchmarkFailed, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    page.publish(rows.read())
    return 0 if good else 3


def say(line: str) -> None:
    """Prints progress."""
    print(line, flush=True)


def _kept(row: rows.Row) -> bool:
    rows.append(row)
    for problem in row["problems"]:
        say(f"wrong: {problem}")
    return not row["problems"]


if __name__ == "__main__":
    sys.exit(main())
