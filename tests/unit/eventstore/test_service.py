"""Engine, service and client together on one machine."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import Adapter, BadRecord, Matching
from photon.config.clock import NEVER_NS, SystemClock
from photon.config.disk import RealDisk
from photon.config.serving import CannotListen, HealthyServer
from photon.eventstore import awaited_keys, columns
from photon.eventstore.api import EventLookUps, LookUpCode
from photon.eventstore.client import EventStoreClient
from photon.eventstore.engine import LOOK_UP_THREADS, EventStoreConfig, EventStoreEngine
from photon.eventstore.file_map import FileMapUnavailable
from photon.eventstore.service import start_server

from .helpers import LineAdapter, until


def engine(base: Path, *, once: bool = True, adapter: Adapter | None = None) -> EventStoreEngine:
    config = EventStoreConfig("clicks", base / "logs", base / "map", once=once, cache_bytes=1 << 20)
    (base / "logs").mkdir(exist_ok=True)
    return EventStoreEngine(config, adapter or LineAdapter({}), SystemClock(), RealDisk())


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


@asynccontextmanager
async def serving(store: EventStoreEngine, **options: Any) -> AsyncIterator[tuple[EventStoreClient, HealthyServer]]:
    """A client of it, over gRPC."""
    server = await start_server({"clicks": store}, "127.0.0.1:0")
    client = EventStoreClient(f"127.0.0.1:{server.port}", "clicks", **options)
    try:
        yield client, server
    finally:
        await client.close()
        await server.stop(0)
        await store.close()


async def test_an_answer_that_was_seen_late_is_no_wrong_clock(tmp_path: Path) -> None:
    """The caller was starved meanwhile: a time extrapolated from then is never behind the store's clock."""
    moments = iter([0.0, 10.0, 30.0, 31.0])  # made; asked, and seen just before it asks again, in vain
    async with serving(engine(tmp_path), monotonic=lambda: next(moments)) as (client, server):
        first = await client.progress()
        await server.stop(0)
        assert (await client.progress()).now_ns - first.now_ns == 21_000_000_000


async def test_round_trip_and_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "KEYS_MAX", 400)
    monkeypatch.setattr(columns.reply, "__defaults__", (3000,))
    store = engine(tmp_path)
    (tmp_path / "logs" / "a.log").write_bytes(b"".join(b"k%d,%s\n" % (i, b"x" * 50) for i in range(1000)) + b"bad\n")
    server = await start_server({"clicks": store}, "127.0.0.1:0")
    client = EventStoreClient(f"127.0.0.1:{server.port}", "clicks")
    assert (await client.look_up([b"k1"], [0])).answers == [LookUpCode.NOT_YET]
    store.start()
    await asyncio.to_thread(store.ended.wait)
    assert store.failure == ""
    keys = [b"k%d" % i for i in range(1000)] + [b"no"]
    found = await client.look_up(keys, [NEVER_NS] * 1001)
    assert found.answers == [LookUpCode.FOUND] * 1000 + [LookUpCode.ABSENT]
    assert found.records == (await store.look_up(keys, [NEVER_NS] * 1001)).records
    record = found.records[7]
    assert (record.record[:3], record.file.path) == (b"k7,", "a.log")
    progress = await client.progress()
    assert (progress.read_past_ns, progress.events, progress.bad_records, progress.files) == (NEVER_NS, 1000, 1, 1)
    assert progress.bytes_read == progress.bytes_known > 50_000
    await server.serving()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        check = health_pb2_grpc.HealthStub(channel).Check
        reply = await check(health_pb2.HealthCheckRequest(service="photon.v1.EventStore"))
        assert reply.status == health_pb2.HealthCheckResponse.SERVING
    assert len(await client.look_up([], [])) == 0
    await server.stop(0)
    assert (await client.look_up(keys[:3], [0] * 3)).answers == [LookUpCode.UNAVAILABLE] * 3
    assert "UNAVAILABLE" in client.error
    last = await client.progress()
    assert last.read_past_age_ns > progress.read_past_age_ns
    assert last.now_ns > progress.now_ns > 0
    assert replace(last, read_past_age_ns=progress.read_past_age_ns, now_ns=progress.now_ns) == progress
    await client.close()
    await store.close()
    assert (await store.look_up([b"k1"], [0])).answers == [LookUpCode.UNAVAILABLE]


