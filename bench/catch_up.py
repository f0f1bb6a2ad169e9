"""Catch-up: two directories of finished logs, joined from nothing to the end, including start-up.

Photon with three replicas is a deployment started by ``photon up``; all others are one command.

``python -m bench.catch_up [--clicks N …] [--systems NAME …] [--rounds N]``. All systems get the same set, take turns,
and every output is compared with the truth.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from bench.check import Pair, Verdict, check, of_peer, of_photon, output_lines, read_truth
from bench.deployed import deployed
from bench.measure import Measured, cpu_s, measure, resident
from bench.peers import environments
from bench.peers.environments import Environment, Unavailable
from bench.results import BenchmarkFailed, Figures, Results, Row, run_round
from bench.tail import Written
from bench.workload import CONFIG, Set, Size, cache_root, generated
from photon import __version__

GROUP = "catch-up"
PEERS = Path(__file__).parent / "peers"
PHOTON = "Photon, 3 replicas"
PHOTON_ALONE = "Photon, 1 replica"
QUICK = (PHOTON, "plain Python", "DuckDB")
SAMPLE_S = 0.25
BACKLOG_S = 1_800.0
LIMIT_S = 3600.0  # a longer run is ended, and has no figure


@dataclass(frozen=True, slots=True)
class System:
    """A system that can run the join."""

    name: str
    survives: str  # correct part of its output after kill -9, in the table's words
    script: str = ""  # path below ``bench/peers``; empty: Photon itself
    environment: Environment | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    deployed: bool = False  # a deployment of Photon, with three replicas of the registry
    streaming: bool = False  # a stream processor with exactly-once output, which the goal is about

    def versions(self) -> dict[str, str]:
        """Versions of the system and its dependencies."""
        return {"photon": __version__} if self.environment is None else self.environment.versions()


SYSTEMS = (
    System(PHOTON, "yes", deployed=True),
    System(PHOTON_ALONE, "yes"),
    System("plain Python", "no", "plain_python.py", environments.PLAIN),
    System("DuckDB", "no", "duckdb_sql.py", environments.TABLES),
    System("Polars", "no", "polars_lazy.py", environments.TABLES),
    System("Spark Structured Streaming", "yes", "spark_streaming.py", environments.SPARK, streaming=True),
    System("Flink SQL", "yes, from a checkpoint named by hand", "flink_table.py", environments.FLINK, streaming=True),
    System("Bytewax, recovery on", "yes", "bytewax_flow.py", environments.BYTEWAX, {"BENCH_RECOVERY": "1"},
           streaming=True),
    System("Bytewax, 2 processes, no recovery", "no", "bytewax_flow.py", environments.BYTEWAX),
    System("Pathway, static", "no", "pathway_static.py", environments.PATHWAY),
)  # fmt: skip


@contextmanager
def scratch() -> Iterator[Path]:
    """Creates a directory for one run, on the disk of the cache."""
    root = cache_root() / "runs"
    root.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="run-", dir=root))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _command(system: System, data: Set, work: Path) -> tuple[list[str | Path], Path, Pair]:
    """Returns the command, the output directory, and the function that reads its records."""
    output = work / "output"
    if system.environment is None:
        config = work / "photon.toml"
        config.write_text(CONFIG)
        command: list[str | Path] = [sys.executable, "-m", "photon", "join", "--once", "--quiet", "-o", "json"]
        command += ["--config", config, "--primary", data.queries, "--foreign", data.clicks]
        return [*command, "--output", output], output / "joined", of_photon
    try:
        python = system.environment.python()
    except Unavailable as missing:
        raise BenchmarkFailed(str(missing)) from missing
    command = [python, PEERS / system.script, "--queries", data.queries, "--clicks", data.clicks]
    command += ["--output", output, "--state", work / "state"]
    return command, output, of_peer


def run(system: System, data: Set, truth: Mapping[str, str], limit_s: float = LIMIT_S) -> Figures:
    """Runs a system once and checks its output. Raises BenchmarkFailed."""
    if system.deployed:
        return backlog(data, truth, started=True, limit_s=limit_s)
    with scratch() as work:
        command, output, pair = _command(system, data, work)
        took = measure(command, scratch=work, environment=system.variables, timeout_s=limit_s)
        if took.wall_s > limit_s:
            raise BenchmarkFailed(f"not done after {limit_s:,.0f} s")
        if took.code:
            raise BenchmarkFailed(f"ended with {took.code}: {last_line(took)}")
        verdict = check(output_lines(output), truth, pair)
        if verdict.problems:
            raise BenchmarkFailed(f"wrong output: {verdict.problems}")
        return figures(took, verdict)


def backlog(
    data: Set,
    truth: Mapping[str, str],
    *,
    joiners: int = 1,
    shards: int = 1,
    started: bool = False,
    limit_s: float = BACKLOG_S,
) -> Figures:
    """Starts a deployment on finished logs and waits until the last joined line is in its output, where it survives a
    kill. ``started``: count the start-up too. Raises BenchmarkFailed.
    """
    began = time.monotonic()
    with scratch() as directory, deployed(directory, joiners=joiners, shards=shards) as running:
        before, peak = 0.0 if started else cpu_s(running.pids()), 0
        began = began if started else time.monotonic()
        for side, place in ((data.queries, running.place.primary), (data.clicks, running.place.foreign)):
            for log in sorted(side.iterdir()):
                os.link(log, place / log.name)
        counts: list[int] = []
        written = Written(running.place.output / "joined", lambda lines: counts.append(lines.count(b"\n")))
        while sum(counts) < len(truth):
            peak = max(peak, resident(running.pids()))
            if time.monotonic() - began > limit_s:
                raise BenchmarkFailed(f"{sum(counts):,} of {len(truth):,} clicks joined after {limit_s:g} s")
            time.sleep(SAMPLE_S)
            written.look()
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


def figures(took: Measured, verdict: Verdict) -> Figures:
    """Figures of a run with correct output."""
    return {
        "wall_s": round(took.wall_s, 3),
        "cpu_s": round(took.cpu_s, 3),
        "peak_mib": round(took.peak_mib),
        "clicks_s": round(verdict.right / took.wall_s),
    }


def last_line(took: Measured) -> str:
    lines = [line.strip() for line in took.error.splitlines() if line.strip()]
    causes = [line for line in lines if re.search(r"\b(Caused by|\w*(Error|Exception)):", line)]
    return (causes or lines or ["it said nothing"])[-1][:300]


def row_name(system: str, size: Size) -> str:
    """Name of a system's row in the group."""
    return f"{system}, {size.words()}"


