"""A backfill's output below a URL: read like other outputs there, shown last, by one run."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from photon.config.clock import SystemClock
from photon.config.errors import PhotonError, UsageError
from photon.idregistry.api import Slot
from photon.library import Output
from photon.objects import directory as module
from photon.objects.api import ObjectChanged
from photon.objects.disk import UrlDisk
from photon.spark.backfill.attempt import BatchShell
from photon.spark.backfill.batch_names import BackfillPaths, BatchName
from photon.spark.backfill.core import BatchCore
from photon.spark.backfill.driver import BackfillFailed, Driver
from photon.spark.backfill.manifest import (
    BackfillFile,
    Manifest,
    begun,
    known_backfills,
    remember,
    write,
)
from photon.spark.backfill.parts import PartWriter, encoder
from photon.spark.backfill.run import alone
from photon.spark.backfill.staging import Part
from photon.spark.verify.reading import backfilled
from tests.simulation.world.registry import CLEARED, ModelRegistry
from tests.unit.joiner.helpers import FakeRegistry
from tests.unit.objects.conftest import bucket  # noqa: F401
from tests.unit.objects.fakes import MemoryBucket
from tests.unit.spark.backfill.rows import rows_of
from tests.unit.spark.backfill.test_files import JOB, NAME, events

REGISTRY: Any = None
"""Not asked for anything here."""


@pytest.fixture
def places(bucket: MemoryBucket, request: pytest.FixtureRequest) -> BackfillPaths:  # noqa: F811
    return BackfillPaths.at(f"s3://{request.node.name}/november")


async def pause(seconds: float) -> None:
    return None


def driver_of(places: BackfillPaths, disk: UrlDisk, registry: Any = REGISTRY) -> Driver:
    driver = Driver(
        disk, places, Slot("s", "d"), registry, SystemClock(), encode=encoder("jsonl"), suffix="jsonl",
        draw_nonce=lambda: os.urandom(16), pause=pause,
    )  # fmt: skip
    driver.incarnations = [3]
    return driver


def written(disk: UrlDisk, places: BackfillPaths, writer: str, batch: BatchName = NAME) -> list[Part]:
    rows = rows_of(events(5), batch.token)
    return PartWriter(disk, places, writer, encoder("jsonl"), "jsonl").write(str(batch), rows, np.arange(5))


def manifest_of(parts: list[Part]) -> Manifest:
    files = [
        BackfillFile(p.name, p.kind, p.hour, p.records, p.bytes, p.crc32, str(NAME), p.uncompressed_bytes)
        for p in parts
    ]
    return Manifest("s", 3, files, {})


def test_what_is_shown_is_read_and_what_was_discarded_goes(places: BackfillPaths, tmp_path: Path) -> None:
    disk = UrlDisk()
    driver = driver_of(places, disk)
    begun(disk, places.job, JOB)
    remember(disk, tmp_path, places.output, JOB)
    parts, discarded = written(disk, places, "attempt"), written(disk, places, "000003")
    assert not {each.name for each in parts} & {each.name for each in discarded}
    with pytest.raises(UsageError, match=r"has no manifest\.jsonl"):
        Output.of_join(str(places.output))
    manifest = manifest_of(parts)
    write(disk, places.manifest, manifest)
    driver.show(manifest)
    driver.show(manifest)  # killed behind it, and run again
    asyncio.run(driver.tidy(manifest))
    found = list(Output.of_join(str(places.output)).batches(kinds=["joined", "filtered", "unmatched", "rejected"]))
    lines = sorted(b"".join(batch.data for batch in found).splitlines(keepends=True))
    assert lines == sorted(rows_of(events(5), NAME.token).lines)
    assert not any(disk.exists(places.output / each.name) for each in discarded)
    [known] = known_backfills(disk, tmp_path, JOB.join, JOB.from_ns, JOB.to_ns)
    assert known.path == places.output
    assert sum(each.end for each in backfilled(places.output, JOB.join)) == sum(map(len, lines))


PLACES = BackfillPaths.at("s3://lake/november")


class Ends(Exception):
    """The process ends here."""


class KnownRegistry(FakeRegistry):
    async def introduce(self, *, timeout: float) -> bool:
        return True


async def run(places: BackfillPaths, registry: KnownRegistry, count: int) -> None:
    """The driver, and attempts of two tasks, in one process."""
    disk = UrlDisk()
    begun(disk, places.job, JOB)
    driver = driver_of(places, disk, registry)
    if (manifest := await driver.begin()) is None:
        for attempt in (1, 2):
            batch = BatchName(driver.incarnation, attempt, 0)
            rows = rows_of(events(count), batch.token)
            core = BatchCore(rows, driver.incarnations, float("inf"))
            parts = PartWriter(disk, places, "attempt", encoder("jsonl"), "jsonl")
            shell = BatchShell(disk, places, registry, SystemClock(), parts, writer="attempt", pause=pause)
            await shell.run(batch, core, rows)
        await driver.settle()
        manifest = await driver.publish({})
    driver.show(manifest)
    await driver.clear(manifest)
    await driver.tidy(manifest)


def bucket_of(step: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> MemoryBucket:
    made = MemoryBucket(step)  # type: ignore[arg-type]
    monkeypatch.setattr(module, "opener", lambda url: made)
    monkeypatch.setattr(module, "_buckets", {})
    return made


def check(places: BackfillPaths, registry: ModelRegistry, made: MemoryBucket, count: int, schedule: object) -> None:
    found = list(Output.of_join(str(places.output)).batches(kinds=["joined", "rejected"]))
    lines = [line.split()[0] for batch in found for line in batch.lines()]
    assert sorted(lines) == sorted(event.digest.hex().encode() for event in events(count)), schedule
    assert not UrlDisk().names(places.staging), schedule
    shown = made.data["november/manifest.jsonl"].splitlines()
    named = {f"november/{orjson.loads(line)['file']}" for line in shown}
    assert {key for key in made.data if key.startswith(("november/joined/", "november/rejected/"))} == named, schedule
    entries = [each for shard in registry.shards for each in shard.entries.values()]
    assert {each.state for each in entries} == {CLEARED}, schedule


class Run:
    """One of two, in a separate thread, which stops before one of its requests until the other has ended."""

    def __init__(self, registry: ModelRegistry, count: int, stops_at: int) -> None:
        self.stops_at, self.still, self.goes_on = stops_at, threading.Event(), threading.Event()
        self._registry, self._count = registry, count
        self.thread = threading.Thread(target=self.to_its_end)

    def to_its_end(self) -> None:
        registry = KnownRegistry()
        registry.model = self._registry
        try:
            asyncio.run(run(PLACES, registry, self._count))
        except (PhotonError, OSError):  # it is told of the other one
            pass
        finally:
            self.still.set()

    def asks(self) -> None:
        self.stops_at -= 1
        if not self.stops_at:
            self.still.set()
            self.goes_on.wait()


def test_two_runs_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second finds one event more. It comes between two requests of the first, and the rest of that between two
    of its own. Ids that either won are there once."""
    for first_stop in range(1, 400):
        for second_stop in range(1 + first_stop % 24, 60, 24):
            model = KnownRegistry().model
            runs = [Run(model, 5, first_stop), Run(model, 6, second_stop)]

            def step(request: str, runs: list[Run] = runs) -> None:
                for each in runs:
                    if each.thread is threading.current_thread():  # a reader that reads ahead may be waited for
                        each.asks()

            made = bucket_of(step, monkeypatch)
            for each in runs:
                each.thread.start()
                each.still.wait()
            for each in runs:
                each.goes_on.set()
                each.thread.join()
            for _ in range(5):
                Run(model, 6, 0).to_its_end()
            owned = {each for shard in model.shards for each in shard.entries}
            check(PLACES, model, made, len(owned), (first_stop, second_stop))
        if runs[0].stops_at > 0:
            assert first_stop > 20
            return
    raise AssertionError("it never came to its end")


