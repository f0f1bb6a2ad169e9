"""Distributes work from the driver to executors: each partition of a DataFrame processes one group.

Tasks get their data as bytes in a broadcast: it may hold a deployment's key, so it must not appear in the plan, the
environment or the event log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")
# (data shared by all tasks, one group of work) -> rows. A module-level function: executors import it.
Run = Callable[[bytes, bytes], "Iterator[pa.RecordBatch]"]
PARTITION_BYTES_MIN = 4 << 20
PARTITION_BYTES_MAX = 128 << 20
WAVES = 3  # partitions per core: later ones even out the load


def frame(spark: SparkSession, run: Run, shared: bytes, groups: Sequence[bytes], schema: str) -> DataFrame:
    """Returns a DataFrame with a partition for each group. A partition's rows depend only on its group."""
    if not groups:
        return spark.createDataFrame([], schema)
    work = spark.sparkContext.broadcast((shared, list(groups)))

    def tasks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        common, mine = work.value
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from run(common, mine[number])

    rows: Any = spark.range(0, len(groups), 1, len(groups))
    made: DataFrame = rows.mapInArrow(tasks, schema)
    return made


def partition_bytes(spark: SparkSession, total: int, wanted: int | None = None) -> int:
    if wanted is not None:
        return max(wanted, 1)
    return fair_bytes(total, spark.sparkContext.defaultParallelism)


def fair_bytes(total: int, cores: int) -> int:
    """Returns the partition size for ``total`` bytes on this number of cores; see ``partition_bytes``."""
    return min(max(total // (max(cores, 1) * WAVES), PARTITION_BYTES_MIN), PARTITION_BYTES_MAX)


def packed(items: Sequence[tuple[T, int]], bytes_max: int) -> list[list[T]]:
    """Groups ``items`` of (item, size), in order, into lists of about ``bytes_max`` bytes."""
    groups: list[list[T]] = []
    size = bytes_max
    for item, weight in items:
        if size + weight > bytes_max:
            groups.append([])
            size = 0
        groups[-1].append(item)
        size += weight
    return groups


def task_directory() -> Path:
    """Returns a directory of this executor that is deleted with the application; outside Spark, the temporary
    directory."""
    from pyspark import SparkContext, SparkFiles

    if SparkFiles._is_running_on_worker or SparkContext._active_spark_context is not None:
        return Path(SparkFiles.getRootDirectory())
    return Path(gettempdir())
