"""``photon serve sink``: published output is passed on to the deployment's target, and obstacles are reported."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from photon.assembly.room import Room
from photon.computing.publisher import Publisher
from photon.computing.wire import Item
from photon.config.back_off import BackOff
from photon.config.disk import RealDisk
from photon.config.errors import UsageError
from photon.config.loader import ConfigError, convert
from photon.config.settings import Settings
from photon.fleet.look import Look
from photon.fleet.numbers import Numbers
from photon.fleet.polling import Gatherer, Heard
from photon.fleet.processes import Process, processes
from photon.library import Output
from photon.objects import directory as module
from photon.objects import retrying
from photon.outputs.mirrored import MirroredFile, manifest_bytes
from photon.outputs.output_places import EMBEDDED_STATE
from photon.sinks import objects, process
from photon.sinks.process import serve_sink
from photon.sinks.rolling import RollLimits
from photon.status.rows import alarms_of
from photon.supervision.ports import free_ports
from tests.integration.commands import soon
from tests.unit.objects.fakes import MemoryBucket, unavailable
from tests.unit.outputs.helpers import written_output

WAIT_S = 60.0
MANIFEST = "x/manifest.jsonl"


def settings_of(into: str, *, sea: dict[str, object] | None = None, **more: object) -> Settings:
    (port,) = free_ports(1)
    pipeline = {"join": "clicks", "primary": "q", "foreign": "c", "output": "out", "state": f"out/{EMBEDDED_STATE}",
                "address": "127.0.0.1:1"}  # fmt: skip
    sink = {"into": into, "address": f"127.0.0.1:{port}", **more}
    join = {"adapter": "a.py:A"}
    return convert(
        {"join": {"clicks": join}, "datacentre": {"east": pipeline},
         "sink": {"lake": sink} | ({} if sea is None else {"sea": sea})}, "photon.toml",
    )  # fmt: skip


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The store's refusal; empty: none."""
    refused: list[str] = []
    bucket = MemoryBucket(lambda request: unavailable() if refused else None)
    monkeypatch.setattr(module, "opener", lambda url: bucket)
    monkeypatch.setattr(module, "_buckets", {})
    monkeypatch.setattr(retrying, "ATTEMPTS", 2)
    monkeypatch.setattr(objects, "FOLLOW_S", 0.02)
    monkeypatch.setattr(process, "AGAIN", BackOff(first=0.02, most=30.0))
    return refused


async def hears(
    gatherer: Gatherer, sink: Process, serving: asyncio.Task[None], *, problem: bool, said: str = "",
    begun: Callable[[], bool] = lambda: True,
) -> Heard:  # fmt: skip
    """Its answer once it has begun and has a problem containing this text, or none."""
    async with asyncio.timeout(WAIT_S):
        while True:
            [heard] = await gatherer.gather([sink])
            told = heard.details["problem"] if heard.up and begun() else None
            if told is not None and said in told and problem is bool(told):
                return heard
            assert not serving.done(), serving
            await asyncio.sleep(0.05)


async def test_it_waits_for_a_store_that_is_away_and_says_so(tmp_path: Path, away: list[str]) -> None:
    away.append("all")
    publisher = Publisher(RealDisk(), tmp_path / "out", "s")
    publisher.publish([Item(number, "", "", number, b"\x01", "x") for number in range(3)])
    publisher.close()
    settings, stop, gatherer = settings_of("s3://lake/x"), asyncio.Event(), Gatherer(None)
    (sink,) = (each for each in processes(settings) if each.kind == "sink")
    assert (sink.datacentre, sink.identity, sink.arguments) == ("east", "sink-lake", ("lake",))
    serving = asyncio.create_task(serve_sink(Room(settings, tmp_path, stop, member="lake")))
    try:
        for waits in (True, False):
            heard = await hears(gatherer, sink, serving, problem=waits)
            told = [each["what"] for each in alarms_of(Look(0.0, [heard]))]
            assert [each.partition(":")[0] for each in told] == (["waits"] if waits else [])
            assert (Numbers([heard]).max("photon_sink_stalled_seconds") > 0) is waits
            away.clear()
    finally:
        stop.set()
        await serving
        await gatherer.close()
    assert list(Output.of_join("s3://lake/x").batches()) == list(Output.of_join(tmp_path / "out").batches())


