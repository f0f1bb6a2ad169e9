"""etcd for comparison: a cluster of members on this machine, and its own Go client driving it with
conditional puts."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from photon.supervision.ports import free_ports

SOURCES = Path(__file__).parents[1] / "etcd"
START_S = 30.0
TXN_OPS = 1024


class EtcdMissing(Exception):
    """etcd is not available here; the message says why."""


@dataclass(frozen=True, slots=True)
class Program:
    """The built program, which contains both members and driver."""

    path: Path
    version: str


def build(directory: Path) -> Program:
    """Builds the program from Go modules, pinned in ``bench/components/etcd/go.mod``. Raises EtcdMissing."""
    if shutil.which("go") is None:
        raise EtcdMissing("Go is missing; install it, as etcd and its driver are built from Go modules")
    program = directory / "etcdbench"
    built = subprocess.run(["go", "build", "-o", str(program), "."], cwd=SOURCES, capture_output=True, text=True)
    if built.returncode:
        raise EtcdMissing(f"go build failed: {built.stderr.strip().splitlines()[-1]}")
    version = subprocess.run([str(program), "serve", "--version"], capture_output=True, text=True).stdout
    return Program(program, version.splitlines()[0].removeprefix("etcd Version: "))


@dataclass(slots=True)
class Cluster:
    """Members with durable fsync (etcd's default)."""

    program: Program
    directory: Path
    members: int
    endpoints: list[str] = field(default_factory=list)
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _runs: int = 0

    def start(self) -> None:
        """Starts the members and waits until they answer."""
        ports = free_ports(2 * self.members)
        clients, peers = ports[: self.members], ports[self.members :]
        self.endpoints = [f"127.0.0.1:{port}" for port in clients]
        initial = ",".join(f"m{n}=http://127.0.0.1:{port}" for n, port in enumerate(peers))
        for n, (client, peer) in enumerate(zip(clients, peers, strict=True)):
            command = [
                str(self.program.path),
                "serve",
                "--name",
                f"m{n}",
                "--data-dir",
                str(self.directory / f"m{n}"),
            ]
            command += ["--listen-client-urls", f"http://127.0.0.1:{client}"]
            command += ["--advertise-client-urls", f"http://127.0.0.1:{client}"]
            command += ["--listen-peer-urls", f"http://127.0.0.1:{peer}"]
            command += ["--initial-advertise-peer-urls", f"http://127.0.0.1:{peer}", "--initial-cluster", initial]
            command += ["--max-txn-ops", str(TXN_OPS), "--log-level", "error"]
            self.processes.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        deadline = time.monotonic() + START_S
        while self.drive(clients=1, batch=1, seconds=0.2)["ids"] == 0:
            if time.monotonic() > deadline:
                raise EtcdMissing(f"etcd does not answer after {START_S:g} s")

    def drive(self, *, clients: int, batch: int, seconds: float, rate: float = 0.0) -> dict[str, float]:
        """Makes conditional puts; returns the number of ids, the seconds, and p50_ms and p99_ms of a transaction."""
        self._runs += 1
        command = [str(self.program.path), "drive", "--endpoints", ",".join(self.endpoints)]
        command += ["--clients", str(clients), "--batch", str(batch), "--seconds", str(seconds)]
        command += ["--rate", str(rate), "--prefix", f"r{self._runs}"]
        out = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 60)
        found: dict[str, float] = json.loads(out.stdout or '{"ids": 0, "seconds": 1}')
        return found

    def stop(self) -> None:
        """Ends the members."""
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait()
