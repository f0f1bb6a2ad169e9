"""The join on Spark over the world's growing logs, while a rival in another datacentre registers some of its events:
production's ``Driver`` and ``Worker``, each a process of its own, on one shared file system.

The stand-in for Spark starts attempts of parts, some twice. It forgets attempts that it no longer needs: they live on
beyond the commit, the driver and the next driver. A second driver may start while the first one sleeps.
"""

from __future__ import annotations

import asyncio
import gzip
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from photon.adapters.envelope import Envelope
from photon.adapters.logs.api import Block
from photon.adapters.logs.slices import Reading, Slice, StandingLog
from photon.batch.ids import Ids
from photon.config.back_off import BackOff
from photon.config.clock import NS_PER_S
from photon.config.errors import PhotonError
from photon.idregistry.api import Answer, Kind, Slot, incarnation_of, token_of
from photon.joiner.slot.identity import SPARK_NAME, until_told
from photon.joiner.slot.output import OutputLimits
from photon.joiner.slot.place import DIRECTORY_OF
from photon.joiner.verdicts import Judge, envelope_lines
from photon.outputs.log.format import gzip_name
from photon.outputs.published import read_slot
from photon.outputs.watermarks import STEP_NS
from photon.spark.pipeline import driver, given_up, reading
from photon.spark.pipeline.claim import Claim, Undecided
from photon.spark.pipeline.deciding import Decider, EventStoreSilent
from photon.spark.pipeline.driver import Driver, DriverPlaces, exporter_of
from photon.spark.pipeline.given_up import Search
from photon.spark.pipeline.journal import CLAIM, PART_BITS, REREADS, Ended, Journal, Plan, Reread
from photon.spark.pipeline.listing import Listing
from photon.spark.pipeline.part import Done, Fenced, RegistrySilent, Worker
from photon.spark.pipeline.planner import PlanLimits
from photon.spark.pipeline.reading import LogReader
from photon.spark.pipeline.standing import ledger_of
from photon.spark.pipeline.waiting import hashes_of
from photon.verifier.verifier import Verifier, VerifierLimits
from tests.simulation.world import check, settings, site_faults
from tests.simulation.world.faulty_disk import FaultyDisk
from tests.simulation.world.follower import _before, _bytes_of
from tests.simulation.world.process import JOIN, Process, ProcessDisk, SimulatedStoreClient, Store, main
from tests.simulation.world.retiring import LostSlot, Operator
from tests.simulation.world.truth import EPOCH_NS, Fate, make_truth, time_in
from tests.simulation.world.world import DATACENTRES, Place, World

EAST = "east"
SLOT, RIVAL = Slot("spark-east", EAST), Slot("live-west", "west")
PLACES = DriverPlaces(Path("/state/slots/spark-east"), Path("/state/exports"), Path("/out"))
FATES = ((Fate.JOINED, 60), (Fate.UNMATCHED, 12), (Fate.RACED, 10), (Fate.FILTERED, 8), (Fate.REJECTED, 5))
KIND_OF = {directory: kind for kind, directory in DIRECTORY_OF.items()}
EXPORTER = exporter_of(SLOT.name)
LOOK_S = 0.4
MAX_RECORD = 80
WHOLE_EVERY = 4
CLOCKS_APART_S = 4.0


