"""Measurements: a file of JSON lines to which each run adds one, once it is verified. Nothing is removed."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from photon.fleet.numbers import Numbers
from photon.lab.chaos.api import Do, Step
from photon.lab.chaos.report import Seen
from photon.lab.latency import Verdict

KEPT = Path(__file__).parents[1] / "service_level.jsonl"
VERSION = 2
DAY, OVERLOAD = "day", "overload"
QUIET_CORES = 0.25  # if others use less than this a machine is called quiet
PROCESS = "datacentre "  # prefix of the name of a datacentre's process
LATE_NS, TOO_LATE_NS = 10 * 10**9, 60 * 10**9
# Promised share of events within 10 s; the others within 60 s, except those that a lost datacentre owns.
WITHIN_10 = 0.9999
SHARES = (50, 90, 99)
SINCE_START = {
    "hits": "photon_eventstore_cache_hits_total",
    "misses": "photon_eventstore_cache_misses_total",
    "entries": "photon_registry_entries_total",
    "entry_ids": "photon_registry_entry_ids_total",
}
Row = Mapping[str, Any]


def append(row: Row, path: Path = KEPT) -> None:
    """Appends one line in a single write."""
    with open(path, "ab", buffering=0) as file:
        file.write(json.dumps({"version": VERSION, **row}, separators=(",", ":")).encode() + b"\n")


def read(path: Path = KEPT) -> list[Row]:
    """Reads all rows; skips those of another version and an incomplete last one."""
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    rows = [json.loads(line) for line in lines if line.endswith(b"\n")]
    return [row for row in rows if row["version"] == VERSION]


class Grown:
    """Increase of counters that restart with their process, summed over all processes heard."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], float] = {}
        self.total = dict.fromkeys(SINCE_START, 0.0)

    def take(self, numbers: Numbers) -> None:
        """Takes current readings; counts from before the first reading are left out."""
        first = not self._last
        for who in numbers:
            for name, metric in SINCE_START.items():
                if (now := numbers.of(who, metric)) is not None:
                    last = self._last.get((who.label, name), now if first else 0.0)
                    self.total[name] += now - last if now >= last else now
                    self._last[who.label, name] = now


def binned(edges_ns: Sequence[int], verdicts: Sequence[Verdict]) -> dict[str, list[float | None]]:
    """Percentiles in ms of the events joined, by the interval between two edges in which they were written. ``None``
    means no events."""
    joined = sorted((each.written_ns, each.seen_ns - each.written_ns) for each in verdicts if each.joined)
    written, late = (np.array([each[of] for each in joined], np.int64) for of in (0, 1))
    cuts = np.searchsorted(written, np.array(edges_ns, np.int64))
    found: dict[str, list[float | None]] = {f"p{share}": [] for share in SHARES}
    for begin, end in itertools.pairwise(cuts):
        for share in SHARES:
            value = round(float(np.percentile(late[begin:end], share)) / 1e6) if end > begin else None
            found[f"p{share}"].append(value)
    return found


@dataclass(frozen=True, slots=True)
class Absence:
    """The absence of a datacentre whose process was killed or stopped. Wall times in ns."""

    datacentre: str
    ends_ns: int  # from here on it starts again
    back_ns: int  # it answers again


def absences(
    plan: Sequence[Step], spans: Sequence[tuple[int, int]], seen: Mapping[str, Sequence[Seen]], began_ns: int
) -> list[Absence]:
    """Finds all absences. ``spans``: begin and end of each step; ``seen``: samples since ``began_ns``."""
    found = []
    for step, (_, ends_ns) in zip(plan, spans, strict=True):
        match step.do:
            case Do.AWAY:
                names = list(step.target)
            case Do.KILL | Do.PAUSE:
                names = [name[len(PROCESS) :] for name in step.target if name.startswith(PROCESS)]
            case _:
                names = []
        for name in names:
            up = (began_ns + round(each.at_s * 1e9) for each in seen[name] if each.up)
            found.append(Absence(name, ends_ns, next((at for at in up if at > ends_ns), ends_ns)))
    return found


class Judged:
    """Joined events by the promise. An event is a lost datacentre's if it made the line, and thus registered the id,
    before the loss, and showed it afterwards: nobody else may write it. If it shows it later than ``LATE_NS`` after
    its return, the loss excuses nothing."""

    def __init__(self, verdicts: Sequence[Verdict], absent: Sequence[Absence]) -> None:
        late = [each for each in verdicts if each.joined and each.seen_ns - each.written_ns > LATE_NS]
        self.owned = [each for each in late if any(self._owned(each, absence) for absence in absent)]
        excepted = {each.event for each in self.owned}
        self._others = [each for each in verdicts if each.joined and each.event not in excepted]

    @staticmethod
    def _owned(verdict: Verdict, absence: Absence) -> bool:
        return (
            verdict.datacentre == absence.datacentre
            and verdict.made_ns <= absence.ends_ns <= verdict.seen_ns <= absence.back_ns + LATE_NS
        )

    def slowest(self, count: int) -> list[Verdict]:
        """Returns the slowest events that no lost datacentre excuses, slowest first."""
        return sorted(self._others, key=lambda each: each.written_ns - each.seen_ns)[:count]

    def late(self) -> dict[str, Any]:
        """Numbers for a row: later than 10 s, owned by a lost datacentre and others, and of these later than 60 s."""
        took = [each.seen_ns - each.written_ns for each in self._others]
        return {
            "owned": len(self.owned),
            "owned_max_s": round(max((e.seen_ns - e.written_ns for e in self.owned), default=0) / 1e9, 1),
            "others": sum(each > LATE_NS for each in took),
            "others_60": sum(each > TOO_LATE_NS for each in took),
            "others_max_s": round(max(took, default=0) / 1e9, 1),
        }


def steps(values: Sequence[float]) -> list[int]:
    """Returns the increments between successive counts."""
    return [round(max(0.0, now - before)) for before, now in itertools.pairwise(values)]