async def test_an_unknown_join_is_unavailable_and_says_so(tmp_path: Path) -> None:
    server = await start_server({}, "127.0.0.1:0")
    client = EventStoreClient(f"127.0.0.1:{server.port}", "nojoin")
    assert (await client.look_up([b"k"], [0])).answers == [LookUpCode.UNAVAILABLE]
    assert "nojoin" in client.error
    with pytest.raises(CannotListen, match="port in use"):
        await start_server({}, f"127.0.0.1:{server.port}")
    await client.close()
    await server.stop(0)


async def test_growing_and_rotated_logs_are_followed(tmp_path: Path) -> None:
    store = engine(tmp_path, once=False)
    log = tmp_path / "logs" / "a.log"
    log.write_bytes(b"k1,1\n")
    store.start()

    async def answer(key: bytes, as_of: int, wanted: LookUpCode) -> bool:
        return (await store.look_up([key], [as_of])).answers == [wanted]

    await until(lambda: answer(b"k1", 0, LookUpCode.FOUND))
    append(log, b"k2,half")
    now = time.time_ns()
    await until(lambda: answer(b"k2", now, LookUpCode.ABSENT))
    append(log, b" a line\n")
    await until(lambda: answer(b"k2", NEVER_NS, LookUpCode.FOUND))
    log.rename(tmp_path / "logs" / "a.log.1")
    log.write_bytes(b"k3,1\n")
    await until(lambda: answer(b"k3", NEVER_NS, LookUpCode.FOUND))
    await store.close()

    store = engine(tmp_path, once=False)  # the map knows them before anything is read
    assert (await store.progress()).events == 3
    store.start()
    await until(lambda: answer(b"k2", NEVER_NS, LookUpCode.FOUND))
    record = (await store.look_up([b"k2"], [0])).records[0]
    assert (record.file.path, record.offset, record.record) == ("a.log.1", 5, b"k2,half a line")
    assert (await store.progress()).duplicates == 0
    await store.close()


async def test_a_map_of_another_rule_is_rebuilt_and_reported(tmp_path: Path) -> None:
    store = engine(tmp_path)
    await store.close()
    other = EventStoreConfig("clicks", tmp_path / "logs", tmp_path / "map", max_record=77)
    told: list[str] = []
    store = EventStoreEngine(other, LineAdapter({}), SystemClock(), RealDisk(), told.append)
    assert "is rebuilt" in told[0]
    await store.close()


async def test_versions_as_of_a_time_over_the_wire(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "KEYS_MAX", 3)
    adapter = ConfiguredAdapter(
        {side: {"format": "csv", "columns": ["k", "at"], "key": "k", "time": {"field": "at", "unit": "ns"}}
         for side in ("primary", "foreign")}
    )  # fmt: skip
    adapter.matching = Matching("latest")
    store = engine(tmp_path, adapter=adapter)
    (tmp_path / "logs" / "a.log").write_bytes(b"".join(b"EUR,%d\n" % (10 * n) for n in range(2000)))
    store.start()
    await asyncio.to_thread(store.ended.wait)
    assert store.failure == ""
    async with serving(store) as (client, _):
        asked = [(b"EUR", 10 * n + 9) for n in range(0, 2000, 100)]
        found = await client.look_up([key for key, _ in asked], [NEVER_NS] * 20, [time for _, time in asked])
        assert list(found.found.records) == [b"EUR,%d" % (time - 9) for _, time in asked]
        other = await client.look_up([b"EUR"], [NEVER_NS])
        assert other.answers == [LookUpCode.UNAVAILABLE], "a joiner with other settings does not ask for a time"


class BrokenAdapter(LineAdapter):
    """Reads no primary record."""

    def primary_key(self, record: bytes, file: object) -> bytes:
        raise BadRecord("no key")


