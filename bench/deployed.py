"""A deployment of one datacentre and three registry replicas, run by ``photon up``, fed and watched by separate
processes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.feeder import Feed
from bench.measure import cpu_s, kill_tree, resident, tail, tree
from bench.results import BenchmarkFailed
from photon.fleet.ledger import read_ledger
from photon.lab.demo.deployment import DemoDeployment, Place, Shape
from photon.supervision.health import Health, ask_health
from photon.supervision.zygote import adopt_orphans

DATACENTRE = "east"
# Two of them in their own regions: a round trip, if set, is between any two.
REPLICAS = {"r1": "east", "r2": "west", "r3": "central"}
READY_S = 180.0
STOP_S = 60.0
UNMATCHED_AFTER_S = 30.0


@dataclass(slots=True)
class Deployed:
    """A running deployment."""

    directory: Path
    demo: DemoDeployment
    up: subprocess.Popen[bytes]
    overrides: Mapping[str, str]  # settings in the environment

    @property
    def place(self) -> Place:
        """Logs, output and state of the datacentre."""
        return self.demo.places[DATACENTRE]

    @property
    def config(self) -> Path:
        """The deployment file."""
        return self.directory / "photon.toml"

    def start(self) -> None:
        """Runs ``photon up``, also after it was killed."""
        self.up = _up(self.directory, self.config, self.overrides)

    def ready(self, timeout_s: float = READY_S) -> None:
        """Waits until every process reports that it serves. Raises BenchmarkFailed."""
        asyncio.run(self._ready(timeout_s))

    async def _ready(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        for service in self.demo.deployment.services():
            if service.address is None:
                continue
            while await ask_health(service.address, service.health, 1.0, service.to) is not Health.SERVING:
                if self.up.poll() is not None:
                    raise BenchmarkFailed(f"photon up ended with {self.up.returncode}: {self.said()}")
                if time.monotonic() > deadline:
                    raise BenchmarkFailed(f"{service.name} does not serve after {timeout_s:g} s: {self.said()}")
                await asyncio.sleep(0.05)

    def said(self) -> str:
        """Returns the last line that ``photon up`` printed."""
        return tail(self.directory / "up.log", 1)

    def pids(self) -> list[int]:
        """Pids of all processes."""
        return tree(self.up.pid)

    def joined(self) -> int:
        """Returns the number of joined events in the ledger."""
        return read_ledger(self.place.state)["joined"]

    def settled(self, clicks: int, timeout_s: float) -> float | None:
        """Waits until ``clicks`` clicks have been joined; returns the seconds that it took, ``None`` after a
        time-out."""
        began = time.monotonic()
        while self.joined() < clicks:
            if time.monotonic() - began > timeout_s:
                return None
            time.sleep(0.1)
        return time.monotonic() - began

    def stop(self) -> None:
        """Sends SIGTERM to all processes, and SIGKILL to those that do not end."""
        if self.up.poll() is None:
            self.up.send_signal(signal.SIGTERM)
            try:
                self.up.wait(STOP_S)
            except subprocess.TimeoutExpired:
                kill_tree(self.up.pid)
                self.up.wait()


def _up(directory: Path, config: Path, overrides: Mapping[str, str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "photon", "up", str(config), "--run", str(directory / "run"), "--no-logs"]
    with open(directory / "up.log", "ab") as log:
        environment = {**os.environ, **overrides}
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)


@contextmanager
def deployed(
    directory: Path,
    *,
    joiners: int = 1,
    shards: int = 1,
    round_trip_s: float | None = None,
    unmatched_after_s: float = UNMATCHED_AFTER_S,
    together: bool = False,
    replicas_together: bool = False,
    datacentres: tuple[str, ...] = (DATACENTRE,),
    replicas: Mapping[str, str] = REPLICAS,
    cache: str = "",
    latency_s: float | None = None,
) -> Iterator[Deployed]:
    """Starts a deployment and yields it when it serves; stops it at the end. All ``datacentres`` read the logs of the
    first one, which is ``DATACENTRE``."""
    adopt_orphans(True)
    shape = Shape(
        datacentres, joiners, round_trip_s=round_trip_s, unmatched_after_s=unmatched_after_s, shards=shards,
        replicas=replicas, together=together, replicas_together=replicas_together, cache=cache,
    )  # fmt: skip
    demo = DemoDeployment(directory, shape)
    for other in datacentres[1:]:
        for logs in (demo.places[other].primary, demo.places[other].foreign):
            logs.rmdir()
            logs.symlink_to(directory / DATACENTRE / logs.name)
    overrides = {} if latency_s is None else {"PHOTON_SET_limits__latency": f"{latency_s:g}"}
    running = Deployed(directory, demo, _up(directory, directory / "photon.toml", overrides), overrides)
    try:
        running.ready()
        yield running
    finally:
        running.stop()


class Watch:
    """Runs ``bench.tail`` on a deployment."""

    def __init__(self, running: Deployed, datacentre: str = DATACENTRE) -> None:
        self.file = running.directory / f"seen-{datacentre}.npz"
        command = [sys.executable, "-m", "bench.tail", str(running.config), datacentre, str(self.file)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self._process.stdout.readline()

    def end(self) -> None:
        """Ends the watcher, which then has written its file. Raises BenchmarkFailed."""
        self._process.terminate()
        if self._process.wait(STOP_S):
            raise BenchmarkFailed(f"the watcher ended with exit code {self._process.returncode}")

    def kill(self) -> None:
        """Kills the process, even if it is not done."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()


class Feeding:
    """Runs ``bench.feeder`` on a deployment."""

    def __init__(
        self, running: Deployed, *, rate: float, seconds: float, per_click: int = 10, early: float = 0.0
    ) -> None:
        self.file = running.directory / "fed.npz"
        place = running.place
        logs = str(place.primary), str(place.foreign)
        self.feed = Feed(rate, seconds, *logs, str(self.file), per_click, early=early)
        command = [sys.executable, "-m", "bench.feeder", json.dumps(asdict(self.feed))]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self.began_ns = int(json.loads(self._process.stdout.readline())["began_ns"])

    def running(self) -> bool:
        """True if the feeder still writes."""
        return self._process.poll() is None

    def end(self) -> None:
        """Waits until the feeder ends. Raises BenchmarkFailed."""
        if self._process.wait():
            raise BenchmarkFailed(f"the feeder ended with exit code {self._process.returncode}")

    def kill(self) -> None:
        """Kills the process, even if it is not done."""
        if self.running():
            self._process.kill()
        self._process.wait()


@dataclass(slots=True)
class Usage:
    """Resources that a deployment's processes used during the feed."""

    cpu_s: float = 0.0
    wall_s: float = 0.0
    peak_mib: float = 0.0


def follow(running: Deployed, feeding: Feeding, every_s: float = 0.5) -> Usage:
    """Samples until the feed has ended."""
    before, began, usage = cpu_s(running.pids()), time.monotonic(), Usage()
    while feeding.running():
        usage.peak_mib = max(usage.peak_mib, resident(running.pids()) / 2**20)
        time.sleep(every_s)
    feeding.end()
    usage.cpu_s, usage.wall_s = cpu_s(running.pids()) - before, time.monotonic() - began
    return usage
