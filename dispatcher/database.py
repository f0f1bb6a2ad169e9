"""The SQLite file of the dispatcher's state: schema, opening, locking, and error texts."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from photon.config.clock import NS_PER_S
from photon.config.file_lock import POLL_S, lock_file
from photon.dispatcher.errors import DamagedState, StateError
from photon.dispatcher.ledger import HOUR_NS, Ledger, ledger_of

STATE_NAME = "dispatcher.db"  # the database's file in a pipeline's state directory
APPLICATION_ID = 0x50484F44  # "PHOD"
SCHEMA_VERSION = 6
CHECK_BYTES = 256 << 20  # a database up to this size is checked as a whole at start
WAL_BYTES = 16 << 20  # the write-ahead log is truncated to this size after a big transaction
MINUTE_NS = 60 * NS_PER_S
BUSY_S = 30.0  # longest wait for a reader that copies the database, or for another worker's transaction
SHARE_WAIT_S = 5.0  # longest wait of a worker for others that are just opening the state

_MINUTE = f"({{0}}.event_time_ns - (({{0}}.event_time_ns % {MINUTE_NS}) + {MINUTE_NS}) % {MINUTE_NS}) / {MINUTE_NS}"
# Rounds towards minus infinity; division in SQLite rounds towards 0.
_SCHEMA = f"""
CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
-- proof: of a position (LogPosition). anew: the log holds other bytes than were counted up to high (core).
CREATE TABLE logs (identity TEXT PRIMARY KEY, path TEXT NOT NULL, header BLOB NOT NULL, offset INTEGER NOT NULL,
  high INTEGER NOT NULL, proof BLOB NOT NULL, anew INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE files (id INTEGER PRIMARY KEY, path TEXT NOT NULL, header BLOB NOT NULL, UNIQUE (path, header));
-- owner: an incarnation of workers, 0 for a dispatcher that is alone.
CREATE TABLE retries (id INTEGER PRIMARY KEY AUTOINCREMENT, event_id BLOB NOT NULL, digest BLOB NOT NULL,
  event_time_ns INTEGER NOT NULL, key BLOB NOT NULL, record BLOB NOT NULL, file INTEGER NOT NULL,
  offset INTEGER NOT NULL, generation INTEGER NOT NULL, first_read_ns INTEGER NOT NULL, attempts INTEGER NOT NULL,
  next_try_ns INTEGER NOT NULL, trigger_ns INTEGER NOT NULL, owner INTEGER NOT NULL);
CREATE INDEX retries_by_time ON retries (owner, next_try_ns);
CREATE INDEX retries_by_trigger ON retries (owner, trigger_ns);
CREATE INDEX retries_by_key ON retries (owner, key); -- see arrivals
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
CREATE TABLE claims (owner INTEGER PRIMARY KEY, at_ns INTEGER NOT NULL, read_ns INTEGER, why TEXT NOT NULL,
  moving TEXT NOT NULL, waiting TEXT NOT NULL);
CREATE TABLE ledger (hour INTEGER NOT NULL, verdict INTEGER NOT NULL, count INTEGER NOT NULL,
  PRIMARY KEY (hour, verdict)) WITHOUT ROWID;
CREATE TABLE outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, log TEXT NOT NULL, line BLOB NOT NULL,
  worker TEXT NOT NULL);
CREATE TABLE exports (worker TEXT PRIMARY KEY, upto INTEGER NOT NULL) WITHOUT ROWID;
-- See leases and shared_state. parts: of a huge log, whose own offset stands behind them.
CREATE TABLE workers (incarnation INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, pid INTEGER NOT NULL,
  started_ns INTEGER NOT NULL, beat INTEGER NOT NULL, beat_ns INTEGER NOT NULL, fenced INTEGER NOT NULL);
CREATE TABLE leases (unit TEXT PRIMARY KEY, owner INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE parts (unit TEXT PRIMARY KEY, identity TEXT NOT NULL, begin INTEGER NOT NULL, end INTEGER NOT NULL,
  offset INTEGER NOT NULL, proof BLOB NOT NULL) WITHOUT ROWID;
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


def lock_state(path: Path) -> int:
    """Locks the whole state for a dispatcher without workers, or a command. Raises StateError.

    Two at once would read the same lines and count them twice.
    """
    lock = _lock(_lock_path(path))
    if lock is None:
        raise StateError(
            str(path),
            "is in use by another dispatcher",
            "stop that one, or give this one a state directory of its own",
        )
    return lock


def share_state(path: Path, wait_s: float = SHARE_WAIT_S) -> tuple[int, bool]:
    """Takes a worker's lock, which is shared. Returns it, and True if it is held alone, as when all others are dead.

    A worker alone keeps the others out until ``settle_share``, so that only one creates the database. Raises
    StateError while a dispatcher that does not share, or a command, holds the state.
    """
    deadline = time.monotonic() + wait_s
    while True:
        for shared in (False, True):
            if (lock := _lock(_lock_path(path), shared=shared)) is not None:
                return lock, not shared
        if time.monotonic() > deadline:
            raise StateError(
                str(path),
                "is in use by a dispatcher that does not share it, or by a command",
                "stop that one, or start it under a worker's name too",
            )
        time.sleep(POLL_S)


def settle_share(fd: int) -> None:
    """Turns a lock held alone into a shared one."""
    fcntl.flock(fd, fcntl.LOCK_SH)


def lock_worker(path: Path, worker: str, wait_s: float = 0.0) -> int | None:
    """Locks a worker's name until its process dies; ``None`` if another process holds it. Raises StateError."""
    return _lock(worker_lock(path, worker), wait_s=wait_s)


def worker_lock(path: Path, worker: str) -> Path:
    """The file whose lock ``lock_worker`` takes."""
    return _lock_path(path, f".{worker}")


def _lock_path(path: Path, what: str = "") -> Path:
    return path.with_name(f"{path.name}{what}.lock")


def _lock(path: Path, *, shared: bool = False, wait_s: float = 0.0) -> int | None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return lock_file(path, shared=shared, wait_s=wait_s)
    except OSError as error:
        raise StateError(
            str(path), f"cannot be locked ({error.strerror})", "name a directory that is writable"
        ) from None


def open_database(path: Path) -> sqlite3.Connection:
    """Opens the state, creating it if necessary. The caller holds its lock. Raises StateError, sqlite3.Error."""
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
    """Creates an empty state, which gets its name only when complete: readers may come at any moment."""
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)
    with closing(sqlite3.connect(new, isolation_level=None)) as db:
        fill(db)
    os.replace(new, path)


