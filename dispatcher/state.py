"""The dispatcher's durable state: one SQLite database, changed by one transaction at a time.

Offsets, retries, ledger and lines to export change together. So, despite crashes, each event is counted once; it is
either before its log's offset and has a verdict or a row in the retry store, or is read again. WAL with
synchronous=NORMAL: kill -9 loses nothing, a power cut may lose the last transactions as a whole, after which those
events are read again. Transactions with lines to export are synced, because readers may see those lines.
"""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from photon.adapters.contract import LogFile
from photon.adapters.logs.api import LogPosition
from photon.batch.columns import split_digests
from photon.batch.events import Events
from photon.batch.files import intern_files
from photon.dispatcher.database import (
    Transaction,
    lock_state,
    open_database,
    opened_file,
    read_ledger_from,
    unusable,
)
from photon.dispatcher.errors import RuleError
from photon.dispatcher.events import Export
from photon.dispatcher.ledger import Ledger, split_cell
from photon.dispatcher.open_events import NOTHING_STORED, StoredEvents
from photon.dispatcher.replay.coverage import Coverage, Span
from photon.dispatcher.retry import COMPLETE_NS
from photon.dispatcher.status import OldRow
from photon.joiner.verdicts import line_tag

FILE_CACHE = 4096
IDS_AT_ONCE = 500

# How far a joiner's redo log is durable: a segment, and bytes of it; ``None`` if unknown.
Reached = Callable[[], tuple[int, int] | None]

_MISSING = "SELECT digest, generation FROM reopened WHERE missing"
_RETRY_COLUMNS = (
    "id, event_id, digest, event_time_ns, key, record, file, offset, generation, "
    "first_read_ns, attempts, next_try_ns, trigger_ns"
)


@dataclass(slots=True)
class Changes:
    """The changes of one transaction. ``cells``: ledger counts to add (see ``ledger.cell``)."""

    positions: dict[str, LogPosition] = field(default_factory=dict)
    cells: Counter[int] = field(default_factory=Counter)
    stored: StoredEvents = NOTHING_STORED  # new rows of the retry store
    updated: StoredEvents = NOTHING_STORED
    deleted: list[int] = field(default_factory=list)  # rows of the retry store
    freed: int = 0  # bytes of these
    exports: list[Export] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)  # the parts that were read, and their times
    # The logs in ``positions`` whose bytes differ from the counted ones, and the end of the counted ones.
    rewritten: dict[str, int] = field(default_factory=dict)
    # Logs that diverged from the counted ones: nothing after ``positions`` was processed.
    diverged: set[str] = field(default_factory=set)
    # Further changes: SQL and its arguments, on the replay's tables.
    also: list[tuple[str, Sequence[object]]] = field(default_factory=list)

    def __bool__(self) -> bool:
        found = (self.positions, self.cells, self.stored, self.updated, self.deleted, self.exports)
        return any(found)


