"""How far a dispatcher has read, and what waits for its primary event, of a state that may be in use."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

from photon.dispatcher.database import BUSY_S, check_marks, unusable
from photon.dispatcher.errors import StateError

ROWS_AT_ONCE = 10_000


def read_standing(path: Path, take: Callable[[Sequence[bytes]], None]) -> list[tuple[str, int]]:
    """(identity of a log, up to where all of it has a verdict or waits), as of one moment.

    ``take`` is given the digests of what waits, some at a time. Raises StateError.
    """
    if not path.exists():
        raise StateError(str(path), "there is no dispatcher state", "name the state directory of a dispatcher")
    try:
        db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None, timeout=BUSY_S)
        try:
            check_marks(db, path)
            db.execute("BEGIN")
            places = _places(db)
            rows = db.execute("SELECT digest FROM retries")
            while some := rows.fetchmany(ROWS_AT_ONCE):
                take([digest for (digest,) in some])
            return sorted(places.items())
        finally:
            db.close()
    except sqlite3.Error as error:
        raise unusable(path, error) from None


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
