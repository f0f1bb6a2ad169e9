"""A registry from a deployment file: its replicas as real processes, and the operators' commands run against it."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from photon.idregistry.client.grpc_client import RegistryClient
from photon.supervision.ports import free_ports
from tests.integration import commands
from tests.integration.forked import Process, begin

LOOK_S = 0.3  # time between two looks, each of which is a command


@dataclass(frozen=True)
class Outcome:
    """A command's output."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        assert self.out.count("\n") == 1, self.out
        return json.loads(self.out)


@dataclass
class Deployment:
    """``directory`` holds photon.toml and a directory for each replica."""

    directory: Path
    shards: int = 2
    more: str = ""  # further tables of the file
    addresses: dict[str, str] = field(default_factory=dict)
    running: dict[str, Process] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        if not self.addresses:
            self.addresses = {f"r{n}": f"127.0.0.1:{port}" for n, port in enumerate(free_ports(3), 1)}
        lines = ["# a comment that stays", "[registry]", f"shards = {self.shards}", "tolerate = 1", ""]
        for name, address in self.addresses.items():
            lines += [f"[registry.replicas.{name}]", f'address = "{address}"', f'directory = "{name}"', ""]
        self.file.write_text("\n".join(lines) + "\n" + self.more)

    @property
    def file(self) -> Path:
        return self.directory / "photon.toml"

    def start(self, name: str) -> None:
        with open(self.directory / f"{name}.log", "ab") as log:
            command = ("serve", "registry", name, "--config", self.file)
            self.running[name] = begin(*command, stdout=log, stderr=subprocess.STDOUT)

    def kill(self, name: str) -> None:
        process = self.running.pop(name)
        process.kill()
        process.wait(10)

    async def stop(self, name: str) -> None:
        """SIGTERM; ends cleanly."""
        process = self.running.pop(name)
        process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + 30
        while process.poll() is None:
            assert time.monotonic() < deadline, f"{name} does not end"
            await asyncio.sleep(0.02)
        assert process.returncode == 0, self.log(name)

    def log(self, name: str) -> str:
        return (self.directory / f"{name}.log").read_text()

    def check(self) -> None:
        for name, process in self.running.items():
            assert process.poll() is None, self.log(name)

    def client(self, addresses: Mapping[str, str] | None = None) -> RegistryClient:
        return RegistryClient(addresses or self.addresses)

    async def command(self, *arguments: str) -> Outcome:
        """``photon registry``; read-only commands are part of ``photon status`` or ``photon doctor``."""
        looks = {"status": ("status", "registry"), "members": ("status", "members"), "doctor": ("doctor", "registry")}
        first = looks.get(arguments[0], ("registry", arguments[0]))
        return await photon(*first, *arguments[1:], "--config", str(self.file))

    async def good(self, *arguments: str) -> Outcome:
        """Like command; must succeed."""
        outcome = await self.command(*arguments)
        assert outcome.code == 0, (arguments, outcome)
        return outcome

    async def eventually(self, *arguments: str) -> Outcome:
        """Like good, retried while it fails."""
        deadline = time.monotonic() + 40
        while (outcome := await self.command(*arguments)).code:
            assert time.monotonic() < deadline, (arguments, outcome)
            await asyncio.sleep(LOOK_S)
        return outcome

    async def settled(self) -> Any:
        """Waits until status shows that every group is led and every replica answers and has everything."""
        deadline = time.monotonic() + 60
        while True:
            self.check()
            outcome = await self.command("status", "-o", "json")
            if outcome.code == 0:
                said = outcome.json()
                if len(said["groups"]) > self.shards and all(
                    lag is not None for group in said["groups"] for lag in group["lag"].values()
                ):
                    return said
            assert time.monotonic() < deadline, outcome
            await asyncio.sleep(LOOK_S)


async def photon(*arguments: str) -> Outcome:
    """Runs a command to its end."""
    done = await asyncio.to_thread(commands.photon, *arguments)
    return Outcome(done.code, done.out, done.err)


@contextmanager
def deployment(directory: Path, **more: Any) -> Iterator[Deployment]:
    """A started deployment; ended in any case."""
    made = Deployment(directory, **more)
    try:
        for name in made.addresses:
            made.start(name)
        yield made
    finally:
        for name in list(made.running):
            made.kill(name)