class JoinOnSpark:
    """The knowledge of Spark's stand-in, and the options drawn for this seed."""

    def __init__(self, world: SparkJoinWorld) -> None:
        random = world.random
        self.disk = FaultyDisk(world._random())
        self.limits = PlanLimits(
            part_bytes=random.choice((60, 200, 1 << 20)),
            packed_bytes=random.choice((100, 1 << 20)),
            batch_bytes=random.choice((300, 1 << 20)),
            reread_bytes=random.choice((100, 1 << 20)),
            batch_rows=random.choice((2, 1000)),
            max_record=MAX_RECORD,
            waiting_bytes=random.choice((1000, 1 << 30)),
        )
        self.splittable = random.random() < 0.7
        self.alone = random.choice((0.0, 0.3))  # share of batches that the driver does itself
        self.output = OutputLimits(
            roll_bytes=random.choice((400, 1 << 20)), roll_after_s=random.choice((3.0, 300.0)),
            compress=random.random() < 0.5,
        )  # fmt: skip
        self.drivers: list[str] = []  # the last one is started again when it ends
        self.clock_set = -CLOCKS_APART_S
        self.older_until = 0.0  # seconds: some process works under an older file until then
        self.planned: dict[tuple[int, int], bool] = {}  # batch and incarnation -> if it was planned before that
        self.orders: dict[str, Order] = {}
        self.rereads: dict[str, Reread] = {}  # by the command that orders it
        self.attempts = self.speculated = self.asked = 0

    def is_planned_older(self, record: check.Record) -> bool:
        """True if the batch of this record was planned while some process worked under an older file."""
        token = int(record.fields["token"], 16)
        return self.planned.get(((token & (1 << 40) - 1) >> PART_BITS, incarnation_of(token)), False)

    def add(self, world: World, name: str, kind: type[Process]) -> None:
        place = world.places[EAST]
        world.kinds[name] = (kind, place)
        place.disks[name] = self.disk


@dataclass
class Order:
    """One part of a batch, for a driver."""

    plan: Plan
    part: int
    incarnation: int
    own_incarnations: list[int]
    done: list[Done | None]  # by part
    fenced: list[str] = field(default_factory=list)


class OfJoin(Process):
    """Waits a little between steps, so that it may be killed between them."""

    def __init__(self, world: SparkJoinWorld, place: Place, name: str) -> None:
        super().__init__(world, place, name)
        self.join = world.join

    async def run(self) -> None:
        self.disk: Any = ProcessDisk(self.join.disk, self)
        try:
            await self.work()
        except (Fenced, RegistrySilent, EventStoreSilent) as error:
            self.world.say(f"{self.name}: {type(error).__name__}: {error}")
        except PhotonError as error:
            self.world.violated(f"{self.name} ends: {type(error).__name__}: {error}", error)

    async def work(self) -> None:
        raise NotImplementedError

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(max(seconds, self.random.choice((0.0, self.random.uniform(0.0, 0.3)))))

    def worker(self, incarnation: int, own_incarnations: list[int]) -> Worker:
        world, registry = self.world, self.registry()
        registry.announce(SLOT, own_incarnations)
        journal = Journal(self.disk, PLACES.state / "spark")
        envelope = Envelope()
        store = SimulatedStoreClient(self.stub(f"{EAST}-store"), self.clock)
        read = LogReader(
            Path(), Reading(max_record=MAX_RECORD), world.adapter, world.digester, journal,
            slack_ns=settings.PATIENCE.slack_ns,
        )  # fmt: skip
        judge = Judge(world.adapter, check_payloads=True)
        lines = envelope_lines(envelope)
        decide = Decider(store, judge, lines, settings.PATIENCE, self.clock, self.pause)
        return Worker(
            journal, incarnation, own_incarnations, registry, self.clock, read, decide, envelope, self.pause,
            lambda: self.random.randbytes(6).hex(),
        )  # fmt: skip


class Attempt(OfJoin):
    """An attempt of a part. A killed one is not restarted: the driver orders another one."""

    async def work(self) -> None:
        order = self.join.orders.pop(self.name, None)
        self.world.kinds.pop(self.name, None)
        if order is None:
            return
        try:
            do = self.worker(order.incarnation, order.own_incarnations)
            order.done[order.part] = await do(order.plan, order.part)
        except Fenced as fenced:
            order.fenced.append(str(fenced))
            raise


