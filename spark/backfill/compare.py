"""Handles events below the registry's boundary, which it has forgotten: written only if no datacentre's output has
them.

Nobody can register such an id any more, so nothing else can write a record for it. Ids that are registered and wait
for their slot, or were given back, are still in the registry and left alone. The registry is asked first and once
(the answer is kept in files); the outputs are read afterwards (rule 15).
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from photon.config.clock import SystemClock
from photon.idregistry.api import DIGEST_BYTES, Answer
from photon.spark import logs
from photon.spark.backfill.batch_names import BackfillPaths
from photon.spark.backfill.driver import BackfillFailed
from photon.spark.backfill.job import Report
from photon.spark.backfill.work import RegistryPlace
from photon.spark.sources import JoinSource, LogSource, OutputSource
from photon.spark.verify.reading import written_output

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from photon.idregistry.client.grpc_client import RegistryClient

# Records of an event; a late line means that another one exists
KINDS = ("joined", "filtered", "unmatched", "rejected")
LOOK_UP_S = 60.0
DAY_NS = 86_400_000_000_000
DIRECTORY = "forgotten"


@dataclass(frozen=True, slots=True)
class Written:
    """Output that may hold a record of an event."""

    outputs: Sequence[OutputSource]
    backfills: Sequence[Path]


def missing_events(
    spark: SparkSession,
    join: JoinSource,
    foreign: LogSource,
    written: Written,
    registry: RegistryPlace,
    places: BackfillPaths,
    report: Report,
) -> DataFrame:
    """Returns columns of FOREIGN: one line for each event that the registry has forgotten and no output has.

    Raises BackfillFailed if a line of an output cannot be read, as it may be any event's.
    """
    from pyspark.sql import functions as F  # noqa: N812

    events = logs.foreign(spark, join, [foreign], report=report).where(F.col("unreadable").isNull())
    kept = places.state / DIRECTORY
    shutil.rmtree(kept, ignore_errors=True)  # from another run: ask the registry again
    ids = logs.foreign(spark, join, [foreign], with_records=False).where(F.col("unreadable").isNull())
    _forgotten(spark, ids, registry).write.parquet(str(kept))
    # A record has its event's time, so files known to cover other days hold none of these events.
    lines = written_output(
        spark, written.outputs, written.backfills, join, window=foreign.window.wider(DAY_NS), kinds=KINDS
    )
    torn = lines.where(F.col("torn").isNotNull()).select("datacentre", "file", "offset", "torn").take(1)
    if torn:
        where, file, offset, why = torn[0]
        raise BackfillFailed(f"{where}: {file}, byte {offset}: {why}; repair it, it may be one of these events")
    known = lines.where(F.col("digest").isNotNull()).select("digest")
    wanted = spark.read.parquet(str(kept)).join(known, "digest", "left_anti")
    return events.join(wanted, "digest", "left_semi").dropDuplicates(["digest"])


def _forgotten(spark: SparkSession, ids: DataFrame, registry: RegistryPlace) -> DataFrame:
    """Digests below the boundary that the registry does not know."""
    shared = spark.sparkContext.broadcast(msgspec.json.encode(registry))

    def look_up(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        place = msgspec.json.decode(shared.value, type=RegistryPlace)
        yield from _looked_up(place, batches)

    distinct = ids.select("digest", "event_time_ns").dropDuplicates(["digest"])
    return distinct.mapInArrow(look_up, "digest binary")


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
                rows = np.flatnonzero(found.outcomes == Answer.BELOW_BOUNDARY).tolist()
                chosen = [digests[row * DIGEST_BYTES : (row + 1) * DIGEST_BYTES] for row in rows]
                yield pa.RecordBatch.from_arrays([pa.array(chosen, pa.binary())], names=["digest"])
        finally:
            runner.run(client.close())


async def _opened(place: RegistryPlace) -> RegistryClient:
    return place.client(SystemClock())