async def test_it_is_ended_before_any_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each event once, nothing owned and nothing left over, wherever the first run ends, and the second one too."""
    for left in range(1, 400, 3):
        steps = [left, left // 2, 0]

        def step(request: str, steps: list[int] = steps) -> None:
            steps[0] -= 1
            if not steps[0]:
                raise Ends

        made = bucket_of(step, monkeypatch)
        registry, ended = KnownRegistry(), 0
        while True:
            try:
                await run(PLACES, registry, 5)
                break
            except Ends:
                ended += 1
                steps.pop(0)
        steps[0] = 0
        check(PLACES, registry.model, made, 5, left)
        if not ended:
            assert left > 20
            return
    raise AssertionError("it never came to its end")


def test_a_prefix_shows_one_output(places: BackfillPaths, bucket: MemoryBucket) -> None:  # noqa: F811
    driver_of(places, disk := UrlDisk()).show(manifest_of(written(disk, places, "attempt")))
    disk = UrlDisk()
    with pytest.raises(ObjectChanged):
        driver_of(places, disk).show(manifest_of(written(disk, places, "attempt", BatchName(4, 1, 1))))
    with pytest.raises(UsageError, match="holds other objects already"):
        begun(UrlDisk(), places.job, JOB)


def test_who_is_overtaken_ends_with_one_line(places: BackfillPaths) -> None:
    disk, other = UrlDisk(), UrlDisk()
    begun(disk, places.job, JOB)
    other.read(places.job)
    other.replace(places.job, b"another")
    with pytest.raises(BackfillFailed, match="another photon spark backfill works on it"), alone(places):
        disk.replace(places.job, b"mine")
