"""Resolves another client's lock by the outcome of its transaction, which is decided at the primary (rules 1, 3,
5)."""

from __future__ import annotations

import threading

from photon.tables.api import Cell, Mutation
from photon.tables.cell import Commit, Lock, commit_meta, read_meta, rolled_back, start_of, version_of
from photon.tables.surroundings import Surroundings

SEEN_MAX = 10_000  # remembered blocking locks


class Resolver:
    """The resolver of one client. Thread-safe."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._seen: dict[tuple[Cell, int, int], float] = {}
        self._lock = threading.Lock()

    def settle(self, cell: Cell, meta: bytes, *, force: bool = False) -> bool:
        """Resolves ``meta``, a lock on ``cell``. Returns True if the lock is gone or has changed: read again. Returns
        False if its holder seems to be alive: wait. ``force``: rolls back such a holder, too. Raises StoreFailed."""
        lock = read_meta(meta)
        assert isinstance(lock, Lock)
        primary = lock.primary
        primary_meta: bytes | None = meta
        if primary != cell:
            (held,) = self._around.read_cells([primary])
            primary_meta = held.meta
        state = read_meta(primary_meta)
        if isinstance(state, Lock) and state.start == lock.start:
            if not (force or self._given_up(primary, state)):
                return False
            return self._roll_back(primary, primary_meta, state)  # this lock is resolved when it is next found
        before = state.before if isinstance(state, Lock) else state
        if commit := self._commit_of(primary, before, lock.start):
            return self._roll_forward(cell, meta, lock, commit)
        # While another lock holds the primary, and after a later commit, a slow prewrite cannot succeed.
        if isinstance(state, Commit) and state.commit < lock.start and not self._fence(primary, primary_meta, state):
            return True
        return self._roll_back(cell, meta, lock)

    def _given_up(self, primary: Cell, lock: Lock) -> bool:
        around = self._around
        if around.liveness.dead(lock.token):
            return True
        age_s = around.limits.lock_age_s
        if around.wall_ms() - lock.wall_ms > age_s * 1000:
            return True
        now = around.clock.monotonic()
        with self._lock:
            first = self._seen.setdefault((primary, lock.start, lock.wall_ms), now)
            if len(self._seen) > SEEN_MAX:
                self._seen.pop(next(iter(self._seen)))
        return now - first > age_s

    def commit_of(self, primary: Cell, start: int) -> int:
        """Returns the commit timestamp of the transaction that began at ``start``; 0 if it is not committed (yet)."""
        (held,) = self._around.read_cells([primary])
        state = read_meta(held.meta)
        return self._commit_of(primary, state.before if isinstance(state, Lock) else state, start)

    def _commit_of(self, primary: Cell, newest: Commit, start: int) -> int:
        if newest.start == start:
            return newest.commit
        if newest.commit < start:
            return 0
        for commit, version in self._around.store.versions(primary, start):
            if start_of(version) == start:
                return commit
        return 0

    def _fence(self, primary: Cell, meta: bytes | None, before: Commit) -> bool:
        """Changes the primary's meta, so that a late prewrite of the primary fails. Returns True if it did."""
        return self._around.store.mutate([Mutation(primary, meta, rolled_back(before))])[0] is True

    def _roll_back(self, cell: Cell, meta: bytes | None, lock: Lock) -> bool:
        self._around.counts["rolled_back"] += 1
        self._around.store.mutate([Mutation(cell, meta, rolled_back(lock.before))])
        return True

    def _roll_forward(self, cell: Cell, meta: bytes, lock: Lock, commit: int) -> bool:
        self._around.counts["rolled_forward"] += 1
        done = Commit(commit, lock.start, 0)
        version = version_of(lock.start, lock.value)
        self._around.store.mutate([Mutation(cell, meta, commit_meta(done), version, commit)])
        return True
