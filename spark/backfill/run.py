"""A backfill from start to end: the driver's steps around Spark's job."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from photon.config import file_lock
from photon.config.clock import Clock
from photon.config.disk import Disk
from photon.config.errors import UsageError
from photon.idregistry.api import Slot
from photon.joiner.slot.identity import NONCE_BYTES
from photon.objects.api import ObjectChanged
from photon.objects.paths import ObjectPath
from photon.objects.transfer import told
from photon.outputs.mirrored import MANIFEST
from photon.spark import logs
from photon.spark.backfill import job as spark_job
from photon.spark.backfill.batch_names import BackfillPaths
from photon.spark.backfill.compare import Written, missing_events
from photon.spark.backfill.driver import BackfillFailed, Driver, FencingRegistry
from photon.spark.backfill.manifest import BackfillJob, Manifest, begun, read_manifest
from photon.spark.backfill.parts import encoder
from photon.spark.backfill.work import BATCH_ROWS, BackfillCounts, BackfillTask, RegistryPlace, TaskResult
from photon.spark.session import said_by_spark
from photon.spark.sources import JoinSource, LogSource, OutputSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOCK_NAME = "lock"

Say = Callable[[str], None]  # receives progress, a line each


@dataclass(frozen=True, slots=True)
class BackfillPlan:
    """One backfill. ``job`` is the requested one: a directory created earlier keeps its own slot."""

    places: BackfillPaths
    job: BackfillJob
    join: JoinSource
    foreign: LogSource | None  # events to register; None means the whole range is below the registry's boundary
    primary: LogSource
    registry: RegistryPlace
    forgotten: LogSource | None = None  # events below the boundary, to compare with ``outputs``
    outputs: tuple[OutputSource, ...] = ()  # of all datacentres
    backfills: tuple[Path, ...] = ()  # outputs of other backfills that overlap the range
    joined_at: bool = True
    batch_rows: int = BATCH_ROWS


@dataclass(frozen=True, slots=True)
class BackfillOutcome:
    """The visible output, and the work of this run."""

    manifest: Manifest
    counts: BackfillCounts | None  # of this run's tasks; None if an earlier run had finished them
    redone: int
    cleared: int


async def run(
    spark: SparkSession, plan: BackfillPlan, registry: FencingRegistry, disk: Disk, clock: Clock, say: Say
) -> BackfillOutcome:
    """May be killed at any moment and run again. Raises PhotonError, OSError and Spark's errors."""
    job = begun(disk, plan.places.job, plan.job)
    driver = Driver(
        disk, plan.places, Slot(job.slot, job.datacentre), registry, clock,
        encode=encoder(job.format), suffix=job.format,
        draw_nonce=lambda: os.urandom(NONCE_BYTES), pause=asyncio.sleep,
    )  # fmt: skip
    if (manifest := read_manifest(disk, plan.places.manifest)) is not None and _done(disk, plan.places):
        return BackfillOutcome(manifest, None, 0, 0)
    say("opening the slot; doing again what an earlier run left")
    manifest = await driver.begin()
    task = _task(plan, job, driver)
    counts = None
    if manifest is None:
        say(f"joining as {job.slot}, incarnation {driver.incarnation}")
        done = await asyncio.to_thread(_tasks, spark, plan, task, say)
        counts = done.counts
        say("closing the run; doing again what discarded attempts left")
        await driver.settle()
        manifest = await driver.publish(msgspec.structs.asdict(counts), done.parts)
    driver.show(manifest)
    batches = sorted({file.batch for file in manifest.files if file.batch})
    say(f"published {len(manifest.files)} files; clearing tokens")
    cleared = await asyncio.to_thread(spark_job.clear, spark, task, batches)
    await driver.tidy(manifest)
    return BackfillOutcome(manifest, counts, driver.redone, cleared)


def _tasks(spark: SparkSession, plan: BackfillPlan, task: BackfillTask, say: Say) -> TaskResult:
    try:
        done = TaskResult(BackfillCounts(), [])
        if plan.forgotten is not None:
            written = Written(plan.outputs, plan.backfills)
            events = missing_events(spark, plan.join, plan.forgotten, written, plan.registry, plan.places, say)
            done = _joined(spark, plan, events, msgspec.structs.replace(task, registers=False), say)
        if plan.foreign is not None:
            events = logs.foreign(spark, plan.join, [plan.foreign], report=say)
            done.counts.add(_joined(spark, plan, events, task, say).counts)
    except Exception as error:
        if (why := said_by_spark(error)) is None:
            raise
        raise BackfillFailed(f"{why}; run the same command again to go on") from error
    return done


def _joined(spark: SparkSession, plan: BackfillPlan, events: DataFrame, task: BackfillTask, say: Say) -> TaskResult:
    from pyspark import StorageLevel

    events = events.persist(StorageLevel.DISK_ONLY)
    try:
        return spark_job.run(spark, spark_job.joined(spark, plan.join, events, plan.primary, say), task)
    finally:
        events.unpersist()


def _done(disk: Disk, places: BackfillPaths) -> bool:
    """True if nothing remains to be done after the manifest was written."""
    return not disk.names(places.staging) and (not places.url or disk.exists(places.output / MANIFEST))


def _task(plan: BackfillPlan, job: BackfillJob, driver: Driver) -> BackfillTask:
    return BackfillTask(
        output=str(plan.places.output),
        slot=job.slot,
        datacentre=job.datacentre,
        incarnation=driver.incarnation,
        own_incarnations=driver.incarnations,
        registry=plan.registry,
        adapter=plan.join.adapter,
        format=job.format,
        unmatched=job.unmatched,
        joined_at=plan.joined_at,
        batch_rows=plan.batch_rows,
    )


@contextmanager
def alone(places: BackfillPaths) -> Iterator[None]:
    """Raises UsageError while another driver works on this output. On NFS the lock needs version 4. Below a URL two
    drivers may run: each replaces only the version of a file that it has read, so one notices the other and ends."""
    if places.url:
        with told_of_others(places):
            yield
        return
    places.state.mkdir(parents=True, exist_ok=True)
    busy = f"{places.output}: another photon spark backfill works on it; let it end"
    with file_lock.alone(places.state / LOCK_NAME, busy):
        yield


@contextmanager
def told_of_others(places: BackfillPaths) -> Iterator[None]:
    """Raises BackfillFailed, ObjectsUnavailable."""
    assert isinstance(places.output, ObjectPath)
    with told(places.output):
        try:
            yield
        except ObjectChanged:
            raise BackfillFailed(f"{places.output}: another photon spark backfill works on it") from None


def check_output(output: Path) -> None:
    """The output must be a path of a local or mounted file system, or a URL. Raises UsageError."""
    if isinstance(output, ObjectPath):
        return
    if "://" in str(output) or ":/" in str(output):
        raise UsageError(
            f"--output {output}: Hadoop file systems are not supported; name a directory that driver and executors "
            "have mounted, or a URL of an object store"
        )
