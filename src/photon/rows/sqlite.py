"""Stores rows in one SQLite file for the processes of one machine, in WAL mode, with one transaction per call.

Each group of families is a table of its newest cells; cells that differ only in the family share a record, so that
they are read and written together. A trigger moves older versions to a separate table.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from photon.config.versioned_file import other_version
from photon.rows.api import EVER, Answer, Cell, Change, Delete, Families, Groups, Put, Read, RowsFailed

FORMAT = 4
BUSY_S = 30.0  # seconds to wait while another process writes
WAL_BYTES = 64 << 20
NAMES_APART = 8
ROWS_AT_ONCE = 500
ONE_ROW = "row = ?1"
CACHE_KIB = 65_536  # limit of a connection's cache
_Run = Callable[..., sqlite3.Cursor]
_Blob = bytearray  # used for arguments: for bytes sqlite3 searches an adapter each time, which costs a microsecond
_row_of: Callable[[Sequence[Any]], bytes] = itemgetter(0)
_how = itemgetter(1, 2, 3)  # of a Read: all but the row

T = TypeVar("T")


class _Refused(Exception):
    """A change of a transaction was refused: its column does not have the expected value."""


class _Query(NamedTuple):
    """A query of the newest cells."""

    sql: str  # takes the arguments of ``where``, then ``names``
    names: tuple[bytearray, ...]
    families: tuple[bytes, ...]  # families whose (version, value) follow the row and the name in each result
    only: frozenset[bytes] | None  # columns to keep of the result; ``None`` means all


class _Pair(NamedTuple):
    """Statements that write two cells in one record."""

    added: str
    changed: str


class _Plan(NamedTuple):
    """Statements for a change, chosen by its first column."""

    name: bytearray
    added: str
    changed: str
    pairs: dict[bytes, _Pair]  # by the column of a second cell in the same record


class _Table:
    """The SQL table of a group of families, with its statements. Each record has a row's newest cells of one column
    name, for all families of the group."""

    def __init__(self, group: Families) -> None:
        self.families = tuple(group)
        self.name = name = b"".join(group).decode()
        self.older = f"{name}_older"
        self.kept = {family for family, versions in group.items() if versions > 1}
        letters = [family.decode() for family in group]
        cells = ", ".join(f"v{each} INTEGER, {each} BLOB" for each in letters)
        self.schema = (
            f"CREATE TABLE IF NOT EXISTS {name} (row BLOB NOT NULL, name BLOB NOT NULL, {cells}, "
            "PRIMARY KEY (row, name)) WITHOUT ROWID;"
        )
        if self.kept:
            self.schema += (
                f"CREATE TABLE IF NOT EXISTS {self.older} (row BLOB NOT NULL, col BLOB NOT NULL, "
                "version INTEGER NOT NULL, value BLOB NOT NULL, PRIMARY KEY (row, col, version)) WITHOUT ROWID;"
            )
        for each in sorted(family.decode() for family in self.kept):
            self.schema += (
                f"CREATE TRIGGER IF NOT EXISTS {name}_keep_{each} BEFORE UPDATE OF v{each} ON {name} "
                f"WHEN new.v{each} > old.v{each} BEGIN INSERT INTO {self.older} "
                f"VALUES (old.row, CAST('{each}' || old.name AS BLOB), old.v{each}, old.{each}); END;"
            )
        self.put = {
            family: f"INSERT INTO {name} (row, name, v{each}, {each}) VALUES (?, ?, ?, ?) ON CONFLICT (row, name) "
            f"DO UPDATE SET v{each} = excluded.v{each}, {each} = excluded.{each} "
            f"WHERE v{each} IS NULL OR excluded.v{each} >= v{each}"
            for family, each in zip(group, letters, strict=True)
        }
        self.put_older = f"INSERT OR REPLACE INTO {self.older} VALUES (?, ?, ?, ?)"
        self.remove = [f"DELETE FROM {each} WHERE row = ?" for each in (name, self.older)[: 1 + bool(self.kept)]]
        versions = f"SELECT version, value FROM {self.older} WHERE row = ? AND col = ? AND version <= ?"
        self.versions = versions + " ORDER BY version DESC"
        self.version = self.versions + " LIMIT 1"

    def delete(self, run: _Run, row: bytes, column: bytes | None, upto: int) -> None:
        one, given = ("", (row, upto)) if column is None else (" AND name = ?", (row, upto, column[1:]))
        for family in self.families if column is None else (column[:1],):
            where = f"WHERE row = ? AND v{family.decode()} <= ?{one}"
            others = [each.decode() for each in self.families if each != family]
            run(f"DELETE FROM {self.name} {where}" + "".join(f" AND v{each} IS NULL" for each in others), given)
            if others:
                run(f"UPDATE {self.name} SET v{family.decode()} = NULL, {family.decode()} = NULL {where}", given)
        if self.kept:
            one, given = ("", (row, upto)) if column is None else (" AND col = ?", (row, upto, column))
            run(f"DELETE FROM {self.older} WHERE row = ? AND version <= ?{one}", given)

    def change(self, families: bytes, new: bool) -> str:
        """Returns SQL that writes these families' cells if the first is as expected and the others are newer."""
        letters = families.decode()
        if new:
            columns, marks = ", ".join(f"v{each}, {each}" for each in letters), ", ?, ?" * len(letters)
            return f"INSERT OR IGNORE INTO {self.name} ({columns}, row, name) VALUES ({marks[2:]}, ?, ?)"
        cells, first = ", ".join(f"v{each} = ?, {each} = ?" for each in letters), letters[0]
        newer = "".join(f" AND ifnull(v{each} < ?, 1)" for each in letters[1:])
        return f"UPDATE {self.name} SET {cells} WHERE row = ? AND name = ? AND {first} IS ?{newer}"


