"""A backfill of the world's events while others register the same ids: production's driver and attempts, each a
process of its own, on one shared file system.

What stands for Spark starts attempts of tasks, some twice; those that it gave up on live on as zombies, beyond the
run.
"""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np

from photon.config.errors import PhotonError
from photon.idregistry.api import Kind, Slot
from photon.joiner.api import ForeignEvent
from photon.joiner.rows import Rows
from photon.joiner.verdicts import tag_of
from photon.spark.backfill.attempt import BatchShell
from photon.spark.backfill.batch_names import ATTEMPT_WRITER, KIND_OF_DIRECTORY, BackfillPaths, BatchName
from photon.spark.backfill.core import BatchCore
from photon.spark.backfill.driver import Driver, DriverLimits
from photon.spark.backfill.manifest import read_manifest
from photon.spark.backfill.parts import PartWriter, join_lines
from tests.simulation.world.faulty_disk import FaultyDisk
from tests.simulation.world.process import Process, ProcessDisk
from tests.simulation.world.truth import Event, Fate, time_in

if TYPE_CHECKING:
    from tests.simulation.world.world import Place, World

DRIVER = "north-backfill"
PLACES = BackfillPaths(Path("/backfill"))
DATACENTRE = "east"
"""The datacentre whose copies of the logs it reads."""
SLOT = Slot("backfill-1", DATACENTRE)
START_S = 5.0
KINDS = {Fate.JOINED: Kind.JOINED, Fate.FILTERED: Kind.FILTERED}
"""Verdict for each fate; it treats other events as outside its range."""
PATIENCE_S = 10.0
BATCH_ROWS = 3


@dataclass
class Run:
    """Tasks of one driver life."""

    incarnation: int
    finished: set[int] = field(default_factory=set)


class Backfill:
    """The work to do, and the knowledge of Spark's stand-in."""

    def __init__(self, world: World, random: Random) -> None:
        self.random = random
        self.disk = FaultyDisk(Random(random.getrandbits(64)))
        self.place = world.places["north"]
        events = [event for event in world.truth.events.values() if event.fate in KINDS]
        # An event that stands twice in the logs may come to two tasks, or to two batches of one.
        read = events + random.sample(events, min(len(events), random.randint(0, 2)))
        random.shuffle(read)
        tasks = random.randint(1, 4)
        self.tasks = [read[n::tasks] for n in range(tasks)]
        self.late = {event.event_id for event in events if random.random() < 0.2}
        """Written to the logs while the backfill runs: some attempts read these events."""
        self.orders: dict[str, tuple[int, Run, int]] = {}
        """Attempts to be started: (task, run, number)."""
        self.attempts = self.speculated = 0
        self.done = False

    def reads(self, world: World, event: Event) -> bool:
        """True if an attempt that begins now finds both of its lines."""
        if event.event_id in self.late and self.random.random() < 0.5:
            return False
        return self.there(world, event, world.loop.now)

    def there(self, world: World, event: Event, at_s: float) -> bool:
        assert event.primary is not None
        return all(
            log.arrivals[DATACENTRE][log.index_of[offset]] <= at_s
            for name, offset in (_line(event)[0], event.primary[:2])
            for log in world.truth.foreign + world.truth.primary
            if log.name == name
        )

    def add(self, world: World, name: str, kind: type[Process]) -> None:
        world.kinds[name] = (kind, self.place)
        self.place.disks[name] = self.disk


def plan(world: World, random: Random) -> Backfill:
    """It begins in ``START_S``."""
    backfill = Backfill(world, random)
    backfill.add(world, DRIVER, DriverProcess)
    return backfill


def _line(event: Event) -> tuple[tuple[str, int], bytes]:
    """The line that is read."""
    return next(iter(event.lines.items()))


# -- processes -------------------------------------------------------------------------------------------------------
class OfBackfill(Process):
    """Waits a little between steps, so that it may be killed between them."""

    def __init__(self, world: World, place: Place, name: str) -> None:
        super().__init__(world, place, name)
        self.backfill: Backfill = world.backfill  # type: ignore[assignment]

    async def run(self) -> None:
        self.disk: Any = ProcessDisk(self.backfill.disk, self)
        try:
            await self.work()
        except PhotonError as error:
            self.end(f"{type(error).__name__}: {error}")

    async def work(self) -> None:
        raise NotImplementedError

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(max(seconds, self.random.uniform(0.0, 0.3)))


class DriverProcess(OfBackfill):
    """``photon spark backfill``, and Spark's scheduler."""

    async def work(self) -> None:
        await asyncio.sleep(max(START_S - self.world.loop.now, 0.0))
        backfill = self.backfill
        driver = Driver(
            self.disk, PLACES, SLOT, self.registry(), self.clock, encode=join_lines, suffix="jsonl",
            draw_nonce=lambda: self.random.randbytes(16), pause=self.pause, limits=DriverLimits(PATIENCE_S),
        )  # fmt: skip
        manifest = await driver.begin()
        if manifest is None:
            await self._run_tasks(Run(driver.incarnation))
            await driver.settle()
            manifest = await driver.publish({})
            self.world.say("the backfill is published")
        await driver.clear(manifest)
        await driver.tidy(manifest)
        backfill.done = True
        await asyncio.Event().wait()

    async def _run_tasks(self, run: Run) -> None:
        world, backfill = self.world, self.backfill
        started: dict[int, list[str]] = {task: [] for task in range(len(backfill.tasks))}
        while len(run.finished) < len(started):
            for task, names in started.items():
                running = sum(name in backfill.orders or world.running(name) is not None for name in names)
                again = world.faults and running == 1 and self.random.random() < 0.1
                if task not in run.finished and (not running or again):
                    backfill.speculated += again
                    names.append(f"north-{backfill.attempts}-attempt")
                    backfill.orders[names[-1]] = (task, run, backfill.attempts)
                    backfill.attempts += 1
                    backfill.add(world, names[-1], Attempt)
                    world.loop.later(0.0, world.boot, names[-1])
            await asyncio.sleep(0.3)


