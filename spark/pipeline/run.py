"""Runs the join of one datacentre as a Spark application: the driver's loop and its clients, until it is stopped."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np

from photon.adapters.logs.problems import Problem
from photon.config.back_off import BackOff
from photon.config.clock import SystemClock
from photon.config.disk import Disk
from photon.config.errors import PhotonError
from photon.config.stopping import end
from photon.eventstore.api import ArrivalNotices
from photon.idregistry.api import Slot
from photon.idregistry.client.routing import RoutedRegistry
from photon.joiner.slot.identity import NONCE_BYTES, until_told
from photon.joiner.slot.output import OutputLimits
from photon.objects.paths import placed
from photon.spark.pipeline.deciding import EventStoreSilent
from photon.spark.pipeline.driver import Batch, Driver, DriverPlaces
from photon.spark.pipeline.given_up import PERIOD_S, Search, look
from photon.spark.pipeline.journal import LogAt, Plan
from photon.spark.pipeline.listing import Listing, LogLister
from photon.spark.pipeline.part import Done, RegistrySilent, Worker
from photon.spark.pipeline.planner import PlanLimits
from photon.spark.pipeline.reading import read_waiting
from photon.spark.pipeline.tasks import JoinPlace, do_on_spark, event_store, worker
from photon.spark.pipeline.waiting import hashes_of
from photon.spark.session import said_by_spark
from photon.spark.shipped_adapter import made
from photon.spark.sources import reading_of
from photon.spark.tasks import task_directory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALONE_BYTES = 1 << 20  # a batch with less to read is done in the driver: a job of Spark costs half a second
ALONE_ROWS = 20_000  # likewise a batch that retries no more waiting events
ARRIVED_S = 5.0
AGAIN_S = 0.5
SEEK_KEYS = 4_000
REPEATED = BackOff(first=1.0, most=30.0)
REPEATS = 1  # repetitions with --once, as each attempt itself retries for a minute or two
FULL = "the limit of waiting events is reached ([limits] retry_store); no log is read until some are decided"

Say = Callable[[str], object]
Progress = dict[str, Any]  # one batch, as in ``JoinQuery.lastProgress``, without the name


@dataclass(frozen=True, slots=True)
class JoinRun:
    """The joins and directories of one application."""

    place: JoinPlace
    output: Path
    exports: Path
    limits: PlanLimits
    once: bool
    trigger_s: float
    uncertainty_ns: int
    shown: OutputLimits
    rule: bytes


@dataclass(slots=True)
class Outcome:
    """Counts since the slot began, and the number of waiting events."""

    batches: int
    counts: dict[str, int]
    waiting: int
    lost: list[str] = field(default_factory=list)  # logs gone before they were read, a line each


@dataclass
class Application:
    """Runs a driver. ``session``: makes the Spark session when the first large batch needs it."""

    run: JoinRun
    session: Callable[[], SparkSession]
    registry: RoutedRegistry
    disk: Disk
    say: Say
    tell: Callable[[Progress], object]  # receives each finished batch
    stop: asyncio.Event
    serving: Callable[[Application], AbstractAsyncContextManager[None]]  # entered once it joins
    withholds: Callable[[], str]  # as of ``Driver``
    driver: Driver = field(init=False)

    def __post_init__(self) -> None:
        self._clock = SystemClock()
        self._woken: set[int] = set()
        self._moved = asyncio.Event()
        self._paths: dict[str, str] = {}  # identity of a log -> where it is
        self._listed = False  # True if listed for the next batch
        self._spark: SparkSession | None = None
        self._problems: set[str] = set()
        self._failed: BaseException | None = None  # the error of a task running next to the loop
        self.search = Search()
        self._done_s = 0.0  # duration of the tasks of the newest batch
        self.lost: list[str] = []
        place = self.run.place
        adapter = made(place.join.adapter, task_directory())
        reading = reading_of(place.foreign, adapter, foreign=True)
        self._lister = LogLister(placed(Path(), place.foreign.directory), reading, self._tell, self._clock.now_ns)

    async def __call__(self) -> Outcome:
        """Runs the join until it ends. Raises SlotRefused, Fenced, JournalDamaged, PhotonError, OSError."""
        place = self.run.place
        async with AsyncExitStack() as closing:
            store = event_store(place)
            closing.push_async_callback(store.close)
            self.driver = Driver(
                disk=self.disk,
                places=DriverPlaces(Path(place.state), self.run.exports, self.run.output),
                join=place.join.join,
                slot=Slot(place.slot, place.datacentre),
                registry=self.registry,
                store=store,
                clock=self._clock,
                patience=place.patience,
                limits=self.run.limits,
                list_logs=self._list_logs,
                pause=asyncio.sleep,
                draw_nonce=lambda: os.urandom(NONCE_BYTES),
                random=Random().random,
                withholds=self.withholds,
                uncertainty_ns=self.run.uncertainty_ns,
                output=self.run.shown,
                rule=self.run.rule,
            )
            closing.callback(self.driver.close)
            await self.driver.begin()
            self.say(f"slot {place.slot}, incarnation {self.driver.incarnation}, batch {self.driver.committed + 1}")
            driver = self.driver
            alone = await closing.enter_async_context(
                worker(
                    place, driver.incarnation, driver.own_incarnations, task_directory(), self.disk,
                    (self.registry, store), self._paths,
                )
            )  # fmt: skip
            await closing.enter_async_context(self.serving(self))
            following = [asyncio.create_task(self._follow(store)), asyncio.create_task(self._watch_given_up())]
            for each in following:
                each.add_done_callback(self._followed)
            closing.push_async_callback(end, following)
            await self._loop(alone)
            if self._failed is not None:
                raise self._failed
            return Outcome(driver.committed + 1, dict(driver.counts), len(driver.waiting), self.lost)

    async def _loop(self, alone: Worker) -> None:
        repeats, full = 0, False
        while not self.stop.is_set():
            at = self._clock.monotonic()
            woken, self._woken = self._woken, set()
            if woken:  # after applying the previous batch's rows, which may be among them
                self.driver.waiting.wake(np.array(list(woken), np.uint64))
            try:
                batch = await self.driver.step(lambda plan: self._do(plan, alone))
            except (RegistrySilent, EventStoreSilent) as silent:
                repeats += 1
                if self.run.once and repeats > REPEATS:
                    raise
                self.say(f"{silent}; the batch is repeated")
                await self._sleep(REPEATED.delay(repeats))
                continue
            repeats = 0
            if self.driver.full != full:
                full = self.driver.full
                self.say(FULL if full else "logs are read again")
            if batch is not None:
                self.tell(self._progress(batch, self._clock.monotonic() - at))
            elif (
                self.run.once
                and (self.withholds() or not self.driver.waiting.is_any_untried())
                and not await self._look_for_given_up()
            ):
                return
            if batch is None or not self.run.once:
                await self._sleep(self.run.trigger_s - (self._clock.monotonic() - at))

    async def _sleep(self, seconds: float) -> None:
        if seconds > 0:
            waits = [asyncio.create_task(self.stop.wait()), asyncio.create_task(self._moved.wait())]
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            await end(waits)
            if self._moved.is_set() and not self.stop.is_set():  # a key has arrived, and others may follow at once
                await asyncio.sleep(min(seconds, 0.05))
        self._moved.clear()

    # -- one batch ---------------------------------------------------------------------------------------------
    async def _do(self, plan: Plan, alone: Worker) -> list[Done]:
        if not self._listed:  # repeated, as a log may have been renamed since
            self._list_logs(self.driver.logs)
        self._listed, begun = False, self._clock.monotonic()
        size = sum(
            (stretch.end or stretch.log.size) - stretch.begin if stretch.log.splittable else stretch.log.size
            for part in plan.parts
            for stretch in part.stretches
        )
        rows = sum(len(rest.rows) for part in plan.parts for rest in part.waiting)
        if size <= ALONE_BYTES and rows <= ALONE_ROWS:
            done = [await alone(plan, number) for number in range(len(plan.parts))]
        else:
            done = await asyncio.to_thread(self._on_spark, plan)
        self._done_s = self._clock.monotonic() - begun
        self._tell_gone(plan, done)
        return done

    def _tell_gone(self, plan: Plan, done: Sequence[Done]) -> None:
        """Reports planned logs that can no longer be found."""
        short = [
            (stretch.log.identity, stretch.log.path, stretch.log.size - came.offset)
            for part, each in zip(plan.parts, done, strict=True)
            for stretch, came in zip(part.stretches, each.decision.reached, strict=True)
            if came.offset == stretch.begin < stretch.log.size and not came.ended and not plan.reread
        ]
        if short:
            self._list_logs(self.driver.logs)
            self._listed = False
        for identity, path, left in short:
            if identity not in self._paths:
                self.lost.append(f"{path}: is gone, and its last {left:,} bytes were never read; restore it")
                self.say(self.lost[-1])

    def _on_spark(self, plan: Plan) -> list[Done]:
        if self._spark is None:
            self._spark = self.session()
        driver = self.driver
        try:
            return do_on_spark(
                self._spark, self.run.place, driver.incarnation, driver.own_incarnations, plan, dict(self._paths)
            )
        except (RegistrySilent, EventStoreSilent) as silent:
            place = self.run.place
            there = [place.eventstore] if isinstance(silent, EventStoreSilent) else place.registry.addresses.values()
            raise type(silent)(f"{silent}; executors must reach {', '.join(there)}") from None
        except Exception as error:
            if (said := said_by_spark(error)) is None:
                raise
            raise PhotonError(said) from None

    def _list_logs(self, known: Mapping[str, LogAt]) -> Listing:
        listing = self._lister(known)
        self._paths.clear()
        self._paths.update({log.identity: log.path for log in listing.logs})
        self._listed = True
        return listing

    def _tell(self, problem: Problem) -> None:
        if (line := str(problem)) not in self._problems:
            self._problems.add(line)
            self.say(line)

    # -- ids that the registry gave up -------------------------------------------------------------------------
    async def _watch_given_up(self) -> None:
        while True:
            await asyncio.sleep(PERIOD_S)
            await self._look_for_given_up()

    def _followed(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (failed := task.exception()) is not None:
            self._failed = failed
            self.stop.set()

    async def _look_for_given_up(self) -> bool:
        missing = self.search.missing
        is_ordered = await look(self.registry.recovery, self.driver, self.search)
        if self.search.missing > missing:
            self.say(
                f"{self.search.missing:,} ids that the registry gave up are in no log here; they are lost, or "
                "only in logs of another datacentre"
            )
        return is_ordered

    def _progress(self, batch: Batch, took_s: float) -> Progress:
        return {
            "batchId": batch.number,
            "timestamp": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "numInputRows": batch.counts.get("events", 0),
            "durationMs": {"addBatch": round(1000 * self._done_s), "triggerExecution": round(1000 * took_s)},
            "counts": batch.counts,
            "waiting": batch.waiting,
            "lost": list(self.lost),
        }

    # -- arrivals ----------------------------------------------------------------------------------------------
    async def _follow(self, store: ArrivalNotices) -> None:
        """Retries waiting events when their keys arrive (``dispatcher.arrivals``)."""
        epoch = number = 0
        while True:
            came = await store.arrived(epoch, number, ARRIVED_S)
            self.driver.waiting.followed = came is not None
            if came is None:
                await asyncio.sleep(AGAIN_S)
                continue
            epoch, number = came.epoch, came.next
            self._wake(came.keys)
            if came.lost:
                await self._seek(store)
            elif not came.keys:
                await asyncio.sleep(0.01)

    async def _seek(self, store: ArrivalNotices) -> None:
        journal = self.driver.journal
        keys = list(dict.fromkeys(self.driver.waiting.keys(lambda name: read_waiting(journal, name))))
        for at in range(0, len(keys), SEEK_KEYS):
            some = keys[at : at + SEEK_KEYS]
            rows = await until_told(partial(store.seek, some), asyncio.sleep)
            self._wake([some[row] for row in rows])

    def _wake(self, keys: list[bytes]) -> None:
        if keys:
            self._woken.update(hashes_of(keys).tolist())
            self._moved.set()


def told(progress: Progress) -> str:
    """Formats a batch's progress as one line."""
    counts = ", ".join(f"{count:,} {name}" for name, count in sorted(progress["counts"].items())) or "nothing new"
    return f"batch {progress['batchId']}: {counts}; {progress['waiting']:,} wait"
