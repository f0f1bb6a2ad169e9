"""An event store on HBase: servers are killed, rows get lost; they are read again, and nothing was ever absent."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from deploy.hbase.standalone import Standalone
from photon.config.clock import SystemClock
from photon.config.disk import RealDisk
from photon.eventstore.api import LookUpCode
from photon.eventstore.engine import EventStoreConfig, EventStoreEngine
from photon.eventstore.file_map import HBaseTable, MapKind
from photon.eventstore.hbase import connection
from tests.hbase.maps import DEADLINE_S, TABLE, lossy_connector
from tests.unit.eventstore.helpers import LineAdapter

said: list[str] = []
OLD = 1  # as_of: long past, so that a miss may be ABSENT at once


@pytest.fixture
async def store(
    hbase: Standalone, table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[EventStoreEngine]:
    monkeypatch.setattr(connection, "connector", lossy_connector)
    logs = tmp_path / "logs"
    logs.mkdir()
    said.clear()
    config = EventStoreConfig(
        "j",
        logs,
        tmp_path / "state",
        kind=MapKind.SPARSE,
        hbase=HBaseTable(f"127.0.0.1:{hbase.ports.thrift}", TABLE),
        cache_bytes=1,  # every answer comes from the map and the logs
    )
    engine = EventStoreEngine(config, LineAdapter({}), SystemClock(), RealDisk(), said.append)
    yield engine
    await engine.close()


def event(second: int) -> bytes:
    return b"10.0.0.%d:7:%d" % (second % 5 + 1, second * 1_000_000)


def append(logs: Path, seconds: range) -> None:
    with open(logs / "a.log", "ab") as file:
        file.writelines(event(second) + b",%d\n" % second for second in seconds)


async def until(ask: Callable[[], Awaitable[bool]], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not await ask():
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.05)


async def answers(engine: EventStoreEngine, seconds: range) -> set[LookUpCode]:
    keys = [event(second) for second in seconds]
    found = await engine.look_up(keys, [OLD] * len(keys))
    for key, answer, record in zip(keys, found.answers, found.records, strict=True):
        assert (answer is LookUpCode.FOUND) == (record is not None)
        assert record is None or record.record.startswith(key + b",")
    return set(found.answers)


async def test_what_hbase_lost_is_read_again_and_is_never_absent(
    hbase: Standalone, store: EventStoreEngine, tmp_path: Path
) -> None:
    append(tmp_path / "logs", range(500))
    store.start()

    async def all_found() -> bool:
        return await answers(store, range(500)) == {LookUpCode.FOUND}

    await until(all_found, "first reading")
    assert await answers(store, range(900, 910)) == {LookUpCode.ABSENT}

    async def committed() -> bool:
        return not store._map._changed  # type: ignore[attr-defined]

    await until(committed, "the reader's commit")
    hbase.kill("master")
    seen: set[LookUpCode] = set()
    asking = True

    async def ask() -> None:
        while asking:
            seen.update(await answers(store, range(500)))
            await asyncio.sleep(0.02)

    asker = asyncio.create_task(ask())
    await asyncio.to_thread(hbase.start, ("master",))
    await until(all_found, "reading again")
    asking = False
    await asker
    assert LookUpCode.ABSENT not in seen
    assert any("HBase lost entries" in line for line in said), said

    append(tmp_path / "logs", range(500, 600))
    hbase.kill("thrift")
    assert await answers(store, range(5)) <= {LookUpCode.UNAVAILABLE, LookUpCode.FOUND}
    await asyncio.to_thread(hbase.start, ("thrift",))

    async def more_found() -> bool:
        return await answers(store, range(600)) == {LookUpCode.FOUND}

    await until(more_found, "reading on")
    assert await answers(store, range(900, 910)) == {LookUpCode.ABSENT}
    assert not store.failure
