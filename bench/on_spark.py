"""The join on Spark next to what Spark's users would write, and to the services: CPU seconds of all processes.

``python -m bench.on_spark [--rounds N] [--systems NAME …]``. Logs are finished; the replica and the event store that
the join needs count too; every output is compared with the truth. Two sets: a million queries with a hundred thousand
clicks, and the same numbers the other way round.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import orjson
import pyspark

from bench.catch_up import PHOTON_ALONE, SYSTEMS, scratch
from bench.catch_up import run as run_system
from bench.check import check, of_peer, of_photon, output_lines, read_truth
from bench.deployed import READY_S
from bench.measure import cpu_s, kill_tree, measure, tree
from bench.peers import environments
from bench.results import BenchmarkFailed, Figures
from bench.workload import CONFIG, Set, Size, cache_root, digest, generated
from photon.supervision.ports import free_ports

STREAMING = "Spark Structured Streaming"
BATCH = "plain Spark batch join"
JOIN, BACKFILL = "photon spark join --once", "photon spark backfill"
ONE, TWO = "the same, one worker of two cores", "the same, two workers of one core"
JOIN_ONCE = ("join", "--once")
CLICKS, TIMES = 100_000, 10
MASTER = "local[2]"
DEPLOYMENT = """\
key_file = "key"
{join}
[registry.replicas.r1]
address = "127.0.0.1:{ports[0]}"
directory = "registry"
[datacentre.east]
join = "clicks"
pipeline = "spark"
primary = "{data.queries}"
foreign = "{data.clicks}"
output = "output"
state = "state"
address = "127.0.0.1:1"
apart.eventstore = "127.0.0.1:{ports[1]}"
apart.spark = "127.0.0.1:{ports[2]}"
"""


def many_clicks() -> Set:
    """Makes a set with ten copies of each click, each under an id of its own."""
    of = generated(Size(CLICKS, queries_per_click=1))
    directory = cache_root() / "sets" / f"{of.size.name()}-clicks-times-{TIMES}"
    found = Set(Size(CLICKS * TIMES, 1), of.queries, directory / "clicks", directory / "truth.tsv", 0)
    if found.truth.exists():
        return found
    found.clicks.mkdir(parents=True, exist_ok=True)
    queries = {}
    for line in output_lines(of.queries):
        query = orjson.loads(line)
        queries[query["query_id"]] = query
    known, pairs = read_truth(of.truth), dict[str, str]()
    for log in sorted(of.clicks.iterdir()):
        with open(log, "rb") as lines, open(found.clicks / log.name, "wb") as out:
            for line in lines:
                click = orjson.loads(line)
                click_id = click["click_id"]
                for number in range(TIMES):
                    own = {**click, "click_id": f"{click_id}-{number}"}
                    out.write(orjson.dumps(own) + b"\n")
                    if click_id in known:
                        pairs[own["click_id"]] = digest(own, queries[click["query_id"]])
    found.truth.write_text("".join(f"{click_id}\t{pair}\n" for click_id, pair in pairs.items()))
    return found


@contextmanager
def services(directory: Path, data: Set, *names: str) -> Iterator[list[int]]:
    """Runs a replica and the named services of a datacentre that Spark joins. Yields their pids once they serve."""
    (directory / "key").write_bytes(os.urandom(32))
    ports = free_ports(3)
    file = directory / "photon.toml"
    file.write_text(DEPLOYMENT.format(join=CONFIG, ports=ports, data=data))
    commands = [["registry", "r1"], *([each] for each in names)]
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "photon", "serve", *each, "--config", file], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        for each in commands
    ]  # fmt: skip
    try:
        for port in ports[: len(running)]:
            _wait_until_healthy(f"127.0.0.1:{port}")
        yield [each.pid for each in running]
    finally:
        for each in running:
            kill_tree(each.pid)
            each.wait()


def _wait_until_healthy(address: str) -> None:
    deadline = time.monotonic() + READY_S
    while subprocess.run([sys.executable, "-m", "photon", "health", address], capture_output=True).returncode:
        if time.monotonic() > deadline:
            raise BenchmarkFailed(f"{address} does not serve after {READY_S:g} s")


@contextmanager
def cluster(directory: Path, workers: int) -> Iterator[tuple[str, list[int]]]:
    """Runs Spark standalone with two cores in all, or in the driver. Yields its address and pids."""
    if not workers:
        yield MASTER, []
        return
    port, *ports = free_ports(2 + 2 * workers)
    master = f"spark://127.0.0.1:{port}"
    commands = [["master.Master", "--port", str(port), "--webui-port", str(ports[-1])]]
    for number in range(workers):
        own = ["--port", str(ports[2 * number]), "--webui-port", str(ports[2 * number + 1])]
        own += ["--cores", str(2 // workers), "--memory", "3g", "--work-dir", str(directory / f"worker-{number}")]
        commands.append(["worker.Worker", *own, master])
    home = os.environ.get("SPARK_HOME", str(Path(pyspark.__file__).parent))
    environment = {**os.environ, "SPARK_HOME": home, "SPARK_LOCAL_IP": "127.0.0.1"}
    running = [
        subprocess.Popen(
            [f"{home}/bin/spark-class", f"org.apache.spark.deploy.{kind}", "--host", "127.0.0.1", *more],
            env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        for kind, *more in commands
    ]  # fmt: skip
    try:
        yield master, [each.pid for each in running]
    finally:
        for each in running:
            kill_tree(each.pid)
            each.wait()


def on_spark(arguments: Sequence[str], output: str, beside: Sequence[str], data: Set, *, workers: int = 0) -> Figures:
    """Measures a command of ``photon spark`` together with its services. Raises BenchmarkFailed."""
    with scratch() as work, services(work, data, *beside) as pids, cluster(work, workers) as (master, more):
        common = ["--config", str(work / "photon.toml"), "--master", master, "-o", "json"]
        common += ["--output", str(work / output)] if output != "output" else []
        command = [sys.executable, "-m", "photon", "spark", *arguments, *common]
        took = measure(command, scratch=work, environment={"PYSPARK_PYTHON": sys.executable})
        own, theirs = (cpu_s([pid for each in some for pid in tree(each)]) for some in (pids, more))
        if took.code:
            raise BenchmarkFailed(f"ended with {took.code}: {took.error}")
        verdict = check(output_lines(work / output / "joined"), read_truth(data.truth), of_photon)
        if verdict.problems:
            raise BenchmarkFailed(f"wrong output: {verdict.problems}")
        cpu = took.cpu_s + own + theirs
        return {"wall_s": took.wall_s, "cpu_s": cpu, "driver_s": took.cpu_s, "services_s": own}


def batch(data: Set) -> Figures:
    """Measures a plain batch join on Spark. Raises BenchmarkFailed."""
    with scratch() as work:
        command: list[str | Path] = [environments.SPARK.python(), Path(__file__).parent / "peers" / "spark_batch.py"]
        command += [
            "--queries",
            data.queries,
            "--clicks",
            data.clicks,
            "--output",
            work / "out",
            "--state",
            work / "s",
        ]
        took = measure(command, scratch=work)
        if took.code:
            raise BenchmarkFailed(f"ended with {took.code}: {took.error}")
        verdict = check(output_lines(work / "out"), read_truth(data.truth), of_peer)
        if verdict.problems:
            raise BenchmarkFailed(f"wrong output: {verdict.problems}")
        return {"wall_s": took.wall_s, "cpu_s": took.cpu_s}


def system(name: str, data: Set) -> Figures:
    """Measures a system of ``catch_up``. Raises BenchmarkFailed."""
    [found] = [each for each in SYSTEMS if each.name == name]
    return run_system(found, data, read_truth(data.truth))


RUNS: dict[str, Callable[[Set], Figures]] = {
    BATCH: batch,
    JOIN: partial(on_spark, JOIN_ONCE, "output", ("eventstore",)),
    ONE: partial(on_spark, JOIN_ONCE, "output", ("eventstore",), workers=1),
    TWO: partial(on_spark, JOIN_ONCE, "output", ("eventstore",), workers=2),
    BACKFILL: partial(on_spark, ("backfill", "--from", "2020-01-01", "--to", "2026-01-01"), "backfill", ()),
    "photon join --once": partial(system, PHOTON_ALONE),
    STREAMING: partial(system, STREAMING),
}


def main() -> None:
    """Runs the command that the module describes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--systems", nargs="+", default=list(RUNS), choices=list(RUNS), metavar="NAME")
    given = parser.parse_args()
    for words, data in (("1 M queries + 100 k clicks", generated(Size(CLICKS))), ("the reverse", many_clicks())):
        cpu: dict[str, list[float]] = {}
        for number in range(1, given.rounds + 1):
            for name in given.systems:
                took = RUNS[name](data)
                cpu.setdefault(name, []).append(took["cpu_s"])
                shown = "  ".join(f"{figure} {value:.1f}" for figure, value in took.items())
                print(f"{words}  round {number}  {name:<28} {shown}", flush=True)
        for name, seconds in cpu.items():
            own = statistics.median(seconds)
            ratios = ", ".join(f"{own / statistics.median(each):.2f} × {other}" for other, each in cpu.items())
            print(f"{words}  {name}: {own:.1f} s; {ratios}", flush=True)


if __name__ == "__main__":
    main()
