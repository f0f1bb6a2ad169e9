"""Collects all primary records of a key, for joins whose result depends on all of them (``Matching.whole_sets``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from photon.adapters.contract import Adapter, LogFile
from photon.adapters.key_lists import keys_named as keys_of
from photon.eventstore.api import SET_BYTES_MAX, SET_MAX
from photon.eventstore.block_keys import times_of
from photon.eventstore.file_map import UNKNOWN_TIME_NS

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame


def whole_sets(primaries: DataFrame, key: Sequence[str], order: Sequence[str], record: str) -> DataFrame:
    """Returns ``key`` and ``primaries``: an array of all other columns, beginning with ``order``, by which it is
    sorted and which is unique per record. A set that ``is_too_large`` is cut to just above the limit."""
    from pyspark.sql import Window
    from pyspark.sql import functions as sql

    rest = [name for name in primaries.columns if name not in (*key, *order)]
    in_order = Window.partitionBy(*key).orderBy(*order)
    before = sql.sum(sql.length(record)).over(in_order.rowsBetween(Window.unboundedPreceding, -1))
    numbered = primaries.withColumn("number", sql.row_number().over(in_order))
    few = numbered.where(sql.col("number") <= SET_MAX + 1).withColumn("before", sql.coalesce(before, sql.lit(0)))
    each = sql.struct(*order, *rest)
    sets = few.where(sql.col("before") <= SET_BYTES_MAX).groupBy(*key)
    return sets.agg(sql.sort_array(sql.collect_list(each)).alias("primaries"))


def keys_named(events: DataFrame, make_adapter: Callable[[], Adapter]) -> DataFrame:
    """Returns ``named``, ``at`` and the columns of ``events``, with one row for each key in an event's ``key``
    list."""
    from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        adapter = make_adapter()
        for batch in batches:
            named = [keys_of(adapter, key) for key in batch.column("key").to_pylist()]
            rows = pa.array([row for row, keys in enumerate(named) for _ in keys], pa.int64())
            keys = pa.array([key for keys in named for key in keys], pa.binary())
            at = pa.array([at for keys in named for at in range(len(keys))], pa.int32())
            yield pa.RecordBatch.from_arrays([keys, at, *batch.take(rows).columns], ["named", "at", *columns])

    columns = events.columns
    fields = [StructField("named", BinaryType()), StructField("at", IntegerType()), *events.schema.fields]
    return events.mapInArrow(run, StructType(fields))


def versions(
    primaries: DataFrame,
    wanted: DataFrame,
    key: Sequence[str],
    order: Sequence[str],
    columns: tuple[str, str, str],
    make_adapter: Callable[[], Adapter],
) -> DataFrame:
    """Adds ``primaries`` to ``wanted``, as in ``whole_sets``, with the records valid at each time, like
    ``FileMap.versions``.

    ``wanted`` has ``key`` and ``event_time_ns``. ``columns``: names of the record, log and header columns. It builds
    no list of a key's records, as each row only inherits from the previous one.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as sql
    from pyspark.sql.types import LongType, StructField, StructType

    record = columns[0]
    fields = [*primaries.schema.fields, StructField("time", LongType())]
    timed = primaries.mapInArrow(_with_times(columns, make_adapter), StructType(fields))
    rest = [name for name in primaries.columns if name not in (*key, *order)]
    same = Window.partitionBy(*key, "time")
    large = (sql.count("*").over(same) > SET_MAX) | (sql.sum(sql.length(record)).over(same) > SET_BYTES_MAX)
    is_known = sql.col("time") != UNKNOWN_TIME_NS
    version = sql.struct(sql.struct(*order, *rest).alias("it"), "large").alias("each")
    each = timed.withColumn("large", large).select(*key, "time", *order, version, is_known.alias("known"))
    others = [name for name in wanted.columns if name not in key]
    asked = wanted.select(*key, sql.col("event_time_ns").alias("time"), sql.struct(*others).alias("asked"))
    # A key's events and primary records, in the order of their times; at one time the events are last.
    by_time = Window.partitionBy(*key).orderBy("time", sql.col("asked").isNotNull(), *order)
    before = by_time.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    known, unknown = (sql.when(sql.col("known") == which, sql.col("each")) for which in (True, False))
    any_known = sql.first(known, True).over(Window.partitionBy(*key))
    found = (
        each.unionByName(asked, allowMissingColumns=True)
        .withColumn("newest", sql.coalesce(sql.last(known, True).over(before), any_known))
        .withColumn("unknown", sql.first(unknown, True).over(before))
        .where(sql.col("asked").isNotNull())
    )

    def listed(name: str) -> Column:
        its = sql.array_repeat(f"{name}.it", sql.when(sql.col(f"{name}.large"), SET_MAX + 1).otherwise(1))
        return sql.filter(its, lambda each: each.isNotNull())

    both = sql.array_sort(sql.concat(listed("newest"), listed("unknown")))
    return found.select(*key, *(f"asked.{name}" for name in others), both.alias("primaries"))


def _with_times(
    columns: tuple[str, str, str], make_adapter: Callable[[], Adapter]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        adapter = make_adapter()
        for batch in batches:
            records, logs, headers = (batch.column(name).to_pylist() for name in columns)
            times = np.empty(len(records), np.int64)
            rows: dict[tuple[str, bytes | None], list[int]] = {}
            for row, file in enumerate(zip(logs, headers, strict=True)):
                rows.setdefault(file, []).append(row)
            for (log, header), its in rows.items():
                times[its] = times_of(adapter, [records[row] for row in its], LogFile(log, header or b""))
            yield pa.RecordBatch.from_arrays([*batch.columns, pa.array(times)], names=[*batch.schema.names, "time"])

    return run


def is_too_large(records: Sequence[bytes]) -> bool:
    """True if an event with these primary records would be rejected."""
    return len(records) > SET_MAX or sum(map(len, records)) > SET_BYTES_MAX


__all__ = ["is_too_large", "keys_named", "versions", "whole_sets"]
