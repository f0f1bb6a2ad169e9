"""The figures of a run, from what was seen. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from photon.lab.chaos.follow import Verdict

WITHIN_S = (1.0, 10.0, 60.0)
NS_PER_MS = 1e6


@dataclass(frozen=True, slots=True)
class Spread:
    """Of some durations in milliseconds."""

    count: int
    p50_ms: float
    p99_ms: float
    max_ms: float


@dataclass(frozen=True, slots=True)
class Seen:
    """One datacentre at one moment, as its dispatcher says."""

    at_s: float
    up: bool
    lag_bytes: int
    read: int
    wasted: int


@dataclass(frozen=True, slots=True)
class Back:
    """How a datacentre caught up after it was away."""

    datacentre: str
    away_s: float
    seconds: float | None
    """From its return to the head of its logs; None: never seen there."""
    read: int
    """Events that it read meanwhile."""
    wasted: int
    """Joins that it did for nothing meanwhile."""


@dataclass(frozen=True, slots=True)
class Latency:
    """From the write of an event (and of its primary event) to the moment its line can be read in an output."""

    overall: Spread
    during: Spread
    """Of events written while a fault lasted."""
    unmatched: Spread
    within: Mapping[str, float]
    """"1", "10", "60" seconds -> share of all events with a primary event that had their line by then."""
    outstanding: int
    """Events without a line."""


def spread(milliseconds: Sequence[float]) -> Spread:
    """Zeros of none."""
    if not milliseconds:
        return Spread(0, 0.0, 0.0, 0.0)
    if len(milliseconds) == 1:
        return Spread(1, milliseconds[0], milliseconds[0], milliseconds[0])
    cuts = statistics.quantiles(milliseconds, n=100, method="inclusive")
    return Spread(len(milliseconds), round(cuts[49], 1), round(cuts[98], 1), round(max(milliseconds), 1))


def latency(verdicts: Sequence[Verdict], faults_ns: Sequence[tuple[int, int]], outstanding: int) -> Latency:
    """``faults_ns``: begin and end of each; ``outstanding``: events of which no line was seen."""
    joined = [((each.seen_ns - each.written_ns) / NS_PER_MS, each.written_ns) for each in verdicts if each.joined]
    unmatched = [(each.seen_ns - each.written_ns) / NS_PER_MS for each in verdicts if not each.joined]
    during = [ms for ms, at in joined if any(begin <= at <= end for begin, end in faults_ns)]
    total = len(joined) + outstanding
    within = {
        f"{limit:g}": sum(ms <= limit * 1000 for ms, _ in joined) / total if total else 0.0 for limit in WITHIN_S
    }
    return Latency(spread([ms for ms, _ in joined]), spread(during), spread(unmatched), within, outstanding)


def back(datacentre: str, left_s: float, returned_s: float, seen: Sequence[Seen], near_bytes: int) -> Back:
    """``seen`` in order of time; it is back at the head of its logs with less than ``near_bytes`` unread, once it has
    read anything again."""
    before = [each for each in seen if each.at_s <= returned_s]
    read, wasted = (before[-1].read, before[-1].wasted) if before else (0, 0)
    for each in seen:
        if each.at_s > returned_s and each.up and each.lag_bytes < near_bytes and each.read != read:
            made = max(0, each.read - read), max(0, each.wasted - wasted)
            return Back(datacentre, round(returned_s - left_s, 1), round(each.at_s - returned_s, 1), *made)
    last = seen[-1] if seen else Seen(0.0, False, 0, read, wasted)
    return Back(
        datacentre, round(returned_s - left_s, 1), None, max(0, last.read - read), max(0, last.wasted - wasted)
    )
