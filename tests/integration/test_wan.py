"""``photon wan`` as a person runs it: a real proxy process between echo servers and a gRPC server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from photon.config.serving import HealthyServer, listen
from photon.lab.wan.client import WanClient
from photon.lab.wan.links import Fault
from photon.supervision.ports import free_ports
from photon.supervision.routes import Route, write_routes
from tests.integration.commands import Result, photon, until
from tests.integration.forked import Process, begin

ECHO = """
import asyncio, contextlib, sys
async def echo(reader, writer):
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()
async def main():
    server = await asyncio.start_server(echo, "127.0.0.1", int(sys.argv[1]))
    print("ready", flush=True)
    await server.serve_forever()
asyncio.run(main())
"""
WAIT_S = 30.0
SILENCE_S = 0.3


@dataclass(frozen=True, slots=True)
class Site:
    """A running proxy: ``east`` and ``west`` each reach the other's target."""

    control: str
    from_east: int
    from_west: int
    target: int  # port on which the target in both regions has to listen
    process: Process

    def wan(self, *arguments: str) -> Result:
        return photon("wan", *arguments, "--control", self.control)

    def listed(self, *arguments: str) -> Result:
        return photon("status", "wan", *arguments, "--control", self.control)

    def directions(self) -> dict[str, dict[str, str | float]]:
        listed = self.listed("-o", "json")
        assert listed.code == 0, listed.err
        return {f"{each['source']}-{each['destination']}": each for each in json.loads(listed.out)}


