"""Checks for snapshot isolation what transactions saw and did, independently of how tables are implemented."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from tests.simulation.world.violation import Violation

Cell = tuple[str, str, str]


@dataclass
class Ran:
    """An attempted transaction."""

    start: int  # its start timestamp, which is also its name
    after: int = 0  # the highest commit timestamp that anybody knew when it began
    # Cell -> the start timestamp of the transaction whose value it saw; 0: there was none.
    reads: dict[Cell, int] = field(default_factory=dict)
    writes: set[Cell] = field(default_factory=set)
    told: str = "unknown"  # committed, aborted, or unknown: its client died, or was told so
    commit: int = 0  # its commit timestamp in the store; 0: none


def check(history: Iterable[Ran]) -> None:
    """Raises Violation with the name of the anomaly."""
    ran = {each.start: each for each in history}
    versions: dict[Cell, list[tuple[int, int]]] = {}
    for each in ran.values():
        if each.told == "committed" and each.writes and not each.commit:
            raise Violation(f"lost commit: {each.start} was told that it is committed, and is not")
        if each.told == "aborted" and each.commit:
            raise Violation(f"false abort: {each.start} was told that it is not committed, and is at {each.commit}")
        if each.commit and each.commit <= each.start:
            raise Violation(f"time: {each.start} is committed at {each.commit}")
        if each.start <= each.after:
            raise Violation(f"time: {each.start} began after {each.after} was known to be committed")
        for cell in each.writes if each.commit else ():
            versions.setdefault(cell, []).append((each.commit, each.start))
    for cell, found in versions.items():
        found.sort()
        for (commit, start), (later, other) in pairwise(found):
            if other < commit:
                raise Violation(f"lost update: {start} to {commit} and {other} to {later} have both written {cell}")
    for each in ran.values():
        _check_reads(each, ran, versions)


def _check_reads(each: Ran, ran: dict[int, Ran], versions: dict[Cell, list[tuple[int, int]]]) -> None:
    for cell, writer in each.reads.items():
        found = versions.get(cell, [])
        at = bisect_right(found, (each.start, 0)) - 1
        wanted = found[at][1] if at >= 0 else 0
        if writer == wanted:
            continue
        if writer and (writer not in ran or not ran[writer].commit):
            raise Violation(f"aborted read: {each.start} has read {cell} of {writer}, which is not committed")
        whole = ran[wanted] if wanted else None
        seen = [other for other, by in each.reads.items() if whole and other in whole.writes and by == wanted]
        if seen:
            raise Violation(f"fractured read: {each.start} has read {seen[0]} of {wanted}, but {cell} of {writer}")
        raise Violation(f"wrong snapshot: {each.start} has read {cell} of {writer}, not of {wanted}")
