"""Measurements: a file of JSON lines to which each run adds one, once it is verified. Nothing is removed."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from photon.fleet.numbers import Numbers
from photon.lab.latency import Verdict

KEPT = Path(__file__).parents[1] / "service_level.jsonl"
VERSION = 1
DAY, OVERLOAD = "day", "overload"
QUIET_CORES = 0.45
"""If others use less than this a machine is called quiet: the processes that write the lines, read the output and ask
for figures are counted among them, and take 0.2 to 0.4."""
SHARES = (50, 90, 99)
SINCE_START = {
    "hits": "photon_eventstore_cache_hits_total",
    "misses": "photon_eventstore_cache_misses_total",
    "entries": "photon_registry_entries_total",
    "entry_ids": "photon_registry_entry_ids_total",
}
Row = Mapping[str, Any]


def append(row: Row, path: Path = KEPT) -> None:
    """Appends one line, in one write."""
    with open(path, "ab", buffering=0) as file:
        file.write(json.dumps({"version": VERSION, **row}, separators=(",", ":")).encode() + b"\n")


def read(path: Path = KEPT) -> list[Row]:
    """All rows, except those of another version and an incomplete last one."""
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    rows = [json.loads(line) for line in lines if line.endswith(b"\n")]
    return [row for row in rows if row["version"] == VERSION]


class Grown:
    """Increase of counters that restart with their process, summed over all processes heard."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], float] = {}
        self.total = dict.fromkeys(SINCE_START, 0.0)

    def take(self, numbers: Numbers) -> None:
        """Takes current readings. Counts from before the first moment are left out."""
        first = not self._last
        for who in numbers:
            for name, metric in SINCE_START.items():
                if (now := numbers.of(who, metric)) is not None:
                    last = self._last.get((who.label, name), now if first else 0.0)
                    self.total[name] += now - last if now >= last else now
                    self._last[who.label, name] = now


def binned(edges_ns: Sequence[int], verdicts: Sequence[Verdict]) -> dict[str, list[float | None]]:
    """Percentiles of the joined events, in ms, by when they were written: one less than there are edges. ``None``
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


def steps(values: Sequence[float]) -> list[int]:
    """Increments of a rising count, per moment."""
    return [round(max(0.0, now - before)) for before, now in itertools.pairwise(values)]