class Attempt(OfBackfill):
    """An attempt of a task. A killed attempt is not restarted: the driver orders another one."""

    async def work(self) -> None:
        world, backfill = self.world, self.backfill
        order = backfill.orders.pop(self.name, None)
        if order is not None:
            await self._do(*order)
        world.kinds.pop(self.name, None)

    async def _do(self, task: int, run: Run, number: int) -> None:
        world, registry = self.world, self.registry()
        registry.announce(SLOT, [run.incarnation])
        parts = PartWriter(self.disk, PLACES, ATTEMPT_WRITER, join_lines, "jsonl")
        shell = BatchShell(self.disk, PLACES, registry, self.clock, parts, writer=ATTEMPT_WRITER, pause=self.pause)
        events = [event for event in self.backfill.tasks[task] if self.backfill.reads(world, event)]
        for n, start in enumerate(range(0, len(events), BATCH_ROWS)):
            batch = BatchName(run.incarnation, number, n)
            unique = {event.event_id: event for event in events[start : start + BATCH_ROWS]}
            rows = rows_of(world, list(unique.values()), batch.token)
            core = BatchCore(rows, [run.incarnation], self.clock.monotonic() + PATIENCE_S)
            await shell.run(batch, core, rows)
        run.finished.add(task)


def rows_of(world: World, events: list[Event], token: int) -> Rows:
    """Would-be records of these events."""
    files = {log.name: log.file for log in world.truth.foreign}
    lines, times, tags = [], [], []
    for event in events:
        (name, offset), written = _line(event)
        record = world.truth.in_copy(name, DATACENTRE, written)
        assert event.primary is not None
        primary_name, primary_offset, primary = event.primary
        times.append(time_in(record))
        tags.append(
            tag_of(ForeignEvent(event.event_id, b"", event.time_ns, event.key, record, files[name], offset, 0))
        )
        fields: dict[str, Any] = {
            "event_id": event.event_id.decode(),
            "key": event.key.decode(),
            "event_time_ns": times[-1],
            "source": {"file": name, "offset": offset},
            "primary_source": {"file": primary_name, "offset": primary_offset},
            "token": f"{token:016x}",
        }
        if event.fate is Fate.JOINED:
            fields |= {"foreign": record.decode(), "primary": primary.decode()}
        else:
            fields["record"] = record.decode()
        lines.append(json.dumps(fields).encode() + b"\n")
    n = len(events)
    return Rows(
        digests=b"".join(world.digester.digest(event.event_id) for event in events),
        times=np.array(times, np.int64),
        tokens=np.full(n, token, np.uint64),
        kinds=np.array([KINDS[event.fate] for event in events], np.uint8),
        tags=np.array(tags, np.uint32),
        generations=np.zeros(n, np.uint32),
        lines=lines,
    )


# -- faults ----------------------------------------------------------------------------------------------------------
def _processes(world: World) -> list[Process]:
    return [each for each in world.lives if each.alive and isinstance(each, OfBackfill)]


def kill_one(world: World) -> None:
    """The driver or an attempt."""
    if here := _processes(world):
        world.ended(world.random.choice(here), "kill -9")


def crash_one(world: World) -> None:
    """Crashes one in the middle of a write."""
    assert world.backfill is not None
    world.backfill.disk.crash_after(world.random.randint(1, 12))


def cut_power(world: World) -> None:
    """Cuts the power of the file system and all processes on it."""
    assert world.backfill is not None
    world.say("the shared file system has no power")
    for process in _processes(world):
        world.ended(process, "with the file system")
    world.backfill.disk.power_cut()


FAULTS = ((kill_one, 6), (crash_one, 4), (cut_power, 1))


# -- what must hold --------------------------------------------------------------------------------------------------
def undone(world: World) -> str:
    """Its result is published, cleared and tidied, and its zombies have ended."""
    assert world.backfill is not None
    if not world.backfill.done:
        return "the backfill is not done"
    zombies = [each.name for each in _processes(world) if isinstance(each, Attempt)]
    return f"{zombies} have not ended" if zombies else ""


def lines(world: World) -> Iterator[tuple[Kind, str, bytes]]:
    """Lines the manifest gives to readers: (kind, file, line)."""
    backfill = world.backfill
    manifest = None if backfill is None else read_manifest(backfill.disk, PLACES.manifest)
    if backfill is None or manifest is None:
        return
    for file in manifest.files:
        path = PLACES.output / file.name
        data = backfill.disk.read(path) if backfill.disk.exists(path) else b""
        if (zlib.crc32(data), len(data), data.count(b"\n")) != (file.crc32, file.bytes, file.records):
            data = b"{}"  # an invented event
        for line in data.splitlines():
            yield KIND_OF_DIRECTORY[file.name.partition("/")[0]], file.name, line
