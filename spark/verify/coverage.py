"""Computes a verification's coverage: the part of its range that was judged, and the reasons if that is too little.
Pure.

A verification without problems is *right* only if it has covered enough. It is *not judged* if more than
``PENDING_SHARE`` of the events are pending, if an event is pending for longer than the join's patience, if a
datacentre has no event although it had some on earlier days or its dispatcher read some, or if a log side has no
file.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from photon.spark.classes import Class
from photon.spark.verify.advice import GOOD
from photon.spark.verify.days import Hours
from photon.spark.verify.figures import ClassCount, CoverageRow, LedgerLine, piece_text
from photon.spark.verify.nights import Events, Night, Nights

PENDING_SHARE = 0.01
FEW = 0.5  # a number of events below this share of the usual is reported


@dataclass(frozen=True, slots=True)
class Looked:
    """The inputs of one verification. ``files``: datacentre -> log side -> number of files; ``known``: datacentres
    whose dispatcher's state was read; ``allow_empty``: the operator accepts days without events."""

    pieces: Sequence[Hours]
    counts: Sequence[ClassCount]
    events: Events
    files: Mapping[str, Mapping[str, int]]
    ledger: Sequence[LedgerLine]
    known: Collection[str]
    overdue: Sequence[str] = ()
    allow_empty: bool = False

    def pending(self) -> int:
        return sum(each.count for each in self.counts if each.kind is Class.PENDING)

    def read(self) -> Events:
        """Returns the number of events in each piece according to the dispatchers' ledgers."""
        read = {(each.hour, each.datacentre): each.counts.get("read", 0) for each in self.ledger}
        return events_of(self.pieces, read, self.files)


def coverage(looked: Looked, nights: Nights) -> list[CoverageRow]:
    """Returns the coverage of each datacentre."""
    pending, all_ = Counter[str | None](), Counter[str | None]()
    for each in looked.counts:
        all_[each.datacentre] += each.count
        pending[each.datacentre] += each.count if each.kind is Class.PENDING else 0
    rows = []
    for name, files in looked.files.items():
        usual = [known for at in looked.pieces if (known := nights.usual(at, name)) is not None]
        rows.append(
            CoverageRow(
                name, sum(looked.events[at].get(name, 0) for at in looked.pieces),
                sum(usual) if len(usual) == len(looked.pieces) else None,
                all_[name] - pending[name], pending[name], dict(files),
            )
        )  # fmt: skip
    return rows


def too_pending(looked: Looked) -> list[str]:
    """Returns why pending events prevent a judgement; empty if they do not."""
    pending, events = looked.pending(), sum(each.count for each in looked.counts)
    if not pending:
        return []
    found = [f"{pending:,} of {events:,} events are pending"] if pending > PENDING_SHARE * events else []
    return found + list(looked.overdue)


def missing(looked: Looked, nights: Nights) -> list[str]:
    """Reports log sides that have no file although one was expected."""
    found = []
    for name, files in looked.files.items():
        has_events = any(looked.events[at].get(name) for at in looked.pieces)
        for side, count in files.items():
            if count:
                continue
            if nights.had_files(name, side):
                found.append(f"{name}: no {side} file exists, but earlier nights had some")
            elif side == "primary" and has_events:
                found.append(f"{name}: no {side} file exists, but foreign events do")
    return found


def empty(looked: Looked, nights: Nights) -> dict[Hours, list[str]]:
    """Reports pieces in which a datacentre has no event although some were expected."""
    found: dict[Hours, list[str]] = {}
    if looked.allow_empty:
        return found
    by_ledger = looked.read()
    for at in looked.pieces:
        for name in looked.files:
            if looked.events[at].get(name):
                continue
            usual, read = nights.usual(at, name), by_ledger[at][name]
            if usual:
                found.setdefault(at, []).append(f"{piece_text(*at)}: {name}: 0 events, usually {usual:,}")
            elif read:
                said = f"{piece_text(*at)}: {name}: 0 events, but its dispatcher has read {read:,}"
                found.setdefault(at, []).append(said)
    unproven = [name for name, files in looked.files.items() if not files["foreign"] or name not in looked.known]
    if not found and unproven and not sum(each.count for each in looked.counts):
        said = f"0 events: {', '.join(unproven)}: there is no foreign log, or no dispatcher's state to confirm it"
        return {at: [said] for at in looked.pieces[:1]}
    return found


def pointed_at(looked: Looked, nights: Nights) -> list[str]:
    """Reports datacentres with unusually few events."""
    return [
        f"{piece_text(*at)}: {name}: {events:,} events, usually {usual:,}"
        for at in looked.pieces
        for name in looked.files
        if (events := looked.events[at].get(name, 0)) and events < FEW * (usual := nights.usual(at, name) or 0)
    ]


def unlooked(looked: Looked, *, registry: bool) -> list[str]:
    """Reports inputs that were not read, which alone never prevents a judgement."""
    found = [] if registry else ["the registry"]
    found += [f"{name}: the dispatcher's state" for name in looked.files if name not in looked.known]
    return found + [
        f"{name}: {side}: no file"
        for name, files in looked.files.items()
        for side, count in files.items()
        if not count
    ]


def judged_nights(
    looked: Looked, nights: Nights, verified: Collection[Hours], open_: Mapping[Hours, object], blind: bool
) -> list[Night]:
    """Returns each piece as a night.

    ``verified``: pieces verified completely in this run (the others stay closed if they were); ``open_``: pieces with
    too little data or with problems; ``blind``: a log side was missing. A pending line without a time keeps the last
    piece open.
    """
    waits = {_piece_of(each.hour, looked.pieces) for each in looked.counts if each.kind is Class.PENDING}
    found = []
    for at in looked.pieces:
        before = nights.at(at)
        was_closed = at not in verified and before is not None and before.closed
        closed = was_closed or not (at in waits or at in open_ or blind)
        found.append(
            Night(begin=at[0], end=at[1], events=dict(looked.events[at]),
                  files={name: dict(files) for name, files in looked.files.items()}, closed=closed)
        )  # fmt: skip
    return found


def with_problems(looked: Looked, unexplained: Iterable[int | None]) -> dict[Hours, str]:
    """Returns the pieces with findings that require action, or with ``unexplained`` hours of a ledger. They stay
    open, so that the next night reports them again, until they are repaired or acknowledged."""
    hours = {each.hour for each in looked.counts if each.kind not in GOOD and each.count} | {*unexplained}
    return {at: "problems" for hour in hours if (at := _piece_of(hour, looked.pieces)) is not None}


def _piece_of(hour: int | None, pieces: Sequence[Hours]) -> Hours | None:
    last = pieces[-1] if pieces else None
    return last if hour is None else pieces[bisect_right(pieces, hour, key=lambda at: at[0]) - 1]


def events_of(
    pieces: Iterable[Hours], lines: Mapping[tuple[int | None, str], int], names: Collection[str]
) -> dict[Hours, dict[str, int]]:
    """Sums each piece's lines by datacentre. ``lines``: number of lines by (hour, datacentre)."""
    found = {at: dict.fromkeys(names, 0) for at in pieces}
    starts = {hour: at for at in found for hour in range(*at)}
    for (hour, name), count in lines.items():
        if hour is not None and hour in starts and name in found[starts[hour]]:
            found[starts[hour]][name] += count
    return found
