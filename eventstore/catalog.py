"""The embedded file map's catalogue: one SQLite database, whose transactions are durable once committed.

It holds the names of the runs, the logs and their read positions, the sparse entries, and the totals. A commit
publishes all of them together, after the run files are synced. SQLite's journal is the write-ahead log with
synchronous=FULL.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import add
from pathlib import Path
from types import TracebackType
from typing import Any

from photon.adapters.contract import LogFile
from photon.config.versioned_file import other_version
from photon.eventstore.file_map import UNKNOWN_TIME_NS, FileMapError, MappedLog, MapTotals, Version, newest
from photon.eventstore.index import I64
from photon.eventstore.sparse import ProcessState, SparseEntry, micros_of, row_key

NO_ROOM = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
FORMAT_VERSION = 3
APPLICATION_ID = 0x50484D50  # 'PHMP': recognised by file(1), and checked when the file is opened
_NOTHING = (0, 0, 0, 0)  # added to events, bad, bytes, duplicates
_SCHEMA = """
CREATE TABLE settings (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE logs (number INTEGER PRIMARY KEY, identity TEXT NOT NULL UNIQUE, path TEXT NOT NULL,
                   header BLOB NOT NULL, read_to INTEGER NOT NULL, rewritten INTEGER NOT NULL,
                   proof BLOB NOT NULL);
CREATE TABLE runs (number INTEGER PRIMARY KEY, entries INTEGER NOT NULL, repeats INTEGER NOT NULL);
CREATE TABLE sparse (id BLOB NOT NULL, log INTEGER NOT NULL, place INTEGER NOT NULL,
                     PRIMARY KEY (id, log)) WITHOUT ROWID;
CREATE TABLE processes (log INTEGER NOT NULL, prefix BLOB NOT NULL, last INTEGER NOT NULL, entry INTEGER NOT NULL,
                        place INTEGER NOT NULL, PRIMARY KEY (log, prefix)) WITHOUT ROWID;
CREATE TABLE versions (hash INTEGER NOT NULL, time INTEGER NOT NULL, log INTEGER NOT NULL, place INTEGER NOT NULL,
                       PRIMARY KEY (hash, time, log, place)) WITHOUT ROWID;
CREATE TABLE totals (one INTEGER PRIMARY KEY CHECK (one = 1), events INTEGER NOT NULL, bad INTEGER NOT NULL,
                     bytes INTEGER NOT NULL, duplicates INTEGER NOT NULL);
INSERT INTO totals VALUES (1, 0, 0, 0, 0);
"""


class CatalogLock:
    """Serialises access to a catalogue's database; an SQLite failure inside it becomes a FileMapError."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()
        if isinstance(error, sqlite3.DatabaseError):
            raise unusable(self._path, error) from None


def unusable(path: Path, error: sqlite3.DatabaseError) -> FileMapError:
    """Returns the error for a failed SQLite operation. Distinguishes a full disk from damage."""
    if getattr(error, "sqlite_errorcode", 0) & 0xFF in NO_ROOM:
        return FileMapError(f"{path}: cannot be written ({error}); make room on the disk, then start again")
    return FileMapError(f"{path}: cannot be read ({error})")


def open_catalog(
    path: Path,
    settings: Mapping[str, bytes],
    *,
    schema: str,
    application_id: int,
    first: Sequence[tuple[str, Sequence[object]]] = (),
) -> sqlite3.Connection:
    """Opens a catalogue's database; a new one gets ``schema`` and the rows ``first``.

    Raises FileMapError if the file is not a catalogue of this version, or was made with other settings.
    """
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=FULL")
        (version,) = db.execute("PRAGMA user_version").fetchone()
        if version not in (0, FORMAT_VERSION):
            raise FileMapError(f"{path}: {other_version(version, FORMAT_VERSION)}")
        if version == 0:
            db.execute("BEGIN IMMEDIATE")
            for statement in filter(str.strip, schema.split(";")):
                db.execute(statement)
            db.executemany("INSERT INTO settings VALUES (?, ?)", settings.items())
            for statement, values in first:
                db.execute(statement, values)
            db.execute(f"PRAGMA application_id={application_id}")
            db.execute(f"PRAGMA user_version={FORMAT_VERSION}")
            db.execute("COMMIT")
        if dict(db.execute("SELECT name, value FROM settings")) != settings:
            raise FileMapError(f"{path}: made for another key rule or other map settings")
    except (FileMapError, sqlite3.DatabaseError) as err:
        db.close()
        if isinstance(err, sqlite3.DatabaseError):
            raise unusable(path, err) from None
        raise
    return db


class CatalogDatabase:
    """A catalogue's database.

    Thread-safe. A transaction is open while there are uncommitted changes, which look-ups of this process see.
    """

    def __init__(self, path: Path, db: sqlite3.Connection) -> None:
        self._lock = CatalogLock(path)
        self._db = db

    @contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            if not self._db.in_transaction:
                self._db.execute("BEGIN IMMEDIATE")
            yield self._db

    def _one(self, sql: str, *values: object) -> Any:
        with self._lock:
            return self._db.execute(sql, values).fetchone()

    def drop_uncommitted(self) -> None:
        with self._lock:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")

    def close(self) -> None:
        self.drop_uncommitted()
        with self._lock:
            self._db.close()


class Catalog(CatalogDatabase):
    def __init__(self, path: Path, settings: dict[str, bytes]) -> None:
        """See ``open_catalog``."""
        db = open_catalog(path, settings, schema=_SCHEMA, application_id=APPLICATION_ID)
        super().__init__(path, db)
        self._added = _NOTHING  # additions to the totals, not yet written, as blocks may be small

    # -- reading ---------------------------------------------------------------------------------------------------
    def logs(self) -> list[MappedLog]:
        """Returns all logs, by number, without gaps."""
        with self._lock:
            rows = self._db.execute(
                "SELECT number, identity, path, header, read_to, rewritten, proof FROM logs ORDER BY number"
            ).fetchall()
        return [MappedLog(n, identity, LogFile(*file), end, bool(r), p) for n, identity, *file, end, r, p in rows]

    def runs(self) -> list[tuple[int, int, int]]:
        """Returns (number, entries, repeats) of each run, in the order of numbers: oldest first."""
        with self._lock:
            return self._db.execute("SELECT number, entries, repeats FROM runs ORDER BY number").fetchall()

    def totals(self) -> MapTotals:
        """Returns the totals without the number of logs. Includes the open transaction."""
        with self._lock:
            row = self._db.execute("SELECT events, bad, bytes, duplicates FROM totals").fetchone()
            return MapTotals(*map(add, row, self._added))

    def process(self, log: int, prefix: bytes) -> ProcessState | None:
        """Returns the state of a process in a log, or ``None`` if it has not occurred there."""
        row = self._one("SELECT last, entry, place FROM processes WHERE log = ? AND prefix = ?", log, prefix)
        return ProcessState(*row) if row else None

    def sparse_range(self, prefix: bytes, low: int, high: int) -> list[tuple[int, int, int]]:
        """Returns (microseconds, log, offset) of the process's entries in [``low``, ``high``], ascending."""
        with self._lock:
            rows = self._db.execute(
                "SELECT id, log, place FROM sparse WHERE id BETWEEN ? AND ? ORDER BY id",
                (row_key(prefix, low), row_key(prefix, high)),
            ).fetchall()
        return [(micros_of(row), log, place) for row, log, place in rows]

    def versions(self, key: int, time_ns: int, without: Collection[int], times_max: int, most: int) -> list[Version]:
        """See FileMap.versions. ``key``: the key's hash as int64."""
        select = "SELECT time, log, place FROM versions WHERE hash = ? AND time"
        with self._lock:

            def some(where: str, *values: int) -> Iterator[Version]:
                rows = self._db.execute(f"{select} {where}", (key, *values))
                return (version for version in map(Version._make, rows) if version.log not in without)

            before = some("<= ? AND time > ? ORDER BY time DESC", time_ns, UNKNOWN_TIME_NS)
            found = newest(before, times_max, most) or newest(some("> ? ORDER BY time", time_ns), 1, 1)
            return found + newest(some("= ?", UNKNOWN_TIME_NS), 1, most)

    # -- changing, within the open transaction -----------------------------------------------------------------
    def put_log(self, log: MappedLog) -> None:
        with self._changing() as db:
            db.execute(
                "INSERT INTO logs VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (number) DO UPDATE SET"
                " path = excluded.path, header = excluded.header, read_to = excluded.read_to,"
                " rewritten = excluded.rewritten, proof = excluded.proof",
                (log.number, log.identity, log.file.path, log.file.header, log.end, log.rewritten, log.proof),
            )

    def put_sparse(self, log: int, entries: Sequence[SparseEntry], states: dict[bytes, ProcessState]) -> None:
        """Stores the sparse entries of one block and the process states after it."""
        with self._changing() as db:
            db.executemany(
                "INSERT OR REPLACE INTO sparse VALUES (?, ?, ?)",
                ((row_key(e.prefix, e.micros), log, e.offset) for e in entries),
            )
            db.executemany(
                "INSERT OR REPLACE INTO processes VALUES (?, ?, ?, ?, ?)",
                ((log, p, s.last_micros, s.entry_micros, s.entry_offset) for p, s in states.items()),
            )

    def put_versions(self, log: int, hashes: I64, times: I64, places: I64) -> None:
        rows = zip(hashes.tolist(), times.tolist(), places.tolist(), strict=True)
        with self._changing() as db:
            db.executemany(f"INSERT OR IGNORE INTO versions VALUES (?, ?, {log}, ?)", rows)

    def put_run(self, gone: Sequence[int], number: int, entries: int, repeats: int) -> None:
        """Replaces the runs in ``gone`` by a new one."""
        with self._changing() as db:
            db.executemany("DELETE FROM runs WHERE number = ?", ((n,) for n in gone))
            db.execute("INSERT INTO runs VALUES (?, ?, ?)", (number, entries, repeats))

    def add_totals(self, events: int, bad: int, size: int, duplicates: int) -> None:
        with self._lock:
            mine = self._added
            self._added = mine[0] + events, mine[1] + bad, mine[2] + size, mine[3] + duplicates

    def commit(self) -> None:
        if any(self._added):
            with self._changing() as db:
                db.execute(
                    "UPDATE totals SET events = events + ?, bad = bad + ?, bytes = bytes + ?,"
                    " duplicates = duplicates + ?",
                    self._added,
                )
                self._added = _NOTHING
        with self._lock:
            if self._db.in_transaction:
                self._db.execute("COMMIT")
