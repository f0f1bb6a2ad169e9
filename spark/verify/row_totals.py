"""Totals over all narrow rows, except the findings. They come from a single aggregate, because each one reads all
rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.functions import col

from photon.spark.backfill.known import SLOT_PREFIX
from photon.spark.ledger_check import Cell, CountedGroup, CountedHour, folded
from photon.spark.verify.classify import REOPENED, UNMATCHED
from photon.spark.verify.narrow_rows import ENTRY, LINE, TORN, UNNAMED

OutputFiles = Mapping[tuple[str, str], int]  # (datacentre, file) -> offset at which its new part begins


class FileEnds(NamedTuple):
    """The first and last hour of an output file, and of its new part. ``whole``: every line has an hour."""

    datacentre: str
    file: str
    first: int | None
    last: int | None
    whole: bool
    fresh_first: int | None
    fresh_last: int | None


class IdsOfHour(NamedTuple):
    """The number of the registry's ids in an hour, and the hash of all of them."""

    hour: int
    ids: int
    print: int


@dataclass(frozen=True, slots=True)
class RowTotals:
    cells: dict[Cell, CountedHour]  # Counts to compare with the ledger. A set of pairs counts once, as there.
    ends: list[FileEnds]
    entries: list[IdsOfHour]  # may have several entries per hour
    torn: int
    unmatched: int  # lines of the range without a primary event


def row_totals(rows: DataFrame, since: OutputFiles) -> RowTotals:
    """Counts all rows in one pass. ``rows``: NARROW, cached by Spark."""
    counted = sql.expr("judged AND hour IS NOT NULL AND (pairs IS NULL OR pair = pairs)")
    backfilled = sql.expr(f"file LIKE '%/{SLOT_PREFIX}%'")
    names = ["hour", "datacentre", "role", "kind", "unread", "fresh", "backfilled", "unnamed"]
    marked = with_since(rows, since).withColumn("backfilled", backfilled)
    marked = marked.withColumn("unnamed", sql.expr(f"state = '{UNNAMED}'"))
    sets = marked.groupingSets([names, ["datacentre", "file"]], *names, "file").agg(
        sql.count_if(counted), sql.count("*"), sql.bit_xor(sql.when(col("role") == ENTRY, print_of_id())),
        *ends_of("file_offset"),
    )  # fmt: skip
    cells: list[CountedGroup] = []
    ends: list[FileEnds] = []
    entries: list[IdsOfHour] = []
    torn = unmatched = 0
    for row in sets.collect():
        group, (file, judged, count, print_), hours = row[:8], row[8:12], row[12:]
        hour, datacentre, role, kind = group[:4]
        if role is None:
            if file is not None:
                ends.append(FileEnds(datacentre, file, *hours))
            continue
        if judged:
            cells.append(CountedGroup._make((*group, judged)))
        if role == ENTRY:
            entries.append(IdsOfHour(hour, count, print_))
        torn += count if role == TORN else 0
        unmatched += judged if (role, kind) == (LINE, UNMATCHED) else 0
    return RowTotals(folded(cells), ends, entries, torn, unmatched)


def print_of_id() -> Column:
    """Returns the hash of an id, which stays the same when the id is cleared, but changes when it is given up."""
    return sql.xxhash64("digest", "token", "kind", "event_time_ns", (col("state") == REOPENED).cast("int"))


def with_since(lines: DataFrame, since: OutputFiles) -> DataFrame:
    """Adds the column ``since``: where a grown file's new part begins; null if the file is entirely new or
    unchanged."""
    if not since:
        return lines.withColumn("since", sql.lit(None).cast("bigint"))
    rows = [(*name, at) for name, at in since.items()]
    known = lines.sparkSession.createDataFrame(rows, "datacentre string, file string, since bigint")
    return lines.join(sql.broadcast(known), ["datacentre", "file"], "left")


def ends_of(offset: str) -> list[Column]:
    """Returns the aggregates for all fields of FileEnds except the first two."""
    hour, fresh = col("hour"), sql.when(col(offset) >= col("since"), col("hour"))
    return [sql.min(hour), sql.max(hour), sql.every(hour.isNotNull()), sql.min(fresh), sql.max(fresh)]
