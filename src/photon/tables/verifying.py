"""Checks the invariants of each cell for ``photon table verify``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from photon.rows.api import EVER
from photon.tables.api import Cell, Held, StoreFailed
from photon.tables.cell import Lock, read_meta, start_of
from photon.tables.surroundings import Surroundings

ROWS = 500
PROBLEMS_MAX = 100  # limit of reported problems; all are counted


@dataclass
class Findings:
    cells: int = 0
    locks: int = 0
    old_locks: int = 0  # locks above the maximum age, resolved by the next reader
    notifications: int = 0  # notifications that observers must still handle
    highest: int = 0  # highest timestamp in any cell
    wrong: int = 0
    problems: list[str] = field(default_factory=list)

    def tell(self, problem: str) -> None:
        self.wrong += 1
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(problem)


def verify(around: Surroundings, tables: Iterable[str]) -> Findings:
    """Checks each cell separately, so that it may run during normal operation. Raises StoreFailed."""
    found = Findings()
    for table in tables:
        _verify_table(around, table, found)
    oracle = around.timestamp()
    if found.highest >= oracle:
        found.tell(
            f"the oracle hands out {oracle}, below {found.highest} in the tables: it belongs to other tables, or "
            "was lost; new writes would be invisible"
        )
    return found


def _verify_table(around: Surroundings, table: str, found: Findings) -> None:
    begin = ""
    while page := around.store.scan(table, begin, None, None, EVER, ROWS):
        for row, columns in page:
            for column, held in columns.items():
                found.cells += 1
                try:
                    _verify_cell(around, Cell(table, row, column), held, found)
                except (StoreFailed, ValueError) as error:
                    found.tell(f"{table}/{row}/{column}: {error}")
        begin = page[-1][0] + "\0"
    begin = ""
    while notified := around.store.dirty(table, begin, ROWS):
        found.notifications += len(notified)
        begin = notified[-1].row + "\0"


def _verify_cell(around: Surroundings, cell: Cell, held: Held, found: Findings) -> None:
    where = "/".join(cell)
    if held.meta is None:
        found.tell(f"{where}: has a version at {held.commit} but no meta")
        return
    state = read_meta(held.meta)
    before = state.before if isinstance(state, Lock) else state
    found.highest = max(found.highest, before.commit, held.commit)
    if isinstance(state, Lock):
        found.locks += 1
        found.highest = max(found.highest, state.start)
        found.old_locks += around.wall_ms() - state.wall_ms > around.limits.lock_age_s * 1000
        if state.start <= before.commit:
            found.tell(f"{where}: locked by a transaction of {state.start}, which began before {before.commit}")
    if (before.commit, before.start) != _newest(held):
        found.tell(f"{where}: the meta has {before.commit}, but the newest version is at {held.commit}")


def _newest(held: Held) -> tuple[int, int]:
    return (0, 0) if held.version is None else (held.commit, start_of(held.version))
