"""The ledger: the outcome of every event read, per event-time hour.

Invariant, at every commit: read = joined + filtered + unmatched + late + rejected + elsewhere + duplicate + pending.
``pending`` is not a counter: it is the number of rows in the retry store. These counts are separate:

- ``reread``: lines read a second time and counted already, with a verdict or as rows;
- ``wasted``: joins thrown away because another datacentre registered first; these events are also elsewhere (or
  duplicates);
- ``retimed``: events counted as elsewhere or duplicate whose id was registered with an event time more than
  ``clock.uncertainty`` away;
- ``ambiguous``: events joined or rejected whose key several different primary records have;
- ``unpaired``: unmatched events whose key has a primary record, but outside the join's time bounds.

Lines read again after a crash are missing in the last two: the registry knows their verdict but not the reason.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import repeat
from typing import Any

from photon.batch.columns import I64, U8

HOUR_NS = 3_600_000_000_000
UNKNOWN_HOUR = -(1 << 40)  # the hour of a record whose event time cannot be read
VERDICT_BITS = 4
_FEW = 20  # below this number of rows a list is faster than numpy's calls


def hour_name(hour: int) -> str:
    """Formats an hour since 1970 as commands accept it: UTC, ``2026-11-21T09``."""
    return "unknown" if hour == UNKNOWN_HOUR else f"{datetime.fromtimestamp(hour * 3600, UTC):%Y-%m-%dT%H}"


class Verdict(enum.IntEnum):
    """Columns of the ledger; the numbers are durable. The first five equal ``joiner.api.Outcome``'s."""

    READ = 0
    JOINED = 1
    FILTERED = 2
    UNMATCHED = 3
    REJECTED = 4
    LATE = 5
    ELSEWHERE = 6  # registered by another datacentre
    DUPLICATE = 7  # another line with the id of one that has a verdict
    REREAD = 8
    WASTED = 9  # a join thrown away: another datacentre had registered first
    RETIMED = 10  # a line whose id was registered with another event time
    AMBIGUOUS = 11  # joined to one of several different primary records, or rejected because of them
    UNPAIRED = 12  # unmatched although its primary record exists: outside the join's bounds


APART = (Verdict.READ, Verdict.REREAD, Verdict.WASTED, Verdict.RETIMED, Verdict.AMBIGUOUS, Verdict.UNPAIRED)
FINAL = tuple(v for v in Verdict if v not in APART)


def cell(event_time_ns: int, verdict: int) -> int:
    """Encodes (hour, verdict) as one number: a fast dictionary key on the hot path."""
    return event_time_ns // HOUR_NS << VERDICT_BITS | verdict


def cells(times: I64, verdicts: U8 | int) -> list[int]:
    """Returns each event's ``cell``. ``verdicts``: a single one, or one per event."""
    if len(times) < _FEW:
        codes = repeat(verdicts) if isinstance(verdicts, int) else verdicts.tolist()
        return [ns // HOUR_NS << VERDICT_BITS | code for ns, code in zip(times.tolist(), codes, strict=False)]
    numbers: list[int] = (times // HOUR_NS << VERDICT_BITS | verdicts).tolist()
    return numbers


def unknown_cell(verdict: int) -> int:
    return UNKNOWN_HOUR << VERDICT_BITS | verdict


def split_cell(number: int) -> tuple[int, Verdict]:
    """Returns (hour, verdict)."""
    return number >> VERDICT_BITS, Verdict(number & (1 << VERDICT_BITS) - 1)


@dataclass(frozen=True, slots=True)
class LedgerLine:
    read: int
    verdicts: Mapping[Verdict, int]  # FINAL ones
    pending: int
    reread: int = 0
    wasted: int = 0
    retimed: int = 0
    ambiguous: int = 0
    unpaired: int = 0

    @property
    def balance(self) -> int:
        """The number read minus all outcomes: 0 if the ledger is right."""
        return self.read - sum(self.verdicts.values()) - self.pending

    def apart(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in ("reread", "wasted", "retimed", "ambiguous", "unpaired")}

    def as_dict(self) -> dict[str, int]:
        """Returns the balanced counts, in the order of the command's JSON."""
        order = ("joined", "filtered", "unmatched", "late", "rejected", "elsewhere", "duplicate")
        named = {v.name.lower(): self.verdicts.get(v, 0) for v in FINAL}
        return {"read": self.read, **{name: named[name] for name in order}, "pending": self.pending}


@dataclass(frozen=True, slots=True)
class Ledger:
    """Counts by event-time hour since 1970, UTC; records without a readable event time are in UNKNOWN_HOUR."""

    hours: Mapping[int, LedgerLine]
    total: LedgerLine

    @property
    def unbalanced(self) -> list[int]:
        """The hours that do not balance; none if the ledger is right."""
        return [hour for hour, line in self.hours.items() if line.balance]


# Verdicts that an event has in only one datacentre: only these may be added up over datacentres.
MADE = (Verdict.JOINED, Verdict.FILTERED, Verdict.UNMATCHED)


def made(lines: Iterable[LedgerLine]) -> dict[Verdict, int]:
    """Adds up the verdicts made by several datacentres."""
    found = dict.fromkeys(MADE, 0)
    for line in lines:
        for verdict in MADE:
            found[verdict] += line.verdicts.get(verdict, 0)
    return found


def total_of(counts: Mapping[str, int]) -> LedgerLine:
    """Builds a line from counts by name, as dispatchers report them; missing counts are 0."""
    by_verdict: dict[int, int] = {verdict: counts.get(verdict.name.lower(), 0) for verdict in Verdict}
    return _line(by_verdict, counts.get("pending", 0))


def ledger_of(counts: Iterable[tuple[int, int, int]], pending: Iterable[tuple[int, int]]) -> Ledger:
    """Builds a ledger from rows (hour, verdict, count) and (hour, pending)."""
    by_hour: dict[int, dict[int, int]] = {}
    for hour, verdict, count in counts:
        by_hour.setdefault(hour, {})[verdict] = count
    waiting = dict(pending)
    hours = {hour: _line(by_hour.get(hour, {}), waiting.get(hour, 0)) for hour in sorted({*by_hour, *waiting})}
    total: dict[int, int] = {}
    for each in by_hour.values():
        for verdict, count in each.items():
            total[verdict] = total.get(verdict, 0) + count
    return Ledger(hours, _line(total, sum(waiting.values())))


def _line(counts: Mapping[int, int], pending: int) -> LedgerLine:
    return LedgerLine(pending=pending, **figures(counts))


def figures(counts: Mapping[int, int]) -> dict[str, Any]:
    """Renames counts by verdict to their names in log lines and reports."""
    apart = {verdict.name.lower(): counts.get(verdict, 0) for verdict in APART}
    return {"verdicts": {verdict: counts.get(verdict, 0) for verdict in FINAL}, **apart}
