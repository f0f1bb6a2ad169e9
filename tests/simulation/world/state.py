"""The dispatcher's production State over SQLite in memory, with an image kept at each commit.

A process that is killed leaves its last committed image; a power cut may take back transactions that were not synced,
in order, as WAL with synchronous=NORMAL may.
"""

from __future__ import annotations

import os
import sqlite3
from bisect import bisect_left
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from photon.batch.columns import RowIndexes
from photon.config.clock import NEVER_NS
from photon.dispatcher import state as dispatcher_state
from photon.dispatcher.committing import Committing
from photon.dispatcher.counting import Counting
from photon.dispatcher.database import fill
from photon.dispatcher.intake import Intake
from photon.dispatcher.ledger import Ledger
from photon.dispatcher.open_events import OpenEvents
from photon.dispatcher.state import Changes, State
from photon.dispatcher.undecided import undecided
from photon.outputs.watermarks import STEP_NS
from tests.simulation.world.loop import OWNER

if TYPE_CHECKING:
    from tests.simulation.world.process import DispatcherProcess

_EMPTY: list[bytes] = []

Line = tuple[str, int]  # a line of a foreign log: the log's name and the offset
Lines = Mapping[Line, int]  # lines -> event times


class Image(NamedTuple):
    """State after a commit. ``lines``: all without a verdict; ``None`` means that it has no claim for that moment, or
    one that counts more, as logs are read again."""

    data: bytes
    lines: Lines | None = None


class Images:
    """A dispatcher's disk. ``history`` begins with the durable image and ends with the current one."""

    def __init__(self) -> None:
        self.history = [Image(_empty())]
        self.wipes = 0  # number of times everything was deleted

    def committed(self, image: Image, *, synced: bool) -> None:
        if synced:
            self.history.clear()
        self.history.append(image)

    def lose(self, kept: int) -> None:
        """A power cut: ``kept`` transactions since the durable one are left."""
        del self.history[kept + 1 :]
        del self.history[:-1]

    def wipe(self) -> None:
        self.history = [Image(_empty())]
        self.wipes += 1


