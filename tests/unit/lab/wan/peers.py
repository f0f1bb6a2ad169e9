"""Target servers for routes, and helpers around a proxy."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import uvloop

from photon.lab.wan.proxy import Proxy
from photon.supervision.routes import Route

WAIT_S = 20.0  # time for expected events; the machine may be busy
SILENCE_S = 0.2  # time in which unexpected events must not happen

T = TypeVar("T")
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def on_uvloop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test in the event loop that ``photon wan serve`` runs in."""

    @functools.wraps(test)
    def run(**arguments: Any) -> None:
        uvloop.run(test(**arguments))

    return run


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Returns its input."""
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()


class Server:
    """A target whose connections a test can look at."""

    def __init__(self, handler: Handler | None = None) -> None:
        self._handler = handler
        self.port = 0
        self._server: asyncio.Server | None = None
        self.accepted: asyncio.Queue[Connection] = asyncio.Queue()
        self._writers: list[asyncio.StreamWriter] = []

    async def start(self, port: int = 0) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self.port

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        self.accepted.put_nowait((reader, writer))
        if self._handler is not None:
            await self._handler(reader, writer)

    async def connection(self) -> Connection:
        """The next one accepted."""
        return await within(self.accepted.get())

    async def stop(self) -> None:
        """Like a killed process: listener and connections are gone."""
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()


async def within(what: Awaitable[T]) -> T:
    """Waits for an expected event."""
    return await asyncio.wait_for(what, WAIT_S)


async def silent(reader: asyncio.StreamReader) -> bool:
    """True if nothing comes: no byte, no end."""
    try:
        await asyncio.wait_for(reader.read(1), SILENCE_S)
    except TimeoutError:
        return True
    return False


async def until(condition: Callable[[], bool]) -> None:
    """Polls until the condition is true."""
    deadline = asyncio.get_running_loop().time() + WAIT_S
    while not condition():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def proxied(server: Server, *, delay_s: float = 0.0, connections_max: int = 4096) -> AsyncIterator[Proxy]:
    """Route 0 leads from east, route 1 from west, both to the server."""
    target = f"127.0.0.1:{await server.start()}"
    routes = [Route("127.0.0.1:0", "east", "west", target), Route("127.0.0.1:0", "west", "east", target)]
    proxy = Proxy(routes, delay_s=delay_s, connections_max=connections_max)
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.stop()
        await server.stop()


@contextlib.asynccontextmanager
async def connected(proxy: Proxy, route: int = 0) -> AsyncIterator[Connection]:
    """A client's connection to a route."""
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port(route))
    try:
        yield reader, writer
    finally:
        writer.transport.abort()
