"""Removes old versions (rule 9): publishes a safe point, waits a grace period, resolves older locks, removes
versions."""

from __future__ import annotations

import threading

import msgspec
import structlog

from photon.tables.api import Cell, Conflict, OutcomeUnknown, StoreFailed
from photon.tables.cell import Lock, is_lock, read_meta
from photon.tables.resolving import Resolver
from photon.tables.store import Store
from photon.tables.surroundings import Patience, Surroundings
from photon.tables.system import State, SystemView

ROWS = 500  # rows per page


def collect(around: Surroundings, resolver: Resolver, system: SystemView, keep_s: float) -> int:
    """Removes versions that cannot be read by any transaction that begins now, began in the last ``keep_s`` seconds,
    or is held. Takes ``keep_s`` plus a grace period. Returns the number of versions removed. Raises StoreFailed."""
    safe_point = around.timestamp()
    around.sleep(keep_s)
    return remove(around, resolver, move_safe_point(around, system, safe_point))


class Collector:
    """Removes old versions whenever they have been kept long enough. If several collectors run over one store, the
    first to move the safe point does the work; if it dies, the next one finishes."""

    def __init__(self, around: Surroundings, resolver: Resolver, system: SystemView) -> None:
        self._around = around
        self._resolver = resolver
        self._system = system
        self._log = structlog.get_logger("photon.tables")

    def run(self, stop: threading.Event) -> None:
        keep_s = self._around.limits.keep_s
        while not stop.is_set():
            try:
                seen, safe_point = self._system.look().safe_point, self._around.timestamp()
                if stop.wait(keep_s):
                    return
                self.step(seen, safe_point)
            except (StoreFailed, Conflict, OutcomeUnknown) as failed:
                self._log.warning("old versions are kept: the store does not answer", error=str(failed))
                stop.wait(min(keep_s, self._around.limits.patience_s))

    def step(self, seen: int, safe_point: int) -> int:
        """Moves the safe point to ``safe_point``, a timestamp that is now old enough, and removes old versions.
        ``seen``: the safe point published before that timestamp was taken. Returns the number of versions removed.
        Raises StoreFailed."""
        moved = move_safe_point(self._around, self._system, safe_point, seen)
        return remove(self._around, self._resolver, moved) if moved > seen else 0


def move_safe_point(around: Surroundings, system: SystemView, wanted: int, seen: int | None = None) -> int:
    """Moves the published safe point to ``wanted``, but not past a held snapshot, and never back. Returns its
    position; if another client has moved it from ``seen``, does nothing and returns ``seen``. Raises StoreFailed."""
    mine = 0

    def moved(state: State) -> State:
        nonlocal mine
        mine = state.safe_point
        if seen is not None and state.safe_point != seen:
            mine = seen
            return state
        now_ms = around.wall_ms()
        held = {start: until for start, until in state.held.items() if until > now_ms}
        if (at := min([wanted, *map(int, held)])) <= state.safe_point:
            return state
        mine = at
        return msgspec.structs.replace(state, safe_point=at, moved_ms=now_ms, held=held)

    system.change(moved)
    return mine


def remove(around: Surroundings, resolver: Resolver, safe_point: int) -> int:
    """Waits a grace period, then removes the versions that no reader can need after a published safe point. Returns
    their number. Raises StoreFailed."""
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


def locks(store: Store, table: str, before: int) -> list[tuple[Cell, bytes]]:
    """Returns the cells locked by transactions that began before ``before``, and their locks."""
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
    """Resolves all locks of transactions that began before the safe point; transactions that are still committing are
    aborted."""
    patience = Patience(around)
    while found := locks(around.store, table, safe_point):
        for cell, meta in found:
            resolver.settle(cell, meta, force=True)
        if not patience.wait():
            raise StoreFailed(f"{table}: locks from before the safe point cannot be resolved; nothing was removed")
