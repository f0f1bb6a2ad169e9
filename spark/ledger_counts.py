"""What a verification counted of each hour and datacentre, for the ledger beside it. Spark; of the range's size."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from photon.spark.ledger_beside import Cell, Counted
from photon.spark.verify.rows import LINE, RECORD

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Group(NamedTuple):
    """So many rows of NARROW that agree in all this. ``hour`` None: of records without a time."""

    hour: int | None
    datacentre: str | None
    role: int
    kind: str | None
    unread: bool | None
    fresh: bool | None
    backfilled: bool | None
    rows: int


def counted(rows: DataFrame) -> dict[Cell, Counted]:
    """``rows``: NARROW of everything (``verify.job.Verification.rows``), which Spark keeps."""
    names = ["hour", "datacentre", "role", "kind", "unread", "fresh", "backfilled"]
    judged = rows.where("judged AND hour IS NOT NULL").selectExpr("*", "file LIKE '%/hour=%' AS backfilled")
    groups = judged.groupBy(*names).count().select(*names, "count")
    return folded(Group(*row) for row in groups.collect())


def folded(groups: Iterable[Group]) -> dict[Cell, Counted]:
    """By hour and datacentre."""
    found: dict[Cell, Counted] = {}
    for group in groups:
        if group.datacentre is None or group.role not in (LINE, RECORD):
            continue
        own = found.setdefault((group.hour, group.datacentre), Counted())
        if group.role == LINE:
            own.lines += group.rows
            own.unread += group.rows if group.unread else 0
        elif group.kind is not None:
            own.records[group.kind] = own.records.get(group.kind, 0) + group.rows
            own.fresh += group.rows if group.fresh else 0
            own.backfilled += group.rows if group.backfilled else 0
    return found
