"""A backfill's output below a URL: read like other outputs there, shown last, by one run."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import numpy as np
import orjson
import pytest

from photon.adapters.logs.slices import StandingLog
from photon.cli.spark.backfill import copied
from photon.config.clock import SystemClock
from photon.config.errors import PhotonError, UsageError
from photon.dispatcher.retry import Patience
from photon.idregistry.api import Slot
from photon.library import Output
from photon.objects import directory as module
from photon.objects.disk import UrlDisk
from photon.objects.paths import ObjectPath
from photon.outputs.output_places import OutputPlace
from photon.spark.backfill.deciding import BackfillFailed
from photon.spark.backfill.driver import AllRead, BackfillDriver, Completion, Finished, to_read
from photon.spark.backfill.known import BackfillJob, BackfillPaths, begun, known_backfills, remember, source_of
from photon.spark.backfill.run import alone
from photon.spark.outputs import source_ranges
from photon.spark.pipeline.deciding import Verdicts
from photon.spark.pipeline.driver import DriverPlaces
from photon.spark.pipeline.journal import Journal, Part, Plan, Reached
from photon.spark.pipeline.listing import Listing
from photon.spark.pipeline.part import Done, Worker
from photon.spark.pipeline.planner import PlanLimits
from photon.spark.pipeline.reading import PartRead
from tests.simulation.world.registry import CLEARED, ModelRegistry
from tests.unit.joiner.helpers import FakeRegistry
from tests.unit.objects.fakes import MemoryBucket
from tests.unit.spark.pipeline.rows import Event, rows_of

JOB = BackfillJob(slot="s", datacentre="d", join="j", from_ns=1, to_ns=2, unmatched=False, boundary_ns=0)
URL = ObjectPath("s3://lake/november")
PATHS = BackfillPaths(URL)
KINDS = ["joined", "rejected"]


def events(count: int) -> list[Event]:
    return [Event(bytes([n, 0]) * 8, n) for n in range(count)]


async def pause(seconds: float) -> None:
    return None


class Ends(Exception):
    """The process ends here."""


class KnownRegistry(FakeRegistry):
    async def introduce(self, *, timeout: float) -> bool:
        return True


async def run(registry: KnownRegistry, count: int) -> None:
    """The driver, and attempts of two parts that read the same events, in one process."""
    disk, clock = UrlDisk(), SystemClock()
    job = begun(disk, PATHS, JOB)
    journal = Journal(disk, PATHS.slot(job) / "spark")
    logs = [StandingLog(name, name, b"", 0, 1, 0, splittable=False) for name in "ab"]

    def read(plan: Plan, part: Part) -> PartRead:
        reached = [Reached(each.log.identity, 1, b"", ended=True, proof=b"") for each in part.stretches]
        return PartRead(fresh=count, reached=reached)

    async def decide(plan: Plan, token: int, read: PartRead) -> Verdicts:
        nothing = np.empty(0, np.intp)
        return Verdicts(rows_of(events(count), token), nothing, nothing.astype(np.int64), 0)

    async def join() -> Finished:
        with TemporaryDirectory() as directory:
            local = BackfillPaths(Path(directory))
            driver = BackfillDriver(
                disk, DriverPlaces(PATHS.slot(job), local.exports, local.output, local.slot(job)), job.join,
                Slot(job.slot, job.datacentre), registry, AllRead(), clock, Patience(), PlanLimits(part_bytes=1),
                lambda known: Listing(to_read(logs, known, None), 0), pause, lambda: os.urandom(16), Random(1).random,
            )  # fmt: skip
            await driver.begin()
            do = Worker(
                journal, driver.incarnation, driver.own_incarnations, registry, clock, read, decide, None, pause,
                lambda: os.urandom(6).hex(),
            )  # fmt: skip

            async def all_parts(plan: Plan) -> list[Done]:
                return [await do(plan, part) for part in range(len(plan.parts))]

            while await driver.step(all_parts) is not None:
                pass
            driver.end()
            driver.close()
            copied(OutputPlace(local.output, local.state), URL)
            return Finished(counts=driver.counts, files=2, bytes=0)

    await Completion(journal, registry, job.boundary_ns, clock, pause)(join)


def bucket_of(step: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> MemoryBucket:
    made = MemoryBucket(step)  # type: ignore[arg-type]
    monkeypatch.setattr(module, "opener", lambda url: made)
    monkeypatch.setattr(module, "_buckets", {})
    return made


def check(registry: ModelRegistry, made: MemoryBucket, count: int, schedule: object) -> None:
    found = list(Output.of_join(str(URL)).batches(kinds=KINDS))
    lines = [line.split()[0] for batch in found for line in batch.lines()]
    assert sorted(lines) == sorted(event.digest.hex().encode() for event in events(count)), schedule
    assert not [key for key in made.data if "/parts/" in key], schedule
    named = {f"november/{orjson.loads(line)['file']}" for line in made.data["november/manifest.jsonl"].splitlines()}
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
            asyncio.run(run(registry, self._count))
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
    for first_stop in range(1, 400, 3):
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
            for _ in range(3):
                Run(model, 6, 0).to_its_end()
            owned = {each for shard in model.shards for each in shard.entries}
            check(model, made, len(owned), (first_stop, second_stop))
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
                await run(registry, 5)
                break
            except Ends:
                ended += 1
                steps.pop(0)
        steps[0] = 0
        check(registry.model, made, 5, left)
        if not ended:
            assert left > 20
            return
    raise AssertionError("it never came to its end")


async def test_what_is_shown_is_known_and_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bucket_of(lambda request: None, monkeypatch)
    disk = UrlDisk()
    remember(disk, tmp_path, URL, JOB)
    with pytest.raises(UsageError, match=r"has no manifest\.jsonl"):
        Output.of_join(str(URL))
    await run(KnownRegistry(), 5)
    assert list(known_backfills(UrlDisk(), tmp_path, JOB.join, JOB.from_ns, JOB.to_ns)) == [URL]
    ranges = source_ranges(source_of(UrlDisk(), URL, JOB.join), KINDS, 1 << 62)
    lines = b"".join(batch.data for batch in Output.of_join(str(URL)).batches(kinds=KINDS))
    assert sum(each.end for each in ranges) == len(lines)
    with pytest.raises(UsageError, match="is not empty; name another --output"):
        begun(UrlDisk(), BackfillPaths(URL.parent), JOB)


def test_who_is_overtaken_ends_with_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    bucket_of(lambda request: None, monkeypatch)
    disk, other = UrlDisk(), UrlDisk()
    begun(disk, PATHS, JOB)
    for each in (disk, other):
        each.read(PATHS.job)
    other.replace(PATHS.job, b"another")
    with pytest.raises(BackfillFailed, match="another photon spark backfill is using it"), alone(PATHS):
        disk.replace(PATHS.job, b"mine")
