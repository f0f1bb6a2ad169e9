"""What the proxy between regions adds and carries: python -m bench.components.wan. Prints one JSON object.

Round trip at 50 ms one way, throughput through no delay and through 50 ms, and the proxy's share of a core at 1,000
messages a second (a message and its answer count as two). Client and echo server share this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import uvloop

from photon.lab.wan.client import WanClient
from photon.supervision.ports import free_ports
from photon.supervision.routes import Route, write_routes
from photon.supervision.supervisor import Service, Supervisor

STREAM = 512 << 20  # bytes
MESSAGE = bytes(200)
ASKS_PER_S = 500
SECONDS = 10.0


class Sink(asyncio.Protocol):
    """Echoes messages; only counts what comes after a line that says so."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._counting = False
        self._left = STREAM

    def data_received(self, data: bytes) -> None:
        if not self._counting and data.startswith(b"count\n"):
            self._counting = True
            data = data[6:]
        if not self._counting:
            self._transport.write(data)  # type: ignore[attr-defined]
            return
        self._left -= len(data)
        if self._left <= 0:
            self._transport.write(b"all")  # type: ignore[attr-defined]


async def round_trips(port: int, seconds: float) -> list[float]:
    """Messages at a steady rate; the time until each one's answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    took: list[float] = []
    sent: asyncio.Queue[float] = asyncio.Queue()
    total = int(seconds * ASKS_PER_S)

    async def hear() -> None:
        for _ in range(total):
            await reader.readexactly(len(MESSAGE))
            took.append(time.monotonic() - sent.get_nowait())

    sent.put_nowait(0.0)
    writer.write(MESSAGE)
    await reader.readexactly(len(MESSAGE))  # the connection is open all the way
    sent.get_nowait()
    hearing = asyncio.create_task(hear())
    start = time.monotonic()
    for number in range(total):
        await asyncio.sleep(max(0.0, start + number / ASKS_PER_S - time.monotonic()))
        sent.put_nowait(time.monotonic())
        writer.write(MESSAGE)
    await hearing
    writer.transport.abort()
    return took


async def throughput(port: int) -> float:
    """MiB a second of one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"open")
    await reader.readexactly(4)
    writer.write(b"count\n")
    chunk = bytes(1 << 20)
    since = time.monotonic()
    for _ in range(STREAM >> 20):
        writer.write(chunk)
        await writer.drain()
    await reader.readexactly(3)
    took = time.monotonic() - since
    writer.transport.abort()
    return (STREAM >> 20) / took


@contextlib.asynccontextmanager
async def proxied(directory: Path) -> AsyncIterator[tuple[int, int, WanClient, psutil.Process]]:
    """Ports without and through the proxy, its control, its process."""
    control, listen, target = free_ports(3)
    routes, address = directory / "routes.json", f"127.0.0.1:{control}"
    write_routes(routes, [Route(f"127.0.0.1:{listen}", "east", "west", f"127.0.0.1:{target}")])
    command = ("wan", "serve", "--routes", str(routes), "--control", address, "--stop-with-parent")
    supervisor = Supervisor()
    server = await asyncio.get_running_loop().create_server(Sink, "127.0.0.1", target)
    client = WanClient(address)
    try:
        await supervisor.start([Service("wan", command, directory / "wan.log", address, "photon.v1.Wan")])
        await supervisor.ready(30.0)
        pid = supervisor.pid("wan")
        assert pid is not None
        yield target, listen, client, psutil.Process(pid)
    finally:
        await client.close()
        await supervisor.stop()
        server.close()


def _ms(seconds: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(seconds, n=100)
    return {"p50_ms": round(cuts[49] * 1000, 2), "p99_ms": round(cuts[98] * 1000, 2)}


async def main() -> None:
    """Measures and prints."""
    with tempfile.TemporaryDirectory() as directory:
        async with proxied(Path(directory)) as (direct, through, client, process):
            result: dict[str, object] = {
                "direct": _ms(await round_trips(direct, 2.0)),
                "delay_0": _ms(await round_trips(through, 2.0)),
                "direct_mib_s": round(await throughput(direct)),
                "delay_0_mib_s": round(await throughput(through)),
            }
            await client.delay("east", "west", 0.05)
            result["delay_50ms_mib_s"] = round(await throughput(through))
            await client.delay("east", "west", 0.1)
            result["delay_100ms_mib_s"] = round(await throughput(through))
            result["rss_mib_after_streams"] = process.memory_info().rss >> 20
            await client.delay("east", "west", 0.05)
            before, since = process.cpu_times(), time.monotonic()
            result["delay_50ms"] = _ms(await round_trips(through, SECONDS))
            after, took = process.cpu_times(), time.monotonic() - since
            used = after.user + after.system - before.user - before.system
            result["core_share_at_1000_messages_s"] = round(used / took, 3)
    print(json.dumps(result))


if __name__ == "__main__":
    uvloop.run(main())
