"""Reads the state of a store of tables for ``photon doctor`` and the observers' metrics: pending work of observers,
and the age of the safe point."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from photon.rows.api import EVER
from photon.tables.api import Cell, StoreFailed
from photon.tables.cell import Lock, is_lock, read_meta
from photon.tables.surroundings import Surroundings
from photon.tables.system import State, SystemView

LOOK_S = 5.0
DIRTY_MAX = 10_000  # maximum number of notifications counted in a table
PAGE = 1_000


@dataclass(frozen=True)
class Standing:
    """The state of a store. If ``problem`` is set, the store did not answer, and the rest is unknown."""

    problem: str = ""
    dirty: int = 0  # cells that wait for observers, at most DIRTY_MAX of each table
    oldest: int = 0  # the lowest start timestamp of their notifications; 0 if there are none
    where: str = ""  # its cell
    moved_ms: int = 0  # when the safe point was last moved, by the mover's wall clock; 0: never


def look(around: Surroundings, system: SystemView) -> Standing:
    """Reads the state. The cost depends on the number of notifications. Never raises StoreFailed."""
    try:
        state = system.look()
        return _dirty(around, state)
    except StoreFailed as failed:
        return Standing(str(failed))


def _dirty(around: Surroundings, state: State) -> Standing:
    cells, oldest, where = 0, 0, ""
    for table in sorted({name.partition("/")[0] for name in state.observed}):
        begin, seen = "", 0
        last = None
        while seen < DIRTY_MAX and (page := around.store.dirty(table, begin, PAGE)):
            for each in page:
                cells += (each.row, each.column) != last
                last = each.row, each.column
                if not oldest or each.start < oldest:
                    oldest, where = each.start, "/".join((table, each.row, each.column))
            seen += len(page)
            begin = page[-1].row + "\0"
    return Standing("", cells, oldest, where, state.moved_ms)


def left_behind(around: Surroundings, lock: Lock) -> bool:
    """True if the lock's client is dead, or the lock has exceeded its maximum age."""
    old = around.wall_ms() - lock.wall_ms > around.limits.lock_age_s * 1000
    return old or around.liveness.dead(lock.token)


def old_locks(around: Surroundings, cells_max: int) -> tuple[list[Cell], int]:
    """Returns cells with abandoned locks, and the number of cells examined, about ``cells_max`` of each table at
    most. Raises StoreFailed."""
    found, looked = [], 0
    for table in around.store.tables():
        begin, seen = "", 0
        while seen < cells_max and (page := around.store.scan(table, begin, None, None, EVER, PAGE)):
            for row, columns in page:
                seen += len(columns)
                for column, held in columns.items():
                    lock = read_meta(held.meta) if is_lock(held.meta) else None
                    if isinstance(lock, Lock) and left_behind(around, lock):
                        found.append(Cell(table, row, column))
            begin = page[-1][0] + "\0"
        looked += seen
    return found, looked


class Watch:
    """Reads the state periodically; ``run`` is for a separate thread."""

    def __init__(self, around: Surroundings, system: SystemView) -> None:
        self._around = around
        self._system = system
        self.standing = Standing()
        self._began_ms = self._around.wall_ms()
        self._since = self._around.clock.monotonic()  # when the oldest notification was first seen

    def look(self) -> None:
        found = look(self._around, self._system)
        if found.problem or found.oldest != self.standing.oldest or not found.oldest:
            self._since = self._around.clock.monotonic()
        self.standing = found

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            self.look()
            stop.wait(LOOK_S)

    def oldest_dirty_s(self) -> float:
        """Returns for how many seconds the oldest notification has been the same; 0 if there is none."""
        return self._around.clock.monotonic() - self._since if self.standing.oldest else 0.0

    def safe_point_age_s(self) -> float:
        """Returns the seconds since the safe point was last moved; if it never was, since this watch began."""
        return max(self._around.wall_ms() - (self.standing.moved_ms or self._began_ms), 0) / 1000
