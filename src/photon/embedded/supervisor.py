"""Runs service processes on one machine: starts them, waits until they are healthy, restarts them with back-off.

A child watches its standard input and ends when it closes, so that no child outlives a supervisor that was killed.
Only processes started here are ever signalled, by their pid.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from photon.config.errors import PhotonError

PORTS = range(15_000, 30_000)
RESTART_WAIT_S = (0.05, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Wait before the n-th restart in a row; the last one from then on."""
USAGE_EXIT = 2
STEADY_S = 10.0
"""A process that ran so long starts its back-off anew."""
FAILURES_MAX = 3
"""A process that ended with an error so often in a row will not come up by itself; exit code 2 says so at once."""
SHORT_LIVES_MAX = 20
"""Nor will one that was killed so often in a row before it was steady: the machine may lack memory."""
STOP_S = 10.0
"""Between SIGTERM and SIGKILL."""


class ServiceFailed(PhotonError):
    """A service did not come up; one line with the last of its log."""


@dataclass(frozen=True, slots=True)
class Service:
    """One process: ``photon ARGUMENTS``."""

    name: str
    arguments: tuple[str, ...]
    log: Path
    address: str | None = None
    """host:port of its gRPC health service; None: it has none."""
    health: str = ""
    """The name that it reports its health under."""
    datacentre: str = ""
    """With which it is lost; empty: with none."""


@dataclass(slots=True)
class _Running:
    service: Service
    process: asyncio.subprocess.Process | None = None
    task: asyncio.Task[None] | None = None
    starts: int = 0
    free: asyncio.Event = field(default_factory=asyncio.Event)
    """Clear while it is held down."""
    failures: int = 0
    """Exits with an error of its own (not a signal) in a row."""
    hopeless: bool = False


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nobody listens on now.

    Below the range from which the kernel gives ports to connections: such a one could be taken while a killed process
    is being restarted.
    """
    with contextlib.ExitStack() as stack:
        ports: list[int] = []
        for port in random.sample(PORTS, len(PORTS)):
            each = stack.enter_context(socket.socket())
            try:
                each.bind(("127.0.0.1", port))
            except OSError:
                continue
            ports.append(port)
            if len(ports) == count:
                return ports
    raise ServiceFailed(
        f"of the ports {PORTS.start} to {PORTS.stop - 1} fewer than {count} are free; end what holds them"
    )


async def healthy(address: str, name: str, timeout: float) -> bool:
    """Asks a process's gRPC health service once."""
    async with grpc.aio.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        try:
            reply = await stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=timeout)
        except grpc.aio.AioRpcError:
            return False
        return bool(reply.status == health_pb2.HealthCheckResponse.SERVING)


def _append(path: Path) -> BinaryIO:
    path.parent.mkdir(parents=True, exist_ok=True)
    return open(path, "ab")


class Supervisor:
    """Keeps a set of services running."""

    def __init__(self) -> None:
        self._running: dict[str, _Running] = {}
        self._stopping = False

    async def start(self, services: Sequence[Service]) -> None:
        """Starts services; they are restarted whenever they end."""
        for service in services:
            running = self._running[service.name] = _Running(service)
            running.free.set()
            await self._spawn(running)
            running.task = asyncio.create_task(self._keep(running), name=f"keep {service.name}")

    async def ready(self, timeout: float) -> None:
        """Waits until each service with an address is healthy. Raises ServiceFailed."""
        deadline = asyncio.get_running_loop().time() + timeout
        for running in list(self._running.values()):
            address = running.service.address
            while address is not None and not await healthy(address, running.service.health, 1.0):
                if (failure := self.failure()) is not None:
                    raise ServiceFailed(failure)
                if asyncio.get_running_loop().time() > deadline:
                    raise ServiceFailed(f"{running.service.name} is not up after {timeout:g} s{self._why(running)}")
                await asyncio.sleep(0.05)

    def pid(self, name: str) -> int | None:
        """Process id, None while it is down."""
        process = self._running[name].process
        return process.pid if process is not None and process.returncode is None else None

    def failure(self) -> str | None:
        """One line of a service that ends again and again by itself; None while there is hope."""
        for running in self._running.values():
            if running.hopeless:
                return f"{running.service.name} cannot go on{self._why(running)}"
            task = running.task
            if task is not None and task.done() and not task.cancelled() and (error := task.exception()) is not None:
                return f"{running.service.name} cannot be started again: {error}"
        return None

    def starts(self, name: str) -> int:
        """How often a service was started."""
        return self._running[name].starts

    def kill(self, name: str, *, hold: bool = False) -> int | None:
        """kill -9. ``hold``: it stays down until release()."""
        running = self._running[name]
        if hold:
            running.free.clear()
        pid = self.pid(name)
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
        return pid

    def release(self, name: str) -> None:
        """Lets a held service start again."""
        self._running[name].free.set()

    async def stop(self) -> None:
        """SIGTERM to all, SIGKILL to those that do not end."""
        self._stopping = True
        for running in self._running.values():
            if running.task is not None:
                running.task.cancel()
        await asyncio.gather(*(self._end(running) for running in self._running.values()))

    async def _spawn(self, running: _Running) -> None:
        with _append(running.service.log) as log:
            running.process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "photon",
                *running.service.arguments,
                stdin=asyncio.subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C reaches the supervisor alone, which then stops them in order
            )
        running.starts += 1

    async def _keep(self, running: _Running) -> None:
        loop = asyncio.get_running_loop()
        in_a_row = 0
        while True:
            assert running.process is not None
            since = loop.time()
            code = await running.process.wait()
            steady = loop.time() - since > STEADY_S
            in_a_row = 0 if steady else in_a_row + 1
            running.failures = 0 if steady or code <= 0 else running.failures + 1
            running.hopeless = code == USAGE_EXIT or running.failures >= FAILURES_MAX or in_a_row >= SHORT_LIVES_MAX
            await asyncio.sleep(RESTART_WAIT_S[min(in_a_row, len(RESTART_WAIT_S) - 1)])
            await running.free.wait()
            await self._spawn(running)

    async def _end(self, running: _Running) -> None:
        process = running.process
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), STOP_S)
        except TimeoutError:
            process.kill()
            await process.wait()

    def _why(self, running: _Running) -> str:
        lines = running.service.log.read_text(errors="replace").strip().splitlines()
        said = [line.removeprefix("photon: ") for line in lines if line.startswith("photon: ")] or lines
        return f": {said[-1]}" if said else ""
