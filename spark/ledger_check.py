"""Compares the dispatchers' own counts with a verification's counts of logs and outputs. Pure.

The counts are taken at different moments by different code, so an explained difference is not a finding; each
explanation has a maximum. The remainder is a finding: a miscount, or an unrecorded action.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from photon.spark.classes import Class
from photon.spark.verify.figures import ClassCount, LedgerDifference, LedgerLine
from photon.spark.verify.narrow_rows import LINE, RECORD

LOST = (Class.LOST_UNREGISTERED, Class.LOST_OWNED, Class.LOST_RETIRED, Class.LOST_CLEARED, Class.LOST_UNREADABLE)
MORE = (Class.DUPLICATED, Class.DUPLICATED_ACROSS, Class.INVENTED)
VERDICTS = ("joined", "unmatched", "filtered", "late", "rejected")
# Classes of records that may be counted under another verdict or, if wrongly joined, in another hour.
OTHERWISE = (Class.WRONGLY_JOINED, Class.PRIMARY_EXISTS, Class.SHOULD_BE_UNMATCHED, Class.REGISTRY_DIFFERS)
Cell = tuple[int | None, str]  # hour since 1970 (None for records without a time), datacentre


@dataclass(slots=True)
class CountedHour:
    """A verification's counts of one hour in one datacentre."""

    lines: int = 0  # lines of raw foreign logs
    unread: int = 0  # lines not yet read by the dispatcher at the ledger's time
    records: dict[str, int] = field(default_factory=dict)  # records of each output log
    backfilled: int = 0  # records written by a backfill, which no dispatcher counts
    fresh: int = 0  # records written after the ledger was read
    unnamed: int = 0  # records in unlisted files, copies among them


class Explanations(NamedTuple):
    """Counts that may explain an hour's differences, summed over all datacentres."""

    lost: int
    more: int
    reread: int
    otherwise: int  # records of the hour under another verdict
    moved: int  # wrongly joined records of other hours, which may belong to this one


def compare(
    ledger: Iterable[LedgerLine], counted: Mapping[Cell, CountedHour], findings: Iterable[ClassCount]
) -> list[LedgerDifference]:
    """Returns all differing counts, for the counted hours of datacentres with a ledger."""
    lines = {(each.hour, each.datacentre): each.counts for each in ledger}
    known = {datacentre for _, datacentre in lines}
    lost, more, otherwise = _by_hour(findings)
    # An event that was given back and dispatched again may get its verdict from a datacentre other than the first,
    # which read it again.
    reread: Counter[int | None] = Counter()
    for (hour, _), counts in lines.items():
        reread[hour] += counts.get("reread", 0)
    found: list[LedgerDifference] = []
    for cell, own in sorted(counted.items(), key=lambda each: (each[0][0] is None, each[0][0] or 0, each[0][1])):
        hour, datacentre = cell
        if datacentre not in known:
            continue
        said = lines.get(cell, {})
        found += _balance(hour, datacentre, said)
        found += _read(hour, datacentre, said, own)
        own_otherwise = otherwise[hour].total()
        moved = sum(each[Class.WRONGLY_JOINED] for at, each in otherwise.items() if at != hour)
        why = Explanations(lost[hour], more[hour], reread[hour], own_otherwise, moved)
        found += _written(hour, datacentre, said, own, why)
    return found


def unexplained(differences: Iterable[LedgerDifference]) -> list[LedgerDifference]:
    """Returns the differences that are findings."""
    return [each for each in differences if each.unexplained]


def _by_hour(
    findings: Iterable[ClassCount],
) -> tuple[Counter[int | None], Counter[int | None], dict[int | None, Counter[Class]]]:
    """Counts findings that leave outputs with fewer records, with more, and with different ones. The hour is ``None``
    if the record's hour is unknown."""
    lost, more = Counter[int | None](), Counter[int | None]()
    otherwise: dict[int | None, Counter[Class]] = defaultdict(Counter)
    for each in findings:
        if each.kind in LOST or each.kind is Class.PENDING:
            lost[each.hour] += each.count
        elif each.kind in MORE:
            more[each.hour] += each.count
        elif each.kind in OTHERWISE:
            otherwise[each.hour][each.kind] += each.count
    return lost, more, otherwise


def _balance(hour: int | None, datacentre: str, said: Mapping[str, int]) -> list[LedgerDifference]:
    """Checks that the ledger's own counts add up to the lines read."""
    parts = sum(said.get(name, 0) for name in (*VERDICTS, "elsewhere", "duplicate", "pending"))
    read = said.get("read", 0)
    return (
        [] if read == parts else [LedgerDifference(hour, datacentre, "balance", read, parts, {}, abs(read - parts))]
    )


def _read(hour: int | None, datacentre: str, said: Mapping[str, int], own: CountedHour) -> list[LedgerDifference]:
    """Compares the number of lines in the logs with the number that dispatchers read."""
    read = said.get("read", 0)
    if read > own.lines:  # logs are deleted after their retention time, but the ledger keeps their counts
        return []
    explained = {"not read yet": own.unread, "read again": said.get("reread", 0)}
    return _difference(hour, datacentre, "read", read, own.lines, explained)


def _written(
    hour: int | None, datacentre: str, said: Mapping[str, int], own: CountedHour, why: Explanations
) -> list[LedgerDifference]:
    found = []
    for name in VERDICTS:
        told, there = said.get(name, 0), own.records.get(name, 0)
        if there < told:
            if name == "filtered":  # decided by the foreign side alone, so counted without a line
                continue
            explained = {
                "lost or pending": why.lost,
                "read again": why.reread,
                "written otherwise": why.otherwise,
            }
        else:
            explained = {
                "written since": own.fresh,
                "backfilled": own.backfilled,
                "in unlisted files": own.unnamed,
                "pending": said.get("pending", 0),
                "not read yet": own.unread,
                "read again": why.reread,
                "duplicated or invented": why.more,
                "written otherwise": why.otherwise + why.moved,
            }
        found += _difference(hour, datacentre, name, told, there, explained)
    return found


def _difference(
    hour: int | None, datacentre: str, name: str, told: int, there: int, explained: Mapping[str, int]
) -> list[LedgerDifference]:
    if told == there:
        return []
    some = {why: count for why, count in explained.items() if count}
    left = max(abs(told - there) - sum(some.values()), 0)
    return [LedgerDifference(hour, datacentre, name, told, there, some, left)]


class CountedGroup(NamedTuple):
    """The number of rows of NARROW that have these values. ``hour`` is ``None`` for records without a time."""

    hour: int | None
    datacentre: str | None
    role: int
    kind: str | None
    unread: bool | None
    fresh: bool | None
    backfilled: bool | None
    unnamed: bool | None
    rows: int


def folded(groups: Iterable[CountedGroup]) -> dict[Cell, CountedHour]:
    """Sums groups by hour and datacentre."""
    found: dict[Cell, CountedHour] = {}
    for group in groups:
        if group.datacentre is None or group.role not in (LINE, RECORD):
            continue
        own = found.setdefault((group.hour, group.datacentre), CountedHour())
        if group.role == LINE:
            own.lines += group.rows
            own.unread += group.rows if group.unread else 0
        elif group.kind is not None:
            own.records[group.kind] = own.records.get(group.kind, 0) + group.rows
            own.fresh += group.rows if group.fresh else 0
            own.backfilled += group.rows if group.backfilled else 0
            own.unnamed += group.rows if group.unnamed else 0
    return found
