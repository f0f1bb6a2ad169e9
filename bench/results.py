"""Results as JSON, one file per row, one round at a time: an interrupted run resumes where it was.

A row is one line of a table (or one point of a plot): the system, its load, and the measurements of each round.
"""

from __future__ import annotations

import json
import os
import platform
import re
import statistics
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

Figures = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Round:
    """The measurements of one run."""

    figures: Figures
    load: float  # load average of the machine over a minute, before the run


@dataclass(slots=True)
class Row:
    """One line of a table."""

    group: str  # the table: ``catch-up``, ``live``, …
    name: str  # unique in its group
    command: str  # command that measures it again
    settings: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    machine: dict[str, str] = field(default_factory=dict)
    rounds: list[Round] = field(default_factory=list)
    problem: str = ""  # the reason why there are no figures, or the error in an output

    def median(self, figure: str) -> float | None:
        """Median over the rounds that have it; ``None`` means not measured."""
        values = [each.figures[figure] for each in self.rounds if figure in each.figures]
        return statistics.median(values) if values else None

    def least(self, figure: str) -> float | None:
        """The smallest value of all rounds."""
        values = [each.figures[figure] for each in self.rounds if figure in each.figures]
        return min(values) if values else None


def machine() -> dict[str, str]:
    """Describes the measuring machine, without names."""
    memory = re.search(r"MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text())
    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return {
        "cores": str(os.cpu_count()),
        "cpu": cpu.group(1) if cpu else platform.machine(),
        "memory": f"{int(memory.group(1)) / 2**20:.0f} GiB" if memory else "unknown",
        "kernel": platform.release().partition("-")[0],
        "python": platform.python_version(),
    }


class Results:
    """The rows kept in a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def _file(self, group: str, name: str) -> Path:
        return self.directory / group / (re.sub(r"[^A-Za-z0-9.+-]+", "-", name).strip("-") + ".json")

    def row(self, group: str, name: str, command: str, settings: Mapping[str, str] | None = None) -> Row:
        """Returns the kept row, or a new one."""
        file = self._file(group, name)
        row = read_row(json.loads(file.read_text())) if file.exists() else Row(group, name, command)
        row.command, row.settings = command, dict(settings or {})
        return row

    def keep(self, row: Row) -> None:
        """Writes a row completely or not at all; not durable against a power cut."""
        file = self._file(row.group, row.name)
        file.parent.mkdir(parents=True, exist_ok=True)
        row.machine = machine()
        made = file.with_suffix(".tmp")
        made.write_text(json.dumps(asdict(row), indent=1) + "\n")
        made.replace(file)

    def rows(self) -> list[Row]:
        """Returns all kept rows, by group and name."""
        return [read_row(json.loads(file.read_text())) for file in sorted(self.directory.glob("*/*.json"))]


def read_row(found: dict[str, object]) -> Row:
    """Makes a row from decoded JSON."""
    rounds = found.pop("rounds")
    assert isinstance(rounds, list)
    return Row(**found, rounds=[Round(**each) for each in rounds])  # type: ignore[arg-type]


def run_round(results: Results, row: Row, wanted: int, run: Callable[[], Figures]) -> bool:
    """Runs one more round of a row, unless it has as many as wanted. Returns whether it ran.

    A failure becomes the row's problem, and the benchmark continues.
    """
    if len(row.rounds) >= wanted:
        return False
    load = os.getloadavg()[0]
    try:
        figures = run()
    except BenchmarkFailed as failed:
        row.problem = str(failed)
    else:
        row.rounds.append(Round(figures, round(load, 1)))
        row.problem = ""
    results.keep(row)
    return True


class BenchmarkFailed(Exception):
    """A run gave no figure; the message says why in one line."""
