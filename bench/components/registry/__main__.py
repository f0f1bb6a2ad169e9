"""``make bench-registry``: conditional inserts into the registry, next to etcd on the same machine in the same run.

Replicas are real processes with durable fsync, clients are separate processes over gRPC. The two systems alternate,
so that a busy machine is busy for both; ratios and medians count, absolute figures differ between machines.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.components.registry.etcd import Cluster, EtcdMissing, Program, build
from photon.lab.latency import percentiles
from photon.supervision.ports import free_ports
from photon.supervision.routes import Route, write_routes

SHARDS = 1
ETCD_SINGLE = {"clients": 1000, "batch": 1}
ETCD_BATCHED = {"clients": 16, "batch": 128}


@dataclass(frozen=True, slots=True)
class Result:
    """One measurement. Latencies are those of a call."""

    ids_s: float
    p50_ms: float
    p99_ms: float
    unknown: int = 0


class Group:
    """Processes of one registry. With a round trip, proxies connect the replicas with each other and with clients."""

    def __init__(self, directory: Path, replicas: int, round_trip_s: float = 0.0) -> None:
        self._directory = directory
        self._replicas = replicas
        self._round_trip_s = round_trip_s
        self._processes: list[subprocess.Popen[str]] = []
        self._slots = 0
        self.addresses: dict[str, str] = {}

    def start(self) -> None:
        """Starts the replicas; returns when all of them serve."""
        names = [f"r{n}" for n in range(self._replicas)]
        ports = free_ports(self._replicas)
        self.addresses = {name: f"127.0.0.1:{port}" for name, port in zip(names, ports, strict=True)}
        seen = {name: dict(self.addresses) for name in names}
        if self._round_trip_s:
            seen = self._proxied(names)
        for name in names:
            given = {"name": name, "peers": seen[name], "directory": str(self._directory / name), "shards": SHARDS}
            command = [sys.executable, "-m", "tests.integration.registry_replica", json.dumps(given)]
            self._processes.append(
                subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            )
        for process in self._processes[-len(names) :]:
            assert process.stdout is not None
            if "ready\n" not in process.stdout:  # reads up to it, over what the replica logs before
                raise RuntimeError("a registry replica did not start")

    def _proxied(self, names: list[str]) -> dict[str, dict[str, str]]:
        """Puts each replica into its own region, with proxies between them."""
        pairs = [(a, b) for a in names for b in names if a != b]
        *ports, control = free_ports(len(pairs) + 1)
        routes = [
            Route(f"127.0.0.1:{port}", a, b, self.addresses[b]) for (a, b), port in zip(pairs, ports, strict=True)
        ]
        self._directory.mkdir()
        file = self._directory / "routes.json"
        write_routes(file, routes)
        command = [sys.executable, "-m", "photon", "wan", "serve", "--routes", str(file)]
        command += ["--control", f"127.0.0.1:{control}", "--round-trip", f"{self._round_trip_s}s"]
        self._processes.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, text=True))
        listens = {(route.source, route.target): route.listen for route in routes}
        return {a: {b: self.addresses[b] if a == b else listens[a, self.addresses[b]] for b in names} for a in names}

    def drive(self, *, processes: int, callers: int, batch: int, seconds: float, rate: float = 0.0) -> Result:
        """Drives the registry from client processes. ``rate``: ids a second over all of them; 0 means no limit."""
        running = []
        for _ in range(processes):
            self._slots += 1
            given = {"addresses": self.addresses, "slot": f"s{self._slots}", "callers": callers, "batch": batch}
            given |= {"seconds": seconds, "rate": rate / processes}
            command = [sys.executable, "-m", "bench.components.registry.load", json.dumps(given)]
            running.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        for process in running:
            assert process.stdout is not None
            if process.stdout.readline().strip() != "ready":
                raise RuntimeError("a client did not start")
        for process in running:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        ids, unknown, latencies = 0, 0, []
        for process in running:
            out, _ = process.communicate(timeout=seconds + 60)
            load = json.loads(out.splitlines()[-1])
            ids, unknown = ids + load["ids"], unknown + load["unknown"]
            latencies += load["latencies_ms"]
        p50, _, p99 = percentiles(latencies)
        return Result(ids / seconds, p50, p99, unknown)

    def stop(self) -> None:
        """Ends all processes that were started."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


def _etcd(found: dict[str, float]) -> Result:
    return Result(found["ids"] / found["seconds"], found["p50_ms"], found["p99_ms"])


def _median(results: list[Result]) -> Result:
    return Result(
        statistics.median(r.ids_s for r in results),
        statistics.median(r.p50_ms for r in results),
        statistics.median(r.p99_ms for r in results),
        sum(r.unknown for r in results),
    )


