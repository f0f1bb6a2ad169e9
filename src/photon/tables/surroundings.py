"""The context that all transactions of a program share: store, oracle, clocks, randomness, and learned read
patterns."""

from __future__ import annotations

import os
import random
import socket
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from photon.config.back_off import BackOff
from photon.config.clock import Clock, SystemClock
from photon.tables.api import Cell, Held, Liveness, Oracle, Read, RowRead, StoreFailed
from photon.tables.locks import RowLocks
from photon.tables.store import AtomicStore, Store

LOCK_AGE_S = 10.0  # an older lock counts as that of a dead client
GRACE_S = 4.0  # time after which every client has certainly seen a change of the system's table
PATIENCE_S = 30.0  # how long requests to a silent store are retried
KEEP_S = 3600.0  # how long old versions are kept for readers
WAITS = BackOff(first=0.001, most=0.5, floor=0.0)
HABITS_MAX = 10_000
HABIT_COLUMNS_MAX = 16


@dataclass
class Limits:
    """Time limits, in seconds."""

    lock_age_s: float = LOCK_AGE_S
    grace_s: float = GRACE_S
    patience_s: float = PATIENCE_S
    keep_s: float = KEEP_S


class ProcessLiveness:
    """Tells if processes are alive. A token names the machine, the process and its start, so that a dead process on
    the same machine is noticed at once. Processes on other machines cannot be checked; for them, the age of a lock
    decides."""

    def __init__(self) -> None:
        self._host = socket.gethostname()[:60].replace(" ", "-") or "localhost"
        self.token = f"{self._host}/{os.getpid()}/{_started(os.getpid())}"

    def dead(self, token: str) -> bool:
        host, _, process = token.partition("/")
        number, _, started = process.partition("/")
        return host == self._host and number.isdigit() and _started(int(number)) not in (started, "unknown")


def _started(process: int) -> str:
    """Returns when a process of this machine started, in ticks since boot, and the boot's id; empty if there is no
    such process."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19] + "-" + boot
    except (FileNotFoundError, ProcessLookupError):
        return "" if Path("/proc/self/stat").exists() else "unknown"
    except OSError:
        return "unknown"


class Patience:
    """Waits longer each time, up to ``patience_s`` in total; each wait is randomly shortened, by half at most."""

    def __init__(self, around: Surroundings, patience_s: float | None = None) -> None:
        self._around = around
        self._pauses = WAITS.pauses(lambda: 0.5 + around.random() / 2)
        patience_s = around.limits.patience_s if patience_s is None else patience_s
        self._until = around.clock.monotonic() + patience_s

    def wait(self) -> bool:
        """Waits once. Returns False, without waiting, once ``patience_s`` is over."""
        around = self._around
        if around.clock.monotonic() >= self._until:
            return False
        around.sleep(next(self._pauses))
        return True


@dataclass
class Surroundings:
    """The context of one client. ``counts``: number of operations, for metrics."""

    store: Store
    oracle: Oracle
    clock: Clock = field(default_factory=SystemClock)
    sleep: Callable[[float], object] = time.sleep
    random: Callable[[], float] = random.random  # from 0 on, below 1
    liveness: Liveness = field(default_factory=ProcessLiveness)
    limits: Limits = field(default_factory=Limits)
    locks: RowLocks = field(init=False)
    at_once: AtomicStore | None = field(init=False)  # the store, if it commits a transaction in one step
    counts: Counter[str] = field(default_factory=Counter)
    # Table and first column read of a row -> columns that transactions then read there.
    habits: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.at_once = self.oracle if isinstance(self.oracle, AtomicStore) else None
        self.locks = RowLocks(self.store, self.liveness, self.clock, self.limits.lock_age_s)

    def read(self, reads: Sequence[Read]) -> list[RowRead]:
        """Reads from the store, with retries. Raises StoreFailed once patience is over."""
        self.counts["reads"] += 1
        patience = None
        while True:
            try:
                return self.store.read(reads)
            except StoreFailed:
                patience = patience or Patience(self)
                if not patience.wait():
                    raise

    def read_cells(self, cells: Sequence[Cell]) -> list[Held]:
        """Returns the current metas of cells."""
        found = self.read([Read(cell.table, cell.row, (cell.column,), 0) for cell in cells])
        nothing = Held(None)
        return [row.get(cell.column, nothing) for cell, row in zip(cells, found, strict=True)]

    def timestamp(self) -> int:
        """Returns a new timestamp. Raises StoreFailed once patience is over."""
        patience = None
        while True:
            try:
                return self.oracle.timestamp()
            except StoreFailed:
                patience = patience or Patience(self)
                if not patience.wait():
                    raise

    def wall_ms(self) -> int:
        return self.clock.now_ns() // 1_000_000

    def learn(self, table: str, first: str, then: str) -> None:
        """Notes that a transaction read column ``then`` of a row after ``first``."""
        known = self.habits.get((table, first), ())
        if then not in known and len(known) < HABIT_COLUMNS_MAX and len(self.habits) < HABITS_MAX:
            self.habits[table, first] = (*known, then)
