"""Rows and timestamps in one SQLite file, for the processes of one machine.

WAL with synchronous=NORMAL: kill -9 loses nothing; a power cut may lose the last transactions, each as a whole and
with everything after it (timestamps, cursors), so the remaining state is a past one.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from photon.config.versioned_file import other_version
from photon.tables.api import SYSTEM, Cell, Held, Mutation, Notification, Read, RowRead, StoreFailed
from photon.tables.oracle import BatchedOracle

FORMAT = 2
BUSY_S = 10.0  # seconds to wait for another writing process
SCHEMA = """
CREATE TABLE IF NOT EXISTS cells (
  tbl TEXT NOT NULL, row TEXT NOT NULL, col TEXT NOT NULL, meta BLOB NOT NULL, ts INTEGER NOT NULL DEFAULT 0,
  version BLOB, PRIMARY KEY (tbl, row, col)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS older (
  tbl TEXT NOT NULL, row TEXT NOT NULL, col TEXT NOT NULL, ts INTEGER NOT NULL, version BLOB NOT NULL,
  PRIMARY KEY (tbl, row, col, ts)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS notifications (
  tbl TEXT NOT NULL, row TEXT NOT NULL, col TEXT NOT NULL, start INTEGER NOT NULL,
  PRIMARY KEY (tbl, row, col, start)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS claims (
  tbl TEXT NOT NULL, row TEXT NOT NULL, claim BLOB NOT NULL, PRIMARY KEY (tbl, row)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS oracle (one INTEGER PRIMARY KEY CHECK (one = 1), next INTEGER NOT NULL);
INSERT OR IGNORE INTO oracle VALUES (1, 1);
"""
APPLICATION = 0x50485442  # "PHTB"
_READ_ONE = "SELECT meta, ts, version FROM cells WHERE tbl = ? AND row = ? AND col = ?"
_READ_ALL = "SELECT col, meta, ts, version FROM cells WHERE tbl = ? AND row = ?"
_OLDER = "SELECT ts, version FROM older WHERE tbl = ? AND row = ? AND col = ? AND ts <= ? ORDER BY ts DESC LIMIT 1"
_INSERT = "INSERT OR IGNORE INTO cells (tbl, row, col, meta) VALUES (?, ?, ?, ?)"
_UPDATE = "UPDATE cells SET meta = ? WHERE tbl = ? AND row = ? AND col = ? AND meta = ?"
_KEEP = (
    "INSERT INTO older SELECT tbl, row, col, ts, version FROM cells "
    "WHERE tbl = ? AND row = ? AND col = ? AND meta = ? AND version IS NOT NULL"
)
_COMMIT = "UPDATE cells SET meta = ?, ts = ?, version = ? WHERE tbl = ? AND row = ? AND col = ? AND meta = ?"
_NOTIFY = "INSERT OR IGNORE INTO notifications VALUES (?, ?, ?, ?)"
_COLLECT = """DELETE FROM older WHERE tbl = ?1 AND row = ?2 AND ts < max(
  ifnull((SELECT max(o.ts) FROM older AS o WHERE o.tbl = ?1 AND o.row = ?2 AND o.col = older.col AND o.ts <= ?3), 0),
  ifnull((SELECT c.ts FROM cells AS c WHERE c.tbl = ?1 AND c.row = ?2 AND c.col = older.col AND c.ts <= ?3), 0))"""


class SqliteRows:
    """A ``RowStore``. The newest version is stored with the cell, older ones in a separate table."""

    round_trips = 0

    def __init__(self, path: Path | str) -> None:
        """Creates the file if it does not exist. Raises StoreFailed."""
        self._path = str(path)
        self._lock = threading.Lock()  # for the single writing connection
        self._local = threading.local()
        self._open: list[tuple[threading.Thread, sqlite3.Connection]] = []
        self._closed = False
        self._writer = self._connected(threading.main_thread())
        self._guarded(self._prepare)
        self.oracle = BatchedOracle(self._allocate)  # an ``Oracle`` whose timestamps are in the same file

    def _prepare(self) -> None:
        (application,) = self._writer.execute("PRAGMA application_id").fetchone()
        (version,) = self._writer.execute("PRAGMA user_version").fetchone()
        (objects,) = self._writer.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if application not in (0, APPLICATION) or (application == 0 and objects):
            raise StoreFailed(f"{self._path}: is a database of something else; name another file")
        if application and version != FORMAT:
            raise StoreFailed(f"{self._path}: {other_version(version, FORMAT)}")
        if not application:
            self._writer.execute("PRAGMA journal_mode = WAL")
            self._writer.executescript(
                f"BEGIN IMMEDIATE; {SCHEMA} PRAGMA application_id = {APPLICATION}; "
                f"PRAGMA user_version = {FORMAT}; COMMIT"
            )

    def _connected(self, thread_of: threading.Thread) -> sqlite3.Connection:
        """Its connection is closed when the thread has ended."""

        def connect() -> sqlite3.Connection:
            made = sqlite3.connect(self._path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
            made.execute("PRAGMA synchronous = NORMAL")
            return made

        made: sqlite3.Connection = self._guarded(connect)
        with self._lock:
            if self._closed:
                made.close()
                raise StoreFailed(f"{self._path}: is closed")
            for thread, connection in self._open:
                if not thread.is_alive():
                    connection.close()
            self._open = [each for each in self._open if each[0].is_alive()]
            self._open.append((thread_of, made))
        return made

    def _guarded(self, work: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return work(*arguments)
        except sqlite3.Error as error:
            raise StoreFailed(f"{self._path}: {error}") from error

    @property
    def _reader(self) -> sqlite3.Connection:
        """This thread's reading connection."""
        try:
            return self._local.connection  # type: ignore[no-any-return]
        except AttributeError:
            made = self._local.connection = self._connected(threading.current_thread())
            return made

    # -- reading -----------------------------------------------------------------------------------------------------
    def read(self, reads: Sequence[Read]) -> list[RowRead]:
        found: list[RowRead] = self._guarded(self._read, reads)
        return found

    def _read(self, reads: Sequence[Read]) -> list[RowRead]:
        run = self._reader.execute
        answers: list[RowRead] = []
        for table, row, columns, upto in reads:
            if columns is not None and len(columns) == 1:  # one statement sees one moment
                one = run(_READ_ONE, (table, row, columns[0])).fetchone()
                if one is None:
                    answers.append({})
                    continue
                if one[1] <= upto:
                    answers.append({columns[0]: Held(*one)})
                    continue
            run("BEGIN")
            try:
                answers.append(self._row(table, row, columns, upto))
            finally:
                run("COMMIT")
        return answers

    def _row(self, table: str, row: str, columns: Sequence[str] | None, upto: int) -> dict[str, Held]:
        run = self._reader.execute
        answer = {}
        for column, meta, ts, version in run(_READ_ALL, (table, row)).fetchall():
            if columns is None or column in columns:
                if ts > upto:
                    ts, version = run(_OLDER, (table, row, column, upto)).fetchone() or (0, None)
                answer[column] = Held(meta, ts, version)
        return answer

    def scan(
        self, table: str, begin: str, end: str | None, columns: Sequence[str] | None, upto: int, limit: int
    ) -> list[tuple[str, RowRead]]:
        def page() -> list[tuple[str, RowRead]]:
            run = self._reader.execute
            where, arguments = "tbl = ? AND row >= ?", [table, begin]
            if end is not None:
                where, arguments = where + " AND row < ?", [*arguments, end]
            if columns is not None:
                where += f" AND col IN ({', '.join('?' * len(columns))})"
                arguments += columns
            run("BEGIN")
            try:
                keys = run(f"SELECT DISTINCT row FROM cells WHERE {where} ORDER BY row LIMIT {int(limit)}", arguments)
                return [(key, self._row(table, key, columns, upto)) for (key,) in keys.fetchall()]
            finally:
                run("COMMIT")

        found: list[tuple[str, RowRead]] = self._guarded(page)
        return found

    def versions(self, cell: Cell, after: int) -> list[tuple[int, bytes]]:
        where = "WHERE tbl = ?1 AND row = ?2 AND col = ?3 AND ts > ?4"
        newest = f"SELECT ts, version FROM cells {where} AND version NOTNULL"
        both = f"{newest} UNION ALL SELECT ts, version FROM older {where}"
        found: list[tuple[int, bytes]] = self._guarded(lambda: self._reader.execute(both, (*cell, after)).fetchall())
        return found

    def dirty(self, table: str, begin: str, limit: int) -> list[Notification]:
        select = "SELECT * FROM notifications WHERE tbl = ? AND row >= ? ORDER BY row, col, start LIMIT ?"
        found = self._guarded(lambda: self._reader.execute(select, (table, begin, limit)).fetchall())
        return [Notification(*each) for each in found]

    def tables(self) -> list[str]:
        """Skips from table to table through the index."""
        select = "SELECT min(tbl) FROM cells WHERE tbl > ?"
        found, last = [], ""
        while (last := self._guarded(lambda: self._reader.execute(select, (last,)).fetchone()[0])) is not None:
            found.append(last)
        return [name for name in found if name != SYSTEM]

    # -- writing -----------------------------------------------------------------------------------------------------
    def _written(self, work: Callable[[], Any]) -> Any:
        """Runs ``work`` in a transaction of SQLite. Raises sqlite3.Error."""
        with self._lock:
            run = self._writer.execute
            run("BEGIN IMMEDIATE")
            try:
                done = work()
                run("COMMIT")
            except BaseException:
                if self._writer.in_transaction:
                    run("ROLLBACK")
                raise
        return done

    def mutate(self, mutations: Sequence[Mutation], *, first_decides: bool = False) -> list[bool | None]:
        try:
            done: list[bool | None] = self._written(lambda: self._mutate_all(mutations, first_decides))
        except sqlite3.Error:
            return [None] * len(mutations)
        return done

    def decide(self, mutations: Sequence[Mutation]) -> bool | None:
        return self.mutate(mutations, first_decides=True)[0]

    def flush(self) -> None: ...

    def _mutate_all(self, mutations: Sequence[Mutation], first_decides: bool) -> list[bool | None]:
        answers: list[bool | None] = []
        for mutation in mutations:
            done = self._mutate(mutation)
            answers.append(done)
            if first_decides and not done:
                return [False] * len(mutations)
            first_decides = False
        return answers

    def _mutate(self, mutation: Mutation) -> bool:
        cell, expected, meta, version, commit, notify = mutation
        run = self._writer.execute
        if expected is None:
            if run(_INSERT, (*cell, meta)).rowcount != 1:
                return False
            if version is not None:
                run(_COMMIT, (meta, commit, version, *cell, meta))
        elif version is not None:
            run(_KEEP, (*cell, expected))
            if run(_COMMIT, (meta, commit, version, *cell, expected)).rowcount != 1:
                return False
        elif run(_UPDATE, (meta, *cell, expected)).rowcount != 1:
            return False
        if notify:
            run(_NOTIFY, (*cell, notify))
        return True

    def notify(self, notifications: Sequence[Notification]) -> None:
        self._guarded(self._written, lambda: self._writer.executemany(_NOTIFY, notifications))

    def forget(self, notifications: Sequence[Notification]) -> None:
        delete = "DELETE FROM notifications WHERE tbl = ? AND row = ? AND col = ? AND start = ?"
        self._guarded(self._written, lambda: self._writer.executemany(delete, notifications))

    def collect(self, table: str, safe_point: int, begin: str, limit: int) -> tuple[int, str | None]:
        def collected() -> tuple[int, str | None]:
            run = self._writer.execute
            select = "SELECT DISTINCT row FROM older WHERE tbl = ? AND row >= ? ORDER BY row LIMIT ?"
            rows = [row for (row,) in run(select, (table, begin, limit + 1)).fetchall()]
            removed = sum(run(_COLLECT, (table, row, safe_point)).rowcount for row in rows[:limit])
            return removed, rows[limit] if len(rows) > limit else None

        found: tuple[int, str | None] = self._guarded(self._written, collected)
        return found

    def claims(self, table: str, rows: Sequence[str]) -> list[bytes | None]:
        select = "SELECT claim FROM claims WHERE tbl = ? AND row = ?"

        def noted() -> list[bytes | None]:
            found = [self._reader.execute(select, (table, row)).fetchone() for row in rows]
            return [each[0] if each else None for each in found]

        answers: list[bytes | None] = self._guarded(noted)
        return answers

    def claim(self, table: str, rows: Sequence[str], claim: bytes) -> None:
        insert, notes = "INSERT OR REPLACE INTO claims VALUES (?, ?, ?)", [(table, row, claim) for row in rows]
        self._guarded(self._written, lambda: self._writer.executemany(insert, notes))

    def unclaim(self, table: str, rows: Sequence[str]) -> None:
        delete, notes = "DELETE FROM claims WHERE tbl = ? AND row = ?", [(table, row) for row in rows]
        self._guarded(self._written, lambda: self._writer.executemany(delete, notes))

    def _allocate(self, timestamps: int) -> int:
        update = "UPDATE oracle SET next = next + ? RETURNING next - ?"
        (first,) = self._guarded(
            self._written, lambda: self._writer.execute(update, (timestamps, timestamps)).fetchone()
        )
        return int(first)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            for _, connection in self._open:
                connection.close()
            self._open.clear()