def bench(
    results: Results,
    sizes: Sequence[Size],
    systems: Sequence[str],
    rounds: int,
    say: Callable[[str], None],
    *,
    limit_s: float = LIMIT_S,
) -> None:
    """Runs the rounds that ``results`` still lacks; the systems take turns."""
    chosen = [system for system in SYSTEMS if system.name in systems]
    for size in sizes:
        say(f"catch-up of {size.words()}: generating the set, unless it is there")
        data = generated(size)
        truth = read_truth(data.truth)
        for number in range(1, rounds + 1):
            for system in chosen:
                row = _row(results, system, data)
                if run_round(results, row, number, partial(run, system, data, truth, limit_s)):
                    say(f"  round {number}  {system.name:<36} {_shown(row)}")


def _row(results: Results, system: System, data: Set) -> Row:
    size = data.size
    row = results.row(
        GROUP,
        row_name(system.name, size),
        f"python -m bench.catch_up --clicks {size.clicks} --systems '{system.name}'",
        {
            "system": system.name,
            "size": size.words(),
            "clicks": str(size.clicks),
            "mib": f"{data.bytes / 2**20:.0f}",
            "survives": system.survives,
            "streaming": "yes" if system.streaming else "",
        },
    )
    row.versions = system.versions()
    return row


def _shown(row: Row) -> str:
    if row.problem:
        return row.problem
    last = row.rounds[-1].figures
    took = f"{last['wall_s']:7.2f} s  {last['clicks_s']:9,.0f} clicks/s"
    return f"{took}  {last['cpu_s']:7.2f} s CPU  {last['peak_mib']:6,.0f} MiB"


def main() -> None:
    """Runs the command that the module describes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clicks", type=int, nargs="+", default=[100_000], help="clicks of a set; queries: 10 ×")
    parser.add_argument(
        "--systems", nargs="+", default=list(QUICK), choices=[s.name for s in SYSTEMS], metavar="NAME"
    )
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--results", type=Path, help="directory for the results (default: a new one)")
    given = parser.parse_args()
    with scratch() as fresh:
        results = Results(given.results or fresh)
        bench(
            results,
            [Size(clicks) for clicks in given.clicks],
            given.systems,
            given.rounds,
            lambda line: print(line, flush=True),
        )
        for row in results.rows():
            if row.problem:
                print(json.dumps({"row": row.name, "problem": row.problem}))


if __name__ == "__main__":
    main()