class DriverProcess(OfJoin):
    """``photon spark join``, and Spark's scheduler."""

    driver: Driver | None = None
    idle = False
    begun = False

    async def work(self) -> None:
        world, join = self.world, self.join
        if self.name != join.drivers[-1]:
            world.kinds.pop(self.name, None)
            return
        self.driver = own = Driver(
            self.disk, PLACES, JOIN, SLOT, self.registry(),
            SimulatedStoreClient(self.stub(f"{EAST}-store"), self.clock), self.clock, settings.PATIENCE, join.limits,
            lambda known: Listing(standing(world), self.clock.now_ns()),
            self.pause, lambda: self.random.randbytes(16), self.random.random,
            self._withholds, settings.UNCERTAINTY_NS, join.output,
        )  # fmt: skip
        await own.begin()
        self.begun = True
        self.alone = self.worker(own.incarnation, own.own_incarnations)
        search, registry = Search(), self.registry()
        while True:
            if self.random.random() < 0.3:
                await given_up.look(registry.recovery, own, search)
            keys = [event.key for event in world.truth.events.values() if self.random.random() < 0.1]
            try:
                own.waiting.wake(hashes_of(keys))
                self.idle = await own.step(self._do) is None
            except (RegistrySilent, EventStoreSilent) as silent:
                world.say(f"{self.name}: {silent}; the batch is repeated")
            assert_as_after_a_start(world, own)
            await self.pause(0.3 if self.idle else 0.0)

    def _withholds(self) -> str:
        own = self.driver
        assert own is not None
        older = self.world.loop.now < self.join.older_until
        self.join.planned[own.committed + 1, own.incarnation] = older
        return "a process has an older file" if older else ""

    async def _do(self, plan: Plan) -> list[Done]:
        self.idle = False
        if self.random.random() < self.join.alone:
            return [await self.alone(plan, part) for part in range(len(plan.parts))]
        world, join, own = self.world, self.join, self.driver
        assert own is not None
        done: list[Done | None] = [None] * len(plan.parts)
        fenced: list[str] = []
        started: list[list[str]] = [[] for _ in done]
        while not all(done):
            for part, names in enumerate(started):
                running = sum(name in join.orders or world.running(name) is not None for name in names)
                again = world.faults and running == 1 and self.random.random() < 0.15
                if done[part] is None and (not running or again):
                    join.speculated += again
                    names.append(f"{EAST}-{join.attempts}-attempt")
                    join.attempts += 1
                    join.orders[names[-1]] = Order(plan, part, own.incarnation, own.own_incarnations, done, fenced)
                    join.add(world, names[-1], Attempt)
                    world.loop.later(0.0, world.boot, names[-1])
            if fenced:
                raise Fenced(fenced[0])
            await asyncio.sleep(0.1)
        return [each for each in done if each is not None]


class Clearing(OfJoin):
    """``photon serve verifier``: clears ids whose lines readers see."""

    async def work(self) -> None:
        verifier = Verifier(
            self.disk, PLACES.state, PLACES.output, self.world.digester, self.registry(),
            limits=VerifierLimits(period_s=settings.VERIFIER_PERIOD_S, clear_timeout_s=2.0),
        )  # fmt: skip
        await verifier.run(asyncio.Event())


class Rival(Process):
    """Registers events one after the other, also ones that the join works on. It is never killed."""

    async def run(self) -> None:
        world: Any = self.world
        registry, nonce = self.registry(), self.random.randbytes(8)
        opened = await until_told(lambda: registry.open_slot(RIVAL, 0, nonce), asyncio.sleep)
        registry.announce(RIVAL, [opened.incarnation])
        for number, event in enumerate(world.truth.events.values()):
            if self.random.random() < 0.25:
                ids = Ids(
                    world.digester.digest(event.event_id), np.array([event.time_ns]),
                    np.array([token_of(opened.incarnation, number)], np.uint64), np.array([Kind.JOINED], np.uint8),
                    np.array([7], np.uint32), np.zeros(1, np.uint32),
                )  # fmt: skip
                there_s = max(0.0, (event.time_ns - EPOCH_NS) / 1e9 - world.loop.now)
                await asyncio.sleep(there_s + self.random.uniform(0.0, 1.5))
                world.asked.add(event.event_id)
                while (answer := (await registry.insert(ids, timeout=2.0)).outcomes[0]) == Answer.UNKNOWN:
                    pass
                if answer == Answer.COMMITTED and not world.rival_gone:
                    world.rivals.append(event.event_id)
        await asyncio.Event().wait()


