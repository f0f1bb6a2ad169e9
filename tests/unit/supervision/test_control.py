"""The control socket of ``photon up``: accepted and refused requests."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import stat
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from photon.config.errors import UsageError
from photon.supervision.control import (
    CONNECTIONS_MAX,
    REQUEST_BYTES,
    SOCKET_NAME,
    Changes,
    ControlFailed,
    ControlServer,
    NobodyListens,
    Request,
    ask,
)
from photon.supervision.states import ServiceState
from photon.supervision.supervisor import Supervisor


class FakeSupervisor(Supervisor):
    """Three processes that do not exist."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[tuple[str, str, bool]] = []

    def names(self, datacentre: str | None = None) -> list[str]:
        places = {"wan": "", "joiner e": "east", "joiner w": "west"}
        return [name for name, place in places.items() if datacentre is None or place == datacentre]

    def states(self) -> list[ServiceState]:
        return [ServiceState(name=name, datacentre="", pid=None, state="held") for name in self.names()]

    def kill(self, name: str, *, hold: bool = False) -> int | None:
        self.done.append(("kill", name, hold))
        return None

    def hold(self, name: str) -> int | None:
        self.done.append(("hold", name, False))
        return None

    def release(self, name: str) -> None:
        self.done.append(("release", name, False))

    def restart(self, name: str, environment: Mapping[str, str] | None = None) -> int | None:
        self.done.append(("restart", name, False))
        return None

    def pause(self, name: str) -> int | None:
        self.done.append(("pause", name, False))
        return None

    def resume(self, name: str) -> int | None:
        self.done.append(("resume", name, False))
        return None


class Site:
    def __init__(self, run: Path) -> None:
        self.run = run
        self.supervisor = FakeSupervisor()
        self.down = asyncio.Event()
        self.mistake, self.full = "", False
        self.server = ControlServer(run, self.supervisor, self.down.set, self.reload)

    async def reload(self, dry_run: bool) -> Changes:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.run / "routes.json"))
        if self.mistake:
            raise UsageError(self.mistake)
        return Changes(started=("joiner x",), changed=("wan", "only shown") if dry_run else ("wan",))

    async def ask(self, request: Request) -> list[str]:
        reply = await asyncio.to_thread(ask, self.run, request)
        assert reply.pid == os.getpid()
        return [state.name for state in reply.services]

    async def raw(self, data: bytes, *, end: bool = False) -> bytes:
        """The answer to bytes, up to the end of the connection or of the first line."""
        reader, writer = await self.connect()
        try:
            writer.write(data)
            if end:
                writer.write_eof()
            async with asyncio.timeout(60):
                return await reader.readline()
        finally:
            writer.close()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        descriptor = os.open(self.run, os.O_PATH)
        try:
            return await asyncio.open_unix_connection(f"/proc/self/fd/{descriptor}/{SOCKET_NAME}")
        finally:
            os.close(descriptor)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    run = tmp_path / ("long" * 40)
    run.mkdir()
    site = Site(run)
    await site.server.start()
    yield site
    await site.server.close()


async def test_it_is_its_owner_s_alone(site: Site) -> None:
    mode = (site.run / SOCKET_NAME).stat().st_mode
    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o600


async def test_a_changed_file_is_taken_up_or_changes_nothing(site: Site) -> None:
    reply = await asyncio.to_thread(ask, site.run, Request(do="reload"))
    assert reply.changes == Changes(started=("joiner x",), changed=("wan",))
    shown = await asyncio.to_thread(ask, site.run, Request(do="reload", dry_run=True))
    assert shown.changes == Changes(started=("joiner x",), changed=("wan", "only shown"))
    site.mistake = "f.toml: joinr: unknown key"
    with pytest.raises(ControlFailed, match=r"nothing has changed: f\.toml: joinr: unknown key"):
        await asyncio.to_thread(ask, site.run, Request(do="reload"))
    site.full = True
    with pytest.raises(ControlFailed, match=r"nothing has changed: .*/routes\.json: No space left on device"):
        await asyncio.to_thread(ask, site.run, Request(do="reload"))
    assert site.supervisor.done == []


