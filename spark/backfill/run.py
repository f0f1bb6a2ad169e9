"""Runs a backfill from start to end: the driver's steps and Spark's jobs."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import msgspec

from photon.adapters.logs.problems import Problem, ProblemKind
from photon.config import file_lock
from photon.config.clock import NS_PER_S, Clock
from photon.config.disk import Disk
from photon.config.errors import UsageError
from photon.dispatcher.retry import Patience
from photon.idregistry.api import Slot
from photon.joiner.slot.identity import NONCE_BYTES
from photon.objects.api import ObjectChanged
from photon.objects.paths import ObjectPath, placed
from photon.objects.transfer import told
from photon.outputs.output_places import OutputPlace
from photon.spark.backfill.deciding import BackfillFailed
from photon.spark.backfill.driver import AllRead, BackfillDriver, Completion, Finished, to_read
from photon.spark.backfill.finding import FORGOTTEN, free_ids, primaries
from photon.spark.backfill.known import BackfillJob, BackfillPaths
from photon.spark.backfill.tasks import FOUND, BackfillPlace, Found, PartsToDo, do_on_spark
from photon.spark.logs import LogNotRead
from photon.spark.pipeline.driver import DriverPlaces, FencingRegistry
from photon.spark.pipeline.journal import Journal, LogAt, Plan
from photon.spark.pipeline.listing import Listing, LogLister
from photon.spark.pipeline.part import Done, RegistrySilent
from photon.spark.pipeline.planner import PlanLimits
from photon.spark.session import said_by_spark
from photon.spark.shipped_adapter import made
from photon.spark.sources import LogSource, OutputSource, reading_of
from photon.spark.tasks import task_directory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCK_NAME = "lock"
PACKED_BYTES = 128 << 20  # of content of a compressed log in one batch: as held by a task
BATCH_BYTES = 1 << 62

Say = Callable[[str], None]  # receives progress, a line each
CopiesOutput = Callable[[OutputPlace, ObjectPath], object]  # shows a finished output below a URL


@dataclass(frozen=True, slots=True)
class BackfillPlan:
    """The inputs and limits of one backfill."""

    paths: BackfillPaths
    job: BackfillJob
    place: BackfillPlace
    primary: LogSource
    limits: PlanLimits
    outputs: tuple[OutputSource, ...] = ()  # of all datacentres, and of other backfills that overlap the range

    @property
    def journal(self) -> Path:
        return placed(Path(), self.place.journal)


@dataclass(frozen=True, slots=True)
class BackfillOutcome:
    """The result of the backfill, and this run's share of the work."""

    slot: str
    result: Finished
    cleared: int  # by this run
    earlier: bool  # an earlier run had finished it