async def test_what_is_wrong_at_the_start_ends_it_and_later_it_waits(tmp_path: Path, away: list[str]) -> None:
    """Another output's manifest comes to its prefix, and goes."""
    other = MirroredFile(file="joined/x-000000.jsonl.gz", bytes=1, uncompressed_bytes=1, first_ns=None, last_ns=None)
    slot = written_output(tmp_path)
    slot.append(0, b"{}\n")
    slot.finish(0)
    settings, stop, gatherer = settings_of("s3://lake/x"), asyncio.Event(), Gatherer(None)
    (sink,) = (each for each in processes(settings) if each.kind == "sink")
    room = Room(settings, tmp_path, stop, member="lake")
    bucket = module.opener("s3://lake")
    assert isinstance(bucket, MemoryBucket)
    bucket.data[MANIFEST] = manifest_bytes([other])
    with pytest.raises(UsageError, match="holds another output"):
        await serve_sink(room)
    del bucket.data[MANIFEST]
    serving = asyncio.create_task(serve_sink(room))
    try:
        for said in ("", "holds another output", ""):
            if said:
                bucket.data[MANIFEST] = manifest_bytes([other])
                slot.append(1, b"{}\n")
                slot.finish(1)
            await hears(gatherer, sink, serving, problem=bool(said), said=said, begun=lambda: MANIFEST in bucket.data)
            if said:
                del bucket.data[MANIFEST]
    finally:
        stop.set()
        await serving
        await gatherer.close()


async def test_a_full_disk_is_a_problem_until_a_file_of_parquet_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not only until the sink, tried again, waits for its next roll."""
    full = [True]

    class Disk(RealDisk):
        def rename(self, old: Path, new: Path) -> None:
            if full:
                raise OSError(errno.ENOSPC, "No space left on device")
            super().rename(old, new)

    monkeypatch.setattr(process, "RealDisk", Disk)
    monkeypatch.setattr(process, "RollLimits", partial(RollLimits, age_s=0.5))
    slot = written_output(tmp_path)
    slot.append(0, b'{"event_id":"a"}\n')
    slot.finish(0)
    standing = process.Standing("lake", "lake")
    settings, stop = settings_of("lake"), asyncio.Event()
    work = process._Work(settings, tmp_path, "lake", settings.sink["lake"], standing)

    async def again() -> None:
        while not stop.is_set():
            await work.run(stop)

    trying = asyncio.create_task(again())
    await soon(lambda: standing.problem, WAIT_S, "it meets the full disk")
    since_s = standing.since_s
    await asyncio.sleep(2.0)
    assert (bool(standing.problem), standing.since_s) == (True, since_s)
    full.clear()
    await soon(lambda: not standing.problem, WAIT_S, "it goes on")
    stop.set()
    await trying
    assert [path.suffix for path in (tmp_path / "lake" / "joined").iterdir()] == [".parquet"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"datacentre": "west"}, "sink.lake.datacentre: there is no west; there are: east"),
        ({"kinds": ["all"]}, "sink.lake.kinds: 'all' is not a kind; there are: joined"),
        ({"kinds": []}, "sink.lake.kinds: is empty"),
        ({"address": "nowhere"}, "sink.lake.address: address 'nowhere' must be host:port"),
    ],
)
def test_a_sink_that_cannot_be_is_one_line(more: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said.replace(".", r"\.")):
        settings_of(**{"into": "s3://lake/x", **more})  # type: ignore[arg-type]


@pytest.mark.parametrize("into", ["postgresql://shop:secret@db/shop", "postgresql://db/shop?password=secret"])
def test_a_password_is_not_for_the_file(into: str) -> None:
    with pytest.raises(ConfigError, match=r"sink\.lake\.into: contains a password") as told:
        settings_of(into)
    assert "secret" not in str(told.value)


def test_two_sinks_do_not_write_to_one_place() -> None:
    with pytest.raises(ConfigError, match=r"sink\.sea\.into: sink\.lake has the same destination"):
        settings_of("s3://lake/x", sea={"into": "s3://lake/x/"})


async def test_one_that_the_file_does_not_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there are: lake"):
        await serve_sink(Room(settings_of("s3://lake/x"), tmp_path, asyncio.Event(), member="sea"))
