"""Each primary log's progress: bytes and time, over gRPC; an idle log holds nothing up."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from photon.config.clock import SystemClock
from photon.config.disk import RealDisk
from photon.eventstore.api import Details, LookUpCode
from photon.eventstore.client import EventStoreClient
from photon.eventstore.engine import EventStoreConfig, EventStoreEngine
from photon.eventstore.service import start_server

from .helpers import LineAdapter, until


async def test_each_source_says_how_far_it_was_read(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    (logs / "deep").mkdir(parents=True)
    (logs / "idle.log").write_bytes(b"k0,1\n")
    (logs / "deep" / "busy.log").write_bytes(b"k1,1\n")
    config = EventStoreConfig("clicks", logs, tmp_path / "map")
    store = EventStoreEngine(config, LineAdapter({}), SystemClock(), RealDisk())
    server = await start_server({"clicks": store}, "127.0.0.1:0")
    operator = EventStoreClient(f"127.0.0.1:{server.port}", "clicks")
    store.start()

    async def details(offset: int, since_ns: int) -> Details:
        deadline = time.monotonic() + 60
        while True:
            said = await operator.details()
            busy = [each for each in said.sources if each.path == "deep/busy.log"]
            if busy and busy[0].offset == offset and said.progress.read_past_ns >= since_ns:
                return said
            assert time.monotonic() < deadline, said
            await asyncio.sleep(0.01)

    first = await details(5, 0)
    assert [each.path for each in first.sources] == ["deep/busy.log", "idle.log"]
    with (logs / "deep" / "busy.log").open("ab") as file:
        file.write(b"k2,1\nk3,half a line")
    written_ns = time.time_ns()
    said = await details(10, written_ns)
    busy, idle = said.sources
    # A last line without its end is no lag, and neither is a log that nobody writes to.
    assert (busy.offset, busy.bytes_read, busy.bytes_known) == (10, 24, 24)
    assert (idle.offset, idle.bytes_read, idle.bytes_known) == (5, 5, 5)
    assert idle.read_past_ns >= first.sources[1].read_past_ns
    assert (await operator.look_up([b"k2", b"no"], [written_ns] * 2)).answers == [LookUpCode.FOUND, LookUpCode.ABSENT]
    (logs / "idle.log").unlink()

    async def idle_is_gone() -> bool:
        return not (await operator.details()).sources[1].bytes_known

    await until(idle_is_gone)
    await operator.close()
    await server.stop(0)
    await store.close()
