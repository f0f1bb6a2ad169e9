"""The SQLite file of the dispatcher's state: schema, opening, locking, and error texts."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from photon.config.clock import NS_PER_S
from photon.config.file_lock import lock_file
from photon.dispatcher.errors import DamagedState, StateError
from photon.dispatcher.ledger import HOUR_NS, Ledger, ledger_of
from photon.dispatcher.partitions import files_of

# The database's file in a pipeline's state directory; that of several dispatchers: ``partitions.files_of`` this.
STATE_NAME = "dispatcher.db"
APPLICATION_ID = 0x50484F44  # "PHOD"
SCHEMA_VERSION = 7
CHECK_BYTES = 256 << 20  # a database up to this size is checked as a whole at start
TAILS = ("-wal", "-shm", "-journal")  # of the files that SQLite keeps next to a database
WAL_BYTES = 16 << 20  # the write-ahead log is truncated to this size after a big transaction
MINUTE_NS = 60 * NS_PER_S
BUSY_S = 30.0  # longest wait for a reader that copies the database, or for a command's transaction

_MINUTE = f"({{0}}.event_time_ns - (({{0}}.event_time_ns % {MINUTE_NS}) + {MINUTE_NS}) % {MINUTE_NS}) / {MINUTE_NS}"
# Rounds towards minus infinity; division in SQLite rounds towards 0.
_SCHEMA = f"""
CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
-- proof: of a position (LogPosition). rewritten: the log holds other bytes than were counted up to high (core).
CREATE TABLE logs (identity TEXT PRIMARY KEY, path TEXT NOT NULL, header BLOB NOT NULL, offset INTEGER NOT NULL,
  high INTEGER NOT NULL, proof BLOB NOT NULL, rewritten INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE files (id INTEGER PRIMARY KEY, path TEXT NOT NULL, header BLOB NOT NULL, UNIQUE (path, header));
CREATE TABLE retries (id INTEGER PRIMARY KEY AUTOINCREMENT, event_id BLOB NOT NULL, digest BLOB NOT NULL,
  event_time_ns INTEGER NOT NULL, key BLOB NOT NULL, record BLOB NOT NULL, file INTEGER NOT NULL,
  offset INTEGER NOT NULL, generation INTEGER NOT NULL, first_read_ns INTEGER NOT NULL, attempts INTEGER NOT NULL,
  next_try_ns INTEGER NOT NULL, trigger_ns INTEGER NOT NULL);
CREATE INDEX retries_by_time ON retries (next_try_ns);
CREATE INDEX retries_by_trigger ON retries (trigger_ns);
CREATE INDEX retries_by_key ON retries (key); -- see arrivals
CREATE INDEX retries_by_event ON retries (event_time_ns);
-- waiting: rows of retries by minute of event time; claims: what else has no verdict (see undecided).
CREATE TABLE waiting (minute INTEGER PRIMARY KEY, events INTEGER NOT NULL);
CREATE TRIGGER retry_waits AFTER INSERT ON retries BEGIN
  INSERT INTO waiting VALUES ({_MINUTE.format("NEW")}, 1)
    ON CONFLICT DO UPDATE SET events = events + 1;
END;
CREATE TRIGGER retry_ends AFTER DELETE ON retries BEGIN
  UPDATE waiting SET events = events - 1 WHERE minute = {_MINUTE.format("OLD")};
  DELETE FROM waiting WHERE minute = {_MINUTE.format("OLD")} AND events = 0;
END;
CREATE TABLE claims (who TEXT PRIMARY KEY, at_ns INTEGER NOT NULL, read_ns INTEGER, why TEXT NOT NULL,
  moving TEXT NOT NULL, waiting TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE ledger (hour INTEGER NOT NULL, verdict INTEGER NOT NULL, count INTEGER NOT NULL,
  PRIMARY KEY (hour, verdict)) WITHOUT ROWID;
CREATE TABLE outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, log TEXT NOT NULL, line BLOB NOT NULL);
-- See replay: coverage, requests, reopened. missing: a reopened id that stands in no log here.
CREATE TABLE covered (identity TEXT NOT NULL, chunk INTEGER NOT NULL, oldest_ns INTEGER NOT NULL,
  newest_ns INTEGER NOT NULL, PRIMARY KEY (identity, chunk)) WITHOUT ROWID;
CREATE TABLE replays (id INTEGER PRIMARY KEY AUTOINCREMENT, from_ns INTEGER NOT NULL, to_ns INTEGER NOT NULL,
  pattern TEXT NOT NULL, asked_ns INTEGER NOT NULL, status INTEGER NOT NULL, ended_ns INTEGER NOT NULL);
CREATE TABLE replay_logs (replay INTEGER NOT NULL, identity TEXT NOT NULL, path TEXT NOT NULL,
  begin INTEGER NOT NULL, at INTEGER NOT NULL, stop INTEGER NOT NULL, status INTEGER NOT NULL,
  events INTEGER NOT NULL, known INTEGER NOT NULL, PRIMARY KEY (replay, identity)) WITHOUT ROWID;
CREATE TABLE reopened (digest BLOB NOT NULL, generation INTEGER NOT NULL, event_time_ns INTEGER NOT NULL,
  seen_ns INTEGER NOT NULL, missing INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (digest, generation)) WITHOUT ROWID;
PRAGMA application_id={APPLICATION_ID};
PRAGMA user_version={SCHEMA_VERSION};
"""


class Transaction:
    """BEGIN IMMEDIATE … COMMIT, or ROLLBACK. Any SQLite error within it becomes StateError."""

    def __init__(self, db: sqlite3.Connection, path: Path) -> None:
        self._db = db
        self._path = path

    def __enter__(self) -> None:
        try:
            self._db.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            raise unusable(self._path, error) from None

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            if kind is None:
                self._db.execute("COMMIT")
            elif self._db.in_transaction:  # a full disk may have rolled it back
                self._db.execute("ROLLBACK")
        except sqlite3.Error as failed:
            raise unusable(self._path, failed) from None
        if isinstance(error, sqlite3.Error):
            raise unusable(self._path, error) from None


def lock_state(path: Path, wait_s: float = 0.0) -> int:
    """Locks a database for its dispatcher, or for a command, which waits up to ``wait_s``. Raises StateError.

    Two dispatchers at once would read the same lines and count them twice.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = lock_file(path.with_name(f"{path.name}.lock"), wait_s=wait_s)
    except OSError as error:
        raise StateError(
            str(path), f"cannot be locked ({error.strerror})", "name a directory that is writable"
        ) from None
    if lock is None:
        raise StateError(
            str(path),
            "is in use by another dispatcher",
            "stop it, or give this one its own state directory",
        )
    return lock


def open_database(path: Path) -> sqlite3.Connection:
    """Opens the database, creating it if necessary. The caller holds its lock. Raises StateError, sqlite3.Error."""
    fresh = not path.exists() or path.stat().st_size == 0
    if fresh:
        _make(path)
    db = sqlite3.connect(path, isolation_level=None, timeout=BUSY_S, check_same_thread=False)
    try:
        if not fresh:
            _check(db, path)
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=NORMAL")
        db.execute(f"PRAGMA journal_size_limit={WAL_BYTES}")
    except BaseException:
        db.close()
        raise
    return db


def _make(path: Path) -> None:
    """Creates an empty database and renames it into place once complete, as readers may open it at any moment."""
    new = path.with_name(path.name + ".new")
    # SQLite would replay the log of a lost database into the one that takes its place.
    for stale in (new, *(path.with_name(path.name + tail) for tail in TAILS)):
        stale.unlink(missing_ok=True)
    with closing(sqlite3.connect(new, isolation_level=None)) as db:
        fill(db)
    os.replace(new, path)


def fill(db: sqlite3.Connection) -> None:
    """Creates the schema in an empty database, in one transaction."""
    db.executescript(f"BEGIN EXCLUSIVE; {_SCHEMA} COMMIT; PRAGMA journal_mode=WAL;")


def check_marks(db: sqlite3.Connection, path: Path, schema: str = "") -> None:
    """Raises StateError if this is not a dispatcher's state of this version. ``schema``: an attached database's name
    and a dot.
    """
    marks = [db.execute(f"PRAGMA {schema}{mark}").fetchone()[0] for mark in ("application_id", "user_version")]
    if marks[0] != APPLICATION_ID:
        raise StateError(str(path), "is not a dispatcher's state", "name another state directory")
    if marks[1] != SCHEMA_VERSION:
        raise StateError(
            str(path),
            f"has format {marks[1]}, this Photon reads format {SCHEMA_VERSION}",
            "use the Photon version that wrote it",
        )


def _check(db: sqlite3.Connection, path: Path) -> None:
    check_marks(db, path)
    if path.stat().st_size <= CHECK_BYTES:
        (answer,) = db.execute("PRAGMA quick_check(1)").fetchone()
        if answer != "ok":
            raise sqlite3.DatabaseError(answer)


def unusable(path: Path, error: sqlite3.Error) -> StateError:
    text = str(error).replace("\n", " ")
    if getattr(error, "sqlite_errorcode", 0) > 255:  # one message covers several codes
        text += f", {error.sqlite_errorname}"
    if "full" in text or "disk I/O" in text:
        return StateError(str(path), f"cannot be written ({text})", "make room on the disk, then start again")
    if "locked" in text:
        return StateError(
            str(path),
            f"has been held by another process for more than {BUSY_S:.0f} s ({text})",
            "end the command or dispatcher that is stuck in a transaction",
        )
    return DamagedState(
        str(path),
        f"is damaged or unreadable ({text})",
        "restore it from a backup, or move it away: then its foreign logs are read again from their start, ids "
        "with a verdict are recognised, its ledger starts from zero, and its rejected and late lines are "
        "exported again",
    )


@contextmanager
def opened_file(path: Path, mode: str = "ro") -> Iterator[sqlite3.Connection]:
    """Opens one dispatcher's database, whether or not the dispatcher runs. Raises StateError."""
    _must_exist(path)
    try:
        with closing(sqlite3.connect(_uri(path, mode), uri=True, isolation_level=None, timeout=BUSY_S)) as db:
            check_marks(db, path)
            yield db
    except sqlite3.Error as error:
        raise unusable(path, error) from None


# The tables that are read over all dispatchers of a datacentre; files are not: their ids are those of one database.
_READ_TOGETHER = ("meta", "logs", "retries", "waiting", "claims", "ledger", "covered", "reopened")


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """Opens the databases of all dispatchers for reading, as one; a transaction sees a snapshot of each.

    ``path``: STATE_NAME in its directory. Raises StateError.
    """
    files = [file for file in files_of(path) if file.exists()]
    if len(files) < 2:
        with opened_file(files[0] if files else path) as db:
            yield db
        return
    try:
        with closing(sqlite3.connect(":memory:", uri=True, isolation_level=None, timeout=BUSY_S)) as db:
            for number, file in enumerate(files):
                db.execute(f"ATTACH ? AS p{number}", (_uri(file, "ro"),))
                check_marks(db, file, f"p{number}.")
            show_together(db, len(files))
            yield db
    except sqlite3.Error as error:
        raise unusable(path, error) from None


def show_together(db: sqlite3.Connection, count: int) -> None:
    """Creates views that unite the rows of all databases, attached as p0, p1 and so on."""
    for table in _READ_TOGETHER:
        rows = " UNION ALL ".join(f"SELECT * FROM p{number}.{table}" for number in range(count))
        db.execute(f"CREATE TEMP VIEW {table} AS {rows}")


def _must_exist(path: Path) -> None:
    if not path.exists():
        raise StateError(str(path), "there is no dispatcher state", "name a pipeline whose dispatcher has run")


def _uri(path: Path, mode: str) -> str:
    return f"{path.absolute().as_uri()}?mode={mode}"


def read_ledger_from(db: sqlite3.Connection) -> Ledger:
    """Returns the counts, with the retry store's rows as pending, from one snapshot."""
    with reading(db):
        counts = db.execute("SELECT hour, verdict, sum(count) FROM ledger GROUP BY hour, verdict").fetchall()
        # Division in SQLite rounds towards 0, while the ledger's hours before 1970 round towards minus infinity.
        pending: Iterable[Sequence[int]] = db.execute(
            "SELECT (event_time_ns - ((event_time_ns % ?1) + ?1) % ?1) / ?1 AS hour, count(*) "
            "FROM retries GROUP BY hour",
            (HOUR_NS,),
        ).fetchall()
    return ledger_of(((h, v, c) for h, v, c in counts), ((int(h), n) for h, n in pending))


@contextmanager
def reading(db: sqlite3.Connection) -> Iterator[None]:
    """Runs several queries on one snapshot."""
    db.execute("BEGIN")
    try:
        yield
    finally:
        db.execute("ROLLBACK")


def read_ledger(path: Path) -> Ledger:
    """Returns the ledger of a state that may be in use; for ``photon status ledger``. Raises StateError."""
    with opened(path) as db:
        return read_ledger_from(db)


def read_reached(path: Path) -> tuple[int, int] | None:
    """Returns the last noted position in the joiner's redo log (``State.reached``), if any.

    ``None`` also for a damaged state: the dispatcher itself reports that, or continues from a copy.
    """
    try:
        with opened(path) as db:
            row = db.execute("SELECT value FROM meta WHERE name = 'reached'").fetchone()
    except StateError:
        return None
    if row is None:
        return None
    segment, size = map(int, bytes(row[0]).split())
    return segment, size


ROWS_AT_ONCE = 10_000


def read_standing(path: Path, take: Callable[[Sequence[bytes]], None]) -> list[tuple[str, int, str]]:
    """Returns (identity, offset, path) of each log, from one snapshot: events before the offset have a verdict or
    wait.

    The path is where the log was last read. ``take`` receives the digests of waiting events, some at a time. Raises
    StateError.
    """
    with opened(path) as db, reading(db):
        found: list[tuple[str, int, str]] = db.execute(
            "SELECT identity, offset, path FROM logs ORDER BY identity"
        ).fetchall()
        rows = db.execute("SELECT digest FROM retries")
        while some := rows.fetchmany(ROWS_AT_ONCE):
            take([digest for (digest,) in some])
    return found


def count_waiting(path: Path, begin_ns: int, end_ns: int, before_ns: int) -> int:
    """Returns the number of waiting events with ``begin_ns`` <= event time < ``end_ns`` that were first read before
    ``before_ns``. Raises StateError."""
    with opened(path) as db:
        where = "event_time_ns >= ? AND event_time_ns < ? AND first_read_ns < ?"
        rows = db.execute(f"SELECT count(*) FROM retries WHERE {where}", (begin_ns, end_ns, before_ns))
        return int(rows.fetchone()[0])
