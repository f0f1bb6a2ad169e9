"""Hashes of the lines read under each event id, to find different lines with the same id.

This is for ids that were guessed: a field that seems unique may identify something with several events. The registry
drops all but the first line with an id, so each later one with other content is kept here with both places.

Lines read again after a crash are no conflicts: an id's first line is recognised by its place.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from itertools import chain

from xxhash import xxh3_64_intdigest

from photon.batch.columns import split_digests
from photon.batch.events import Events

IDS_AT_ONCE = 200
_TABLES = """
CREATE TABLE IF NOT EXISTS contents (digest BLOB PRIMARY KEY, hash INTEGER NOT NULL, path TEXT NOT NULL,
  offset INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS conflicts (digest BLOB NOT NULL, path TEXT NOT NULL, offset INTEGER NOT NULL,
  id BLOB NOT NULL, PRIMARY KEY (digest, path, offset)) WITHOUT ROWID;
"""
Statement = tuple[str, tuple[object, ...]]


@dataclass(frozen=True, slots=True)
class Conflict:
    """An event id that two lines with different content have."""

    event_id: bytes
    first: tuple[str, int]  # path and offset
    second: tuple[str, int]

    def __str__(self) -> str:
        shown = self.event_id.decode("utf-8", "backslashreplace")
        places = " and ".join(f"{path} at byte {offset:,}" for path, offset in (self.first, self.second))
        return f"{shown}: {places}"


class Contents:
    """The content hashes in one dispatcher's database; ``State.commit`` commits their changes."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._db = database
        self._db.executescript(_TABLES)
        self._new: dict[bytes, tuple[int, str, int]] = {}  # hash, path and offset, not committed yet
        self._conflicts: list[Statement] = []
        self._before = self._number()

    def see(self, events: Events) -> None:
        """Compares lines with earlier ones of the same id. Pass lines in the order of reading."""
        digests = split_digests(events.digests)
        known = self._known([digest for digest in digests if digest not in self._new])
        paths, offsets = [file.path for file in events.files], events.offsets.tolist()
        for row, (digest, file) in enumerate(zip(digests, events.file_index.tolist(), strict=True)):
            place = paths[file], offsets[row]
            content = xxh3_64_intdigest(events.records[row]) - (1 << 63)
            first = self._new.get(digest) or known.get(digest)
            if first is None:
                self._new[digest] = (content, *place)
            elif first[0] != content and first[1:] != place:
                sql = "INSERT OR IGNORE INTO conflicts VALUES (?, ?, ?, ?)"
                self._conflicts.append((sql, (digest, *place, events.ids[row])))

    def changes(self) -> list[Statement]:
        """Returns the statements to commit, and treats them as committed from then on."""
        rows = sorted((digest, *each) for digest, each in self._new.items())  # in the table's own order
        out = list(self._conflicts)
        for at in range(0, len(rows), IDS_AT_ONCE):
            some = rows[at : at + IDS_AT_ONCE]
            sql = f"INSERT OR IGNORE INTO contents VALUES {', '.join(['(?, ?, ?, ?)'] * len(some))}"
            out.append((sql, tuple(chain.from_iterable(some))))
        self._new, self._conflicts = {}, []
        return out

    def found(self) -> tuple[int, Conflict | None]:
        """Returns the number of conflicts since this was opened, and one of them."""
        many = self._number() - self._before
        sql = (
            "SELECT c.id, f.path, f.offset, c.path, c.offset FROM conflicts c JOIN contents f USING (digest) "
            "ORDER BY c.path, c.offset LIMIT 1"
        )
        rows = self._db.execute(sql).fetchall() if many else []
        return many, next((Conflict(row[0], (row[1], row[2]), (row[3], row[4])) for row in rows), None)

    def _known(self, digests: list[bytes]) -> dict[bytes, tuple[int, str, int]]:
        found: dict[bytes, tuple[int, str, int]] = {}
        for at in range(0, len(digests), IDS_AT_ONCE):
            some = digests[at : at + IDS_AT_ONCE]
            sql = f"SELECT digest, hash, path, offset FROM contents WHERE digest IN ({','.join('?' * len(some))})"
            rows = self._db.execute(sql, some).fetchall()
            found.update((digest, (content, path, offset)) for digest, content, path, offset in rows)
        return found

    def _number(self) -> int:
        ((count,),) = self._db.execute("SELECT count(*) FROM conflicts").fetchall()
        return int(count)