def beside(
    directory: Path, program: Program | None, arguments: argparse.Namespace, replicas: int
) -> dict[str, Result]:
    """Measures throughput, then latency at half of it; the systems alternate."""
    ours = Group(directory / f"photon{replicas}", replicas)
    theirs = Cluster(program, directory / f"etcd{replicas}", replicas) if program else None
    found: dict[str, list[Result]] = {}

    def add(name: str, result: Result) -> None:
        found.setdefault(name, []).append(result)
        print(f"{replicas} replicas: {name}: {result.ids_s:,.0f} ids/s, p99 {result.p99_ms:.1f} ms", file=sys.stderr)

    load = {"processes": arguments.clients, "callers": arguments.callers, "batch": arguments.batch}
    ours.start()
    try:
        if theirs:
            theirs.start()
        for _ in range(arguments.rounds):
            add("photon", ours.drive(**load, seconds=arguments.seconds))
            if theirs:
                add("etcd single", _etcd(theirs.drive(**ETCD_SINGLE, seconds=arguments.seconds)))
                add("etcd batched", _etcd(theirs.drive(**ETCD_BATCHED, seconds=arguments.seconds)))
        half = {name: statistics.median(r.ids_s for r in each) / 2 for name, each in found.items()}
        for _ in range(arguments.rounds):
            add("photon, half load", ours.drive(**load, seconds=arguments.seconds, rate=half["photon"]))
            if theirs:
                single = theirs.drive(**ETCD_SINGLE, seconds=arguments.seconds, rate=half["etcd single"])
                add("etcd single, half load", _etcd(single))
    finally:
        ours.stop()
        if theirs:
            theirs.stop()
    return {name: _median(each) for name, each in found.items()}


def far(directory: Path, arguments: argparse.Namespace) -> dict[str, Result]:
    """Replicas 100 ms apart, one shard; a closed loop with requests large enough, and an open one at a rate."""
    group = Group(directory / "wan", 3, 0.1)
    group.start()
    try:
        most = group.drive(processes=arguments.clients, callers=64, batch=500, seconds=arguments.seconds)
        at = group.drive(processes=arguments.clients, callers=64, batch=100, seconds=arguments.seconds, rate=20_000)
    finally:
        group.stop()
    return {"100 ms apart, as fast as it goes": most, "100 ms apart, 20,000 ids/s offered": at}


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m bench.components.registry")
    parser.add_argument("--replicas", type=int, nargs="*", default=[3, 5])
    parser.add_argument("--clients", type=int, default=2, help="client processes")
    parser.add_argument("--callers", type=int, default=8, help="concurrent requests of each client process")
    parser.add_argument("--batch", type=int, default=2000, help="ids a request")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-etcd", action="store_true")
    parser.add_argument("--no-wan", action="store_true")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    results: dict[str, Result] = {}
    with tempfile.TemporaryDirectory(prefix="photon-bench-") as name:
        directory = Path(name)
        program = None
        try:
            program = None if arguments.no_etcd else build(directory)
        except EtcdMissing as missing:
            print(f"without etcd: {missing}", file=sys.stderr)
        for replicas in arguments.replicas:
            for what, result in beside(directory, program, arguments, replicas).items():
                results[f"{replicas} replicas: {what}"] = result
        if not arguments.no_wan:
            results |= far(directory, arguments)
    _show(results, arguments.replicas, program, as_json=arguments.json)
    return 0


def _show(results: dict[str, Result], replicas: list[int], program: Program | None, *, as_json: bool) -> None:
    ratios = {}
    for n in replicas:
        ours = results[f"{n} replicas: photon"].ids_s
        for other in ("etcd single", "etcd batched"):
            theirs = results.get(f"{n} replicas: {other}")
            if theirs is not None:
                ratios[f"{n} replicas: photon / {other}"] = ours / theirs.ids_s
    if as_json:
        rows = {
            name: {"ids_s": r.ids_s, "p50_ms": r.p50_ms, "p99_ms": r.p99_ms, "unknown": r.unknown}
            for name, r in results.items()
        }
        print(json.dumps({"results": rows, "ratios": ratios, "etcd": program.version if program else None}))
        return
    table = Table(
        box=None, pad_edge=False, title=f"{os.cpu_count()} cores, etcd {program.version if program else '-'}"
    )
    for column in ("", "ids/s", "p50 ms", "p99 ms"):
        table.add_column(column, justify="right" if column else "left")
    for name, result in results.items():
        table.add_row(name, f"{result.ids_s:,.0f}", f"{result.p50_ms:.1f}", f"{result.p99_ms:.1f}")
    for name, ratio in ratios.items():
        table.add_row(name, f"{ratio:.1f} x")
    Console(width=100).print(table)


if __name__ == "__main__":
    sys.exit(main())
