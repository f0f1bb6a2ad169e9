"""A store in one SQLite file: write-ahead log, synchronous=FULL, one transaction a commit."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from photon.computing.errors import ComputingError, Fenced, Retired
from photon.computing.intervals import Interval
from photon.computing.store import Chunk, Commit, Due, Row, fenced
from photon.config.versioned_file import other_version

APPLICATION_ID = 0x50484F43  # "PHOC"
VERSION = 1
BUSY_S = 30.0  # seconds to wait for a reader that copies the file
KEYS_AT_ONCE = 500
WAL_BYTES = 64 << 20

_SCHEMA = """
CREATE TABLE interval (id TEXT PRIMARY KEY, low INTEGER NOT NULL, high INTEGER NOT NULL, sequencer INTEGER NOT NULL,
  owner TEXT NOT NULL, successors TEXT NOT NULL, standing BLOB NOT NULL);
CREATE TABLE rows (computation TEXT NOT NULL, key TEXT NOT NULL, data BLOB NOT NULL, event_ns INTEGER,
  wall_ns INTEGER, aside INTEGER NOT NULL, PRIMARY KEY (computation, key)) WITHOUT ROWID;
CREATE INDEX rows_by_event ON rows (computation, event_ns, key) WHERE event_ns IS NOT NULL;
CREATE INDEX rows_by_wall ON rows (computation, wall_ns, key) WHERE wall_ns IS NOT NULL;
CREATE INDEX rows_aside ON rows (computation, key, aside) WHERE aside > 0;
CREATE TABLE outbox (sender TEXT NOT NULL, target TEXT NOT NULL, last INTEGER NOT NULL, data BLOB NOT NULL,
  PRIMARY KEY (sender, target, last));
"""
_ROW = "computation, key, data, event_ns, wall_ns, aside"


class SqliteStore:
    """``path`` is created for ``interval`` if it does not exist; with None the file's interval is used. Raises
    ComputingError, OSError."""

    def __init__(self, path: Path, interval: Interval | None = None) -> None:
        self._path = path
        new = not path.exists()
        if new and interval is None:
            raise ComputingError(f"{path} is not there: no computation has kept anything in it")
        with self._said():
            self._db = sqlite3.connect(path, isolation_level=None, timeout=BUSY_S, check_same_thread=False)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.execute(f"PRAGMA journal_size_limit = {WAL_BYTES}")
            self._db.execute("PRAGMA cache_size = -65536")
            with self._transaction():
                self._create(interval)
            found = self._db.execute("SELECT id, low, high FROM interval").fetchone()
        name, low, high = found
        self.interval = Interval(low, high, name)
        if interval is not None and interval != self.interval:
            raise ComputingError(f"{path} is of the interval {name} ({low:#010x} to {high:#010x}), not {interval.id}")

    def successors(self) -> tuple[str, ...]:
        with self._said():
            return tuple(self._db.execute("SELECT successors FROM interval").fetchone()[0].split())

    def acquire(self, owner: str, *, revive: bool = False) -> int:
        with self._said(), self._transaction():
            sequencer, successors = self._db.execute("SELECT sequencer, successors FROM interval").fetchone()
            if successors and not revive:
                raise Retired(self.interval.id, tuple(successors.split()))
            self._db.execute("UPDATE interval SET sequencer = ?, owner = ?, successors = ''", (sequencer + 1, owner))
        return int(sequencer) + 1

    def standing(self) -> bytes:
        with self._said():
            return bytes(self._db.execute("SELECT standing FROM interval").fetchone()[0])

    def load(self, computation: str, keys: Sequence[str]) -> dict[str, Row]:
        found: dict[str, Row] = {}
        with self._said():
            for at in range(0, len(keys), KEYS_AT_ONCE):
                some = keys[at : at + KEYS_AT_ONCE]
                marks = ",".join("?" * len(some))
                query = f"SELECT {_ROW} FROM rows WHERE computation = ? AND key IN ({marks})"
                found.update((each[1], Row(*each)) for each in self._db.execute(query, (computation, *some)))
        return found

    def due(self, computation: str, wall: bool, until_ns: int, limit: int) -> list[Due]:
        time = "wall_ns" if wall else "event_ns"
        query = f"SELECT {time}, key FROM rows WHERE computation = ? AND {time} <= ? ORDER BY {time}, key LIMIT ?"
        with self._said():
            return [Due(*each) for each in self._db.execute(query, (computation, until_ns, limit))]

    def chunks(self) -> Iterable[Chunk]:
        with self._said():
            query = "SELECT sender, target, last, data FROM outbox ORDER BY sender, last"
            return [Chunk(*each) for each in self._db.execute(query)]

    def aside(self) -> Iterable[tuple[str, str, int]]:
        with self._said():
            return self._db.execute("SELECT computation, key, aside FROM rows WHERE aside > 0").fetchall()

    def scan(self) -> Iterator[Row]:
        with self._said():
            for each in self._db.execute(f"SELECT {_ROW} FROM rows ORDER BY computation, key"):
                yield Row(*each)

    def commit(self, sequencer: int, commit: Commit) -> None:
        with self._said(), self._transaction():
            self._compare(sequencer)
            kept = [row for row in commit.rows if row.data is not None]
            gone = [row[:2] for row in commit.rows if row.data is None]
            db = self._db
            db.executemany(f"INSERT OR REPLACE INTO rows ({_ROW}) VALUES (?, ?, ?, ?, ?, ?)", kept)
            db.executemany("DELETE FROM rows WHERE computation = ? AND key = ?", gone)
            db.executemany("DELETE FROM outbox WHERE sender = ? AND target = ? AND last <= ?", commit.done)
            db.executemany("INSERT INTO outbox (sender, target, last, data) VALUES (?, ?, ?, ?)", commit.added)
            db.execute("UPDATE interval SET standing = ?", (commit.standing,))

    def retire(self, sequencer: int, successors: tuple[str, ...]) -> None:
        with self._said(), self._transaction():
            self._compare(sequencer)
            self._db.execute("UPDATE interval SET successors = ?", (" ".join(successors),))

    def close(self) -> None:
        self._db.close()

    def _create(self, interval: Interval | None) -> None:
        (application,) = self._db.execute("PRAGMA application_id").fetchone()
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if application == APPLICATION_ID and version == VERSION:
            return
        if application or version or interval is None:
            raise ComputingError(f"{self._path} is no store of computations, or {other_version(version, VERSION)}")
        for statement in _SCHEMA.split(";"):
            self._db.execute(statement)
        self._db.execute(
            "INSERT INTO interval VALUES (?, ?, ?, 0, '', '', x'')", (interval.id, interval.low, interval.high)
        )
        self._db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        self._db.execute(f"PRAGMA user_version = {VERSION}")

    def _compare(self, sequencer: int) -> None:
        now, successors = self._db.execute("SELECT sequencer, successors FROM interval").fetchone()
        if successors:
            raise Retired(self.interval.id, tuple(successors.split()))
        if now != sequencer:
            raise Fenced(fenced(self.interval.id))

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    @contextmanager
    def _said(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise ComputingError(f"the store {self._path} cannot be used: {error}") from error