class State:
    """The open database, held by one process at a time."""

    # Position of the only joiner. A verdict is counted once its record is in that log: a log that does not reach this
    # far is older than this state.
    reached: Reached = staticmethod(lambda: None)

    def __init__(
        self, path: Path, *, rule: bytes | None = None, others: Sequence[Path] = (), wait_s: float = 0.0
    ) -> None:
        """Opens or creates the state. ``rule``: identifies how ids are derived from records; a different one is
        refused.

        ``others``: databases of the other dispatchers of this datacentre; ``wait_s``: longest wait for another
        process to release the lock. Raises StateError.
        """
        self.path = path
        self._others = others
        self._lock = lock_state(path, wait_s)
        try:
            self._db = open_database(path)
        except sqlite3.Error as error:
            self._unlock()
            raise unusable(path, error) from None
        except BaseException:
            self._unlock()
            raise
        self._files: dict[int, LogFile] = {}
        self._file_ids: dict[LogFile, int] = {}
        self._coverage = Coverage()
        self._reached: tuple[int, int] | None = None
        try:
            self._check_rule(rule)
            self.retry_bytes = self._number("retry_bytes")
            self.retry_rows = self._number("retry_rows")
            self.clock_ns = self._number("clock_ns")  # wall clock at the previous commit; 0 if unknown
            self.last_row_at_open = self.last_row()
        except BaseException:
            self._db.close()
            self._unlock()
            raise

    def close(self) -> None:
        """Closes the database. Uncommitted changes are lost."""
        self._db.close()
        self._unlock()

    def _unlock(self) -> None:
        os.close(self._lock)

    # -- reading -----------------------------------------------------------------------------------------------
    @property
    def database(self) -> sqlite3.Connection:
        """The database, for reading the tables of replays. Change them with ``Changes.also``."""
        return self._db

    def positions(self) -> list[LogPosition]:
        return [LogPosition(*row) for row in self._all("SELECT identity, path, offset, header, proof FROM logs")]

    def highs(self) -> dict[str, int]:
        """Returns, for each log, the highest offset ever committed."""
        return dict(self._all("SELECT identity, high FROM logs"))

    def rewritten(self) -> set[str]:
        """Returns logs that no longer hold the bytes counted up to ``highs``, and start to differ at an unknown
        place.
        """
        return {identity for (identity,) in self._all("SELECT identity FROM logs WHERE rewritten")}

    def ledger(self) -> Ledger:
        return read_ledger_from(self._db)

    def counts(self) -> dict[int, int]:
        """Returns committed counts by verdict, without pending ones."""
        return dict(self._all("SELECT verdict, sum(count) FROM ledger GROUP BY verdict"))

    def due_ids(self, now_ns: int, limit: int) -> list[int]:
        """Returns the ids of rows whose next try is due, longest due first."""
        sql = "SELECT id FROM retries WHERE next_try_ns <= ? ORDER BY next_try_ns LIMIT ?"
        return [row_id for (row_id,) in self._all(sql, now_ns, limit)]

    def triggered_ids(self, read_past_ns: int, limit: int, *, after_ns: int = -(2**63)) -> list[int]:
        """Returns the ids of rows that wait for a point in (``after_ns``, ``read_past_ns``] of the primary logs."""
        where = "trigger_ns > ? AND trigger_ns <= ?"
        sql = f"SELECT id FROM retries WHERE {where} ORDER BY trigger_ns LIMIT ?"
        return [row_id for (row_id,) in self._all(sql, after_ns, read_past_ns, limit)]

    def ids_of_keys(self, keys: Sequence[bytes], limit: int) -> list[int]:
        marks = ",".join("?" * len(keys))
        sql = f"SELECT id FROM retries WHERE key IN ({marks}) LIMIT ?"
        return [row_id for (row_id,) in self._all(sql, *keys, limit)]

    def lines_that_wait(self, keys: Sequence[bytes]) -> set[tuple[bytes, int]]:
        """Returns (digest, ``line_tag``) of the rows that wait for one of these primary events.

        Includes rows of the other dispatchers: a row may not have moved with its log if that was renamed before.
        """
        try:
            found = _lines_that_wait(self._db, keys)
        except sqlite3.Error as error:
            raise unusable(self.path, error) from None
        for other in filter(Path.exists, self._others):
            with opened_file(other) as db:
                found |= _lines_that_wait(db, keys)
        return found

    def missing_everywhere(self) -> set[tuple[bytes, int]]:
        """Returns the reopened ids that no dispatcher of this datacentre has found in its logs."""
        missing = set(self._all(_MISSING))
        for other in filter(Path.exists, self._others):
            with opened_file(other) as db:
                missing &= set(db.execute(_MISSING).fetchall())
        return missing

    def keys_behind(self, row_id: int, limit: int) -> list[tuple[int, bytes]]:
        """Returns (id, key) of the rows after row ``row_id``, in order."""
        sql = "SELECT id, key FROM retries WHERE id > ? ORDER BY id LIMIT ?"
        return self._all(sql, row_id, limit)

    def last_row(self) -> int:
        """Returns the greatest row id in the retry store; 0 if there is no row."""
        return self._one("SELECT coalesce(max(id), 0) FROM retries")

    def far_ids(self, after: tuple[int, int], last: int, limit: int) -> list[tuple[int, int]]:
        """Returns (next try, id) of rows after ``after`` with ids up to ``last``, in this order."""
        sql = (
            "SELECT next_try_ns, id FROM retries WHERE (next_try_ns, id) > (?, ?) AND id <= ? "
            "ORDER BY next_try_ns, id LIMIT ?"
        )
        return self._all(sql, *after, last, limit)

    def rows(self, ids: Sequence[int]) -> StoredEvents:
        """Returns these rows of the retry store, in this order. Omits ids that do not exist."""
        found: dict[int, tuple[Any, ...]] = {}
        for at in range(0, len(ids), IDS_AT_ONCE):
            some = ids[at : at + IDS_AT_ONCE]
            marks = ",".join("?" * len(some))
            rows = self._all(f"SELECT {_RETRY_COLUMNS} FROM retries WHERE id IN ({marks})", *some)
            found.update((row[0], row) for row in rows)
        rows = [found[row_id] for row_id in ids if row_id in found]
        columns = tuple(zip(*rows, strict=True)) or ((),) * (_RETRY_COLUMNS.count(",") + 1)
        row_ids, event_ids, digests, times, keys, records, of_file, offsets, generations, *rest = columns
        files, file_index = intern_files([self._file(file) for file in of_file])
        first_read_ns, attempts, next_try_ns, trigger_ns = (np.array(column, np.int64) for column in rest)
        events = Events(
            files=files,
            file_index=file_index,
            offsets=np.array(offsets, np.int64),
            times=np.array(times, np.int64),
            digests=b"".join(digests),
            keys=keys,
            ids=event_ids,
            records=records,
            as_of=np.zeros(len(rows), np.int64),
            generations=np.array(generations, np.uint32),
        )
        return StoredEvents(np.array(row_ids, np.int64), events, first_read_ns, attempts, next_try_ns, trigger_ns)

    def waits_for_something(self, settled_ns: int) -> bool:
        """True if some row may still get a verdict in this run."""
        return any(
            self._one(f"SELECT exists(SELECT 1 FROM retries WHERE {column} < ?)", settled_ns)
            for column in ("next_try_ns", "trigger_ns")
        )

    def oldest_rows(self, limit: int) -> list[OldRow]:
        """Returns the oldest rows of the retry store."""
        columns = "event_id, event_time_ns, file, offset, first_read_ns, attempts, next_try_ns, trigger_ns"
        rows = self._all(f"SELECT {columns} FROM retries ORDER BY id LIMIT ?", limit)
        return [OldRow(event_id, time_ns, self._file(file).path, *rest) for event_id, time_ns, file, *rest in rows]

    def next_trigger_ns(self, after_ns: int) -> int | None:
        """Returns the first point of the primary logs after ``after_ns`` that a row waits for, if any."""
        sql = "SELECT min(trigger_ns) FROM retries WHERE trigger_ns > ? AND trigger_ns < ?"
        rows = self._all(sql, after_ns, COMPLETE_NS)
        return rows[0][0] if rows else None

    def oldest_first_read_ns(self) -> int | None:
        rows = self._all("SELECT first_read_ns FROM retries ORDER BY id LIMIT 1")
        return rows[0][0] if rows else None

    def outbox(self, limit: int) -> list[tuple[int, Export]]:
        """Returns the first lines to export, with their numbers."""
        rows = self._all("SELECT id, log, line FROM outbox ORDER BY id LIMIT ?", limit)
        return [(row, Export(log, line)) for row, log, line in rows]

    def exported_upto(self) -> int:
        """Returns the number of the last line that was exported; -1 if there is none."""
        return self._one("SELECT coalesce(max(value), -1) FROM meta WHERE name = 'exported'")

    # -- changing ----------------------------------------------------------------------------------------------
    def commit(self, changes: Changes) -> None:
        """Commits atomically. Sets the ``row_ids`` of new rows. After a StateError the process must end."""
        try:
            if changes.exports:
                self._db.execute("PRAGMA synchronous=FULL")
            with Transaction(self._db, self.path):
                self._note_reached()
                self._diverge(changes.diverged)
                self._put_positions(changes.positions, changes.rewritten)
                self._coverage.put(self._db, changes.spans)
                for sql, arguments in changes.also:
                    self._db.execute(sql, arguments)
                self._add_cells(changes.cells)
                self._change_retries(changes)
                self._db.executemany(
                    "INSERT INTO outbox (log, line) VALUES (?, ?)", [(e.log, e.line) for e in changes.exports]
                )
            if changes.exports:
                self._db.execute("PRAGMA synchronous=NORMAL")
        except sqlite3.Error as error:
            raise unusable(self.path, error) from None

    def _note_reached(self) -> None:
        reached = self.reached()
        if reached is not None and reached != self._reached:
            self._db.execute("INSERT OR REPLACE INTO meta VALUES ('reached', ?)", (b"%d %d" % reached,))
            self._reached = reached

    def exported(self, upto: int) -> None:
        """Removes outbox lines up to number ``upto``, which are durable in the export files."""
        with Transaction(self._db, self.path):
            self._db.execute("DELETE FROM outbox WHERE id <= ?", (upto,))
            self._db.execute("INSERT OR REPLACE INTO meta VALUES ('exported', ?)", (upto,))

    def number_behind(self, upto: int) -> bool:
        """Makes sure that future lines get numbers above ``upto``. Returns True if a change was needed."""
        with Transaction(self._db, self.path):
            given = self._one("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'outbox'")
            if upto <= given:
                return False
            self._db.execute("DELETE FROM sqlite_sequence WHERE name = 'outbox'")
            self._db.execute("INSERT INTO sqlite_sequence VALUES ('outbox', ?)", (upto,))
            return True

    def _diverge(self, identities: Iterable[str]) -> None:
        self._db.executemany("UPDATE logs SET high = 0 WHERE identity = ?", [(each,) for each in identities])

    def _put_positions(self, positions: Mapping[str, LogPosition], rewritten: Mapping[str, int]) -> None:
        self._db.executemany(
            "INSERT INTO logs (identity, path, header, offset, high, proof, rewritten) VALUES (?, ?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (identity) DO UPDATE SET path = excluded.path, header = excluded.header, "
            "offset = excluded.offset, high = max(high, excluded.high), proof = excluded.proof, "
            "rewritten = excluded.rewritten",
            [
                (
                    p.identity,
                    p.path,
                    p.header,
                    p.offset,
                    max(p.offset, rewritten.get(p.identity, 0)),
                    p.proof,
                    p.identity in rewritten,
                )
                for p in positions.values()
            ],
        )

    def _add_cells(self, cells: Mapping[int, int]) -> None:
        rows = [(*split_cell(number), count) for number, count in cells.items() if count]
        self._db.executemany(
            "INSERT INTO ledger VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET count = count + excluded.count",
            [(hour, int(verdict), count) for hour, verdict, count in rows],
        )

    def _change_retries(self, changes: Changes) -> None:
        stored, updated = changes.stored, changes.updated
        if len(stored):
            first = self._one("SELECT coalesce(max(seq), 0) + 1 FROM sqlite_sequence WHERE name = 'retries'")
            stored.row_ids[:] = np.arange(first, first + len(stored))
            events = stored.events
            self._db.executemany(
                "INSERT INTO retries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                zip(
                    stored.row_ids.tolist(),
                    events.ids,
                    split_digests(events.digests),
                    events.times.tolist(),
                    events.keys,
                    events.records,
                    map(self._file_id, events.of_file()),
                    events.offsets.tolist(),
                    events.generations.tolist(),
                    stored.first_read_ns.tolist(),
                    stored.attempts.tolist(),
                    stored.next_try_ns.tolist(),
                    stored.trigger_ns.tolist(),
                    strict=True,
                ),
            )
        self._db.executemany(
            "UPDATE retries SET first_read_ns = ?, attempts = ?, next_try_ns = ?, trigger_ns = ? WHERE id = ?",
            zip(
                updated.first_read_ns.tolist(),
                updated.attempts.tolist(),
                updated.next_try_ns.tolist(),
                updated.trigger_ns.tolist(),
                updated.row_ids.tolist(),
                strict=True,
            ),
        )
        self._db.executemany("DELETE FROM retries WHERE id = ?", zip(changes.deleted, strict=True))
        if len(stored) or changes.deleted:
            grown = stored.bytes() - changes.freed
            more = len(stored) - len(changes.deleted)
            self.retry_bytes += grown
            self.retry_rows += more
            self._db.executemany(
                "INSERT INTO meta VALUES (?, ?) ON CONFLICT DO UPDATE SET value = value + excluded.value",
                [("retry_bytes", grown), ("retry_rows", more)],
            )

    def _file_id(self, file: LogFile) -> int:
        known = self._file_ids.get(file)
        if known is None:
            self._db.execute("INSERT OR IGNORE INTO files (path, header) VALUES (?, ?)", (file.path, file.header))
            known = self._one("SELECT id FROM files WHERE path = ? AND header = ?", file.path, file.header)
            if len(self._file_ids) >= FILE_CACHE:
                self._file_ids.clear()
            self._file_ids[file] = known
        return known

    # -- helpers -----------------------------------------------------------------------------------------------
    def _file(self, file_id: int) -> LogFile:
        known = self._files.get(file_id)
        if known is None:
            rows = self._all("SELECT path, header FROM files WHERE id = ?", file_id)
            if not rows:
                raise unusable(self.path, sqlite3.DatabaseError(f"file {file_id} of the retry store is missing"))
            if len(self._files) >= FILE_CACHE:
                self._files.clear()
            known = self._files[file_id] = LogFile(*rows[0])
        return known

    def _all(self, sql: str, *arguments: object) -> list[tuple]:  # type: ignore[type-arg]  # as SQLite gives them
        try:
            return self._db.execute(sql, arguments).fetchall()
        except sqlite3.Error as error:
            raise unusable(self.path, error) from None

    def _one(self, sql: str, *arguments: object) -> int:
        return int(self._all(sql, *arguments)[0][0])

    def _number(self, name: str) -> int:
        rows = self._all("SELECT value FROM meta WHERE name = ?", name)
        return int(rows[0][0]) if rows else 0

    def _check_rule(self, rule: bytes | None) -> None:
        if rule is None:
            return
        rows = self._all("SELECT value FROM meta WHERE name = 'rule'")
        if not rows:
            with Transaction(self._db, self.path):
                self._db.execute("INSERT INTO meta VALUES ('rule', ?)", (rule,))
        elif bytes(rows[0][0]) != rule:
            raise RuleError(
                str(self.path),
                "was written under another key file or other rules for deriving id, key and time from a record",
                "restore the key and the join's configuration and adapter, or start with a new output and state "
                "directory",
            )


def _lines_that_wait(db: sqlite3.Connection, keys: Sequence[bytes]) -> set[tuple[bytes, int]]:
    found: set[tuple[bytes, int]] = set()
    for at in range(0, len(keys), IDS_AT_ONCE):
        some = keys[at : at + IDS_AT_ONCE]
        rows = db.execute(
            "SELECT digest, record, offset, path FROM retries JOIN files ON files.id = file "
            f"WHERE key IN ({','.join('?' * len(some))})",
            some,
        )
        found |= {(digest, line_tag(record, offset, path)) for digest, record, offset, path in rows}
    return found
