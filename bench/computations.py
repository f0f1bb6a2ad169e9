"""Computations next to Bytewax and Flink: totals of each key, and windows of a minute in event time.

``python -m bench.computations [--keys N …] [--systems NAME …] [--rounds N] [--results DIR]``, or as the group
*computations* of ``python -m bench full``, which writes ``docs/benchmarks/computations.md``. All systems read
the same JSON lines and take turns; results are compared with the truth, and start-up is included.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import orjson

from bench.catch_up import PEERS, System, last_line, scratch
from bench.check import output_lines
from bench.measure import measure
from bench.peers import environments
from bench.peers.environments import Unavailable
from bench.results import BenchmarkFailed, Figures, Results, run_round
from bench.workload import cache_root

GROUP = "computations"
PHOTON = "Photon"
BYTEWAX = "Bytewax, no recovery"
SYSTEMS = (
    System(PHOTON, "yes"),
    System(BYTEWAX, "no", "bytewax_compute.py", environments.BYTEWAX),
    System("Bytewax, recovery on", "yes", "bytewax_compute.py", environments.BYTEWAX, {"BENCH_RECOVERY": "1"}),
    System("Flink SQL", "yes, from a checkpoint named by hand", "flink_compute.py", environments.FLINK),
)
TASKS = ("totals", "windows")
KEYS = (1_000, 10_000, 100_000)
LARGE = 1_000_000  # for Photon's memory
RECORDS = 200_000
MINUTES = 10  # of event time
LIMIT_S = 900.0
_Found = Mapping[tuple[str, int], tuple[int, int]]  # key and start of the window -> count and sum


def records_of(keys: int) -> int:
    return max(RECORDS, keys)


def generated(keys: int) -> Path:
    """Returns the directory of a log with ``keys`` keys, each at least once; generates it if it does not exist."""
    directory = cache_root() / "computations" / f"{records_of(keys)}-{keys}"
    if not directory.exists():
        made = directory.with_name(f"{directory.name}.tmp{os.getpid()}")
        made.mkdir(parents=True)
        chance, count = random.Random(keys), records_of(keys)
        with open(made / "records.log", "w") as log:
            for n in range(count):
                key = n if n < keys else chance.randrange(keys)
                at = 1_772_355_600_000_000 + n * MINUTES * 60_000_000 // count - chance.randrange(2_000_000)
                log.write(f'{{"key":"k{key:07}","cents":{chance.randrange(100)},"at":{at}}}\n')
        made.rename(directory)
    return directory


def truth(log: Path, task: str) -> _Found:
    found: dict[tuple[str, int], tuple[int, int]] = {}
    for line in output_lines(log):
        record = orjson.loads(line)
        minute_ns = record["at"] // 60_000_000 * 60_000_000_000 if task == "windows" else 0
        n, cents = found.get((record["key"], minute_ns), (0, 0))
        found[record["key"], minute_ns] = n + 1, cents + record["cents"]
    return found


def _read(system: System, output: Path) -> Iterator[tuple[tuple[str, int], tuple[int, int]]]:
    for line in output_lines(output):
        found = orjson.loads(line)
        found = found["foreign"] if system.environment is None else found
        yield (found["key"], found["from_ns"]), (found["n"], found["cents"])


def run(system: System, task: str, log: Path, expected: _Found) -> Figures:
    """Runs a system once and checks its results. Raises BenchmarkFailed."""
    with scratch() as work:
        output = work / "output"
        told = {"BENCH_TASK": task, "BENCH_RECORDS": str(log), "BENCH_OUTPUT": str(output), **system.variables}
        if system.environment is None:
            file = PEERS / "photon_compute.py"
            command: list[str | Path] = [sys.executable, "-m", "photon", "compute", "run", file, "--once"]
            command += ["--state", work / "state"]
        else:
            output.mkdir()
            try:
                command = [system.environment.python(), PEERS / system.script]
            except Unavailable as missing:
                raise BenchmarkFailed(str(missing)) from missing
        took = measure(command, scratch=work, environment=told, timeout_s=LIMIT_S)
        if took.code:
            raise BenchmarkFailed(f"ended with {took.code}: {last_line(took)}")
        found = list(_read(system, output / "joined" if system.environment is None else output))
        wrong = Counter(found) - Counter(expected.items()), Counter(expected.items()) - Counter(found)
        if any(wrong):
            raise BenchmarkFailed(f"wrong output: {wrong[0].total():,} results too many, {wrong[1].total():,} lost")
        return {"wall_s": round(took.wall_s, 3), "cpu_s": round(took.cpu_s, 3), "peak_mib": round(took.peak_mib)}


def row_name(system: str, task: str, keys: int) -> str:
    return f"{system}, {task}, {keys:,} keys"


def bench(
    results: Results, sizes: Sequence[int], systems: Sequence[str], rounds: int, say: Callable[[str], None]
) -> None:
    """Runs the rounds that ``results`` still lacks; the systems take turns."""
    for keys in sizes:
        log = generated(keys)
        chosen = [system for system in SYSTEMS if system.name in systems and (keys < LARGE or system.name == PHOTON)]
        for task in TASKS if keys < LARGE else TASKS[:1]:
            expected = truth(log, task)
            for number in range(1, rounds + 1):
                for system in chosen:
                    row = results.row(
                        GROUP, row_name(system.name, task, keys),
                        f"python -m bench.computations --keys {keys} --systems '{system.name}'",
                        {"system": system.name, "task": task, "keys": str(keys)},
                    )  # fmt: skip
                    row.versions = system.versions()
                    if run_round(results, row, number, partial(run, system, task, log, expected)):
                        say(f"  round {number}  {row.name:<50} {row.problem or row.rounds[-1].figures}")


def main() -> None:
    """Runs the command that the module describes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [system.name for system in SYSTEMS]
    parser.add_argument("--keys", type=int, nargs="+", default=[*KEYS, LARGE])
    parser.add_argument("--systems", nargs="+", default=names, choices=names, metavar="NAME")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--results", type=Path, help="directory for the results (default: a new one)")
    given = parser.parse_args()
    with scratch() as fresh:
        bench(Results(given.results or fresh), given.keys, given.systems, given.rounds, partial(print, flush=True))


if __name__ == "__main__":
    main()
