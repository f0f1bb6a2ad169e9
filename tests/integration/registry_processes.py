"""Registry replicas as real processes, with or without a distance between them, and their clients."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np

from photon.batch.ids import Ids
from photon.idregistry.api import Answer
from photon.idregistry.client.grpc_client import RegistryClient
from photon.lab.wan.client import WanClient, WanError
from photon.supervision.ports import free_ports
from photon.supervision.routes import Route, write_routes
from tests.integration.forked import Process, begin

ROOT = Path(__file__).resolve().parents[2]
SHARDS = 2


def _peers() -> dict[str, str]:
    return {f"r{number}": f"127.0.0.1:{port}" for number, port in enumerate(free_ports(3), 1)}


@dataclass
class Processes:
    """The replicas' processes."""

    directory: Path
    peers: dict[str, str] = field(default_factory=_peers)
    running: dict[str, Process] = field(default_factory=dict)
    shards: int = SHARDS
    raft: dict[str, int] = field(default_factory=dict)  # options of every group that differ from Photon's defaults

    def seen_from(self, region: str) -> dict[str, str]:
        """Every replica's address as seen from this region; each replica is in a region of its own name."""
        return self.peers

    def start(self, name: str, **more: Any) -> None:
        settings = {
            "name": name,
            "peers": self.seen_from(name),
            "directory": str(self.directory / name),
            "shards": self.shards,
            "raft": self.raft,
        }
        replica = self.begin(f"{name}.out", json.dumps(settings | more), module="tests.integration.registry_replica")
        self.running[name] = replica

    def begin(self, log: str, *arguments: str | Path, module: str) -> Process:
        with open(self.directory / log, "a") as out:
            return begin(*arguments, module=module, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT)

    def kill(self, name: str) -> None:
        process = self.running.pop(name)
        process.kill()
        process.wait(10)

    def output(self, name: str) -> str:
        return (self.directory / f"{name}.out").read_text()

    def check(self) -> None:
        for name, process in self.running.items():
            assert process.poll() is None, self.output(name)


@contextmanager
def processes(directory: Path, **raft: int) -> Iterator[Processes]:
    every = Processes(directory, raft=raft)
    try:
        for name in every.peers:
            every.start(name)
        yield every
    finally:
        for name in list(every.running):
            every.kill(name)


@asynccontextmanager
async def client_of(every: Processes, region: str = "") -> AsyncIterator[RegistryClient]:
    client = RegistryClient(every.seen_from(region))
    try:
        yield client
    finally:
        await client.close()


def digests_of(ids: list[int]) -> bytes:
    return b"".join(i.to_bytes(8, "little") + (i * 0x9E3779B97F4A7C15 % 2**64).to_bytes(8, "little") for i in ids)


def rows(ids: list[int], tokens: list[int]) -> Ids:
    n = len(ids)
    return Ids(
        digests_of(ids),
        np.array(ids, np.int64),
        np.array(tokens, np.uint64),
        np.ones(n, np.uint8),
        np.zeros(n, np.uint32),
    )


async def insert_known(client: RegistryClient, asked: Ids, *, timeout: float = 60.0) -> set[int]:
    """The answers; asks again, under the same tokens, for unknown ids: a late shard holds up no other."""
    deadline = time.monotonic() + timeout
    while True:
        found = await client.insert(asked, timeout=max(deadline - time.monotonic(), 0.1))
        answers = set(found.outcomes.tolist())
        if Answer.UNKNOWN not in answers or time.monotonic() >= deadline:
            return answers


async def leader_of(client: RegistryClient, every: Processes, group: int) -> str:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        known = await client.describe(timeout=2)
        for facts in known.groups if known else ():
            if facts.group == group and facts.leader in every.running:
                return facts.leader
        await asyncio.sleep(0.02)
    raise AssertionError("no leader")


@dataclass
class RegionProcesses(Processes):
    """Replicas in regions of their own names, with the project's proxy between any two."""

    round_trip_s: float = 0.0
    routes: list[Route] = field(default_factory=list)
    control: str = ""
    proxy: Process | None = None

    def seen_from(self, region: str) -> dict[str, str]:
        """Its own replica directly, the others through the proxy."""
        ports = {route.destination: route.listen for route in self.routes if route.source == region}
        return self.peers | ports

    def start_proxy(self) -> None:
        pairs = list(permutations(self.peers, 2))
        control, *ports = free_ports(len(pairs) + 1)
        self.control = f"127.0.0.1:{control}"
        self.routes = [
            Route(f"127.0.0.1:{port}", source, destination, self.peers[destination])
            for port, (source, destination) in zip(ports, pairs, strict=True)
        ]
        file = self.directory / "routes.json"
        write_routes(file, self.routes)
        served = (
            "wan",
            "serve",
            "--routes",
            file,
            "--control",
            self.control,
            "--round-trip",
            f"{self.round_trip_s}s",
        )
        self.proxy = self.begin("wan.out", *served, module="photon")


@asynccontextmanager
async def regions(
    directory: Path, round_trip_s: float, shards: int = SHARDS, **more: Any
) -> AsyncIterator[tuple[RegionProcesses, WanClient]]:
    """Three replicas, ``round_trip_s`` apart, started with ``more``; and the control of the links between them."""
    every = RegionProcesses(directory, shards=shards, round_trip_s=round_trip_s)
    every.start_proxy()
    wan = WanClient(every.control)
    try:
        for name in every.peers:
            every.start(name, **more)
        deadline = time.monotonic() + 30
        while True:
            try:
                await wan.directions()
                break
            except WanError:
                assert time.monotonic() < deadline, (directory / "wan.out").read_text()
                await asyncio.sleep(0.05)
        yield every, wan
    finally:
        await wan.close()
        for name in list(every.running):
            every.kill(name)
        if every.proxy is not None:
            every.proxy.kill()
            every.proxy.wait(10)
