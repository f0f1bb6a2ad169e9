"""Writes generated lines into the growing, rolled logs of each datacentre at the moments they arrive."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from photon.lab.demo.generator import Line

ROLL_US = 3_000_000  # interval between new files
STEP_S = 0.01


@dataclass(frozen=True, slots=True)
class Logs:
    primary: Path
    foreign: Path


def append(logs: Logs, lines: Iterable[Line], name: str) -> Path | None:
    """Appends to ``queries-NAME.log`` and ``clicks-NAME.log``; returns the latter if there were clicks."""
    written: Path | None = None
    lines = list(lines)
    for primary, directory, kind in ((True, logs.primary, "queries"), (False, logs.foreign, "clicks")):
        if data := b"".join(line.data for line in lines if line.primary is primary):
            with open(directory / f"{kind}-{name}.log", "ab", buffering=0) as file:
                file.write(data)
            written = None if primary else directory / f"{kind}-{name}.log"
    return written


class Copy:
    """One datacentre's copy of the logs. Copies are identical byte by byte, whenever they are written."""

    def __init__(self, lines: Sequence[Line], logs: Logs, *, lag_us: int = 0) -> None:
        """``lines`` sorted by arrival; ``lag_us``: delay compared with the first copy."""
        self._lines = lines
        self._logs = logs
        self._lag_us = lag_us
        self.written = 0
        self.held = False  # while True, nothing arrives; held-back lines arrive at once afterwards

    @property
    def done(self) -> bool:
        return self.written == len(self._lines)

    def write_due(self, now_us: int) -> Sequence[Line]:
        """Writes and returns the lines that have arrived by ``now_us``, counted from the stream's start."""
        if self.held:
            return ()
        begin = end = self.written
        lines, due = self._lines, now_us - self._lag_us
        while end < len(lines) and lines[end].at_us <= due:
            end += 1
        for roll, group in itertools.groupby(lines[begin:end], lambda line: line.at_us // ROLL_US):
            append(self._logs, group, f"{roll:04d}")
        self.written = end
        return lines[begin:end]


class Feed:
    def __init__(
        self, lines: Sequence[Line], datacentres: Mapping[str, Logs], *, lag_us: int = 20_000, step_s: float = STEP_S
    ) -> None:
        """``lines`` sorted by arrival. The n-th datacentre gets its copy n * ``lag_us`` later than the first; lines
        that arrive within ``step_s`` are written together."""
        self._step_s = step_s
        self.copies = {
            name: Copy(lines, logs, lag_us=number * lag_us) for number, (name, logs) in enumerate(datacentres.items())
        }
        # click id -> wall time at which its first line was written in the first datacentre to get it
        self.arrived_ns: dict[str, int] = {}

    @property
    def written(self) -> int:
        return max(copy.written for copy in self.copies.values())

    async def run(self) -> None:
        """Writes every line at its time, or as soon after as possible, until all copies are complete."""
        began = time.monotonic()
        while not all(copy.done for copy in self.copies.values()):
            now_us = int((time.monotonic() - began) * 1e6)
            for copy in self.copies.values():
                lines = copy.write_due(now_us)
                self._note(lines)
            await asyncio.sleep(self._step_s)

    def _note(self, lines: Sequence[Line]) -> None:
        wall = time.time_ns()
        for line in lines:
            if not line.primary and line.data.endswith(b"}\n") and line.data.startswith(b'{"click_id":"'):
                self.arrived_ns.setdefault(orjson.loads(line.data)["click_id"], wall)
