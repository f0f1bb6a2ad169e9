"""A backfill's DataFrames: each foreign event of the range with the first primary event of its key, or with all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import msgspec

from photon.spark import logs
from photon.spark.backfill.work import (
    COLUMNS,
    BackfillCounts,
    BackfillTask,
    TaskAttempt,
    TaskResult,
    UnregisteredAttempt,
    clear_group,
)
from photon.spark.key_filter import filter_of
from photon.spark.primary_sets import whole_sets
from photon.spark.shipped_adapter import made
from photon.spark.sources import JoinSource, LogSource
from photon.spark.tasks import frame, task_directory

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

CLEAR_BATCHES = 16  # batches that one task clears

Report = Callable[[str], None]


def joined(spark: SparkSession, join: JoinSource, events: DataFrame, primary: LogSource, report: Report) -> DataFrame:
    """Returns COLUMNS for events with the columns of FOREIGN. Clustered by hour, so that output files are too.

    The first record of a key in (log name without rotation suffix, identity, offset) wins, or all are taken. They are
    found by an aggregation before the join: a key with many foreign events is one row on the primary side, and
    adaptive execution splits it on the other. Primary records with keys that no event names are dropped on reading.
    ``events`` is read first for that, and must be the same each time: persist it.
    """
    from pyspark.sql import functions as F  # noqa: N812

    wanted = filter_of(events)
    primaries = logs.primary(spark, join, [primary], wanted, report=report)
    order = ("name", "identity", "offset")
    if made(join.adapter, task_directory()).matching.whole_sets:
        found = whole_sets(primaries.drop("datacentre"), ["key"], order, "record")
    else:
        first = F.min_by(F.struct("log", "offset", "header", "record"), F.struct(*order))
        found = primaries.groupBy("key").agg(F.array(first).alias("primaries"))
    both = events.join(found, "key", "left").select(*COLUMNS, "hour")
    return both.hint("rebalance", F.col("hour")).sortWithinPartitions("hour").select(*COLUMNS)


def run(spark: SparkSession, rows: DataFrame, task: BackfillTask) -> TaskResult:
    """Joins, registers (except in ``compare``) and writes; returns the sums of the attempts that Spark accepted, one
    row per task."""
    shared = spark.sparkContext.broadcast(msgspec.json.encode(task))

    def attempt(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from _attempt(shared.value, batches)

    total = TaskResult(BackfillCounts(), [])
    for row in rows.mapInArrow(attempt, "result binary").collect():
        result = msgspec.json.decode(bytes(row[0]), type=TaskResult)
        total.counts.add(result.counts)
        total.parts.extend(result.parts)
    return total


def _attempt(shared: bytes, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None, "runs in a task"
    task = msgspec.json.decode(shared, type=BackfillTask)
    kind = TaskAttempt if task.registers else UnregisteredAttempt
    result = kind(task, context.taskAttemptId(), task_directory()).run(batches)
    yield pa.RecordBatch.from_arrays([pa.array([msgspec.json.encode(result)], pa.binary())], names=["result"])


def clear(spark: SparkSession, task: BackfillTask, batches: list[str]) -> int:
    """Clears the tokens of published batches from the executors; returns the number of ids cleared."""
    groups = [
        msgspec.json.encode(batches[start : start + CLEAR_BATCHES]) for start in range(0, len(batches), CLEAR_BATCHES)
    ]
    cleared = frame(spark, _clear, msgspec.json.encode(task), groups, "cleared bigint").collect()
    return sum(row[0] for row in cleared)


def _clear(shared: bytes, group: bytes) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    cleared = clear_group(msgspec.json.decode(shared, type=BackfillTask), msgspec.json.decode(group, type=list[str]))
    yield pa.RecordBatch.from_arrays([pa.array([cleared], pa.int64())], names=["cleared"])
