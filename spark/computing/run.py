"""The driver of a topology on Spark: runs one streaming query, and publishes its committed batches.

The state's directory has ``spark.json`` (its topology and its number of partitions, which a checkpoint cannot
change), the locks ``run.lock`` and ``java.lock``, Spark's ``checkpoint/``, and ``staged/``. Executors need access to
it.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from photon.computing.errors import ComputingError
from photon.computing.injector import Injector
from photon.computing.journal import Status, write_status
from photon.computing.table import NAME, SPARK_NAME
from photon.computing.topology import Topology
from photon.computing.wire import ENDED_NS
from photon.config.clock import Clock, SystemClock
from photon.config.disk import Disk, RealDisk
from photon.config.errors import UsageError
from photon.config.file_lock import lock_file
from photon.config.versioned_file import read_present
from photon.outputs.cursor import Cursor
from photon.spark.computing.plan import MARKER_PREFIX, SCHEMA, Plan, Reads, refusals
from photon.spark.computing.publishing import SENDER, Publishing, last_offset, stage
from photon.spark.data_source_options import decoded, furthest, mark_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

JAVA_LOCK = "java.lock"  # held by Spark's Java process
JAVA_S = 60.0
POLL_S = 0.1
# Minimum time between batches: watermarks move several times a second even without records.
TRIGGER = "500 milliseconds"
SAY_S = 1.0
PROVIDER = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass": PROVIDER,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # Each attempt's state has its own name, which the commit records: a late attempt changes nothing.
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
    # The source makes a batch whenever the watermark has moved, as each has a marker.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.pollingDelay": "100ms",
    # Each progress report has all batches since the last one; BEHIND_MAX bounds their number.
    "spark.sql.streaming.numRecentProgressUpdates": "16",
    "spark.sql.streaming.minBatchesToRetain": "100",  # publishing.BEHIND_MAX
    "spark.sql.streaming.stopTimeout": "60s",
}
FAULTS_MAX = 100


class _File(msgspec.Struct, frozen=True, kw_only=True, tag_field="photon_computing_spark", tag=1):
    topology: str
    shape: str
    partitions: int
    id: str


@dataclass(frozen=True, slots=True)
class Wish:
    topology: Topology
    file: Path
    state: Path
    reads: Sequence[Reads]
    published: Mapping[str, Path]
    once: bool
    records: int  # in one batch
    partitions: int  # for a new state


def run(spark: Callable[[], SparkSession], wish: Wish, stop: threading.Event, tell: Callable[[str], None]) -> Status:
    """Runs until ``stop`` is set, or with ``once`` to the end of the data. It may be killed at any moment and run
    again. Returns the final status. ``spark`` makes the session, once all checks have passed. Raises UsageError,
    PhotonError, OSError and Spark's errors."""
    if refused := next(refusals(wish.topology), None):
        raise UsageError(f"{refused}; run it without --on spark")
    disk, clock = RealDisk(), SystemClock()
    disk.make_dir(wish.state)
    if (lock := lock_file(wish.state / "run.lock")) is None:
        raise UsageError(f"{wish.state}: another process runs {wish.topology.name} there; stop it first")
    try:
        known = _known(disk, wish)
        _java_gone(wish.state / JAVA_LOCK, clock)
        checkpoint = wish.state / "checkpoint"
        with closing(
            Publishing(disk, clock, wish.state, checkpoint, wish.published, known.id, wish.topology)
        ) as publishing:
            publishing.publish()
            publishing.clear()
            if _reads_no_more(disk, checkpoint, wish):
                tell(
                    f"{wish.state}: a run with --once has ended all streams, so newer records are not read; "
                    "name another --state, and publish to empty directories"
                )
            return _Run(spark(), wish, known, publishing, disk, clock, tell).until(stop)
    finally:
        os.close(lock)


def _java_gone(path: Path, clock: Clock) -> None:
    """Waits for the Java process of a killed driver to end, as it might still commit a batch. Raises UsageError if it
    does not."""
    with path.open("ab") as file:
        until = clock.monotonic() + JAVA_S
        while True:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                if clock.monotonic() >= until:
                    raise UsageError(
                        f"{path.parent}: an earlier run's Spark process is still running; stop it first"
                    ) from None
                time.sleep(POLL_S)
            else:
                return


