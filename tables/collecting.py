"""Old versions are removed (rule 9): publish a safe point, wait a grace, resolve older locks, remove."""

from __future__ import annotations

import msgspec

from photon.tables.api import Cell, RowStore, StoreFailed
from photon.tables.cell import Lock, is_lock, read_meta
from photon.tables.resolving import Resolver
from photon.tables.surroundings import BackOff, Surroundings
from photon.tables.system import State, SystemView

ROWS = 500
"""Rows of a page."""


def collect(around: Surroundings, resolver: Resolver, system: SystemView, keep_s: float) -> int:
    """Removes what no transaction can read that begins now, or began in the last ``keep_s`` seconds: takes that long
    and a grace. Returns how many versions it removed. Raises StoreFailed."""
    safe_point = around.timestamp()
    around.sleep(keep_s)

    def raised(state: State) -> State:
        return msgspec.structs.replace(state, safe_point=max(state.safe_point, safe_point))

    system.change(raised)
    around.sleep(around.limits.grace_s)
    removed = 0
    for table in around.store.tables():
        _resolve(around, resolver, table, safe_point)
    for table in around.store.tables():
        begin: str | None = ""
        while begin is not None:
            found, begin = around.store.collect(table, safe_point, begin, ROWS)
            removed += found
    around.counts["collected"] += removed
    return removed


def locks(store: RowStore, table: str, before: int) -> list[tuple[Cell, bytes]]:
    """Cells with the locks of transactions that began before ``before``, and these."""
    found, begin = [], ""
    while True:
        page = store.scan(table, begin, None, None, 0, ROWS)
        for row, columns in page:
            for column, held in columns.items():
                if held.meta is not None and is_lock(held.meta):
                    lock = read_meta(held.meta)
                    if isinstance(lock, Lock) and lock.start < before:
                        found.append((Cell(table, row, column), held.meta))
        if len(page) < ROWS:
            return found
        begin = page[-1][0] + "\0"


def _resolve(around: Surroundings, resolver: Resolver, table: str, safe_point: int) -> None:
    """No lock is left of a transaction that began before the safe point; those that commit still are broken off."""
    back_off = BackOff(around)
    while found := locks(around.store, table, safe_point):
        for cell, meta in found:
            resolver.settle(cell, meta, force=True)
        if not back_off.wait():
            raise StoreFailed(f"{table}: locks from before the safe point cannot be resolved; nothing was removed")
