"""Seeded schedules of the rejected and late logs: killed anywhere, their database lost or restored from older copies.

Anything readers have seen stays in place; without a loss each line stands there once, in order.
"""

from __future__ import annotations

import math
import re
import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from photon.config.disk import Disk, RealDisk
from photon.dispatcher import exports
from photon.dispatcher.events import Export
from photon.dispatcher.exports import LOGS, Exports
from photon.dispatcher.state import Changes, State
from photon.outputs import OutputPlace
from photon.outputs.log.writer import LogWriter, NotOfThisState
from tests.dying_disk import DyingDisk, Killed
from tests.simulation.world.noticed import notice
from tests.simulation.world.seeds import run_each
from tests.simulation.world.violation import Violation, of_seed

STEPS = 12
SEEDS_OF_THE_ABLATION = 50


class CutWithoutAPlace(LogWriter):
    """A start cuts all bytes after the published length, and all bytes if no length is known."""

    def _is_again(self, *_: Any) -> bool:
        return True


class Schedule:
    def __init__(self, directory: Path, seed: int) -> None:
        self.random = Random(seed)
        self.directory, self.state, self.aside = directory, directory / "s", directory / "aside"
        self.shown: dict[tuple[str, str], bytes] = {}
        self.lines = 0
        self.loses = self.random.random() < 0.6

    def run(self) -> None:
        for _ in range(STEPS):
            with suppress(Killed):
                self._life(self.random.choice((math.inf, self.random.randrange(60))))
            if self.random.random() < 0.3 and self.state.exists():
                previous = self.state.with_name("s.previous")
                previous.unlink(missing_ok=True)
                with closing(sqlite3.connect(self.state)) as state, closing(sqlite3.connect(previous)) as copy:
                    state.backup(copy)
                    copy.execute("PRAGMA journal_mode=DELETE")
            if self.loses:
                self._lose()
        if not self.loses:
            self._life(math.inf)
            self._all_stand()

    def _life(self, steps: float) -> None:
        """One process: what it found, some lines, and its end, after so many steps of its disk."""
        disk, roll = DyingDisk(steps), self.random.choice((1, 30, 1 << 20))
        with closing(State(self.state)) as state:
            try:
                exports = self._open(disk, state, roll)
            except NotOfThisState:
                shutil.copytree(self.aside, self.directory / "p", dirs_exist_ok=True)
                exports = self._open(disk, state, roll)
            with closing(exports):
                self._look()
                for _ in range(self.random.randrange(4)):
                    more = range(self.lines + 1, self.lines + self.random.randrange(2, 4))
                    self.lines += len(more)
                    lines = [Export(self.random.choice(LOGS), b"line %d\n" % number) for number in more]
                    state.commit(Changes(exports=lines))
                    exports.flush()
                    self._look()

    def _open(self, disk: Disk, state: State, roll: int) -> Exports:
        return Exports(self.directory, disk, state, self.directory / "p", warn=lambda _: None, roll_bytes=roll)

    def _all_stand(self) -> None:
        stand: list[int] = []
        for data in self.shown.values():
            numbers = [int(each) for each in re.findall(rb"line (\d+)\n", data)]
            if numbers != sorted(numbers) or data != b"".join(b"line %d\n" % number for number in numbers):
                raise Violation(f"not in order: {data!r}")
            stand += numbers
        if sorted(stand) != list(range(1, self.lines + 1)):
            raise Violation(f"{self.lines} lines were given, {sorted(stand)} stand there")

    def _lose(self) -> None:
        what = self.random.random()
        previous = self.state.with_name("s.previous")
        if what < 0.15:
            for path in self.directory.glob("s*"):
                path.unlink()
        elif what < 0.3 and previous.exists():
            for path in self.directory.glob("s-*"):
                path.unlink()
            shutil.copy(previous, self.state)
        if what < 0.3 and self.random.random() < 0.5 and (self.directory / "p").exists():
            shutil.rmtree(self.aside, ignore_errors=True)
            (self.directory / "p").rename(self.aside)

    def _look(self) -> None:
        found: dict[tuple[str, str], bytes] = {}
        for slot in OutputPlace(self.directory, self.directory / "p").published(RealDisk()):
            for file in slot.files:
                path = self.directory / file.name
                data = path.read_bytes()[: file.length] if path.exists() else b""
                if len(data) < file.length:
                    raise Violation(f"{file.name}: {file.length} bytes are shown, {len(data)} are there")
                found[slot.slot, file.kind] = found.get((slot.slot, file.kind), b"") + data
        for log, data in self.shown.items():
            if not found.get(log, b"").startswith(data):
                raise Violation(f"{log}: shown {data!r}, now {found.get(log)!r}")
        self.shown |= found


def run_seed(seed: int, writer: type[LogWriter] = LogWriter) -> None:
    with TemporaryDirectory() as directory, of_seed(seed), pytest.MonkeyPatch.context() as patch:
        patch.setattr(exports, "LogWriter", writer)
        Schedule(Path(directory), seed).run()


@pytest.mark.seeded
def test_what_was_shown_stays() -> None:
    run_each(run_seed, lambda seed: [], 10)


def test_the_simulator_notices_exports_that_are_cut_without_a_place() -> None:
    seeds = range(SEEDS_OF_THE_ABLATION)
    notice("exports: cut without a place", seeds, lambda seed: run_seed(seed, CutWithoutAPlace), "shown")
