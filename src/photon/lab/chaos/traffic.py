"""Writes a live stream into the logs of several datacentres, generating it on demand: it may run for hours.

The copies are identical byte by byte, whenever they are written. Memory holds the lines generated but not yet due,
and those held back from absent datacentres.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from pathlib import Path

from photon.lab.chaos.api import ChaosFailed
from photon.lab.demo.feed import Logs, append
from photon.lab.demo.generator import Arriving, Generator, Line

ROLL_US = 30_000_000  # interval between new files
STEP_S = 0.02
LINES_A_STEP = 5_000  # of one copy: released lines must not hold up the others
TORN_BYTES = 4096  # bytes that a crash of the writer's machine may take from a log
QUERIES_KEPT = 500_000  # primary events whose time of arrival is remembered
_CLICK, _QUERY = b'{"click_id":"', b'{"query_id":"'


class LogCopy:
    def __init__(self, logs: Logs, stream: str = "") -> None:
        """``stream``: prefix of the log files' names."""
        self.logs = logs
        self._stream = stream
        self.held = False  # while True, nothing arrives; held-back lines come soon afterwards
        self.written = 0
        self.newest: Path | None = None  # the last file of foreign events written
        self.torn: tuple[Path, bytes] | None = None  # a file, and the end cut off from it
        self._due: deque[Line] = deque()

    @property
    def waiting(self) -> int:
        """Lines that are held back."""
        return len(self._due)

    def write(self, lines: list[Line]) -> list[Line]:
        """Queues lines and writes those that are due; returns the written ones."""
        self._due.extend(lines)
        if self.held or not self._due:
            return []
        due = [self._due.popleft() for _ in range(min(len(self._due), LINES_A_STEP))]
        for roll, of_roll in itertools.groupby(due, key=lambda line: line.at_us // ROLL_US):
            self.newest = append(self.logs, of_roll, f"{self._stream}{roll:06d}") or self.newest
        self.written += len(due)
        return due


class Traffic:
    def __init__(
        self,
        generator: Generator,
        datacentres: Mapping[str, Logs],
        now_ns: Callable[[], int] = time.time_ns,
        stream: str = "",
        step_s: float = STEP_S,
    ) -> None:
        """``stream``: prefix of the log files' names, if the directories already hold other streams; ``step_s``:
        seconds between writes."""
        self._step_s = step_s
        self.generator = generator
        self.copies = {name: LogCopy(logs, stream) for name, logs in datacentres.items()}
        self.written = 0  # lines due so far
        self.late_s = 0.0  # longest time between two writes
        self.clicks: dict[str, int] = {}  # click id -> wall time at which its line was first written anywhere
        self._queries: OrderedDict[str, int] = OrderedDict()
        self._stream = Arriving(generator.rounds())
        self._now_ns = now_ns

    @property
    def done(self) -> bool:
        return self._stream.done and not any(copy.waiting for copy in self.copies.values())

    def step(self, now_us: int) -> None:
        """Writes the lines due ``now_us`` after the stream's start."""
        lines = self._stream.due(now_us)
        self.written += len(lines)
        for copy in self.copies.values():
            self._note(copy.write(lines))

    def hold(self, datacentre: str) -> None:
        self.copies[datacentre].held = True

    def flow(self, datacentre: str) -> None:
        self.copies[datacentre].held = False

    def truncate(self, datacentre: str) -> str:
        """Cuts the end off the newest event log of a datacentre, which receives no lines until ``restore``."""
        copy = self.copies[datacentre]
        if copy.newest is None or copy.torn:
            raise ChaosFailed(f"truncate: {datacentre} has no event log yet, or it is already truncated")
        copy.held = True
        data = copy.newest.read_bytes()
        kept = max(0, len(data) - TORN_BYTES)
        copy.torn = (copy.newest, data[kept:])
        os.truncate(copy.newest, kept)
        return f"{copy.newest.name} of {datacentre}: {len(data) - kept} of {len(data)} bytes cut off"

    def restore(self, datacentre: str) -> None:
        copy = self.copies[datacentre]
        if copy.torn is not None:
            path, tail = copy.torn
            with open(path, "ab", buffering=0) as file:
                file.write(tail)
            copy.torn = None
        copy.held = False

    async def run(self) -> None:
        began = last = time.monotonic()
        while not self.done:
            self.step(int((time.monotonic() - began) * 1e6))
            await asyncio.sleep(self._step_s)
            now = time.monotonic()
            self.late_s, last = max(self.late_s, now - last), now

    def complete_ns(self, click: str, query: str | None) -> int | None:
        """The wall time when all lines that an event's verdict needs were written."""
        at = self.clicks.get(click)
        if at is None or query is None:
            return at
        return max(at, self._queries.get(query, 0))

    def _note(self, lines: list[Line]) -> None:
        now = self._now_ns()
        for line in lines:
            if line.primary:
                if line.data.startswith(_QUERY):
                    end = line.data.index(b'"', len(_QUERY))
                    self._queries.setdefault(line.data[len(_QUERY) : end].decode(), now)
            elif line.data.startswith(_CLICK) and line.data.endswith(b"}\n"):
                end = line.data.find(b'"', len(_CLICK))
                if line.data.startswith(b'","query_id":', end):
                    self.clicks.setdefault(line.data[len(_CLICK) : end].decode(), now)
        while len(self._queries) > QUERIES_KEPT:
            self._queries.popitem(last=False)
