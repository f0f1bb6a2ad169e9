"""Totals over all narrow rows, without the findings. A single aggregate, as every further one would read all rows
again."""

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
    """First and last hour of an output file, and of its new part; ``whole``: every line has an hour."""

    datacentre: str
    file: str
    first: int | None
    last: int | None
    whole: bool
    fresh_first: int | None
    fresh_last: int | None


class IdsOfHour(NamedTuple):
    """Ids of the registry, and the hash of all of them."""

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
    """The hash of an id; unchanged when it is cleared, but not when it is given up."""
    return sql.xxhash64("digest", "token", "kind", "event_time_ns", (col("state") == REOPENED).cast("int"))


def with_since(lines: DataFrame, since: OutputFiles) -> DataFrame:
    """Adds ``since``; null if a file is entirely new or unchanged."""
    if not since:
        return lines.withColumn("since", sql.lit(None).cast("bigint"))
    rows = [(*name, at) for name, at in since.items()]
    known = lines.sparkSession.createDataFrame(rows, "datacentre string, file string, since bigint")
    return lines.join(sql.broadcast(known), ["datacentre", "file"], "left")


def ends_of(offset: str) -> list[Column]:
    """Aggregates for all but the first two fields of FileEnds."""
    hour, fresh = col("hour"), sql.when(col(offset) >= col("since"), col("hour"))
    return [sql.min(hour), sql.max(hour), sql.every(hour.isNotNull()), sql.min(fresh), sql.max(fresh)]