class Undecided:
    """The truth: lines that one life of a dispatcher has read without giving a verdict, derived from its core's input
    and output."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.read: dict[Line, int] = {}
        stored = db.execute("SELECT path, offset, event_time_ns FROM retries JOIN files ON files.id = file")
        self.rows = {(path, offset): time_ns for path, offset, time_ns in stored}  # rows of the retry store

    @property
    def lines(self) -> Lines:
        return {**self.rows, **self.read}

    def add(self, table: OpenEvents, rows: RowIndexes) -> None:
        self.read.update(_lines(table, rows))

    def store(self, table: OpenEvents, rows: RowIndexes) -> None:
        for line, time_ns in _lines(table, rows).items():
            self.rows[line] = self.read.pop(line, time_ns)

    def end(self, table: OpenEvents, rows: RowIndexes) -> None:
        for stretch, which in table.by_stretch(rows):
            for line in _lines(table, rows[which]):
                if stretch is None:
                    self.rows.pop(line, None)
                elif stretch.redispatched is None:
                    self.read.pop(line, None)


def _lines(table: OpenEvents, rows: RowIndexes) -> Lines:
    return {(table.files[row].path, int(table.offsets[row])): int(table.times[row]) for row in rows.tolist()}


def _of_this_process() -> Undecided:
    return OWNER.get().undecided  # type: ignore[union-attr,no-any-return]


def _add(self: Intake, *args: Any) -> RowIndexes:
    rows = _ADD(self, *args)
    _of_this_process().add(self.table, rows)
    return rows


def _leave(self: Committing, *args: Any) -> RowIndexes:
    rows = _LEAVE(self, *args)
    _of_this_process().store(self.table, rows)
    return rows


def _count(self: Counting, rows: RowIndexes, *args: Any) -> None:
    _of_this_process().end(self.table, rows)
    _COUNT(self, rows, *args)


_ADD, _LEAVE, _COUNT = Intake.add, Committing._leave, Counting.count


class SimulatedState(State):
    """Checks at each commit that the ledger balances, and that the claim about lines without a verdict is true."""

    def __init__(self, process: DispatcherProcess) -> None:
        self._process = process
        self._images = process.place.images[process.name]
        self._lines: Lines | None = None
        super().__init__(Path("dispatcher.db"), rule=b"rule")
        process.undecided = Undecided(self._db)

    def commit(self, changes: Changes) -> None:
        process = self._process
        self._may_end("before a commit")
        super().commit(changes)
        claims, engine = any("claims" in sql for sql, _ in changes.also), process.engine
        exact = claims and engine is not None and engine._claims._before is None
        self._lines = process.undecided.lines if exact else None
        self._keep(synced=bool(changes.exports))
        ledger: Ledger = self.ledger()
        if ledger.unbalanced or ledger.total.balance:
            process.world.violated(f"{process.name}: the ledger does not balance: {ledger.total}")
        if claims:
            self._check_claim()
        self._may_end("after a commit")

    def _check_claim(self) -> None:
        """Claimed lines without a verdict are those read and undecided, before any time; more only until logs are
        read after a start."""
        process, found = self._process, undecided(self._db)
        engine: Any = process.engine
        if found is None or engine is None:
            return
        (reopened,) = self._db.execute("SELECT count(*) FROM reopened WHERE NOT missing").fetchone()
        said, truth = found.before(NEVER_NS) - reopened, engine.status().pending
        if said < truth or (said > truth and engine._claims._before is None):
            process.world.violated(f"{process.name}: {said} events are said to have no verdict, {truth} have none")
        times = sorted(process.undecided.lines.values())
        for time_ns in {(time_ns // STEP_NS + more) * STEP_NS for time_ns in times for more in (0, 1)}:
            said, truth = found.before(time_ns) - reopened_before(self._db, time_ns), bisect_left(times, time_ns)
            if said < truth or (said > truth and self._lines is not None):
                process.world.violated(
                    f"{process.name}: {said} events before {time_ns} are said to have no verdict, {truth} have none"
                )

    def exported(self, upto: int) -> None:
        self._may_end("before the outbox is emptied")
        super().exported(upto)
        self._keep(synced=False)

    def _keep(self, *, synced: bool) -> None:
        self._images.committed(Image(self._db.serialize(), self._lines), synced=synced)

    def _may_end(self, where: str) -> None:
        world = self._process.world
        if world.faults and world.random.random() < world.commit_crashes:
            self._process.end(f"killed {where}")


def reopened_before(db: sqlite3.Connection, time_ns: int) -> int:
    """Reopened ids, which are also claimed to have no verdict."""
    sql = "SELECT count(*) FROM reopened WHERE event_time_ns < ? AND NOT missing"
    return int(db.execute(sql, (time_ns,)).fetchone()[0])


def _empty() -> bytes:
    if not _EMPTY:
        db = sqlite3.connect(":memory:", isolation_level=None)
        fill(db)
        _EMPTY.append(db.serialize())
        db.close()
    return _EMPTY[0]


def open_image(path: Path) -> sqlite3.Connection:
    """Replaces ``database.open_database``: returns the newest image of the calling process."""
    owner = OWNER.get()
    image: Image = owner.place.images[owner.name].history[-1]  # type: ignore[union-attr]
    db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    db.deserialize(image.data)
    return db


def no_lock(path: Path, wait_s: float) -> int:
    """Replaces ``database.lock_state``: returns a descriptor that ``State.close`` may close."""
    return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)


PATCHES = (
    (dispatcher_state, "open_database", open_image),
    (dispatcher_state, "lock_state", no_lock),
    (Intake, "add", _add),
    (Committing, "_leave", _leave),
    (Counting, "count", _count),
)