def _known(disk: Disk, wish: Wish) -> _File:
    """Reads the description of the state, or creates it. Raises UsageError."""
    path, topology = wish.state / SPARK_NAME, wish.topology
    if not disk.exists(path):
        if disk.exists(wish.state / NAME):
            raise UsageError(
                f"{wish.state}: is the state of a photon compute run without --on spark; name another --state"
            )
        made = _File(
            topology=topology.name, shape=topology.shape,
            partitions=wish.partitions, id=uuid.uuid4().hex,
        )  # fmt: skip
        disk.replace(path, msgspec.json.encode(made) + b"\n")
    known = read_present(disk, path, _File, lambda path, why: UsageError(f"{path}: unreadable ({why}); restore it"))
    if (known.topology, known.shape) != (topology.name, topology.shape):
        raise UsageError(
            f"{wish.state}: is the state of {known.topology} with other computations or streams, which a Spark "
            "checkpoint cannot change; name another --state, and publish to empty directories"
        )
    return known


def _reads_no_more(disk: Disk, checkpoint: Path, wish: Wish) -> bool:
    """True if this state has ended all streams, and would miss records that exist or may still come. Raises OSError,
    PhotonError."""
    offset = last_offset(checkpoint)
    if (mark_of(offset).time_ns or 0) < ENDED_NS:
        return False
    read = decoded(offset)
    for each in wish.reads:
        at = read.get(each.name, Cursor())
        end = each.output_place.end(disk, each.kinds)
        if furthest(at, end) != at:
            return True
    return not wish.once


