"""Seeded schedules of the writer of a published log: killed at any step, its power cut, over and over.

Whoever writes has numbered rows, and forgets those that are published. Each rule of ``photon.outputs.log.writer`` has
an ablation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from photon.outputs.log.writer import LogWriter, NotOfThisState
from photon.outputs.published import DURABLE_NAME, PublishedDamaged, read_slot
from tests.simulation.world.disk import PowerOff
from tests.simulation.world.faulty_disk import FaultyDisk
from tests.simulation.world.noticed import notice
from tests.simulation.world.seeds import run_each
from tests.simulation.world.violation import Violation, of_seed

LIVES = 8
KINDS = ("rejected", "late")
OUTPUT, STATE = Path("/out"), Path("/state/slot")
SEEDS_OF_AN_ABLATION = 400


class ShowsWhatIsNotSynced(LogWriter):
    """Rule 1: the length is published of bytes that are not durable."""

    def sync(self) -> bool:
        for file in self._files.values():
            file.sync = lambda: None
        return super().sync()


class ForgetsTheName(LogWriter):
    """Rule 1: the bytes of a new file are durable, but not its name."""

    def sync(self) -> bool:
        for kind in self._unsynced:
            self.lengths.setdefault(self._current(kind), 0)
        return super().sync()


class RollsBeforeItSyncs(LogWriter):
    """Rule 3: a file has a successor before it is durable."""

    def sync(self) -> bool:
        for kind in [kind for kind in self._unsynced if self._files[kind].size >= self._roll_bytes]:
            self._unsynced.discard(kind)
            self.lengths[self._current(kind)] = self._files[kind].size
            self.go_on(kind, self.current[kind] + 1)
        return super().sync() or bool(self.lengths)


class CutsNothing(LogWriter):
    """Rule 4: a start appends to what it finds."""

    def recover(self, kind: str, again: Collection[bytes] | None = None) -> bool:
        return True


class CutsWhatOthersWrote(LogWriter):
    """Rule 4: a start cuts what nobody will write again."""

    def _is_again(self, *_: object) -> bool:
        return True


class BelievesTheCache(LogWriter):
    """Rule 5: rows are forgotten on the strength of a number that a power cut takes back."""

    def load(self) -> None:
        disk: FaultyDisk = self.disk  # type: ignore[assignment]
        rewrite, disk.rewrite = disk.rewrite, lambda path, offset: None  # type: ignore[method-assign]
        sync, disk.sync_dir = disk.sync_dir, lambda path: None  # type: ignore[method-assign]
        try:
            super().load()
        finally:
            disk.rewrite, disk.sync_dir = rewrite, sync  # type: ignore[method-assign]


class Schedule:
    """One sender and its log. Rows are durable with the sender before they are written, as in an outbox."""

    def __init__(self, seed: int, writer: type[LogWriter]) -> None:
        self.random, self.writer = Random(seed), writer
        self.disk = FaultyDisk(self.random)
        self.rows: dict[int, tuple[str, bytes]] = {}
        self.acknowledged = -1
        self.given = 0
        self.shown: dict[str, bytes] = dict.fromkeys(KINDS, b"")
        self.lost = False
        """The rows of a sender were lost before."""
        self.strict = self.random.random() < 0.5
        """The sender tells which lines it will write again."""

    def run(self) -> None:
        for life in range(LIVES):
            last = life == LIVES - 1
            self.disk.crash_after(None if last else self.random.randrange(40))
            with suppress(PowerOff):
                self._life(last)
            self.disk.kill()
            if self.random.random() < 0.4:
                self.disk.power_cut()
        self._look()
        self._all_stand()

    def _life(self, last: bool) -> None:
        roll = self.random.choice((1, 30, 1 << 20))
        try:
            log = self.writer(self.disk, OUTPUT, STATE, "s", KINDS, roll_bytes=roll)
            log.load()
            log.expect(self.acknowledged, "the sender")
            self._acknowledge(log.upto)
            for kind in KINDS:
                lines = [line for of, line in self.rows.values() if of == kind]
                if not log.recover(kind, lines if self.strict else None) and not self.lost:
                    raise Violation(f"{kind}: what the sender wrote was taken for somebody else's")
        except (NotOfThisState, PublishedDamaged) as refused:
            raise Violation(f"refused: {refused}") from None
        self._look()
        self._write(log)
        for _ in range(self.random.randrange(5)):
            for _ in range(self.random.randrange(4)):
                self.given += 1
                self.rows[self.given] = (self.random.choice(KINDS), b"line %d\n" % self.given)
            if not last and self.random.random() < 0.2:
                return
            self._write(log)
            self._look()

    def _write(self, log: LogWriter) -> None:
        rows = {number: row for number, row in self.rows.items() if number > log.upto}
        if not rows:
            return
        for kind in KINDS:
            lines = [line for of, line in rows.values() if of == kind]
            for at in range(0, len(lines), 2):
                log.append(kind, b"".join(lines[at : at + 2]))
        log.publish(max(rows))
        if self.random.random() < 0.8:
            self._acknowledge(log.upto)

    def _acknowledge(self, upto: int) -> None:
        self.acknowledged = max(self.acknowledged, upto)
        self.rows = {number: row for number, row in self.rows.items() if number > self.acknowledged}

    def _look(self) -> None:
        found: dict[str, bytes] = dict.fromkeys(KINDS, b"")
        for file in read_slot(self.disk, STATE).files:
            path = OUTPUT / file.name
            data = self.disk.read(path)[: file.length] if self.disk.exists(path) else b""
            if len(data) < file.length:
                raise Violation(f"{file.name}: {file.length} bytes are shown, {len(data)} are there")
            found[file.kind] += data
        for kind, data in self.shown.items():
            if not found[kind].startswith(data):
                raise Violation(f"{kind}: shown {data!r}, now {found[kind]!r}")
        self.shown = found

    def _all_stand(self) -> None:
        standing: set[int] = set()
        for data in self.shown.values():
            numbers = [int(each) for each in re.findall(rb"line (\d+)\n", data)]
            if numbers != sorted(set(numbers)) or data != b"".join(b"line %d\n" % number for number in numbers):
                raise Violation(f"not each line once and in order: {data!r}")
            standing.update(numbers)
        if standing | self.rows.keys() != set(range(1, self.given + 1)):
            raise Violation(f"{self.given} lines were given, {sorted(standing)} stand there")


class Stranger(Schedule):
    """After each life the sender may be replaced by one that has lost its rows, perhaps with ``durable.json``."""

    def run(self) -> None:
        self.strict, self.replaced = True, False
        super().run()

    def _life(self, last: bool) -> None:
        if self.replaced or self.random.random() < 0.3:
            self.rows, self.acknowledged, self.lost = {}, -1, True
            self.replaced = True  # until it has published what it found
            if self.random.random() < 0.5 and self.disk.exists(STATE / DURABLE_NAME):
                self.disk.remove(STATE / DURABLE_NAME)
            log = self.writer(self.disk, OUTPUT, STATE, "s", KINDS)
            log.load()
            for kind in KINDS:
                log.recover(kind, ())
            log.show()
            self.replaced = False
            self._look()
            return
        super()._life(last)

    def _all_stand(self) -> None:
        """The rows of a lost sender are lost with it."""


def run_seed(seed: int, writer: type[LogWriter] = LogWriter) -> None:
    with of_seed(seed):
        Schedule(seed, writer).run()


def run_strangers(seed: int, writer: type[LogWriter] = LogWriter) -> None:
    with of_seed(seed):
        Stranger(seed, writer).run()


@pytest.mark.seeded
def test_each_line_is_shown_once_and_stays() -> None:
    run_each(run_seed, lambda seed: [], 10)


@pytest.mark.seeded
def test_what_was_shown_stays_if_the_sender_is_lost() -> None:
    run_each(run_strangers, lambda seed: [], 10)


Run = Callable[[int, type[LogWriter]], None]
ABLATIONS: Iterable[tuple[type[LogWriter], Run, str]] = (
    (ShowsWhatIsNotSynced, run_seed, "are shown|refused|now"),
    (ForgetsTheName, run_seed, "are shown|refused|now"),
    (RollsBeforeItSyncs, run_seed, "are shown|refused|now"),
    (CutsNothing, run_seed, "once and in order|now"),
    (CutsWhatOthersWrote, run_strangers, "shown .*, now"),
    (BelievesTheCache, run_seed, "refused"),
)


@pytest.mark.parametrize(("writer", "run", "finds"), ABLATIONS, ids=lambda each: getattr(each, "__name__", ""))
def test_the_simulator_notices(writer: type[LogWriter], run: Run, finds: str) -> None:
    seeds = range(SEEDS_OF_AN_ABLATION)
    notice(f"log: {writer.__name__}", seeds, lambda seed: run(seed, writer), finds)
