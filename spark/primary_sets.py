"""All primary records of a key, for joins whose result depends on each of them (``Matching.whole_sets``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from photon.eventstore.api import SET_BYTES_MAX, SET_MAX

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def whole_sets(primaries: DataFrame, key: Sequence[str], order: Sequence[str], record: str) -> DataFrame:
    """Returns ``key`` and ``primaries``: an array of all other columns, ``order`` first, by which they are sorted and
    which is unique per record. A set that ``is_too_large`` is cut to the size that still shows it."""
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


def is_too_large(records: Sequence[bytes]) -> bool:
    """True if an event with these primary events is rejected."""
    return len(records) > SET_MAX or sum(map(len, records)) > SET_BYTES_MAX


__all__ = ["is_too_large", "whole_sets"]