class RetiresRival(Operator):
    """Gives up all that the rival registered: its output is lost."""

    rival: LostSlot | None = None

    def losses(self) -> list[LostSlot]:
        world: Any = self.world
        if world.loop.now < world.rival_until:
            return []
        if self.rival is None:
            world.rival_gone = True
            world.rivals.clear()
            self.rival = LostSlot(RIVAL.name, "", self.place, FaultyDisk(self.random))
        return [self.rival]


class AsksAgain(OfJoin):
    """``photon dispatcher replay``."""

    async def work(self) -> None:
        journal, order = Journal(self.disk, PLACES.state / SPARK_NAME), self.join.rereads.pop(self.name, None)
        self.world.kinds.pop(self.name, None)
        if order is not None and self.disk.exists(journal.directory / REREADS):
            number = journal.ask_reread(order)
            await self.pause(1.0)
            if self.random.random() < 0.2:
                journal.end_reread(number, Ended(at_ns=self.clock.now_ns(), cancelled=True))


# -- the logs --------------------------------------------------------------------------------------------------------
def standing(world: SparkJoinWorld) -> Sequence[StandingLog]:
    """The logs as this datacentre has them now."""
    found = []
    for log in world.truth.foreign:
        if seen := log.visible(EAST, world.loop.now):
            arrived_ns = EPOCH_NS + int(log.arrivals[EAST][seen - 1] * NS_PER_S)
            size = log.offset_at(seen)
            found.append(StandingLog(log.name, log.name, b"", 0, size, arrived_ns, world.join.splittable))
    return found


def read_slice(
    world: SparkJoinWorld, directory: Path, part: Slice, given: Reading, source: object
) -> Iterator[Block]:
    """Reads what is there now, like ``slices.read_slice``. Logs keep their names."""
    (log,) = [each for each in world.truth.foreign if each.name == part.log.identity]
    end = part.log.size if part.end is None else part.end  # one that cannot be cut does not grow
    there = log.lines[: log.visible(EAST, world.loop.now)]
    lines = [line for line in there if part.begin <= line.offset < end]
    at = 0
    while at < len(lines):
        some = lines[at : at + world.random.choice((1, 3, 50))]
        data = _bytes_of(world, world.places[EAST], log, some)
        offset = some[0].offset
        yield Block(log.name, log.file, offset, data, offset + len(data), before=_before(log, offset))
        at += len(some)