@contextlib.contextmanager
def proxy(directory: Path, *arguments: str) -> Iterator[Site]:
    control, from_east, from_west, target = free_ports(4)
    routes = directory / "routes.json"
    write_routes(
        routes,
        [
            Route(f"127.0.0.1:{from_east}", "east", "west", f"127.0.0.1:{target}"),
            Route(f"127.0.0.1:{from_west}", "west", "east", f"127.0.0.1:{target}"),
        ],
    )
    address = f"127.0.0.1:{control}"
    command = ["wan", "serve", "--routes", str(routes), "--control", address, *arguments, "--stop-with-parent"]
    with open(directory / "wan.log", "wb") as log:
        process = begin(*command, stdin=subprocess.PIPE, stdout=log, stderr=log)
    try:
        until(lambda: _serving(address), WAIT_S, "the proxy is healthy")
        yield Site(address, from_east, from_west, target, process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            assert process.wait(WAIT_S) == 0, (directory / "wan.log").read_text()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


def _serving(address: str) -> bool:
    with grpc.insecure_channel(address) as channel:
        try:
            request = health_pb2.HealthCheckRequest(service="photon.v1.Wan")
            reply = health_pb2_grpc.HealthStub(channel).Check(request, timeout=1.0)
        except grpc.RpcError:
            return False
    return bool(reply.status == health_pb2.HealthCheckResponse.SERVING)


@contextlib.contextmanager
def echo(port: int) -> Iterator[subprocess.Popen[bytes]]:
    """An echo server in a separate process."""
    process = subprocess.Popen([sys.executable, "-c", ECHO, str(port)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"ready\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@contextlib.contextmanager
def client(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield connection


def refused(port: int) -> None:
    """A new connection is reset, perhaps before its connect() has returned."""
    with pytest.raises(ConnectionResetError), client(port) as connection:
        connection.recv(1)


def ask(connection: socket.socket, data: bytes = b"hello") -> float:
    """Seconds until an echo has returned everything."""
    since = time.monotonic()
    connection.sendall(data)
    hear(connection, data)
    return time.monotonic() - since


def hear(connection: socket.socket, data: bytes) -> None:
    heard = bytearray()
    while len(heard) < len(data):
        part = connection.recv(1 << 20)
        assert part, "the connection has ended"
        heard += part
    assert heard == data


def silent(connection: socket.socket) -> bool:
    connection.settimeout(SILENCE_S)
    try:
        connection.recv(1)
    except TimeoutError:
        return True
    finally:
        connection.settimeout(WAIT_S)
    return False


def test_delays_and_faults_from_the_command_line(tmp_path: Path) -> None:
    with proxy(tmp_path, "--round-trip", "60ms") as site, echo(site.target), client(site.from_east) as east:
        ask(east)
        assert statistics.median(ask(east) for _ in range(5)) >= 0.058
        assert site.directions()["east-west"] == {
            "source": "east",
            "destination": "west",
            "delay_ms": 30.0,
            "fault": "none",
            "bytes": 30,
            "connections": 1,
        }

        assert site.wan("set", "east", "west", "--round-trip", "10ms") == Result(0, "", "")
        assert site.wan("set", "west", "east", "--delay", "0.02", "--one-way").code == 0
        assert {name: each["delay_ms"] for name, each in site.directions().items()} == {
            "east-west": 5.0,
            "west-east": 20.0,
        }
        assert min(ask(east) for _ in range(10)) < 0.058

        assert site.wan("set", "--cut", "east", "west", "--one-way").code == 0
        assert {name: each["fault"] for name, each in site.directions().items()} == {
            "east-west": "drop",
            "west-east": "none",
        }
        east.sendall(b"held")
        assert silent(east)
        assert site.wan("set", "--heal", "east", "west").code == 0
        hear(east, b"held")

        assert site.wan("set", "--cut", "west", "--from-all", "--fault", "reset").code == 0
        with pytest.raises(ConnectionResetError):
            east.recv(1)
        assert site.wan("set", "--heal").code == 0
        with client(site.from_west) as west:
            ask(west)
            assert site.wan("set", "--cut", "west", "east", "--fault", "refuse").code == 0
            refused(site.from_west)
            ask(west)
        table = site.listed().out
        assert [line.split() for line in table.splitlines()][1][:5] == ["east", "west", "5", "ms", "refuse"]


def test_a_target_that_is_killed_and_comes_back(tmp_path: Path) -> None:
    with proxy(tmp_path) as site:
        with echo(site.target) as target, client(site.from_east) as east:
            ask(east)
            os.kill(target.pid, signal.SIGKILL)
            with contextlib.suppress(ConnectionResetError):
                assert east.recv(1) == b""
        refused(site.from_east)
        with echo(site.target), client(site.from_east) as east:
            ask(east)
        until(lambda: site.directions()["east-west"]["connections"] == 0, WAIT_S, "connections are forgotten")
    said = [json.loads(line) for line in (tmp_path / "wan.log").read_text().splitlines()]
    assert [each["event"] for each in said] == ["target cannot be reached", "target can be reached again"]


@contextlib.asynccontextmanager
async def grpc_target(port: int) -> AsyncIterator[HealthyServer]:
    server = await listen(f"127.0.0.1:{port}", "photon.test")
    await server.serving()
    try:
        yield server
    finally:
        await server.stop(0)


async def check(channel: grpc.aio.Channel, timeout: float) -> float:
    """Duration of a call in seconds. Raises grpc.aio.AioRpcError."""
    since = time.monotonic()
    request = health_pb2.HealthCheckRequest(service="photon.test")
    await health_pb2_grpc.HealthStub(channel).Check(request, timeout=timeout)
    return time.monotonic() - since


async def called(channel: grpc.aio.Channel) -> float:
    """The first call that gets through."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            return await check(channel, 5.0)
        except grpc.aio.AioRpcError:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)


async def test_grpc_goes_through_and_fails_as_over_a_real_distance(tmp_path: Path) -> None:
    options = (("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 500))
    with proxy(tmp_path, "--round-trip", "40ms") as site:
        wan = WanClient(site.control)
        async with (
            grpc_target(site.target),
            grpc.aio.insecure_channel(f"127.0.0.1:{site.from_east}", options=options) as channel,
        ):
            await called(channel)
            assert statistics.median([await check(channel, 5.0) for _ in range(9)]) >= 0.039

            await wan.cut("east", "west")
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await check(channel, 0.5)
            assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            await wan.heal("east", "west")
            await check(channel, 10.0)  # on the same connection

            await wan.cut("east", "west", Fault.RESET)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await check(channel, 5.0)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            await wan.heal()
            await called(channel)
        await wan.close()


def test_what_is_wrong_is_said_in_one_line(tmp_path: Path) -> None:
    config = tmp_path / "photon.toml"
    config.write_text("")
    bad = tmp_path / "bad.json"
    bad.write_text('[{"listen": "here"}]')
    good = tmp_path / "good.json"
    port, control = free_ports(2)
    write_routes(good, [Route(f"127.0.0.1:{port}", "east", "west", "127.0.0.1:1")])
    nobody = ("--control", f"127.0.0.1:{control}")
    with socket.create_server(("127.0.0.1", port)):
        for arguments, code, said in (
            (("list",), 2, "either --control HOST:PORT or --config FILE"),
            (("list", *nobody, "--config", str(config)), 2, "either --control HOST:PORT or"),
            (("list", "--config", str(config)), 2, "has no [wan]"),
            (("list", "--control", "7100"), 2, "must be host:port"),
            (("list", *nobody), 1, "does not answer"),
            (("set", "east", "west", *nobody), 2, "--round-trip, --delay"),
            (("set", "east", "west", "--round-trip", "1s", "--one-way", *nobody), 2, "--one-way requires --delay"),
            (("set", "east", "west", "--delay", "soon", *nobody), 2, "a duration is"),
            (("set", "--cut", "east", *nobody), 2, "give a second region or --from-all"),
            (("set", "--cut", "east", "west", "--from-all", *nobody), 2, "give a second region or --from-all"),
            (("set", "--cut", "east", "west", "--fault", "slow", *nobody), 2, "'slow' is not one of"),
            (("serve", "--routes", str(tmp_path / "none.json"), *nobody), 2, "no such file"),
            (("serve", "--routes", str(bad), *nobody), 2, "bad.json: "),
            (("serve", "--routes", str(good), *nobody, "--round-trip", "3m"), 2, "at most 120 s"),
            (("serve", "--routes", str(good), *nobody), 1, f"127.0.0.1:{port}: the proxy cannot listen there"),
        ):
            words = ("status", "wan", *arguments[1:]) if arguments[0] == "list" else ("wan", *arguments)
            result = photon(*words)
            assert (result.code, result.out) == (code, ""), (arguments, result)
            assert said in result.err
            assert result.err.startswith("photon: ")
            assert result.err.count("\n") == 1


def test_the_control_is_found_in_the_deployment_file(tmp_path: Path) -> None:
    with proxy(tmp_path) as site:
        config = tmp_path / "photon.toml"
        config.write_text(f'[wan]\ncontrol = "{site.control}"\n')
        assert photon("wan", "set", "--cut", "east", "west", "--config", config).code == 0
        assert {each["fault"] for each in site.directions().values()} == {"drop"}
        refused = photon("wan", "set", "--cut", "east", "mars", "--config", config)
        assert (refused.code, "'mars'" in refused.err) == (1, True)
