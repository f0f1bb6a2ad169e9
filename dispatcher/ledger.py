"""The ledger: what became of every event read, per event-time hour.

Invariant, at every commit: read = joined + filtered + unmatched + late + rejected + elsewhere + duplicate + pending.
``pending`` is not counted but found: the rows of the retry store. ``reread`` stands apart: lines that were read a
second time and were counted already, with a verdict or as rows. So does ``wasted``: joins thrown away because another
datacentre registered first; these events are elsewhere (or duplicates) as well. And ``retimed``: of these two, those
whose id came first with an event time more than ``clock.uncertainty`` away from theirs. And ``ambiguous``: events
that were joined or rejected though several primary records that differ have their key. And ``unpaired``: events that
are unmatched though a primary record has their key, because the two are out of the join's bounds. Of a line that is
read again after a crash the registry knows the verdict, not why: it is not counted in the last two.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import repeat
from typing import Any

from photon.batch.columns import I64, U8

HOUR_NS = 3_600_000_000_000
UNKNOWN_HOUR = -(1 << 40)  # stands for the hour of a record whose event time cannot be read
VERDICT_BITS = 4
_FEW = 20  # below so many rows a list is cheaper than numpy's calls


class Verdict(enum.IntEnum):
    """Columns of the ledger; the numbers are durable. The first five equal ``joiner.api.Outcome``'s."""

    READ = 0
    JOINED = 1
    FILTERED = 2
    UNMATCHED = 3
    REJECTED = 4
    LATE = 5
    ELSEWHERE = 6  # another datacentre's
    DUPLICATE = 7  # another line with the id of one that has a verdict
    REREAD = 8
    WASTED = 9  # a join thrown away: another datacentre had registered first
    RETIMED = 10  # a line whose id was registered with another event time
    AMBIGUOUS = 11  # joined to one of several primary records that differ, or rejected for it
    UNPAIRED = 12  # unmatched though its primary record is there: out of the join's bounds


APART = (Verdict.READ, Verdict.REREAD, Verdict.WASTED, Verdict.RETIMED, Verdict.AMBIGUOUS, Verdict.UNPAIRED)
FINAL = tuple(v for v in Verdict if v not in APART)


def cell(event_time_ns: int, verdict: int) -> int:
    """One number for (hour, verdict): cheap as a dictionary key on the hot path."""
    return event_time_ns // HOUR_NS << VERDICT_BITS | verdict


def cells(times: I64, verdicts: U8 | int) -> list[int]:
    """``cell`` of each. ``verdicts``: one for all, or a row each."""
    if len(times) < _FEW:
        codes = repeat(verdicts) if isinstance(verdicts, int) else verdicts.tolist()
        return [ns // HOUR_NS << VERDICT_BITS | code for ns, code in zip(times.tolist(), codes, strict=False)]
    numbers: list[int] = (times // HOUR_NS << VERDICT_BITS | verdicts).tolist()
    return numbers


def unknown_cell(verdict: int) -> int:
    return UNKNOWN_HOUR << VERDICT_BITS | verdict


def split_cell(number: int) -> tuple[int, Verdict]:
    """(hour, verdict)."""
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
        """read less everything else: 0, or the ledger is wrong."""
        return self.read - sum(self.verdicts.values()) - self.pending

    def apart(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in ("reread", "wasted", "retimed", "ambiguous", "unpaired")}

    def as_dict(self) -> dict[str, int]:
        """What balances, in the order of the command's JSON."""
        order = ("joined", "filtered", "unmatched", "late", "rejected", "elsewhere", "duplicate")
        named = {v.name.lower(): self.verdicts.get(v, 0) for v in FINAL}
        return {"read": self.read, **{name: named[name] for name in order}, "pending": self.pending}


@dataclass(frozen=True, slots=True)
class Ledger:
    """``hours``: hours since the epoch, UTC; UNKNOWN_HOUR for records without a readable event time."""

    hours: Mapping[int, LedgerLine]
    total: LedgerLine

    @property
    def unbalanced(self) -> list[int]:
        """Hours that do not balance; empty when all is well."""
        return [hour for hour, line in self.hours.items() if line.balance]


MADE = (Verdict.JOINED, Verdict.FILTERED, Verdict.UNMATCHED)
"""Verdicts that an event has in one datacentre only: these alone may be added up over datacentres."""


def made(lines: Iterable[LedgerLine]) -> dict[Verdict, int]:
    """What several datacentres made of their events together."""
    found = dict.fromkeys(MADE, 0)
    for line in lines:
        for verdict in MADE:
            found[verdict] += line.verdicts.get(verdict, 0)
    return found


def total_of(counts: Mapping[str, int]) -> LedgerLine:
    """A line from counts by name, as a dispatcher reports them; missing ones are 0."""
    by_verdict: dict[int, int] = {verdict: counts.get(verdict.name.lower(), 0) for verdict in Verdict}
    return _line(by_verdict, counts.get("pending", 0))


def ledger_of(counts: Iterable[tuple[int, int, int]], pending: Iterable[tuple[int, int]]) -> Ledger:
    """A ledger from rows (hour, verdict, count) and (hour, pending)."""
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
    """Counts by verdict, under the names that lines and reports have for them."""
    apart = {verdict.name.lower(): counts.get(verdict, 0) for verdict in APART}
    return {"verdicts": {verdict: counts.get(verdict, 0) for verdict in FINAL}, **apart}