# -- the world -------------------------------------------------------------------------------------------------------
class SparkJoinWorld(World):
    """See the module."""

    faults_s = 35.0

    def _random(self) -> Any:
        return type(self.random)(self.random.getrandbits(64))

    def _draw(self) -> None:
        super()._draw()
        self.apart = self.loses_slots = False
        self.unrests[:] = [undone]
        self.checks[:] = [findings]
        self.common_faults = FAULTS
        self.patches = (
            (reading, "read_slice", partial(read_slice, self)),
            (reading, "open_log", lambda *_: BytesIO()),
            (reading, "holds", lambda *_: True),
            (reading, "proof_at", lambda *_: b""),
            (driver, "WHOLE_EVERY", WHOLE_EVERY),
            (given_up, "AGAIN", BackOff(first=2.0, most=10.0)),
            (check, "records", records),
        )
        self.rivals: list[bytes] = []
        self.rival_gone = False
        # Seconds; in half of the schedules it stays.
        self.rival_until = self.random.choice((self.random.uniform(5.0, 60.0), float("inf")))
        self.asked: set[bytes] = set()  # events that the rival asks for: it may not know yet that it has won
        self.seen: dict[str, bytes] = {}  # published file -> its published bytes
        self.claimed: list[int] = []  # ``read_ns`` of the claims that were looked at
        self.passed: list[str] = []  # wrong claims and ledgers; told last: a lost event says more
        self.was_wrong = False  # a clock was wrong by more than S
        self.truth = make_truth(
            self.random, DATACENTRES, events=self.random.choice((5, 15, 30)), seconds=settings.GROWTH_S - 5.0,
            patience=settings.WAITED_S, future=settings.UNCERTAINTY_S + 3.0, fates=FATES,
        )  # fmt: skip

    def _place_more(self) -> None:
        place = self.places[EAST]
        place.mapped = [0] * len(self.truth.primary)
        self._add(f"{EAST}-store", Store, place)
        self.join = JoinOnSpark(self)
        self.join.add(self, f"{EAST}-verifier", Clearing)
        add_driver(self)
        if self.rival_until < float("inf"):
            self._add("west-operator", RetiresRival, self.places["west"])

    def _begin(self) -> None:
        super()._begin()
        rival = Rival(self, self.places["west"], "west-rival")
        self.lives.append(rival)
        self.loop.later(0.5, self.loop.spawn, rival, main(rival))
        self.loop.later(LOOK_S, self._watch)

    def _watch(self) -> None:
        """A published prefix stays: readers may have read it."""
        for name, data in published(self):
            before = self.seen.get(name, b"")
            if data[: len(before)] != before:
                self.violated(f"{name}: {len(before)} published bytes changed, {len(data)} are left")
            self.seen[name] = data
        if gone := self.seen.keys() - dict(published(self)).keys():
            self.violated(f"{sorted(gone)} are no longer published")
        self._check_claim()
        self.loop.later(LOOK_S, self._watch)

    def _check_claim(self) -> None:
        """The watermark passes no undecided event, and counts all: one that was in a log at ``read_ns`` has a line
        that readers see, or is counted among those that wait, at its time."""
        claim = Journal(self.join.disk, PLACES.state / SPARK_NAME).read_last(CLAIM, Claim)
        if claim is None or claim.read_ns is None or self.was_wrong:
            return
        self.claimed.append(claim.read_ns)
        said, left = Undecided(claim), dict[bytes, int]()
        decided = {record.event_id for record in records(self)} | self.asked
        read_s = (claim.read_ns - EPOCH_NS - settings.UNCERTAINTY_NS) / NS_PER_S
        for log in self.truth.foreign:
            for line in log.lines[: log.visible(EAST, read_s)]:
                event_id = line.record.split(b" ")[0]
                is_left = event_id in self.truth.events and event_id not in decided
                if is_left:
                    left[event_id] = time_in(line.record)
                    if left[event_id] < said.oldest_ns:
                        self.passed.append(f"the watermark passes {event_id!r}, which has no line: {claim}")
        for number, time_ns in enumerate(sorted(left.values()), 1):
            if said.before(time_ns + STEP_NS) < number:
                self.passed.append(f"the watermark counts fewer than {number} before {time_ns}: {claim}")


def add_driver(world: SparkJoinWorld) -> str:
    join = world.join
    join.drivers.append(f"{EAST}-driver-{len(join.drivers)}")
    join.add(world, join.drivers[-1], DriverProcess)
    return join.drivers[-1]


def assert_as_after_a_start(world: SparkJoinWorld, own: Driver) -> None:
    """A driver knows the waiting events that the commits tell of, as its successor will."""
    if balance := ledger_of(own.counts, len(own.waiting)).balance:
        world.passed.append(f"batch {own.committed}: {balance} more are read than the ledger has: {own.counts}")
    waiting: dict[str, list[int]] = {}
    for commit in own.journal.commits():
        waiting = {} if commit.whole else waiting
        waiting |= commit.waiting
    if own.committed == max((commit.number for commit in own.journal.commits()), default=-1):
        found = {name: own.waiting.open_rows(name) for name in own.waiting.files}
        if found != (left := {name: rows for name, rows in waiting.items() if rows}):
            world.violated(f"batch {own.committed}: {found} wait, and {left} by the commits")