class _Run:
    def __init__(
        self, spark: SparkSession, wish: Wish, known: _File, publishing: Publishing, disk: Disk, clock: Clock,
        tell: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._spark, self._wish, self._known, self._publishing = spark, wish, known, publishing
        self._disk, self._clock, self._tell = disk, clock, tell
        self._over = threading.Event()
        self._records = 0
        self._rate = 0.0
        self._seen = -1
        self._faults: list[str] = []
        self._said_s = 0.0
        self._computations = [part.name for part in wish.topology.checked()]
        self._exact = any(part.exact for part in wish.topology.checked())
        by_stream: dict[str, list[Reads]] = {}
        for each in wish.reads:
            by_stream.setdefault(each.stream, []).append(each)
        self._injectors = [
            Injector(disk, stream, {each.place: each.output_place for each in reads}, reads[0].kinds, None)
            for stream, reads in by_stream.items()
        ]

    def until(self, stop: threading.Event) -> Status:
        query = self._start()
        try:
            while query.isActive and not stop.is_set():
                if not self._publishing.publish():
                    time.sleep(POLL_S)
                self._say(query)
        finally:
            self._over.set()
            failed = query.exception() if not query.isActive else None
            query.stop()
            self._held[0].close()
        if failed is not None and not stop.is_set():
            raise ComputingError(f"{self._wish.topology.name}: {_line(str(failed))}")
        self._publishing.publish()
        return self._status(ended=self._wish.once and not stop.is_set())

    def _start(self) -> StreamingQuery:
        from photon.spark.computing.operator import Operator
        from photon.spark.computing.source import NAME as SOURCE
        from photon.spark.computing.source import ComputeSource

        spark, wish = self._spark, self._wish
        java: Any = spark.sparkContext._jvm
        file = java.java.io.RandomAccessFile(str(wish.state / JAVA_LOCK), "rw")
        if (held := file.getChannel().tryLock()) is None:
            raise UsageError(f"{wish.state}: another Spark process runs {wish.topology.name} there; stop it first")
        self._held = (file, held)
        for name, value in SETTINGS.items():
            spark.conf.set(name, value)
        spark.conf.set("spark.sql.shuffle.partitions", str(self._known.partitions))
        self._markers = markers(spark, self._known.partitions)
        plan = Plan(
            file=str(wish.file.resolve()),
            text=wish.file.read_bytes(),
            reads=list(wish.reads),
            exact=self._exact,
            once=wish.once,
            records=wish.records,
            markers=self._markers,
            run=uuid.uuid4().hex,
        )
        spark.dataSource.register(ComputeSource)
        frame = spark.readStream.format(SOURCE).option("plan", plan.encode().decode()).load()
        frame = frame.withWatermark("watermark", "1 second")
        for number in range(len(self._computations)):
            frame = frame.groupBy("key").transformWithState(
                Operator(plan, number), SCHEMA, "Append", "EventTime", eventTimeColumnName="watermark"
            )
        writer = frame.writeStream.foreachBatch(self._batch).queryName(wish.topology.name)
        writer = writer.option("checkpointLocation", str(wish.state / "checkpoint"))
        return (writer.trigger(availableNow=True) if wish.once else writer.trigger(processingTime=TRIGGER)).start()

    def _batch(self, frame: DataFrame, number: int) -> None:
        self._publishing.await_room(self._over)
        stage(frame, number, self._publishing.staged, self._disk, self._fault, self._markers[0])

    def _fault(self, line: str) -> None:
        if len(self._faults) < FAULTS_MAX:
            self._faults.append(line)
            self._tell(line)

    def _say(self, query: StreamingQuery) -> None:
        now_s = self._clock.monotonic()
        if now_s - self._said_s < SAY_S:
            return
        self._said_s = now_s
        self._count(query)
        write_status(self._disk, self._wish.state, self._status(ended=False))

    def _count(self, query: StreamingQuery) -> None:
        for progress in query.recentProgress:
            rows = sum(each["numInputRows"] for each in progress["sources"])  # not counting the batch's markers
            if rows and progress["batchId"] > self._seen:  # a batch without rows has the number of the next one
                self._seen = progress["batchId"]
                self._records += max(rows - self._known.partitions, 0)
            self._rate = float(progress.get("processedRowsPerSecond") or 0.0)

    def _status(self, *, ended: bool) -> Status:
        mark = self._publishing.mark
        cursors = decoded(offset) if (offset := last_offset(self._wish.state / "checkpoint")) else {}
        for each in self._injectors:
            reads = [of for of in self._wish.reads if of.stream == each.stream and of.name in cursors]
            each.at({of.place: cursors[of.name] for of in reads})
        status = Status(
            topology=self._wish.topology.name,
            interval=SENDER,
            pid=os.getpid(),
            at_ns=self._clock.now_ns(),
            ended=ended,
            counts={"messages": self._records, "aside": sum(self._publishing.shown.aside.values())},
            records_per_s=round(self._rate, 1),
            published_records=self._publishing.records,
            watermarks=dict.fromkeys(self._computations, mark),
            published=self._publishing.shown.marks,
            sources={each.stream: each.mark() for each in self._injectors},
            exact=self._exact,
            held_by={} if ended else {each.stream: each.held_by(exact=self._exact) for each in self._injectors},
            faults=self._faults,
        )
        write_status(self._disk, self._wish.state, status)
        return status


def markers(spark: SparkSession, partitions: int) -> list[str]:
    """Finds a key that a shuffle puts in each partition. Spark computes this while planning, without executors."""
    keys = ", ".join(f"('{MARKER_PREFIX}{number}')" for number in range(partitions * 40))
    rows = spark.sql(f"SELECT pmod(hash(key), {partitions}), key FROM VALUES {keys} AS keys (key)").collect()
    by_partition: dict[int, str] = dict(sorted(rows, reverse=True))  # the smallest key of each
    if len(by_partition) < partitions:
        raise ComputingError(f"{partitions} partitions are too many: no key was found for each of them")
    return [by_partition[each] for each in range(partitions)]


def _line(failure: str) -> str:
    """Returns the line of Spark's error text that names the cause."""
    lines = [each.strip() for each in failure.splitlines() if each.strip()]
    ours = [each for each in lines if each.startswith("photon.") or "Error: " in each or "Exception: " in each]
    line = " ".join((ours[-1] if ours else next(iter(lines), "the query failed")).split())
    return line.split(": ", 1)[-1][:1000] if line.startswith("photon.") else line[:1000]
