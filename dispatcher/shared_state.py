"""A dispatcher's state shared by several worker processes of one machine: leases and fencing in its transactions.

Each process that works under a worker's name has an incarnation, a number that is never reused. It may change the
units it has leases on, its own rows of the retry store and its own lines to export, and the counts, which add up.
Every commit checks within its transaction that its incarnation was not fenced and still has each lease that it needs
(see ``leases``); a commit that comes too late is refused as a whole.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from photon.adapters.logs.api import LogPart, LogPosition
from photon.adapters.logs.mounts import is_network, read_type
from photon.dispatcher.database import Transaction, lock_worker, reading, settle_share, share_state, unusable
from photon.dispatcher.errors import NameTaken, StateError, WorkerFenced
from photon.dispatcher.leases import Decision, View, WorkerRow
from photon.dispatcher.state import IDS_AT_ONCE, Changes, State, is_part
from photon.dispatcher.undecided import LEASES_MOVED

CLAIMED_AT_ONCE = 5000  # rows of the retry store taken over from a dead worker in one transaction
NAME_WAIT_S = 1.0  # another worker may be writing out lines that this name's last process left to export
# A commit that may wait is postponed after the first; one that may not waits up to the second.
PROBE_MS, BUSY_MS = 5, 60_000


@dataclass(frozen=True, slots=True)
class Granted:
    """A unit that this worker now has. ``high``: the highest offset ever processed."""

    position: LogPosition
    high: int
    part: LogPart | None = None
    anew: bool = False  # as in ``State.anew``


class SharedState(State):
    """One worker's connection. Once fenced, it raises WorkerFenced from every change."""

    def __init__(self, path: Path, worker: str, *, now_ns: int, rule: bytes | None = None) -> None:
        """Opens the state like State. ``worker``: 1 to 40 of a-z, 0-9, - and _.

        ``now_ns``: wall clock, shown to those who look at the state. Raises StateError, also while another
        process uses this name, and on a network file system.
        """
        self.worker = worker
        self._now_ns = now_ns
        self._first = False
        super().__init__(path, rule=rule)
        settle_share(self._locks[0])

    def _lock(self, path: Path) -> list[int]:
        path.parent.mkdir(parents=True, exist_ok=True)
        if is_network(kind := read_type(path.parent)):
            raise StateError(
                str(path.parent),
                f"is on a network file system ({kind}), whose locks do not hold between processes",
                "give workers a state directory on a local disk",
            )
        name = lock_worker(path, self.worker, NAME_WAIT_S)
        if name is None:
            raise NameTaken(
                str(path), f"has a worker {self.worker} already", "stop that one, or give this one another name"
            )
        try:
            share, self._first = share_state(path)
        except BaseException:
            os.close(name)
            raise
        return [share, name]

    def _begin(self) -> None:
        """Starts a new incarnation.

        Earlier ones of this name are dead, since it has their lock. If it is the first of the state, all are.
        """
        self._db.execute(f"PRAGMA busy_timeout={BUSY_MS}")
        with Transaction(self._db, self.path):
            which = "1" if self._first else "name = ?"
            self._db.execute(f"UPDATE workers SET fenced = 1 WHERE {which}", () if self._first else (self.worker,))
            row = (self.worker, os.getpid(), self._now_ns, self._now_ns)
            made = self._db.execute(
                "INSERT INTO workers (name, pid, started_ns, beat, beat_ns, fenced) VALUES (?, ?, ?, 1, ?, 0)", row
            )
            self.owner = made.lastrowid or 0
            self._moved()

    def _last_row(self) -> int:
        return 0  # rows of earlier processes are claimed

    # -- reading ---------------------------------------------------------------------------------------------------
    def view(self) -> View:
        with reading(self._db):
            workers = self._all("SELECT incarnation, name, beat, fenced FROM workers")
            owners = dict(self._all("SELECT unit, owner FROM leases"))
        return View([WorkerRow(i, name, beat, bool(fenced)) for i, name, beat, fenced in workers], owners)

    def refresh(self) -> None:
        self.retry_bytes = self._number("retry_bytes")
        self.retry_rows = self._number("retry_rows")

    # -- commits ---------------------------------------------------------------------------------------------------
    def ready(self) -> bool:
        """True if the database is free for a transaction now. A worker that was stopped within one blocks it."""
        self._db.execute(f"PRAGMA busy_timeout={PROBE_MS}")
        try:
            self._db.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                return False
            raise unusable(self.path, error) from None
        finally:
            self._db.execute(f"PRAGMA busy_timeout={BUSY_MS}")
        self._db.execute("ROLLBACK")
        return True

    def _may_commit(self, changes: Changes) -> None:
        self._check()
        self._check_leases(list(changes.positions))
        rows = dict.fromkeys([*changes.updated.row_ids.tolist(), *changes.deleted])
        self._check_owned("retries", "id", list(rows))

    def _check(self) -> None:
        """Checks, within a transaction, that this worker was not fenced."""
        if not self._all("SELECT 1 FROM workers WHERE incarnation = ? AND NOT fenced", self.owner):
            raise WorkerFenced()

    def _check_leases(self, units: Sequence[str]) -> None:
        self._check_owned("leases", "unit", units)

    def _check_owned(self, table: str, column: str, names: Sequence[str | int]) -> None:
        for at in range(0, len(names), IDS_AT_ONCE):
            some = names[at : at + IDS_AT_ONCE]
            marks = ",".join("?" * len(some))
            sql = f"SELECT count(*) FROM {table} WHERE owner = ? AND {column} IN ({marks})"
            if self._one(sql, self.owner, *some) != len(some):
                raise WorkerFenced()

    # -- leases ----------------------------------------------------------------------------------------------------
    def renew(self, now_ns: int, decision: Decision | None = None) -> list[Granted]:
        """Increments the beat; fences and takes units as decided, if that still holds. Returns the units taken."""
        decision = decision or Decision()
        with self._changing():
            self._db.execute(
                "UPDATE workers SET beat = beat + 1, beat_ns = ? WHERE incarnation = ?", (now_ns, self.owner)
            )
            self._db.executemany("UPDATE workers SET fenced = 1 WHERE incarnation = ? AND beat = ?", decision.fence)
            taken = [unit for unit in decision.take if self._take(unit)]
            if taken or decision.fence:
                self._moved()
            parts = {part.unit: part for part in self.parts()} if any(map(is_part, taken)) else {}
            granted = []
            for unit in taken:
                if is_part(unit):
                    part = parts.get(unit)
                    if part is not None:  # else it has since been read to its end
                        granted.append(Granted(LogPosition(unit, "", part.offset), part.offset, part))
                else:
                    granted.append(self._granted(unit))
        return granted

    def _take(self, unit: str) -> bool:
        return bool(
            self._db.execute(
                "INSERT INTO leases VALUES (?, ?) ON CONFLICT DO UPDATE SET owner = excluded.owner "
                "WHERE owner NOT IN (SELECT incarnation FROM workers WHERE NOT fenced)",
                (unit, self.owner),
            ).rowcount
        )

    def _granted(self, unit: str) -> Granted:
        rows = self._all("SELECT path, offset, header, proof, high, anew FROM logs WHERE identity = ?", unit)
        if not rows:
            return Granted(LogPosition(unit, "", 0), 0)
        *position, high, anew = rows[0]
        return Granted(LogPosition(unit, *position), high, anew=bool(anew))

    def release(self, units: Sequence[str]) -> None:
        """Returns leases. Everything read of these units is committed."""
        with self._changing():
            self._db.executemany(
                "DELETE FROM leases WHERE unit = ? AND owner = ?", [(unit, self.owner) for unit in units]
            )
            self._moved()

    def split(self, position: LogPosition, parts: Sequence[LogPart]) -> None:
        """Makes an unread log of this worker continue at ``position``; before that are parts."""
        with self._changing():
            self._check_leases([position.identity])
            self._put_positions({position.identity: position}, {})
            self._db.executemany(
                "INSERT INTO parts (unit, identity, begin, end, offset, proof) VALUES (?, ?, ?, ?, ?, ?)", parts
            )
            self._moved()

    def drop_parts(self, units: Sequence[str]) -> None:
        """Drops parts of this worker whose bytes no longer exist."""
        with self._changing():
            self._check_leases(units)
            self._db.executemany("DELETE FROM parts WHERE unit = ?", [(unit,) for unit in units])

    def claim_retries(self) -> bool:
        """Takes over a bounded number of dead workers' rows. Returns True if there were any."""
        gone = [0, *(i for (i,) in self._all("SELECT incarnation FROM workers WHERE fenced"))]
        some = next((i for i in gone if self._one("SELECT exists(SELECT 1 FROM retries WHERE owner = ?)", i)), None)
        if some is None and len(gone) == 1:
            return False
        with self._changing():
            if some is not None:
                rows = self._all("SELECT id, key FROM retries WHERE owner = ? LIMIT ?", some, CLAIMED_AT_ONCE)
                self._db.executemany(
                    "UPDATE retries SET owner = ? WHERE id = ?", [(self.owner, row_id) for row_id, _ in rows]
                )
                self.claimed = [*self.claimed, *(key for _, key in rows)]
                return True
            rest = [(incarnation,) for incarnation in gone[1:]]
            self._db.executemany("DELETE FROM leases WHERE owner = ?", rest)
            self._db.executemany("DELETE FROM workers WHERE incarnation = ? AND fenced", rest)
        return False

    def leave(self) -> None:
        """Frees this worker's units for others at once. Everything read is committed."""
        with self._changing():
            self._db.execute("UPDATE workers SET fenced = 1 WHERE incarnation = ?", (self.owner,))
            self._moved()

    def _moved(self) -> None:
        for sql, arguments in LEASES_MOVED:
            self._db.execute(sql, arguments)

    def leased(self) -> set[str]:
        """Units that a living worker reads."""
        sql = "SELECT unit FROM leases WHERE owner IN (SELECT incarnation FROM workers WHERE NOT fenced)"
        return {unit for (unit,) in self._all(sql)}

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Opens a transaction of a worker that was not fenced."""
        with Transaction(self._db, self.path):
            self._check()
            yield