# -- faults ----------------------------------------------------------------------------------------------------------
def _processes(world: World, kind: type[Process] = OfJoin) -> list[Any]:
    return [each for each in world.lives if each.alive and isinstance(each, kind)]


def kill_one(world: SparkJoinWorld) -> None:
    if here := _processes(world):
        world.ended(world.random.choice(here), "kill -9")


def crash_one(world: SparkJoinWorld) -> None:
    """Kills one in the middle of a write."""
    world.join.disk.crash_after(world.random.randint(1, 12))


def cut_power(world: SparkJoinWorld) -> None:
    """Cuts the power of the file system and all processes on it."""
    world.say("the shared file system has no power")
    for process in _processes(world):
        world.ended(process, "with the file system")
    world.join.disk.power_cut()


def crash_and_cut(world: SparkJoinWorld) -> None:
    """Kills one in the middle of a write and soon cuts the power: others may have read names that do not last."""
    crash_one(world)
    world.loop.later(world.random.uniform(0.1, 1.5), cut_power, world)


def pause_one(world: SparkJoinWorld) -> None:
    kind = world.random.choice((Attempt, OfJoin))
    if here := [each for each in _processes(world, kind) if not each.paused]:
        site_faults._pause(world, world.random.choice(here), world.random.choice((0.5, 3.0, 12.0)))


def wrong_clock(world: SparkJoinWorld) -> None:
    """Sets the clock of the driver or the event store wrong by more than S, one at a time. What one says by a wrong
    clock holds for a while: if the other is wrong by as much at once, both are, and nobody notices."""
    place, now = world.places[EAST], world.loop.now
    if now < world.join.clock_set + CLOCKS_APART_S:
        return
    world.join.clock_set = now
    name = world.random.choice((world.join.drivers[-1], f"{EAST}-store"))
    place.wrong.clear()
    world.was_wrong = True
    place.wrong[name] = world.random.choice((-20.0, 20.0, 40.0, 3600.0))
    world.say(f"{name}: the clock is wrong by {place.wrong[name]:g} s")


def older_file(world: SparkJoinWorld) -> None:
    """A process of the datacentre works under an older file than another one for some seconds."""
    world.join.older_until = world.loop.now + world.random.uniform(1.0, 8.0)


def ask_again(world: SparkJoinWorld) -> None:
    """Somebody orders a time range once more, and maybe cancels it."""
    times = sorted(world.random.choice(list(world.truth.events.values())).time_ns for _ in range(2))
    name = f"{EAST}-again-{world.join.asked}"
    world.join.asked += 1
    world.join.rereads[name] = Reread(asked_ns=0, from_ns=times[0], to_ns=times[1] + 1)
    world.join.add(world, name, AsksAgain)
    world.loop.later(0.0, world.boot, name)


def replace_driver(world: SparkJoinWorld) -> None:
    """Another machine starts a driver while the current one sleeps, or is at work."""
    current = world.running(world.join.drivers[-1])
    if isinstance(current, DriverProcess) and current.begun:
        if world.random.random() < 0.8:
            site_faults._pause(world, current, world.random.choice((1.0, 4.0, 12.0)))
        world.loop.later(world.random.uniform(0.0, 1.0), world.boot, add_driver(world))


def full_disk(world: SparkJoinWorld) -> None:
    """Writes to the shared file system fail halfway for a while. Not among ``FAULTS``: it has schedules of its own,
    in which each step meets it."""
    disk = world.join.disk
    disk.room = world.random.choice((0, world.random.randint(0, 3000)))
    world.say(f"{disk.room} bytes are left on the shared file system")
    world.loop.later(world.random.uniform(0.3, 4.0), setattr, disk, "room", None)


FAULTS: Any = (
    (kill_one, 8), (crash_one, 6), (cut_power, 1), (crash_and_cut, 3), (pause_one, 5), (replace_driver, 4),
    (wrong_clock, 2), (older_file, 2), (ask_again, 3), (site_faults.kill_one, 2), (site_faults.cut_network, 3),
    (site_faults.weather, 3), (site_faults.new_leader, 3),
)  # fmt: skip