async def test_a_failed_reader_makes_everything_unavailable(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.log").write_bytes(b"k,1\n")
    config = EventStoreConfig("clicks", tmp_path / "logs", tmp_path / "map", once=True, may_be_empty=False)
    store = EventStoreEngine(config, BrokenAdapter({}), SystemClock(), RealDisk())
    store.start()
    await asyncio.to_thread(store.ended.wait)
    assert "no primary record is readable" in store.failure
    assert (await store.look_up([b"no"], [NEVER_NS])).answers == [LookUpCode.UNAVAILABLE]
    await store.close()


async def test_how_far_it_is_it_says_while_all_look_ups_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Look-ups wait like this while an HBase is away."""
    store, back = engine(tmp_path, once=False), threading.Event()

    def wait(*_: object) -> None:
        assert back.wait(60.0)
        raise FileMapUnavailable("away")

    monkeypatch.setattr(store._tiers, "begin", wait)
    waiting = [asyncio.create_task(store.look_up([b"k"], [0])) for _ in range(2 * LOOK_UP_THREADS)]
    await asyncio.sleep(0)  # they are in the queue now
    try:
        async with asyncio.timeout(30.0):
            assert (await store.progress()).events == 0
        assert not any(each.done() for each in waiting)
    finally:
        back.set()
    assert {tuple((await each).answers) for each in waiting} == {(LookUpCode.UNAVAILABLE,)}
    await store.close()


async def test_what_was_asked_for_in_vain_is_told_over_the_wire_when_it_comes(tmp_path: Path) -> None:
    store = engine(tmp_path, once=False)
    append(tmp_path / "logs" / "a.log", b"here,1\n")
    server = await start_server({"clicks": store}, "127.0.0.1:0")
    client = EventStoreClient(f"127.0.0.1:{server.port}", "clicks")
    store.start()
    first = await client.arrived(0, 0, 10.0)
    assert first.lost
    assert first.epoch

    async def read() -> bool:
        return (await client.progress()).events == 1

    await until(read)
    keys = [b"late%d" % n for n in range(columns.KEYS_MAX)]
    assert await client.seek([*keys, b"here"]) == [columns.KEYS_MAX]
    assert (await client.look_up([b"asked", b"here"], [-(2**63)] * 2)).answers == [
        LookUpCode.ABSENT,
        LookUpCode.FOUND,
    ]
    waiting = asyncio.create_task(client.arrived(first.epoch, first.next, 20.0))
    append(tmp_path / "logs" / "a.log", b"asked,1\nother,2\nlate7,3\n")
    came = await waiting
    assert (sorted(came.keys), came.lost, came.next) == ([b"asked", b"late7"], False, 2)
    progress = await client.progress()
    assert (progress.sought_keys, progress.sought_came) == (columns.KEYS_MAX - 1, 2)
    waiting = asyncio.create_task(client.arrived(came.epoch, came.next, 20.0))
    await asyncio.sleep(0.05)
    store.hang_up()
    async with asyncio.timeout(60):
        assert await waiting == (came.epoch, 2, [], False)
    await server.stop(0)
    assert await client.arrived(came.epoch, came.next, 0.1) is None
    assert await client.seek([b"here"]) is None
    await client.close()
    await store.close()


async def test_all_that_is_read_during_a_long_look_up_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(awaited_keys, "RECENT_HASHES", 1)
    store, asked, go_on = engine(tmp_path, once=False), threading.Event(), threading.Event()
    end = store._tiers.end

    def wait(*arguments: object) -> EventLookUps:
        asked.set()
        assert go_on.wait(60.0)
        return end(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(store._tiers, "end", wait)
    look_up = asyncio.create_task(store.look_up([b"late", b"hopeless"], [NEVER_NS] * 2))
    assert await asyncio.to_thread(asked.wait, 60.0)
    store.start()
    for number, line in enumerate((b"late,1\n", b"x,1\n", b"y,1\n"), 1):
        append(tmp_path / "logs" / "a.log", line)

        async def read(number: int = number) -> bool:
            return (await store.progress()).events == number

        await until(read)
    go_on.set()
    assert (await look_up).answers == [LookUpCode.NOT_YET] * 2
    first = await store.arrived(0, 0, 0.0)
    assert await store.arrived(first.epoch, 0, 0.0) == (first.epoch, 1, [b"late"], False)
    await store.close()


async def test_with_once_nothing_is_told(tmp_path: Path) -> None:
    async with serving(engine(tmp_path)) as (client, _):
        assert await client.arrived(0, 0, 10.0) is None
        assert await client.seek([b"k"]) is None
