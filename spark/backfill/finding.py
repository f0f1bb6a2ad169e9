"""Finds the primary records that a batch's events may join, and the ids before the registry's boundary that are in no
output. Writes one file per part."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from photon.batch.columns import split_digests, take_digests
from photon.config.clock import SystemClock
from photon.idregistry.api import Answer
from photon.spark import logs
from photon.spark.backfill.deciding import BackfillFailed
from photon.spark.backfill.tasks import Found, PartsToDo, ids_below, keys_of, written
from photon.spark.key_filter import filter_of
from photon.spark.pipeline.tasks import RegistryPlace
from photon.spark.primary_sets import versions, whole_sets
from photon.spark.shipped_adapter import made
from photon.spark.sources import LogSource, OutputSource
from photon.spark.tasks import task_directory
from photon.spark.verify.reading import written_output

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from photon.idregistry.client.grpc_client import RegistryClient

# Kinds of records of an event; a late line means that another exists
KINDS = ("joined", "filtered", "unmatched", "rejected")
LOOK_UP_S = 60.0
DAY_NS = 86_400_000_000_000
FORGOTTEN = "forgotten-"

Report = Callable[[str], None]


def primaries(
    spark: SparkSession, work: PartsToDo, parts: Sequence[int], primary: LogSource, report: Report
) -> Found:
    """Finds the primary records of each key in these parts: all, or the first by (log name without rotation suffix,
    identity, offset). Records with keys that no event names are dropped on reading."""
    from pyspark import StorageLevel
    from pyspark.sql import functions as F  # noqa: N812

    join = work.place.join
    keys = keys_of(spark, work, parts).persist(StorageLevel.DISK_ONLY)
    try:
        found = logs.primary(spark, join, [primary], filter_of(keys), report=report)
        order = ("name", "identity", "offset")
        matching = made(join.adapter, task_directory()).matching
        if matching.match == "latest":
            shipped = join.adapter
            columns = ("record", "log", "header")
            rows = versions(
                found.drop("datacentre"), keys, ["key"], order, columns, lambda: made(shipped, task_directory())
            )
            rows = rows.select("part", "key", "event_time_ns", "primaries")
            return written(rows, work.place, work.plan.number, len(parts))
        if matching.whole_sets:
            each = whole_sets(found.drop("datacentre"), ["key"], order, "record")
        else:
            first = F.min_by(F.struct("log", "offset", "header", "record"), F.struct(*order))
            each = found.groupBy("key").agg(F.array(first).alias("primaries"))
        rows = keys.join(each, "key", "left").select("part", "key", "event_time_ns", "primaries")
        return written(rows, work.place, work.plan.number, len(parts))
    finally:
        keys.unpersist()


def free_ids(spark: SparkSession, work: PartsToDo, outputs: Sequence[OutputSource]) -> Found:
    """Finds the digests before the boundary that are neither in the registry nor in any output; each goes to one
    part. Such ids can no longer be registered, so nothing else can write a record for them. Ids that are registered
    but not yet written, or were given back, are still in the registry and left alone. The registry is asked first
    (its answer is kept in files), the outputs are read afterwards (rule 15), and later runs use the first result
    (``run``). Raises BackfillFailed if a line of an output cannot be read, as it may belong to any event.
    """
    from pyspark.sql import functions as F  # noqa: N812

    place, kept = work.place, work.place.found(f"{FORGOTTEN}{work.plan.number}")
    shutil.rmtree(kept, ignore_errors=True)  # left by a killed run: ask the registry again
    ids = ids_below(spark, work).groupBy("digest").agg(F.min("part").alias("part"), F.min("event_time_ns"))
    _forgotten(spark, ids.select("digest", "min(event_time_ns)", "part"), place.registry).write.parquet(str(kept))
    # A record has its event's time, so files known to cover other days hold none of these events.
    window = msgspec.structs.replace(place.foreign.window, end_ns=place.boundary_ns).wider(DAY_NS)
    lines = written_output(spark, outputs, place.join, window=window, kinds=KINDS)
    torn = lines.where(F.col("torn").isNotNull()).select("datacentre", "file", "offset", "torn").take(1)
    if torn:
        where, file, offset, why = torn[0]
        raise BackfillFailed(f"{where}: {file}, byte {offset}: {why}; repair it, as it may hold an event to join")
    known = lines.where(F.col("digest").isNotNull()).select("digest")
    free = spark.read.parquet(str(kept)).join(known, "digest", "left_anti").select("part", "digest")
    return written(free, place, work.plan.number, len(work.plan.parts))


def _forgotten(spark: SparkSession, ids: DataFrame, registry: RegistryPlace) -> DataFrame:
    """Returns the ids below the boundary that the registry does not know."""
    shared = spark.sparkContext.broadcast(msgspec.json.encode(registry))

    def look_up(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        place = msgspec.json.decode(shared.value, type=RegistryPlace)
        yield from _looked_up(place, batches)

    return ids.mapInArrow(look_up, "digest binary, part int")


def _looked_up(place: RegistryPlace, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    with asyncio.Runner() as runner:
        client = runner.run(_opened(place))
        try:
            for batch in batches:
                digests = b"".join(batch.column(0).to_pylist())
                times = batch.column(1).to_numpy(zero_copy_only=False).astype(np.int64)
                found = runner.run(client.look_up(digests, times, timeout=LOOK_UP_S))
                if (found.outcomes == Answer.UNKNOWN).any():
                    raise BackfillFailed("the registry does not answer; run the same command again once it does")
                rows = np.flatnonzero(found.outcomes == Answer.BELOW_BOUNDARY)
                chosen = split_digests(take_digests(digests, rows))
                columns = [pa.array(chosen, pa.binary()), batch.column(2).take(pa.array(rows))]
                yield pa.RecordBatch.from_arrays(columns, names=["digest", "part"])
        finally:
            runner.run(client.close())


async def _opened(place: RegistryPlace) -> RegistryClient:
    return place.client(SystemClock())
