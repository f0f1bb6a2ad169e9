"""The local part of the map on HBase: one SQLite database, ``hbase.db``.

HBase may lose acknowledged rows (see hbase_file_map.py), so everything that depends on its rows must be revertible:
each log's read position, the state of each process in it, and the totals. They are kept as *versions*, one per
checkpoint: within a checkpoint a version is overwritten, and ``take_back`` deletes the versions of later checkpoints.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from photon.adapters.contract import LogFile
from photon.eventstore.catalog import CatalogDatabase, open_catalog
from photon.eventstore.file_map import MappedLog, MapTotals
from photon.eventstore.hbase.schema import CHECKPOINTS_KEPT
from photon.eventstore.sparse import ProcessState

APPLICATION_ID = 0x50484D48  # 'PHMH'
_SCHEMA = """
CREATE TABLE settings (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE present (one INTEGER PRIMARY KEY CHECK (one = 1), life BLOB NOT NULL, checkpoint INTEGER NOT NULL,
                      mark BLOB, slot INTEGER NOT NULL, exact INTEGER NOT NULL);
CREATE TABLE checkpoints (number INTEGER PRIMARY KEY, mark BLOB NOT NULL);
CREATE TABLE logs (number INTEGER PRIMARY KEY, identity TEXT NOT NULL UNIQUE, path TEXT NOT NULL,
                   header BLOB NOT NULL);
CREATE TABLE reads (log INTEGER NOT NULL, checkpoint INTEGER NOT NULL, read_to INTEGER NOT NULL,
                    rewritten INTEGER NOT NULL, proof BLOB NOT NULL, PRIMARY KEY (log, checkpoint)) WITHOUT ROWID;
CREATE TABLE processes (log INTEGER NOT NULL, prefix BLOB NOT NULL, checkpoint INTEGER NOT NULL,
                        last INTEGER NOT NULL, entry INTEGER NOT NULL, place INTEGER NOT NULL,
                        PRIMARY KEY (log, prefix, checkpoint)) WITHOUT ROWID;
CREATE INDEX processes_by_checkpoint ON processes (checkpoint);
CREATE TABLE totals (checkpoint INTEGER PRIMARY KEY, events INTEGER NOT NULL, bad INTEGER NOT NULL,
                     bytes INTEGER NOT NULL, duplicates INTEGER NOT NULL);
"""


@dataclass(frozen=True, slots=True)
class Present:
    """The map's present state. ``mark``: the last commit's mark, in ``slot`` of each region; ``None`` before the
    first commit.

    ``exact``: True if the table may have dense entries of canonical ids.
    """

    life: bytes
    checkpoint: int  # the open one
    mark: bytes | None
    slot: int
    exact: bool


class HBaseCatalog(CatalogDatabase):
    def __init__(self, path: Path, settings: Mapping[str, bytes], new_life: bytes) -> None:
        """Opens the database. A new one gets ``new_life``.

        Raises FileMapError if an existing one is of another version, made with other settings, or damaged.
        """
        db = open_catalog(
            path,
            settings,
            schema=_SCHEMA,
            application_id=APPLICATION_ID,
            first=[("INSERT INTO present VALUES (1, ?, 1, NULL, 0, 0)", (new_life,))],
        )
        super().__init__(path, db)

    # -- reading ---------------------------------------------------------------------------------------------------
    def present(self) -> Present:
        life, checkpoint, mark, slot, exact = self._one("SELECT life, checkpoint, mark, slot, exact FROM present")
        return Present(life, checkpoint, mark, slot, bool(exact))

    def checkpoints(self) -> dict[bytes, int]:
        """Returns the number of each closed checkpoint, by mark."""
        with self._lock:
            return dict(self._db.execute("SELECT mark, number FROM checkpoints"))

    def logs(self) -> list[MappedLog]:
        """Returns all logs, by number, without gaps. ``end`` is 0 if nothing of a log is known to be read."""
        with self._lock:
            rows = self._db.execute(
                "SELECT number, identity, path, header, coalesce(read_to, 0), coalesce(rewritten, 0),"
                " coalesce(proof, x'') FROM logs LEFT JOIN reads ON log = number AND checkpoint ="
                " (SELECT max(checkpoint) FROM reads WHERE log = number) ORDER BY number"
            ).fetchall()
        return [MappedLog(n, identity, LogFile(*file), end, bool(r), p) for n, identity, *file, end, r, p in rows]

    def totals(self) -> MapTotals:
        """Returns the totals, including the open transaction."""
        row = self._one("SELECT events, bad, bytes, duplicates FROM totals ORDER BY checkpoint DESC LIMIT 1")
        return MapTotals(*(row or (0, 0, 0, 0)))

    def process(self, log: int, prefix: bytes) -> ProcessState | None:
        """Returns the state of a process in a log, or ``None`` if it has not occurred there."""
        sql = "SELECT last, entry, place FROM processes WHERE log = ? AND prefix = ? ORDER BY checkpoint DESC LIMIT 1"
        row = self._one(sql, log, prefix)
        return ProcessState(*row) if row else None

    # -- changing, within the open transaction ---------------------------------------------------------------------
    def put_log(self, checkpoint: int, log: MappedLog) -> None:
        with self._changing() as db:
            db.execute(
                "INSERT INTO logs VALUES (?, ?, ?, ?) ON CONFLICT (number) DO UPDATE SET path = excluded.path,"
                " header = excluded.header",
                (log.number, log.identity, log.file.path, log.file.header),
            )
            db.execute(
                "INSERT OR REPLACE INTO reads VALUES (?, ?, ?, ?, ?)",
                (log.number, checkpoint, log.end, log.rewritten, log.proof),
            )

    def put_processes(self, checkpoint: int, log: int, states: Mapping[bytes, ProcessState]) -> None:
        with self._changing() as db:
            db.executemany(
                "INSERT OR REPLACE INTO processes VALUES (?, ?, ?, ?, ?, ?)",
                (
                    (log, prefix, checkpoint, s.last_micros, s.entry_micros, s.entry_offset)
                    for prefix, s in states.items()
                ),
            )

    def add_totals(self, checkpoint: int, events: int, bad: int, size: int, duplicates: int) -> None:
        now = self.totals()
        with self._changing() as db:
            db.execute(
                "INSERT OR REPLACE INTO totals VALUES (?, ?, ?, ?, ?)",
                (
                    checkpoint,
                    now.events + events,
                    now.bad_records + bad,
                    now.bytes_read + size,
                    now.duplicates + duplicates,
                ),
            )

    def commit(self, mark: bytes, slot: int, *, exact: bool, closes: bool) -> None:
        """Notes durably that all regions have this mark. ``closes``: the commit ends the checkpoint."""
        with self._changing() as db:
            db.execute("UPDATE present SET mark = ?, slot = ?, exact = exact OR ?", (mark, slot, exact))
            if closes:
                self._close_checkpoint(mark)
            db.execute("COMMIT")

    def _close_checkpoint(self, mark: bytes) -> None:
        (number,) = self._db.execute("SELECT checkpoint FROM present").fetchone()
        self._db.execute("INSERT INTO checkpoints VALUES (?, ?)", (number, mark))
        self._db.execute("UPDATE present SET checkpoint = checkpoint + 1")
        floor = number - CHECKPOINTS_KEPT + 1
        self._db.execute("DELETE FROM checkpoints WHERE number < ?", (floor,))
        # The newest version of each item up to the floor stays.
        for table, same in (
            ("totals", "1"),
            ("reads", "newer.log = {0}.log"),
            ("processes", "newer.log = {0}.log AND newer.prefix = {0}.prefix"),
        ):
            self._db.execute(
                f"DELETE FROM {table} WHERE checkpoint < ? AND EXISTS (SELECT 1 FROM {table} AS newer WHERE"
                f" {same.format(table)} AND newer.checkpoint > {table}.checkpoint AND newer.checkpoint <= ?)",
                (floor, floor),
            )

    def take_back(self, checkpoint: int) -> None:
        """Restores the state at the close of ``checkpoint``, or with 0 the state before anything was read. Durable.

        Numbers of checkpoints and logs are never reused. A log rewritten since then is read from its beginning, as
        the start of its new bytes is no longer known.
        """
        self.drop_uncommitted()
        with self._changing() as db:
            rewritten = db.execute("SELECT DISTINCT log FROM reads WHERE checkpoint > ? AND rewritten", (checkpoint,))
            again = [log for (log,) in rewritten]
            for table in ("reads", "processes", "totals"):
                db.execute(f"DELETE FROM {table} WHERE checkpoint > ?", (checkpoint,))
            db.execute("DELETE FROM checkpoints WHERE number > ?", (checkpoint,))
            mark = db.execute("SELECT mark FROM checkpoints WHERE number = ?", (checkpoint,)).fetchone()
            db.execute("UPDATE present SET checkpoint = checkpoint + 1, mark = ?", mark or (None,))
            (now,) = db.execute("SELECT checkpoint FROM present").fetchone()
            db.executemany("INSERT OR REPLACE INTO reads VALUES (?, ?, 0, 1, x'')", ((log, now) for log in again))
            db.execute("COMMIT")
