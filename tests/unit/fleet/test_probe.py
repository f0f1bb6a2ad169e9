"""The small health probe against the health service that every process listens with."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from photon.config.certificate_files import begin, issue_into, load
from photon.config.errors import UsageError
from photon.config.serving import HealthyServer, listen
from photon.config.tls import SUFFIX
from photon.fleet import probe as module
from photon.fleet.probe import Unhealthy, probe

TIMEOUT_S = 10.0


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certs")
    begin(directory / "ca", "test", datetime.now(UTC), days=2)
    for identity in ("datacentre-east", "datacentre-west"):
        issue_into(directory / "ca", directory / identity, identity, datetime.now(UTC), days=2)
    return directory


@pytest.fixture
async def plain() -> AsyncIterator[HealthyServer]:
    server = await listen("127.0.0.1:0", "photon.v1.Test")
    yield server
    await server.stop(0)


async def ask(server: HealthyServer, certificates: Path | None = None, *, alive: bool = False) -> None:
    await asyncio.to_thread(probe, f"127.0.0.1:{server.port}", certificates, None, TIMEOUT_S, alive=alive)


def test_it_knows_the_suffix_of_identities() -> None:
    assert module.SUFFIX == SUFFIX


async def test_it_follows_what_the_process_says(plain: HealthyServer) -> None:
    with pytest.raises(Unhealthy, match="does not serve"):
        await ask(plain)
    await ask(plain, alive=True)
    await plain.serving()
    await ask(plain)
    await plain.health.enter_graceful_shutdown()
    with pytest.raises(Unhealthy, match="does not serve"):
        await ask(plain)


async def test_mutual_tls(certificates: Path) -> None:
    own = certificates / "datacentre-east"
    server = await listen("127.0.0.1:0", "photon.v1.Test", tls=load(own, "datacentre-east", datetime.now(UTC)))
    try:
        await server.serving()
        await ask(server, own)
        with pytest.raises(Unhealthy):  # plain text
            await ask(server)
        with pytest.raises(Unhealthy, match="certificate verify failed"):  # it demands its own identity of the other
            await ask(server, certificates / "datacentre-west")
    finally:
        await server.stop(0)


async def test_a_server_that_is_none_of_ours() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        for alive in (False, True):
            with pytest.raises(Unhealthy):
                await asyncio.to_thread(probe, f"127.0.0.1:{port}", None, None, TIMEOUT_S, alive=alive)


def test_usage(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="host:port"):
        probe("nothing", None, None, TIMEOUT_S)
    with pytest.raises(UsageError, match="has 0 certificates"):
        probe("127.0.0.1:1", tmp_path, None, TIMEOUT_S)


async def test_the_command_imports_no_grpc_and_exits_as_it_finds(plain: HealthyServer) -> None:
    await plain.serving()
    code = (
        "import sys; from photon.cli.main import main\n"
        "try: main(['health', sys.argv[1]])\n"
        "finally: assert 'grpc' not in sys.modules and 'numpy' not in sys.modules"
    )
    command = [sys.executable, "-c", code, f"127.0.0.1:{plain.port}"]
    environment = {**os.environ, "PHOTON_HEALTH_TLS": ""}
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, env=environment, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    await plain.health.enter_graceful_shutdown()
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 1
    assert "does not serve" in done.stderr
