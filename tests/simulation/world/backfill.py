"""A backfill of the world's events while others register the same ids: production's driver, attempts and completion,
each a process of its own, on one shared file system.

The stand-in for Spark starts attempts of parts, some twice; those that it gave up on live on as zombies, beyond the
run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np

from photon.adapters.envelope import Envelope
from photon.adapters.logs.slices import StandingLog
from photon.batch.events import Events
from photon.batch.records import PrimaryRecord
from photon.config.errors import PhotonError
from photon.dispatcher.retry import Patience
from photon.eventstore.api import EventLookUps, LookUpCode
from photon.idregistry.api import Kind, Slot
from photon.joiner.api import ForeignEvent
from photon.joiner.slot.place import DIRECTORY_OF
from photon.joiner.verdicts import Judge, envelope_lines
from photon.outputs.published import read_slot
from photon.spark.backfill.deciding import FinalDecider
from photon.spark.backfill.driver import AllRead, BackfillDriver, Completion, Finished, to_read
from photon.spark.pipeline.driver import DriverPlaces
from photon.spark.pipeline.journal import Journal, Part, Plan, Reached
from photon.spark.pipeline.listing import Listing
from photon.spark.pipeline.part import Done, Fenced, Worker
from photon.spark.pipeline.planner import PlanLimits
from photon.spark.pipeline.reading import PartRead
from tests.simulation.world.faulty_disk import FaultyDisk
from tests.simulation.world.process import JOIN, Process, ProcessDisk
from tests.simulation.world.truth import Event, Fate, time_in

if TYPE_CHECKING:
    from tests.simulation.world.world import Place, World

DRIVER = "north-backfill"
STATE, EXPORTS, OUTPUT = Path("/backfill/state"), Path("/backfill/exports"), Path("/backfill")
DATACENTRE = "east"  # the datacentre whose copies of the logs it reads
SLOT = Slot("backfill-1", DATACENTRE)
START_S = 5.0
FATES = (Fate.JOINED, Fate.FILTERED)  # events of other fates are outside its range
KIND_OF = {directory: kind for kind, directory in DIRECTORY_OF.items()}


@dataclass
class Order:
    """An attempt to be started."""

    plan: Plan
    part: int
    incarnation: int
    own_incarnations: list[int]
    done: list[Done | None]  # by part
    fenced: list[str]


class Backfill:
    """The work to do, and the knowledge of Spark's stand-in."""

    def __init__(self, world: World, random: Random) -> None:
        self.random = random
        self.disk = FaultyDisk(Random(random.getrandbits(64)))
        self.place = world.places["north"]
        events = [event for event in world.truth.events.values() if event.fate in FATES]
        # An event that stands twice in the logs may come to two parts, or twice to one.
        read = events + random.sample(events, min(len(events), random.randint(0, 2)))
        random.shuffle(read)
        tasks = random.randint(1, 4)
        self.logs = {f"log-{n}": read[n::tasks] for n in range(tasks)}  # a log for each part
        self.batch_bytes = random.choice((1, 100))  # a batch for each log, or one for all
        # Written to the logs while the backfill runs: some attempts read these events.
        self.late = {event.event_id for event in events if random.random() < 0.2}
        self.orders: dict[str, Order] = {}
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
        journal = Journal(self.disk, STATE / "spark")
        await Completion(journal, self.registry(), 0, self.clock, self.pause)(self._join)
        self.backfill.done = True
        await asyncio.Event().wait()

    async def _join(self) -> Finished:
        backfill = self.backfill
        logs = [StandingLog(name, name, b"", 0, 1, 0, splittable=False) for name in backfill.logs]
        driver = BackfillDriver(
            self.disk, DriverPlaces(STATE, EXPORTS, OUTPUT), JOIN, SLOT, self.registry(), AllRead(), self.clock,
            Patience(), PlanLimits(part_bytes=1, batch_bytes=backfill.batch_bytes),
            lambda known: Listing(to_read(logs, known, None), 0),
            self.pause, lambda: self.random.randbytes(16), self.random.random,
        )  # fmt: skip
        await driver.begin()
        while await driver.step(lambda plan: self._do(driver, plan)) is not None:
            pass
        driver.end()
        self.world.say("the backfill is published")
        return Finished(counts=driver.counts, files=0, bytes=0)

    async def _do(self, driver: BackfillDriver, plan: Plan) -> list[Done]:
        world, backfill = self.world, self.backfill
        done: list[Done | None] = [None] * len(plan.parts)
        fenced: list[str] = []
        started: list[list[str]] = [[] for _ in done]
        while not all(done):
            for part, names in enumerate(started):
                running = sum(name in backfill.orders or world.running(name) is not None for name in names)
                again = world.faults and running == 1 and self.random.random() < 0.1
                if done[part] is None and (not running or again):
                    backfill.speculated += again
                    names.append(f"north-{backfill.attempts}-attempt")
                    own = driver.own_incarnations
                    backfill.orders[names[-1]] = Order(plan, part, driver.incarnation, own, done, fenced)
                    backfill.attempts += 1
                    backfill.add(world, names[-1], Attempt)
                    world.loop.later(0.0, world.boot, names[-1])
            if fenced:
                raise Fenced(fenced[0])
            await asyncio.sleep(0.3)
        return [each for each in done if each is not None]


