"""Every kind of service that listens, started over TLS inside a test by the function that its process uses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import NoReturn

import grpc

from photon.config.clock import SystemClock
from photon.config.disk import RealDisk
from photon.config.serving import HealthyServer, listen, listen_shared
from photon.config.tls import Tls
from photon.eventstore import service as eventstore
from photon.eventstore.cache_nodes import service as cache
from photon.eventstore.cache_nodes.service import CacheNode
from photon.eventstore.cache_nodes.wire import CACHE
from photon.eventstore.columns import EVENT_STORE
from photon.fleet.explain.evidence import Evidence
from photon.fleet.explain.explain_pb2 import EventRequest
from photon.fleet.explain.question import Question
from photon.fleet.explain.service import EXPLAIN, ExplainService
from photon.fleet.processes import KINDS
from photon.idregistry.client.channels import REGISTRY
from photon.idregistry.replica.process import serve_registry
from photon.idregistry.replica.server import ReplicaSettings
from photon.joiner import service as joiner
from photon.joiner.copies import service as copies
from photon.joiner.copies.wire import COPIES
from photon.joiner.wire import JOINER
from photon.lab.wan import service as wan
from photon.lab.wan.proxy import Proxy
from photon.lab.wan.wire import CONTROL
from photon.supervision.kubernetes import PARTS
from photon.supervision.ports import free_ports
from photon.tables.timestamps.server import guest

READY_S = 60.0
ANY_PORT = "127.0.0.1:0"
DATACENTRE = "photon.v1.Datacentre"


def _explain(server: grpc.aio.Server) -> None:
    """Explained by a process that knows of no event."""

    async def nothing(question: Question, scope: EventRequest, seconds: float) -> Evidence:
        return Evidence()

    EXPLAIN.add(server, ExplainService(nothing))


@asynccontextmanager
async def _until_left(server: HealthyServer) -> AsyncIterator[str]:
    await server.serving()
    try:
        yield f"127.0.0.1:{server.port}"
    finally:
        await server.stop(0)


@asynccontextmanager
async def _eventstore(directory: Path, tls: Tls) -> AsyncIterator[str]:
    async with _until_left(await eventstore.start_server({}, ANY_PORT, tls)) as address:
        yield address


@asynccontextmanager
async def _cache(directory: Path, tls: Tls) -> AsyncIterator[str]:
    server, service = await cache.start_server(CacheNode(1 << 20), ANY_PORT, tls)
    try:
        async with _until_left(server) as address:
            yield address
    finally:
        service.close()


@asynccontextmanager
async def _joiner(directory: Path, tls: Tls) -> AsyncIterator[str]:
    async with _until_left(await joiner.start_server({}, ANY_PORT, tls, also=_explain)) as address:
        yield address


@asynccontextmanager
async def _dispatcher(directory: Path, tls: Tls) -> AsyncIterator[str]:
    async with _until_left(await listen(ANY_PORT, "photon.v1.Dispatcher", _explain, tls=tls)) as address:
        yield address


@asynccontextmanager
async def _verifier(directory: Path, tls: Tls) -> AsyncIterator[str]:
    async with _until_left(await listen(ANY_PORT, KINDS["verifier"].health, tls=tls)) as address:
        yield address


@asynccontextmanager
async def _wan(directory: Path, tls: Tls) -> AsyncIterator[str]:
    async with _until_left(await wan.start_server(Proxy([], delay_s=0.0), ANY_PORT, tls)) as address:
        yield address


@asynccontextmanager
async def registry(directory: Path, tls: Tls) -> AsyncIterator[str]:
    """A replica that is the whole registry, with two shards."""
    address = f"127.0.0.1:{free_ports(1)[0]}"
    stop, ready = asyncio.Event(), asyncio.Event()
    settings = ReplicaSettings(name="r1", peers={"r1": address}, directory=directory, shards=2, tls=tls)
    guests = [guest(SystemClock())]
    task = asyncio.create_task(serve_registry(settings, stop=stop, ready=ready.set, guests=guests))
    waits = asyncio.create_task(ready.wait())
    try:
        await asyncio.wait({task, waits}, timeout=READY_S, return_when=asyncio.FIRST_COMPLETED)
        assert ready.is_set(), task
        yield address
    finally:
        waits.cancel()
        stop.set()
        await task


@asynccontextmanager
async def _copies(directory: Path, tls: Tls) -> AsyncIterator[str]:
    address, stop = f"127.0.0.1:{free_ports(1)[0]}", asyncio.Event()
    task = asyncio.create_task(copies.serve(RealDisk(), directory, ["east"], address, stop, lambda: None, _die, tls))
    try:
        await _accepts(address, task)
        yield address
    finally:
        stop.set()
        await task


def _healthy(kind: str, also: Callable[[grpc.aio.Server], None] = lambda server: None) -> Start:
    """A service with only health and metrics, and what ``also`` adds."""

    @asynccontextmanager
    async def start(directory: Path, tls: Tls) -> AsyncIterator[str]:
        server = await listen("127.0.0.1:0", KINDS[kind].health, also, tls=tls)
        await server.serving()
        try:
            yield f"127.0.0.1:{server.port}"
        finally:
            await server.stop(0.0)

    return start


def _die(why: str) -> NoReturn:
    raise AssertionError(why)


async def _accepts(address: str, task: asyncio.Task[None]) -> None:
    host, _, port = address.partition(":")
    deadline = asyncio.get_running_loop().time() + READY_S
    while True:
        try:
            _, writer = await asyncio.open_connection(host, int(port))
        except OSError:
            assert not task.done(), task
            assert asyncio.get_running_loop().time() < deadline
            await asyncio.sleep(0.01)
        else:
            writer.close()
            return


Start = Callable[[Path, Tls], AbstractAsyncContextManager[str]]


@asynccontextmanager
async def _shared(directory: Path, tls: Tls) -> AsyncIterator[str]:
    """An event store and a joiner at one address."""
    server = await listen_shared(ANY_PORT, ANY_PORT, DATACENTRE, (EVENT_STORE, JOINER), tls)
    await eventstore.start_server({}, server, tls)
    await joiner.start_server({}, server, tls, also=_explain)
    async with _until_left(server.own) as address:
        yield address


# Kind -> name in its health report, and its start: (an empty directory, certificate) -> address.
SERVICES: Mapping[str, tuple[str, Start]] = {
    "registry": (REGISTRY.name, registry),
    "eventstore": (EVENT_STORE.name, _eventstore),
    "cache": (CACHE.name, _cache),
    "joiner": (JOINER.name, _joiner),
    "dispatcher": ("photon.v1.Dispatcher", _dispatcher),
    "verifier": (KINDS["verifier"].health, _verifier),
    "copies": (COPIES.name, _copies),
    "datacentre": (DATACENTRE, _shared),
    **{kind: (KINDS[kind].health, _healthy(kind)) for kind in ("relay", "observe", "compute", "sink")},
    "spark": (KINDS["spark"].health, _healthy("spark", _explain)),
    "wan": (CONTROL.name, _wan),
}


def identity(kind: str) -> str:
    """Identity of a kind of service in these tests."""
    if kind in PARTS:
        return "datacentre-east"
    return {"registry": "registry-r1", "wan": "wan"}.get(kind, f"{kind}-east")