# -- what must hold --------------------------------------------------------------------------------------------------
def undone(world: SparkJoinWorld) -> str:
    """Work that is left: nothing waits permanently."""
    if world.loop.now < world.truth.last_arrival:
        return "logs still grow"
    process = world.running(world.join.drivers[-1])
    if not isinstance(process, DriverProcess) or process.driver is None or not process.idle:
        return "the driver is not idle"
    if zombies := _processes(world, Attempt):
        return f"{[each.name for each in zombies]} have not ended"
    own = process.driver
    if len(own.waiting):
        return f"{len(own.waiting)} events wait"
    for log in world.truth.foreign:
        if log.lines and (log.name not in own.logs or own.logs[log.name].offset != log.end):
            return f"{log.name} is not read to its end"
    pages = [machine.owned_page(SLOT.name, (1 << 24) - 1, b"") for machine in world.shard_machines()]
    owned = sum(len(page.times) for page in pages)
    if owned:
        return f"{owned} ids are owned"
    if world.rival_until < float("inf"):
        if not world.rival_gone or not world.running("west-operator").rival.retired:
            return "the rival is not retired"
        pages = [machine.reopened_page(b"") for machine in world.shard_machines()]
        if reopened := sum(len(page.times) for page in pages):
            return f"{reopened} ids are reopened"
    left = [number for number, ended in own.journal.rereads().items() if not ended]
    return f"rereads {left} are not done" if left else ""


def published(world: SparkJoinWorld) -> Iterator[tuple[str, bytes]]:
    """Name and published bytes of each file of the slot, and of the exports."""
    disk = world.join.disk
    for state in (PLACES.state, PLACES.exports / EXPORTER):
        for file in read_slot(disk, state).files:
            plain, compressed = PLACES.output / file.path, PLACES.output / gzip_name(file.path)
            if disk.exists(plain):
                yield file.name, disk.read(plain)[: file.length]
            else:
                yield file.name, gzip.decompress(disk.read(compressed)) if disk.exists(compressed) else b""


def records(world: SparkJoinWorld) -> Iterator[check.Record]:
    """Lines that readers of the slot see, and the events of the rival."""
    for name, data in published(world):
        if f"/{EXPORTER}-" not in name:
            for line in data.splitlines():
                yield check._record(KIND_OF[name.partition("/")[0]], name, EAST, line, check._fields(line))
    for event_id in world.rivals:
        yield check.Record(Kind.JOINED, "rival", RIVAL.datacentre, {"event_id": event_id.decode()})


def findings(world: SparkJoinWorld) -> Iterator[str]:
    """Broken promises."""
    found = list(records(world))
    times = Counter(record.event_id for record in found)
    for event_id in world.truth.events:
        if times[event_id] != 1:
            yield f"{event_id!r} is {f'written {times[event_id]} times' if times[event_id] else 'lost'}"
    for record in [each for each in found if each.datacentre == EAST]:
        event = world.truth.events.get(record.event_id)
        if event is None:
            yield f"invented: {record.event_id!r}"
        elif record.kind not in event.fate.value:
            yield f"wrong verdict: {record.event_id!r} is {record.kind.name}, not {event.fate.name}"
        elif record.kind == Kind.UNMATCHED and world.join.is_planned_older(record):
            yield f"unmatched under an older file: {record.event_id!r}"
        elif wrong := check._wrong_contents(world, event, record):
            yield f"wrong contents of {record.event_id!r}: {wrong} in {record.fields}"
    lines = [line for name, data in published(world) if f"/{EXPORTER}-" in name for line in data.splitlines()]
    sources = [json.loads(line)["source"] for line in lines]
    rejected = Counter((source["file"], source["offset"]) for source in sources)
    if rejected != Counter(world.truth.malformed):
        yield f"unreadable lines: exported {dict(rejected)}, there are {world.truth.malformed}"
    yield from (f"alarm: {each}" for each in world.alarms)
    yield from world.passed[:1]