class Attempt(OfBackfill):
    """An attempt of a part. A killed attempt is not restarted: the driver orders another one."""

    async def work(self) -> None:
        order = self.backfill.orders.pop(self.name, None)
        self.world.kinds.pop(self.name, None)
        if order is None:
            return
        registry = self.registry()
        registry.announce(SLOT, order.own_incarnations)
        adapter = self.world.adapter
        lines = envelope_lines(Envelope())
        judge = Judge(adapter, check_payloads=True)
        do = Worker(
            Journal(self.disk, STATE / "spark"), order.incarnation, order.own_incarnations, registry, self.clock,
            self.read, FinalDecider(self, judge, False, lines, lines, 0, False, self.clock), None, self.pause,
            lambda: self.random.randbytes(6).hex(),
        )  # fmt: skip
        try:
            order.done[order.part] = await do(order.plan, order.part)
        except Fenced as fenced:
            order.fenced.append(str(fenced))
            raise

    def read(self, plan: Plan, part: Part) -> PartRead:
        """What is there now, which may be more than another attempt has read."""
        world, backfill = self.world, self.backfill
        found = PartRead()
        events: list[Event] = []
        for stretch in part.stretches:
            log = stretch.log.identity
            events += [event for event in backfill.logs[log] if backfill.reads(world, event)]
            found.reached.append(Reached(log, 1, b"", ended=True, proof=b""))
        files = {log.name: log.file for log in world.truth.foreign}
        rows = []
        for event in events:
            (name, offset), written = _line(event)
            record = world.truth.in_copy(name, DATACENTRE, written)
            digest, time = world.digester.digest(event.event_id), time_in(record)
            rows.append(ForeignEvent(event.event_id, digest, time, event.key, record, files[name], offset, 0))
        found.events, found.first_read_ns, found.fresh = Events.of(rows), np.zeros(len(rows), np.int64), len(rows)
        return found

    async def look_up(self, keys: list[bytes], as_of: list[int], times: list[int] | None = None) -> EventLookUps:
        truth = self.world.truth
        of_key = {event.key: event.primary for event in truth.events.values() if event.primary is not None}
        files = {log.name: log.file for log in truth.primary}
        found = [of_key[key] for key in keys]
        records = [PrimaryRecord(record, files[name], offset) for name, offset, record in found]
        return EventLookUps.of([LookUpCode.FOUND] * len(keys), records)


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
    """Lines that readers see: (kind, file, line)."""
    backfill = world.backfill
    if backfill is None:
        return
    for file in read_slot(backfill.disk, STATE).files:
        path = OUTPUT / file.name
        data = backfill.disk.read(path) if backfill.disk.exists(path) else b""
        for line in data[: file.length].splitlines():
            yield KIND_OF[file.kind], file.name, line
