"""The result of a run: its verdict and figures."""

from __future__ import annotations

import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from photon.lab.latency import Verdict

WITHIN_S = (1.0, 10.0, 60.0)
NS_PER_MS = 1e6
SETTLE_SHARE = 0.25  # share of a process's life to ignore at its start, as caches fill and modules load
LIVED_LEAST_S = 300.0  # shorter lives are not judged
# Growth is more than this share above the beginning, and more than this many bytes or files.
GROWTH_SHARE, GROWTH_MEMORY, GROWTH_FILES = 0.25, 24 << 20, 20


@dataclass(frozen=True, slots=True)
class Spread:
    count: int
    p50_ms: float
    p99_ms: float
    max_ms: float


NOTHING = Spread(0, 0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Seen:
    at_s: float
    up: bool
    lag_bytes: int
    read: int
    wasted: int


@dataclass(frozen=True, slots=True)
class Back:
    datacentre: str
    away_s: float
    seconds: float | None  # seconds from its return to the head of its logs; None if it never got there
    read: int  # events that it read meanwhile
    wasted: int  # joins that it wasted meanwhile


@dataclass(frozen=True, slots=True)
class Latency:
    """Time from the write of an event (and of its primary event) to the moment its output line is readable."""

    overall: Spread
    during: Spread  # latencies of events written during a fault
    unmatched: Spread
    # "1", "10", "60" seconds -> share of events with a primary event that had their line by then
    within: Mapping[str, float]
    outstanding: int  # events without a line


def spread(milliseconds: Sequence[float]) -> Spread:
    """The distribution of latencies; zeros if there are no values."""
    if not milliseconds:
        return Spread(0, 0.0, 0.0, 0.0)
    if len(milliseconds) == 1:
        return Spread(1, milliseconds[0], milliseconds[0], milliseconds[0])
    cuts = statistics.quantiles(milliseconds, n=100, method="inclusive")
    return Spread(len(milliseconds), round(cuts[49], 1), round(cuts[98], 1), round(max(milliseconds), 1))


def latency(verdicts: Sequence[Verdict], faults_ns: Sequence[tuple[int, int]], outstanding: int) -> Latency:
    """Computes latencies. ``faults_ns``: begin and end of each fault; ``outstanding``: events without a line."""
    joined = [((each.seen_ns - each.written_ns) / NS_PER_MS, each.written_ns) for each in verdicts if each.joined]
    unmatched = [(each.seen_ns - each.written_ns) / NS_PER_MS for each in verdicts if not each.joined]
    during = [ms for ms, at in joined if any(begin <= at <= end for begin, end in faults_ns)]
    total = len(joined) + outstanding
    within = {
        f"{limit:g}": sum(ms <= limit * 1000 for ms, _ in joined) / total if total else 0.0 for limit in WITHIN_S
    }
    return Latency(spread([ms for ms, _ in joined]), spread(during), spread(unmatched), within, outstanding)


def back(datacentre: str, left_s: float, returned_s: float, seen: Sequence[Seen], near_bytes: int) -> Back:
    """Computes when a datacentre caught up after its absence: it has read something again and has less than
    ``near_bytes`` unread. ``seen`` is in order of time."""
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


@dataclass(frozen=True, slots=True)
class Sample:
    at_s: float
    memory: int  # resident bytes
    files: int


@dataclass(frozen=True, slots=True)
class Use:
    """The resources of one process from start to end; of its longest life if it restarted."""

    name: str
    lived_s: float
    memory_before: int
    memory_after: int
    files_before: int
    files_after: int
    judged: bool  # True if it lived long enough to be judged.
    growing: bool


def read_process(pid: int, at_s: float, proc: Path = Path("/proc")) -> Sample | None:
    """Samples a process's memory and open files; ``None`` if it is gone or may not be inspected."""
    try:
        pages = int((proc / str(pid) / "statm").read_text().split()[1])
        files = len(os.listdir(proc / str(pid) / "fd"))
    except (OSError, IndexError, ValueError):
        return None
    return Sample(at_s, pages * os.sysconf("SC_PAGE_SIZE"), files)


def uses(lives: Mapping[tuple[str, int], Sequence[Sample]]) -> list[Use]:
    """Resource use in the longest life of each process. ``lives``: (name, pid) -> samples in order. Pure."""
    longest: dict[str, Sequence[Sample]] = {}
    for (name, _), samples in lives.items():
        if len(samples) > len(longest.get(name, ())):
            longest[name] = samples
    return [_use(name, samples) for name, samples in longest.items()]


def _use(name: str, samples: Sequence[Sample]) -> Use:
    settled = samples[int(len(samples) * SETTLE_SHARE) :]
    third = max(1, len(settled) // 3)
    first, last = settled[:third], settled[-third:]
    memory_before, memory_after = (int(statistics.median(each.memory for each in part)) for part in (first, last))
    files_before, files_after = (int(statistics.median(each.files for each in part)) for part in (first, last))
    grown = _grown(memory_before, memory_after, GROWTH_MEMORY) or _grown(files_before, files_after, GROWTH_FILES)
    lived_s = samples[-1].at_s - samples[0].at_s
    judged = lived_s >= LIVED_LEAST_S
    return Use(name, lived_s, memory_before, memory_after, files_before, files_after, judged, judged and grown)


def _grown(before: int, after: int, least: int) -> bool:
    return after - before > least and after > before * (1 + GROWTH_SHARE)


@dataclass(slots=True)
class Report:
    """The results of one run. Without ``problems``, each event was joined exactly once and all faults healed."""

    scenario: str
    seed: int
    faults: int = 0
    problems: list[str] = field(default_factory=list)
    events: int = 0  # foreign events that must have one verdict
    seconds: float = 0.0  # seconds from the first line to the settled end
    settle_s: float = 0.0  # seconds from the last line and the last heal until everything was settled
    latency: Latency = field(default_factory=lambda: Latency(NOTHING, NOTHING, NOTHING, {}, 0))
    backs: list[Back] = field(default_factory=list)
    wasted: int = 0  # total of wasted joins
    uses: list[Use] = field(default_factory=list)
    restarts: int = 0
    load_before: float = 0.0
    load_after: float = 0.0  # load average of the machine over a minute
    history: str = ""
    verified: str = ""  # how it was verified

    @property
    def good(self) -> bool:
        """True if nothing was lost, duplicated, invented or wrong."""
        return not self.problems

    @property
    def growing(self) -> list[Use]:
        return [use for use in self.uses if use.growing]