class SqliteRows:
    """Implements ``api.AtomicRows``."""

    atomic = True
    round_trips = 0

    def __init__(
        self, path: Path, groups: Groups, application: int, *, survives_power: bool, one_thread: bool
    ) -> None:
        """Creates the file if it does not exist. ``groups``: families, each named by a letter. ``application``: the
        program's SQLite application_id. ``survives_power``: syncs each transaction; otherwise kill -9 loses nothing,
        but a power cut may lose the last transactions, each as a whole. ``one_thread``: no two threads use it at
        the same time. Raises RowsFailed."""
        self._path = path
        self._synchronous = "FULL" if survives_power else "NORMAL"
        self._tables = [_Table(group) for group in groups]
        self._table_of = {family: table for table in self._tables for family in table.families}
        self._query = lru_cache(1_000)(self._query_of)
        self._plan = lru_cache(1_000)(self._plan_of)
        self._writing = threading.Lock()
        self._local = threading.local()
        self._opening = threading.Lock()
        self._open: list[tuple[threading.Thread, sqlite3.Connection]] = []
        self._closed = False
        self._writer = self._said(self._connected)
        self._one_thread = one_thread
        self._said(lambda: self._prepare(application))

    def _prepare(self, application: int) -> None:
        run = self._writer.execute
        (objects,) = run(
            "SELECT count(*) FROM sqlite_master"
        ).fetchone()  # checked first, as another process may be creating it
        (found,) = run("PRAGMA application_id").fetchone()
        (version,) = run("PRAGMA user_version").fetchone()
        if found != application and (found or objects):
            raise RowsFailed(f"{self._path}: is another program's database; name another file")
        if found and version != FORMAT:
            raise RowsFailed(f"{self._path}: {other_version(version, FORMAT)}")
        if not found:
            self._write_ahead()
            schema = "".join(each.schema for each in self._tables)
            marks = f"PRAGMA application_id = {application}; PRAGMA user_version = {FORMAT};"
            self._writer.executescript(f"BEGIN IMMEDIATE; {schema} {marks} COMMIT")

        self._made = not found

    def _write_ahead(self) -> None:
        """Switches to write-ahead logging. Retries, because SQLite does not wait for a concurrent switch but fails
        at once."""
        until = time.monotonic() + BUSY_S
        while True:
            try:
                self._writer.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                    raise
                time.sleep(0.01)

    def create(self) -> bool:
        return self._made

    @property
    def _reader(self) -> sqlite3.Connection:
        """This thread's reading connection; it is closed after the thread's end. With ``one_thread``, it is the
        writing connection, whose cache has the writes."""
        if self._one_thread:
            return self._writer
        try:
            return self._local.reader  # type: ignore[no-any-return]
        except AttributeError:
            made = self._local.reader = self._said(self._connected)
            return made

    def _connected(self) -> sqlite3.Connection:
        made = sqlite3.connect(self._path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        for pragma in (
            f"synchronous = {self._synchronous}", f"journal_size_limit = {WAL_BYTES}", f"cache_size = -{CACHE_KIB}",
        ):  # fmt: skip
            made.execute(f"PRAGMA {pragma}")
        with self._opening:
            if self._closed:
                made.close()
                raise RowsFailed(f"{self._path}: is closed")
            for thread, connection in self._open:
                if not thread.is_alive():
                    connection.close()
            self._open = [each for each in self._open if each[0].is_alive()]
            thread = (
                threading.current_thread() if self._open else threading.main_thread()
            )  # thread of the writing connection
            self._open.append((thread, made))
        return made

    # -- reading -----------------------------------------------------------------------------------------------------
    def read(self, reads: Sequence[Read]) -> list[list[Cell]]:
        # The writing connection's cache has its own writes; another one's is emptied by them.
        free = not self._one_thread and self._writing.acquire(blocking=False)
        try:
            run = (self._writer if free else self._reader).execute
            if len(reads) == 1:
                row, columns, upto, every = reads[0]
                return self._read(run, (row,), columns, upto, every)
            found: list[list[Cell]] = []
            for alike, some in groupby(reads, _how):
                rows = [each.row for each in some]
                for at in range(0, len(rows), ROWS_AT_ONCE):
                    found += self._read(run, rows[at : at + ROWS_AT_ONCE], *alike)
            return found
        except sqlite3.Error as error:
            raise self._failed(error) from error
        finally:
            if free:
                self._writing.release()

    def _read(
        self, run: _Run, rows: Sequence[bytes], columns: Sequence[bytes], upto: int = EVER, every: bool = False
    ) -> list[list[Cell]]:
        found: dict[bytes, list[Cell]]
        if len(rows) == 1:  # the usual case, without loops
            query = self._query(tuple(columns), ONE_ROW)
            arguments, found = (_Blob(rows[0]), *query.names), {rows[0]: []}
        else:
            query = self._query(tuple(columns), f"row IN ({_marks(rows)})")
            arguments, found = (*map(_Blob, rows), *query.names), {row: [] for row in rows}
        older = every
        for record in run(query.sql, arguments).fetchall():  # one moment
            older = _newest(query, record, upto, found[record[0]]) or older
        if older:
            for cells in found.values():
                cells.clear()
            run("BEGIN")
            try:
                for record in run(query.sql, arguments).fetchall():
                    found[record[0]] += self._seen(run, query, record, upto, every)
            finally:
                run("COMMIT")
        return [found[row] for row in rows]

    def scan(
        self, begin: bytes, end: bytes | None, columns: Sequence[bytes], limit: int, *, upto: int = EVER,
        every: bool = False,
    ) -> list[tuple[bytes, list[Cell]]]:  # fmt: skip
        query = self._query(tuple(columns), "row >= ?" if end is None else "row >= ? AND row < ?")
        bounds = [begin] if end is None else [begin, end]

        def page() -> list[tuple[bytes, list[Cell]]]:
            found: list[tuple[bytes, list[Cell]]] = []
            run = self._reader.execute
            run("BEGIN")
            try:
                for row, records in groupby(run(f"{query.sql} ORDER BY row", (*bounds, *query.names)), _row_of):
                    seen = [cell for each in records for cell in self._seen(run, query, each, upto, every)]
                    if seen:
                        found.append((row, seen))
                        if len(found) == limit:
                            break
            finally:
                run("COMMIT")
            return found

        return self._said(page)

    def _seen(self, run: _Run, query: _Query, record: Sequence[Any], upto: int, every: bool) -> list[Cell]:
        """Returns a record's visible cells."""
        found: list[Cell] = []
        newest: list[Cell] = []
        _newest(query, record, upto, newest)
        for cell in newest:
            older = cell.version > upto
            if not older:
                found.append(cell)
            table = self._table_of[cell.column[:1]]
            if cell.column[:1] in table.kept and (every or older):
                select = table.versions if every else table.version
                found += [Cell(cell.column, *each) for each in run(select, (record[0], cell.column, upto))]
        return found

    def _query_of(self, columns: tuple[bytes, ...], where: str) -> _Query:
        table = self._table_of[columns[0][:1]]
        families = tuple(family for family in table.families if any(each[:1] == family for each in columns))
        whole = any(len(each) == 1 for each in columns)
        names = () if whole else tuple(dict.fromkeys(each[1:] for each in columns))
        cells = ", ".join(f"v{each}, {each}" for each in (family.decode() for family in families))
        select = f"SELECT row, name, {cells} FROM {table.name} WHERE {where}"
        if 0 < len(names) <= NAMES_APART and where == ONE_ROW:  # cheaper than IN
            sql = " UNION ALL ".join(f"{select} AND name = ?{number}" for number in range(2, len(names) + 2))
        else:
            sql = f"{select} AND name IN ({_marks(names)})" if names else select
        exact = {family + name for family in families for name in names or (b"",)} == set(columns)
        return _Query(sql, tuple(map(_Blob, names)), families, None if exact else frozenset(columns))

    # -- writing -----------------------------------------------------------------------------------------------------
    def change(self, changes: Sequence[Change]) -> list[Answer]:
        try:
            alone = len(changes) == 1 and len(changes[0].cells) == 1  # then each statement is a transaction
            return self._written(lambda run: [self._change(run, each) for each in changes], alone=alone)
        except RowsFailed as failed:
            return [failed] * len(changes)

    def decide(self, changes: Sequence[Change], *, wait: bool = True) -> list[Answer]:
        def decided(run: _Run) -> list[Answer]:
            if not self._change(run, changes[0]):
                return [False] * len(changes)
            return [True, *(self._change(run, each) for each in changes[1:])]

        try:
            return self._written(decided)
        except RowsFailed as failed:
            return [failed] * len(changes)

    def change_all(
        self, row: bytes, columns: Sequence[bytes], changes: Callable[[list[Cell]], Sequence[Change]]
    ) -> Answer:
        def changed(run: _Run) -> bool:
            [cells] = self._read(run, (row,), columns)
            for each in changes(cells):
                if not self._change(run, each):
                    raise _Refused
            return True

        try:
            return self._written(changed)
        except _Refused:
            return False
        except RowsFailed as failed:
            return failed

    def commit(self, change: Change, puts: Sequence[Put]) -> bool:
        def committed(run: _Run) -> bool:
            done = self._change(run, change)
            if done:
                self._put(puts)
            return done

        return self._written(committed)

    def put(self, puts: Sequence[Put]) -> None:
        self._written(lambda run: self._put(puts))

    def delete(self, deletes: Sequence[Delete]) -> None:
        def deleted(run: _Run) -> None:
            for row, column, upto in deletes:
                for table in self._tables if column is None else (self._table_of[column[:1]],):
                    table.delete(run, row, column, upto)

        self._written(deleted)

    def flush(self) -> None: ...

    def close(self) -> None:
        with self._opening:
            self._closed = True
            for _, connection in self._open:
                connection.close()
            self._open.clear()

    def _change(self, run: _Run, change: Change) -> bool:
        row, cells, expected = _Blob(change.row), change.cells, change.expected
        first, plan = cells[0], self._plan(cells[0].column)
        where = (row, plan.name, None if expected is None else _Blob(expected))
        written = (first.version, _Blob(first.value))
        if len(cells) > 1 and (pair := plan.pairs.get(cells[1].column)) is not None:
            second = cells[1]
            both = (*written, second.version, _Blob(second.value))
            if (expected is None and run(pair.added, (*both, row, plan.name)).rowcount == 1) or run(
                pair.changed, (*both, *where, second.version)
            ).rowcount == 1:
                return self._rest(run, row, cells[2:])
            # not as expected, or the second is not newer than the cell that it would replace
        elif expected is None and run(plan.added, (*written, row, plan.name)).rowcount == 1:
            return self._rest(run, row, cells[1:])
        return run(plan.changed, (*written, *where)).rowcount == 1 and self._rest(run, row, cells[1:])

    def _plan_of(self, column: bytes) -> _Plan:
        family, name = column[:1], column[1:]
        table = self._table_of[family]
        pairs = {
            other + name: _Pair(table.change(family + other, True), table.change(family + other, False))
            for other in table.families
            if other != family
        }
        return _Plan(_Blob(name), table.change(family, True), table.change(family, False), pairs)

    def _rest(self, run: _Run, row: bytearray, cells: Sequence[Cell]) -> bool:
        for cell in cells:
            self._write(run, row, cell)
        return True

    def _write(self, run: _Run, row: bytearray, cell: Cell) -> None:
        family = cell.column[:1]
        table = self._table_of[family]
        put = (row, _Blob(cell.column[1:]), cell.version, _Blob(cell.value))
        if not run(table.put[family], put).rowcount and family in table.kept:
            run(table.put_older, (row, cell.column, cell.version, cell.value))

    def _put(self, puts: Sequence[Put]) -> None:
        db = self._writer
        if gone := [(put.row,) for put in puts if put.cells is None]:
            for table in self._tables:
                for statement in table.remove:
                    db.executemany(statement, gone)
        if len(self._table_of) == 1 and not self._tables[0].kept:
            [statement] = self._tables[0].put.values()
            db.executemany(
                statement,
                (
                    (_Blob(put.row), _Blob(cell.column[1:]), cell.version, _Blob(cell.value))
                    for put in puts
                    for cell in put.cells or ()
                ),
            )
            return
        for put in puts:
            for cell in put.cells or ():
                self._write(db.execute, _Blob(put.row), cell)

    def _written(self, work: Callable[[_Run], T], *, alone: bool = False) -> T:
        """Runs ``work`` in a transaction; if ``alone``, without one."""
        db = self._writer
        run = db.execute
        with self._writing:
            try:
                if alone:
                    return work(run)
                run("BEGIN IMMEDIATE")
                done = work(run)
                run("COMMIT")
            except BaseException as error:
                if db.in_transaction:
                    run("ROLLBACK")
                if isinstance(error, sqlite3.Error):
                    raise self._failed(error) from error
                raise
        return done

    def _failed(self, error: sqlite3.Error) -> RowsFailed:
        return RowsFailed(f"{self._path}: {'is closed' if self._closed else error}")

    def _said(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except sqlite3.Error as error:
            raise self._failed(error) from error


def _newest(query: _Query, record: Sequence[Any], upto: int, cells: list[Cell]) -> bool:
    """Adds a record's newest cells to ``cells``; returns True if one of them is newer than ``upto``."""
    name, newer, at = record[1], False, 2
    for family in query.families:
        if (version := record[at]) is not None:
            column = family + name
            if query.only is None or column in query.only or family in query.only:
                cells.append(Cell(column, version, record[at + 1]))
                newer = newer or version > upto
        at += 2
    return newer


def _marks(given: Sequence[object]) -> str:
    return ", ".join("?" * len(given))
