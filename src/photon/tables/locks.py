"""Advisory locks, which keep threads and processes of observers from working on the same row, and programs from
loading under the same name. Correctness does not depend on them, so they need no lease and no durable state."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from itertools import islice

from photon.config.clock import Clock
from photon.tables.api import Liveness
from photon.tables.store import Store


class RowLocks:
    """Locks rows. A set in memory excludes other threads of this process; a note in each row, WALL_MS TOKEN of the
    client working on it, excludes other processes. Any number of rows takes three round trips. A note is valid while
    its client may be alive, and for at most ``age_s`` by the wall clock. It is written without a check, so two
    clients may take a row at the same moment; one of them then gets a conflict."""

    def __init__(self, store: Store, liveness: Liveness, clock: Clock, age_s: float) -> None:
        self._held: set[tuple[str, str]] = set()
        self._lock = threading.Lock()
        self._store = store
        self._liveness = liveness
        self._clock = clock
        self._age_ms = age_s * 1000

    def acquire(self, table: str, rows: Iterable[str], most: int) -> list[str]:
        """Locks and returns the first of ``rows``, at most ``most``, that are free. Does not wait. Raises
        StoreFailed."""
        with self._lock:
            got = list(islice((row for row in rows if (table, row) not in self._held), most))
            self._held.update((table, row) for row in got)
        free: list[str] = []
        try:
            if got:
                noted = self._store.claims(table, got)
                free = [row for row, claim in zip(got, noted, strict=True) if not self._holds(claim)]
            if free:
                self.renew(table, free)
        except BaseException:
            self._let_go(table, got)
            raise
        self._let_go(table, [row for row in got if row not in free])
        return free

    def renew(self, table: str, rows: Sequence[str]) -> None:
        """Writes the notes of locked rows again, with the current time. Raises StoreFailed."""
        claim = f"{self._clock.now_ns() // 1_000_000} {self._liveness.token}"
        self._store.claim(table, rows, claim.encode())

    def holder(self, table: str, row: str) -> str:
        """Returns the token of the client whose note is in a row; empty if there is none. Raises StoreFailed."""
        return (self._store.claims(table, [row])[0] or b"").decode(errors="replace").partition(" ")[2]

    def release(self, table: str, rows: Sequence[str]) -> None:
        """Unlocks the rows. Raises StoreFailed."""
        try:
            if rows:
                self._store.unclaim(table, rows)
        finally:
            self._let_go(table, rows)

    def _let_go(self, table: str, rows: Sequence[str]) -> None:
        with self._lock:
            self._held.difference_update((table, row) for row in rows)

    def _holds(self, claim: bytes | None) -> bool:
        """True if the claim is another client's and still valid; an unreadable claim is ignored."""
        wall_ms, _, token = (claim or b"").decode(errors="replace").partition(" ")
        if not wall_ms.isdigit() or token == self._liveness.token or self._liveness.dead(token):
            return False
        return abs(self._clock.now_ns() // 1_000_000 - int(wall_ms)) <= self._age_ms
