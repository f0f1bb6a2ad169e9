"""Memory and open files of processes over time, and whether they are flat. The reading is Linux's /proc."""

from __future__ import annotations

import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

SETTLE_SHARE = 0.25
"""This first share of a process's life, in which caches fill and modules load, is left out."""
LIVED_LEAST_S = 300.0
"""A shorter life tells nothing."""
GROWTH_SHARE, GROWTH_MEMORY, GROWTH_FILES = 0.25, 24 << 20, 20
"""More than this share above the beginning, and by more than this many bytes or files, is growth."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One process at one moment."""

    at_s: float
    memory: int
    """Resident bytes."""
    files: int


@dataclass(frozen=True, slots=True)
class Use:
    """One process from its start to its end, or the longest of its lives."""

    name: str
    lived_s: float
    memory_before: int
    memory_after: int
    files_before: int
    files_after: int
    judged: bool
    """Whether it lived long enough for a judgement."""
    growing: bool


def read_process(pid: int, at_s: float, proc: Path = Path("/proc")) -> Sample | None:
    """None where it is gone, or may not be looked at."""
    try:
        pages = int((proc / str(pid) / "statm").read_text().split()[1])
        files = len(os.listdir(proc / str(pid) / "fd"))
    except (OSError, IndexError, ValueError):
        return None
    return Sample(at_s, pages * os.sysconf("SC_PAGE_SIZE"), files)


def uses(lives: Mapping[tuple[str, int], Sequence[Sample]]) -> list[Use]:
    """Of each process its longest life. ``lives``: (name, pid) -> samples in order. Pure."""
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