@dataclass
class Backfill:
    """One run of a backfill. It may be killed at any moment; a new run continues."""

    spark: Callable[[], SparkSession]
    plan: BackfillPlan
    registry: FencingRegistry
    disk: Disk
    clock: Clock
    say: Say
    copy: CopiesOutput
    _paths: dict[str, str] = field(default_factory=dict)  # identity of a log -> where it is

    def __post_init__(self) -> None:
        plan = self.plan
        self._journal = Journal(self.disk, plan.journal)
        foreign = plan.place.foreign
        adapter = made(plan.place.join.adapter, task_directory())
        reading = reading_of(foreign, adapter, foreign=True)
        self._lister = LogLister(placed(Path(), foreign.directory), reading, self._tell, self.clock.now_ns)

    async def __call__(self) -> BackfillOutcome:
        """Runs or resumes the backfill. Raises PhotonError, OSError and Spark's errors."""
        journal, job = self._journal, self.plan.job
        completion = Completion(journal, self.registry, job.boundary_ns, self.clock)
        earlier = completion.finished() is not None
        result, cleared = await completion(self._join)
        for name in self.disk.names(journal.directory / FOUND):
            if name.startswith(FORGOTTEN):  # Spark's directory
                shutil.rmtree(journal.directory / FOUND / name, ignore_errors=True)
            else:
                journal.remove(journal.directory / FOUND / name)
        return BackfillOutcome(job.slot, result, cleared, earlier)

    @contextmanager
    def _output(self) -> Iterator[OutputPlace]:
        """Yields the output directory. For a URL, that is a temporary directory, copied to the URL once complete."""
        paths = self.plan.paths
        if not isinstance(paths.output, ObjectPath):
            yield OutputPlace(paths.output, paths.state)
            return
        with tempfile.TemporaryDirectory(prefix="photon-backfill-") as directory:
            local = BackfillPaths(Path(directory))
            place = OutputPlace(local.output, local.state)
            yield place
            self.copy(place, paths.output)

    async def _join(self) -> Finished:
        with self._output() as place:
            done = await self._batches(place)
        self.say("all records are published; clearing tokens")
        return done

    async def _batches(self, place: OutputPlace) -> Finished:
        plan, job, local = self.plan, self.plan.job, BackfillPaths(place.output)
        driver = BackfillDriver(
            disk=self.disk,
            places=DriverPlaces(plan.paths.slot(job), local.exports, local.output, local.slot(job)),
            join=job.join,
            slot=Slot(job.slot, job.datacentre),
            registry=self.registry,
            store=AllRead(),
            clock=self.clock,
            patience=Patience(),
            limits=plan.limits,
            list_logs=self._list_logs,
            pause=asyncio.sleep,
            draw_nonce=lambda: os.urandom(NONCE_BYTES),
            random=Random().random,
        )
        try:
            await driver.begin()
            self.say(f"joining as {job.slot}, incarnation {driver.incarnation}")
            while (batch := await driver.step(lambda plan: asyncio.to_thread(self._do, driver, plan))) is not None:
                counts = ", ".join(f"{count:,} {name}" for name, count in sorted(batch.counts.items()))
                self.say(f"batch {batch.number}: {counts or 'no events'}")
            driver.end()
            files = [file for slot in place.published(self.disk) for file in slot.files]
            return Finished(counts=driver.counts, files=len(files), bytes=sum(file.length for file in files))
        finally:
            driver.close()

    def _list_logs(self, known: Mapping[str, LogAt]) -> Listing:
        listing, window = self._lister(known), self.plan.place.foreign.window
        self._paths = {log.identity: log.path for log in listing.logs}
        assert window.begin_ns is not None, "a backfill has a range"
        oldest_ns = window.begin_ns - int(window.slack_s * NS_PER_S)
        return listing._replace(logs=to_read(listing.logs, known, oldest_ns))

    def _tell(self, problem: Problem) -> None:
        foreign = self.plan.place.foreign
        if problem.kind is ProblemKind.UNREADABLE:
            raise LogNotRead(f"{foreign.directory}/{problem}; make it readable, or move it away")
        self.say(f"{foreign.datacentre}: {problem}")

    # -- one batch ---------------------------------------------------------------------------------------------
    def _do(self, driver: BackfillDriver, plan: Plan) -> list[Done]:
        if not self._paths:  # repeated, as a log may have been renamed since
            self._list_logs(driver.logs)
        journal, spark = self._journal, self.spark()
        work = PartsToDo(
            place=self.plan.place,
            plan=plan,
            paths=self._paths,
            incarnation=driver.incarnation,
            own_incarnations=driver.own_incarnations,
        )
        try:
            parts = [part for part in range(len(plan.parts)) if journal.decision(plan.number, part) is None]
            if parts:
                found = primaries(spark, work, parts, self.plan.primary, self.say)
                work = msgspec.structs.replace(work, primaries=found)
            if self.plan.place.is_compared:
                work = msgspec.structs.replace(work, free=self._free(spark, work))
            return do_on_spark(spark, work)
        except Exception as error:
            if (why := str(error) if isinstance(error, RegistrySilent) else said_by_spark(error)) is None:
                raise
            raise BackfillFailed(f"{why}; run the same command again to continue") from error

    def _free(self, spark: SparkSession, work: PartsToDo) -> Found:
        """Like ``free_ids``, but reuses the first answer, since the registry may have forgotten more ids by now."""
        mark = self._journal.directory / FOUND / f"free-{work.plan.number}"
        if not self.disk.exists(mark):
            self.disk.create(mark, msgspec.json.encode(free_ids(spark, work, self.plan.outputs)))
        return msgspec.json.decode(self.disk.read(mark), type=Found)


@contextmanager
def alone(paths: BackfillPaths) -> Iterator[None]:
    """Locks the output. Raises UsageError if another driver is using it. On NFS the lock needs version 4. At a URL
    there is no lock: of two drivers, the older one finds a newer incarnation, and ends."""
    if isinstance(paths.output, ObjectPath):
        with told(paths.output):
            try:
                yield
            except ObjectChanged:
                raise BackfillFailed(f"{paths.output}: another photon spark backfill is using it") from None
        return
    paths.state.mkdir(parents=True, exist_ok=True)
    busy = f"{paths.output}: another photon spark backfill is using it; wait until it ends"
    with file_lock.alone(paths.state / LOCK_NAME, busy):
        yield


def check_output(output: Path) -> None:
    """Raises UsageError if ``output`` is neither a path on a local or mounted file system nor a URL."""
    if isinstance(output, ObjectPath):
        return
    if "://" in str(output) or ":/" in str(output):
        raise UsageError(
            f"--output {output}: Hadoop file systems are not supported; name a directory mounted on the driver and "
            "all executors, or a URL of an object store"
        )
