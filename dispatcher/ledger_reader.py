"""Reading a dispatcher's state, also one in use: its ledger, how far it has read, what waits."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from photon.dispatcher.database import opened
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
    with opened(path) as db:
        return read_ledger_from(db)


def read_reached(path: Path) -> tuple[int, int] | None:
    """What the state last noted of its joiner's redo log (``State.reached``); None: nothing. Raises StateError."""
    with opened(path) as db:
        row = db.execute("SELECT value FROM meta WHERE name = 'reached'").fetchone()
    if row is None:
        return None
    segment, size = map(int, bytes(row[0]).split())
    return segment, size


ROWS_AT_ONCE = 10_000


def read_standing(path: Path, take: Callable[[Sequence[bytes]], None]) -> list[tuple[str, int]]:
    """(identity of a log, up to where all of it has a verdict or waits), as of one moment.

    ``take`` is given the digests of what waits, some at a time. Raises StateError.
    """
    with opened(path) as db, _Reading(db):
        places = _places(db)
        rows = db.execute("SELECT digest FROM retries")
        while some := rows.fetchmany(ROWS_AT_ONCE):
            take([digest for (digest,) in some])
    return sorted(places.items())


def _places(db: sqlite3.Connection) -> dict[str, int]:
    """The log's own offset, or of one with unread parts where the first of them stands."""
    places: dict[str, int] = dict(db.execute("SELECT identity, offset FROM logs").fetchall())
    has_parts = db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'parts'").fetchone()[0]
    if has_parts:
        for identity, offset in db.execute(
            "SELECT identity, min(offset) FROM parts WHERE offset < end GROUP BY identity"
        ):
            places[identity] = min(places.get(identity, offset), offset)
    return places