async def test_each_action_reaches_the_processes_named_and_those_of_a_datacentre(site: Site) -> None:
    assert await site.ask(Request(do="ps")) == ["wan", "joiner e", "joiner w"]
    assert site.supervisor.done == []
    for action in ("hold", "release", "restart", "pause", "resume"):
        request = Request(do=action, names=("wan",), datacentre="east")  # type: ignore[arg-type]
        assert await site.ask(request) == ["wan", "joiner e"]
        assert site.supervisor.done == [(action, "wan", False), (action, "joiner e", False)]
        site.supervisor.done.clear()
    await site.ask(Request(do="kill", datacentre="west", hold=True))
    await site.ask(Request(do="kill", names=("wan",)))
    assert site.supervisor.done == [("kill", "joiner w", True), ("kill", "wan", False)]


async def test_down(site: Site) -> None:
    await site.ask(Request(do="down"))
    assert site.down.is_set()


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (Request(do="kill", names=("wna",)), "wna: no such process; there are: wan, joiner e, joiner w"),
        (Request(do="kill", datacentre="north"), "datacentre north: has no processes of its own"),
        (Request(do="kill"), "kill: give processes"),
        (Request(do="restart"), "restart: give processes"),
    ],
)
async def test_what_cannot_be_done_is_said_and_nothing_is_done(site: Site, request_: Request, said: str) -> None:
    with pytest.raises(ControlFailed, match=said):
        await site.ask(request_)
    assert site.supervisor.done == []


@pytest.mark.parametrize(
    "line",
    [
        b"\n",
        b"ps\n",
        b"[]\n",
        b'{"version":1,"do":"ps"\n',
        b'{"version":1,"do":"reboot"}\n',
        b'{"version":1,"do":"ps","names":"wan"}\n',
        b'{"version":1,"do":"kill","names":["wan"],"hold":"yes"}\n',
        b'{"version":1,"do":"ps","more":1}\n',
        b'{"version":1,"do":"\xff"}\n',
        b"[" * 5000 + b"\n",
    ],
)
async def test_what_is_no_request_is_refused(site: Site, line: bytes) -> None:
    assert b'"error":"not a request: ' in await site.raw(line)
    assert await site.ask(Request(do="ps")) == ["wan", "joiner e", "joiner w"]
    assert site.supervisor.done == []


async def test_a_request_without_end_is_refused(site: Site) -> None:
    assert b"the request is longer than" in await site.raw(b"x" * (2 * REQUEST_BYTES))


async def test_half_a_request_is_not_done(site: Site) -> None:
    assert await site.raw(b'{"version":1,"do":"down"}', end=True) == b""
    assert not site.down.is_set()


async def test_too_many_connections_are_refused_and_later_ones_are_not(site: Site) -> None:
    connections = [await site.connect() for _ in range(CONNECTIONS_MAX)]
    for reader, writer in connections:
        writer.write(b'{"version":1,"do":"ps"}\n')
        await reader.readline()
    assert b"connections; try again" in await site.raw(b'{"version":1,"do":"ps"}\n')
    for _, writer in connections:
        writer.close()
    async with asyncio.timeout(60):
        while b"try again" in await site.raw(b'{"version":1,"do":"ps"}\n'):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_several_requests_on_one_connection(site: Site) -> None:
    reader, writer = await site.connect()
    for _ in range(3):
        writer.write(b'{"version":1,"do":"ps"}\n')
        assert b'"error":""' in await reader.readline()
    writer.close()


async def test_nobody_listens_where_nothing_runs(site: Site, tmp_path: Path) -> None:
    with pytest.raises(NobodyListens, match="nothing runs in"):
        ask(tmp_path, Request(do="ps"))
    with pytest.raises(NobodyListens, match="nothing runs in"):
        ask(tmp_path / "none", Request(do="ps"))
    await site.server.close()
    assert not (site.run / SOCKET_NAME).exists()
    with pytest.raises(NobodyListens):
        ask(site.run, Request(do="ps"))


async def test_the_socket_of_a_killed_one_is_replaced(tmp_path: Path) -> None:
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(tmp_path / SOCKET_NAME))
    stale.close()
    with pytest.raises(NobodyListens):
        ask(tmp_path, Request(do="ps"))
    site = Site(tmp_path)
    await site.server.start()
    assert await site.ask(Request(do="ps")) == ["wan", "joiner e", "joiner w"]
    await site.server.close()


def test_one_that_does_not_answer_is_told_of(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / SOCKET_NAME))
        silent.listen()
        with pytest.raises(ControlFailed, match=r"did not answer within 0\.2 s"):
            ask(tmp_path, Request(do="ps"), timeout=0.2)
