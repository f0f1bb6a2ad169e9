"""Advisory locks: so that two observers' threads or processes do not work on one row. Nothing that is right depends
on them, so they need no lease and no state that lasts."""

from __future__ import annotations

import fcntl
import os
import threading
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

from photon.config.clock import Clock
from photon.tables.api import Liveness


class ThreadLocks:
    """Among the threads of this process."""

    def __init__(self) -> None:
        self._held: set[tuple[str, str]] = set()
        self._lock = threading.Lock()

    def acquire(self, table: str, rows: Iterable[str], most: int) -> list[str]:
        got: list[str] = []
        with self._lock:
            for row in rows:
                if len(got) == most:
                    break
                if (table, row) not in self._held:
                    self._held.add((table, row))
                    got.append(row)
        return got

    def release(self, table: str, rows: Sequence[str]) -> None:
        with self._lock:
            self._held.difference_update((table, row) for row in rows)

    def close(self) -> None: ...


class FileLocks(ThreadLocks):
    """Among the processes of one machine too: a row is a byte of a file that is locked. The system frees what a
    process held that is gone. Two rows may be one byte, which costs a visit later."""

    def __init__(self, path: Path | str) -> None:
        """Raises OSError."""
        super().__init__()
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def acquire(self, table: str, rows: Iterable[str], most: int) -> list[str]:
        got: list[str] = []
        for row in rows:
            if len(got) == most:
                break
            if not super().acquire(table, [row], 1):
                continue
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _byte(table, row))
            except OSError:
                super().release(table, [row])
            else:
                got.append(row)
        return got

    def release(self, table: str, rows: Sequence[str]) -> None:
        for row in rows:
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, _byte(table, row))
        super().release(table, rows)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _byte(table: str, row: str) -> int:
    return zlib.crc32(f"{table}/{row}".encode())


class Claims(Protocol):
    """A note for each row in the store itself, beside its notifications. All raise StoreFailed."""

    def claims(self, table: str, rows: Sequence[str]) -> list[bytes | None]: ...

    def claim(self, table: str, rows: Sequence[str], claim: bytes) -> None: ...

    def unclaim(self, table: str, rows: Sequence[str]) -> None: ...


class StoreLocks(ThreadLocks):
    """Among all processes of a store: WALL_MS TOKEN of who works on a row is noted there; three round trips for any
    number of rows. A note holds while its client may live, and ``age_s`` by wall clock at the most. It is written
    without a check: two who look at the same moment both take the row, and one of them meets a conflict there."""

    def __init__(self, claims: Claims, liveness: Liveness, clock: Clock, age_s: float) -> None:
        super().__init__()
        self._claims = claims
        self._liveness = liveness
        self._clock = clock
        self._age_ms = age_s * 1000

    def acquire(self, table: str, rows: Iterable[str], most: int) -> list[str]:
        got = super().acquire(table, rows, most)
        free: list[str] = []
        try:
            if got:
                noted = self._claims.claims(table, got)
                free = [row for row, claim in zip(got, noted, strict=True) if not self._holds(claim)]
            if free:
                claim = f"{self._clock.now_ns() // 1_000_000} {self._liveness.token}"
                self._claims.claim(table, free, claim.encode())
        except BaseException:
            super().release(table, got)
            raise
        super().release(table, [row for row in got if row not in free])
        return free

    def release(self, table: str, rows: Sequence[str]) -> None:
        try:
            if rows:
                self._claims.unclaim(table, rows)
        finally:
            super().release(table, rows)

    def _holds(self, claim: bytes | None) -> bool:
        """Of somebody else; what cannot be read holds nothing."""
        wall_ms, _, token = (claim or b"").decode(errors="replace").partition(" ")
        if not wall_ms.isdigit() or token == self._liveness.token or self._liveness.dead(token):
            return False
        return abs(self._clock.now_ns() // 1_000_000 - int(wall_ms)) <= self._age_ms
