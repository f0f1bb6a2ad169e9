"""Reading the ledger of a state, also of one in use (``photon ledger``), and what else is asked of a closed one."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from photon.dispatcher.database import BUSY_S, check_marks, unusable
from photon.dispatcher.errors import StateError
from photon.dispatcher.ledger import HOUR_NS, Ledger, ledger_of


def read_ledger_from(db: sqlite3.Connection) -> Ledger:
    """The counts, and the retry store's rows as pending, as of one moment."""
    with _Reading(db):
        counts = db.execute("SELECT hour, verdict, count FROM ledger").fetchall()
        # Division in SQLite rounds towards 0, hours before 1970 towards minus infinity as the ledger's do.
        pending: Iterable[Sequence[int]] = db.execute(
            "SELECT (event_time_ns - ((event_time_ns % ?1) + ?1) % ?1) / ?1 AS hour, count(*) "
            "FROM retries GROUP BY hour",
            (HOUR_NS,),
        ).fetchall()
    return ledger_of(((h, v, c) for h, v, c in counts), ((int(h), n) for h, n in pending))


class _Reading:
    """One snapshot for several queries."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def __enter__(self) -> None:
        self._db.execute("BEGIN")

    def __exit__(self, *_: object) -> None:
        self._db.execute("ROLLBACK")


def read_ledger(path: Path) -> Ledger:
    """The ledger of a state that may be in use; for ``photon ledger``. Raises StateError."""
    with _opened(path) as db:
        return read_ledger_from(db)


def read_reached(path: Path) -> tuple[int, int] | None:
    """What the state last noted of its joiner's redo log (``State.reached``); None: nothing. Raises StateError."""
    with _opened(path) as db:
        row = db.execute("SELECT value FROM meta WHERE name = 'reached'").fetchone()
    if row is None:
        return None
    segment, size = map(int, bytes(row[0]).split())
    return segment, size


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    if not path.exists():
        raise StateError(str(path), "there is no dispatcher state", "name the state directory of a join that has run")
    try:
        db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None, timeout=BUSY_S)
        try:
            check_marks(db, path)
            yield db
        finally:
            db.close()
    except sqlite3.Error as error:
        raise unusable(path, error) from None