def fill(db: sqlite3.Connection) -> None:
    """Makes an empty database an empty state, in one transaction."""
    db.executescript(f"BEGIN EXCLUSIVE; {_SCHEMA} COMMIT; PRAGMA journal_mode=WAL;")


def check_marks(db: sqlite3.Connection, path: Path) -> None:
    """Raises StateError if this is not a state of this version."""
    marks = (db.execute("PRAGMA application_id").fetchone()[0], db.execute("PRAGMA user_version").fetchone()[0])
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
    if getattr(error, "sqlite_errorcode", 0) > 255:  # one message covers several
        text += f", {error.sqlite_errorname}"
    if "full" in text or "disk I/O" in text:
        return StateError(str(path), f"cannot be written ({text})", "make room on the disk, then start again")
    if "locked" in text:
        return StateError(
            str(path),
            f"is held by another process for more than {BUSY_S:.0f} s ({text})",
            "end the worker that stands still in a transaction",
        )
    return DamagedState(
        str(path),
        f"is damaged or unreadable ({text})",
        "restore it from a backup, or move it away: then all foreign logs are read again from their start, ids that "
        "have a verdict are recognised, the ledger starts again, and rejected and late lines are exported again",
    )


@contextmanager
def opened(path: Path, mode: str = "ro") -> Iterator[sqlite3.Connection]:
    """Opens a dispatcher's database, whether or not the dispatcher runs. Raises StateError."""
    if not path.exists():
        raise StateError(str(path), "there is no dispatcher state", "name a pipeline whose dispatcher has run")
    try:
        with closing(
            sqlite3.connect(f"{path.absolute().as_uri()}?mode={mode}", uri=True, isolation_level=None, timeout=BUSY_S)
        ) as db:
            check_marks(db, path)
            yield db
    except sqlite3.Error as error:
        raise unusable(path, error) from None


def read_ledger_from(db: sqlite3.Connection) -> Ledger:
    """Returns the counts, with the retry store's rows as pending, as of one moment."""
    with reading(db):
        counts = db.execute("SELECT hour, verdict, count FROM ledger").fetchall()
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
    """Returns the last noted position in the joiner's redo log (``State.reached``), if any. Raises StateError."""
    with opened(path) as db:
        row = db.execute("SELECT value FROM meta WHERE name = 'reached'").fetchone()
    if row is None:
        return None
    segment, size = map(int, bytes(row[0]).split())
    return segment, size


ROWS_AT_ONCE = 10_000


def read_standing(path: Path, take: Callable[[Sequence[bytes]], None]) -> list[tuple[str, int, str]]:
    """Returns, for each log, as of one moment: identity, offset before which everything has a verdict or waits, path.

    The path is that of the last read. ``take`` receives the digests of waiting events, some at a time. Raises
    StateError.
    """
    with opened(path) as db, reading(db):
        places = _places(db)
        paths: dict[str, str] = dict(db.execute("SELECT identity, path FROM logs").fetchall())
        rows = db.execute("SELECT digest FROM retries")
        while some := rows.fetchmany(ROWS_AT_ONCE):
            take([digest for (digest,) in some])
    return [(identity, offset, paths.get(identity, "")) for identity, offset in sorted(places.items())]


def count_waiting(path: Path, begin_ns: int, end_ns: int, before_ns: int) -> int:
    """Returns the number of waiting events with ``begin_ns`` <= event time < ``end_ns`` that were first read before
    ``before_ns``. Raises StateError."""
    with opened(path) as db:
        where = "event_time_ns >= ? AND event_time_ns < ? AND first_read_ns < ?"
        rows = db.execute(f"SELECT count(*) FROM retries WHERE {where}", (begin_ns, end_ns, before_ns))
        return int(rows.fetchone()[0])


def _places(db: sqlite3.Connection) -> dict[str, int]:
    """Returns each log's offset, or the start of its first unread part."""
    places: dict[str, int] = dict(db.execute("SELECT identity, offset FROM logs").fetchall())
    for identity, offset in db.execute(
        "SELECT identity, min(offset) FROM parts WHERE offset < end GROUP BY identity"
    ):
        places[identity] = min(places.get(identity, offset), offset)
    return places
