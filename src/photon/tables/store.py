"""The cells of tables in a store of rows.

A row's key is the table's name, a zero byte, and the row's name. There are three families:

    m:COLUMN             the meta, always at version 1, so that a read as of any moment has it
    w:COLUMN             versions, at their commit timestamps
    n:COLUMN \\0 START    notifications (START: 8 bytes, big-endian), in a separate family, so that a scan for them
                         reads nothing else
    n:\\0                 the client working on the row's notifications (``locks.py``)

Metas are not deleted: in HBase the tombstone would hide a meta written later at the same version.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from photon.rows import api
from photon.rows.api import ALL, EVER, NOW, AtomicRows, Change, Delete, Put, Rows, RowsFailed, TableMissing
from photon.rows.hbase.connection import CONNECTIONS_MAX
from photon.rows.hbase.rows import HBaseRows
from photon.rows.memory import MemoryRows
from photon.rows.sqlite import SqliteRows
from photon.tables.api import NOTHING, STATE, SYSTEM, Cell, Held, Mutation, Notification, Read, RowRead, StoreFailed

GROUPS = ({b"m": 1, b"w": ALL}, {b"n": 1})
RANGE = 1_000  # timestamps that a client of a file takes at once
CALL_SECONDS_MAX = 20.0  # seconds for a read with its repetitions, and for a flush
APPLICATION = 0x50485442  # of a SQLite file: "PHTB"
_META, _VERSIONS, _NOTIFY = (family for group in GROUPS for family in group)
_META_AT = 1
_CLAIM = b"n\0"  # a column that is never a notification
_START = struct.Struct(">Q")
_STATE = _META + STATE.column.encode()
_NEXT = b"mnext"  # the end of the timestamps taken from an ``AtomicStore``

T = TypeVar("T")


class Store:
    """The cells of tables. The store knows nothing of transactions: metas and versions are opaque bytes (``cell.py``
    has their encoding). Safe for use by many threads and processes. All methods except ``mutate`` and ``decide``
    raise StoreFailed if the rows do not answer."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    @property
    def round_trips(self) -> int:
        """The number of round trips to servers so far."""
        return self._rows.round_trips

    def create(self) -> bool:
        """Creates the table in HBase. Returns False if it, or the SQLite file, already existed."""
        return self._asked(self._rows.create)

    def read(self, reads: Sequence[Read]) -> list[RowRead]:
        """Returns an answer for each read. Each answer is a row as of one moment; the moments of different answers
        may differ. Takes one round trip if possible."""
        wanted = [
            api.Read(f"{table}\0{row}".encode(), _columns(columns and tuple(columns), upto == 0), upto or _META_AT)
            for table, row, columns, upto in reads
        ]
        return [_held(cells) for cells in self._asked(lambda: self._rows.read(wanted))]

    def mutate(
        self, mutations: Sequence[Mutation], *, first_decides: bool = False, wait: bool = True
    ) -> list[bool | None]:
        """Runs mutations separately, concurrently, in any order. Returns an answer for each: True for done, False for
        refused (it will never be done), ``None`` if it may be done now, later, or never.

        ``first_decides``: the first mutation is completed before any other begins; unless it was done, the others are
        not begun, and are answered as refused. Without ``wait``: see ``decide``."""
        if not mutations:
            return []
        changes = [_change(each) for each in mutations]
        answers = self._rows.decide(changes, wait=wait) if first_decides else self._rows.change(changes)
        return [None if isinstance(each, RowsFailed) else each for each in answers]

    def decide(self, mutations: Sequence[Mutation]) -> bool | None:
        """Like ``mutate`` with ``first_decides``, but returns only the answer to the first mutation, without waiting
        for the others: they may be done before the call returns, later, or never."""
        return self.mutate(mutations, first_decides=True, wait=False)[0]

    def flush(self) -> None:
        """Waits until the deferred mutations of ``decide`` are finished."""
        self._rows.flush()

    def scan(
        self, table: str, begin: str, end: str | None, columns: Sequence[str] | None, upto: int, limit: int
    ) -> list[tuple[str, RowRead]]:
        """Returns up to ``limit`` rows in [``begin``, ``end``), in order, that have a value in one of ``columns``
        (``None`` means any). ``end``: ``None`` means the table's end. If there are fewer than ``limit``, there are no
        more. Each row is as in ``read``."""
        stop = _end(table) if end is None else _key(table, end)
        found = self._scan(
            _key(table, begin), stop, _columns(columns and tuple(columns)), limit, upto=max(upto, _META_AT)
        )
        return [(_row(key), _held(cells)) for key, cells in found]

    def versions(self, cell: Cell, after: int) -> list[tuple[int, bytes]]:
        """Returns all versions of a cell newer than ``after``, with their timestamps, in any order."""
        read = api.Read(_key(cell.table, cell.row), [_VERSIONS + cell.column.encode()], every=True)
        [found] = self._asked(lambda: self._rows.read([read]))
        return [(each.version, each.value) for each in found if each.version > after]

    def dirty(self, table: str, begin: str, limit: int) -> list[Notification]:
        """Returns up to ``limit`` notifications of the rows from ``begin``, ordered by row, column, start. The cost
        depends on the number of notifications, not on the number of cells."""
        found: list[Notification] = []
        first = _key(table, begin)
        while len(found) < limit:
            rows = self._scan(first, _end(table), (_NOTIFY,), limit)
            for key, cells in rows:
                for column in sorted(cell.column for cell in cells if cell.column != _CLAIM):
                    name, start = column[1 : -_START.size - 1], column[-_START.size :]
                    found.append(Notification(table, _row(key), name.decode(), *_START.unpack(start)))
            if len(rows) < limit:
                break
            first = rows[-1][0] + b"\0"
        return found[:limit]

    def notify(self, notifications: Sequence[Notification]) -> None:
        """Writes notifications, whatever the cells contain."""
        puts = [
            Put(_key(table, row), [api.Cell(_notified(column, start), NOW, b"")])
            for table, row, column, start in notifications
        ]
        self._asked(lambda: self._rows.put(puts))

    def forget(self, notifications: Sequence[Notification]) -> None:
        """Removes exactly these notifications. Notifications with another start timestamp stay, even if it is
        lower."""
        gone = [Delete(_key(table, row), _notified(column, start)) for table, row, column, start in notifications]
        self._asked(lambda: self._rows.delete(gone))

    def collect(self, table: str, safe_point: int, begin: str, limit: int) -> tuple[int, str | None]:
        """Removes old versions in up to ``limit`` rows from ``begin``: in each column, those older than its newest
        version at or before ``safe_point``. Returns their number, and the row to continue at (``None`` means
        done)."""
        found = self._scan(_key(table, begin), _end(table), (_VERSIONS,), limit + 1, upto=safe_point, every=True)
        removed, gone = 0, []
        for key, cells in found[:limit]:
            newest: dict[bytes, int] = {}
            for each in cells:
                newest[each.column] = max(newest.get(each.column, 0), each.version)
            old = {each.column for each in cells if each.version < newest[each.column]}
            removed += len(cells) - len(newest)
            gone += [Delete(key, column, newest[column] - 1) for column in old]
        self._asked(lambda: self._rows.delete(gone))
        return removed, _row(found[limit][0]) if len(found) > limit else None

    def tables(self) -> list[str]:
        """Returns the names of all non-empty tables except the system's."""
        found, begin = [], b""
        while rows := self._scan(begin, None, (_META,), 1):
            table = rows[0][0].partition(b"\0")[0]
            found.append(table.decode())
            begin = table + b"\1"
        return [each for each in found if each != SYSTEM]

    # -- notes of the clients that work on rows (``locks.py``) -------------------------------------------------------
    def claims(self, table: str, rows: Sequence[str]) -> list[bytes | None]:
        reads = [api.Read(_key(table, row), (_CLAIM,)) for row in rows]
        return [each[0].value if each else None for each in self._asked(lambda: self._rows.read(reads))]

    def claim(self, table: str, rows: Sequence[str], claim: bytes) -> None:
        puts = [Put(_key(table, row), [api.Cell(_CLAIM, NOW, claim)]) for row in rows]
        self._asked(lambda: self._rows.put(puts))

    def unclaim(self, table: str, rows: Sequence[str]) -> None:
        gone = [Delete(_key(table, row), _CLAIM) for row in rows]
        self._asked(lambda: self._rows.delete(gone))

    def close(self) -> None:
        """Closes the store. Call it after ``flush``."""
        self._rows.close()

    def _scan(
        self, begin: bytes, end: bytes | None, columns: Sequence[bytes], limit: int, *, upto: int = EVER,
        every: bool = False,
    ) -> list[tuple[bytes, list[api.Cell]]]:  # fmt: skip
        return self._asked(lambda: self._rows.scan(begin, end, columns, limit, upto=upto, every=every))

    def _asked(self, question: Callable[[], T]) -> T:
        try:
            return question()
        except RowsFailed as error:
            raise _failed(error) from None


class AtomicStore(Store):
    """A store that commits a transaction in one step, and is its own oracle (rule 11). A client takes a range of
    timestamps at a time, and hands one out only after a read has shown that no other client has taken a range
    since."""

    def __init__(self, rows: AtomicRows, range_size: int = RANGE) -> None:
        super().__init__(rows)
        self._atomic, self._range = rows, range_size
        self._next = self._end = 0  # the rest of this client's range
        self._stepping = threading.Lock()  # a timestamp that follows a commit's must see the commit

    def timestamp(self) -> int:
        """Implements ``api.Oracle``."""
        with self._stepping:
            if self._next < self._end:
                [cells] = self._asked(lambda: self._rows.read([_REGISTER]))
                if cells and int(cells[0].value) == self._end:
                    self._next += 1
                    return self._next - 1
            done = self._step(lambda timestamp, state: [])
            if done is not True:
                raise StoreFailed(str(done))
            return self._next - 1

    def commit(self, mutations: Callable[[int, bytes | None], Sequence[Mutation]]) -> bool | None:
        """Does all mutations that ``mutations`` returns, or none, in one step. Answers as ``mutate`` does for one
        mutation. ``mutations`` gets the commit timestamp and the meta of ``STATE``, both as of this step, and may
        raise."""

        with self._stepping:
            done = self._step(mutations)
        return None if isinstance(done, RowsFailed) else done

    def _step(self, mutations: Callable[[int, bytes | None], Sequence[Mutation]]) -> api.Answer:
        """Like ``commit``; takes a new range of timestamps if necessary."""
        taken = 0

        def made(cells: list[api.Cell]) -> list[Change]:
            nonlocal taken
            before = state = None
            for cell in cells:
                if cell.column == _NEXT:
                    before = cell.value
                elif cell.column == _STATE:
                    state = cell.value
            timestamp = int(before or b"1")
            changes = []
            if timestamp == self._end and self._next < timestamp:
                timestamp = self._next
                self._next += 1
            else:
                taken = timestamp + self._range
                changes.append(Change(_SYSTEM_ROW, [api.Cell(_NEXT, _META_AT, b"%d" % taken)], before))
            return changes + [_change(each) for each in mutations(timestamp, state)]

        done = self._atomic.change_all(_SYSTEM_ROW, (_META,), made)
        if taken and done is True:
            self._next, self._end = taken - self._range + 1, taken
        return done


def in_memory() -> Store:
    return Store(MemoryRows(GROUPS))


def in_file(path: Path) -> AtomicStore:
    """Opens a store in a SQLite file. kill -9 loses nothing. A power cut may lose the last transactions: the file is
    then as it was at an earlier moment, including timestamps and cursors. Raises StoreFailed."""
    try:
        return AtomicStore(SqliteRows(path, GROUPS, APPLICATION, survives_power=False, one_thread=False))
    except RowsFailed as error:
        raise StoreFailed(str(error)) from None


def on_hbase(addresses: Sequence[str], table: str) -> Store:
    """Returns a store in HBase, without connecting yet. ``addresses``: host:port of each Thrift 2 server. Raises
    UsageError."""
    return Store(
        HBaseRows(addresses, "tables.thrift", table, GROUPS, threads=CONNECTIONS_MAX, call_s=CALL_SECONDS_MAX)
    )


def _failed(error: RowsFailed) -> StoreFailed:
    hint = "; create it with photon table init" if isinstance(error, TableMissing) else ""
    return StoreFailed(f"{error}{hint}")


def _key(table: str, row: str) -> bytes:
    return f"{table}\0{row}".encode()


_SYSTEM_ROW = _key(STATE.table, STATE.row)
_REGISTER = api.Read(_SYSTEM_ROW, (_NEXT,))


def _end(table: str) -> bytes:
    return table.encode() + b"\1"


def _row(key: bytes) -> str:
    return key.partition(b"\0")[2].decode()


@lru_cache(1_000)
def _columns(columns: tuple[str, ...] | None, metas: bool = False) -> tuple[bytes, ...]:
    families = (_META,) if metas else (_META, _VERSIONS)
    return families if columns is None else tuple(family + each.encode() for each in columns for family in families)


def _notified(column: str, start: int) -> bytes:
    return b"%s%s\0%s" % (_NOTIFY, column.encode(), _START.pack(start))


def _change(mutation: Mutation) -> Change:
    (table, row, column), expected, meta, version, commit, notify = mutation
    at_meta, at_versions = _columns((column,))
    cells = [api.Cell(at_meta, _META_AT, meta)]
    if version is not None:
        cells.append(api.Cell(at_versions, commit, version))
    if notify:
        cells.append(api.Cell(_notified(column, notify), NOW, b""))
    return Change(_key(table, row), cells, expected)


def _held(cells: Iterable[api.Cell]) -> dict[str, Held]:
    """Returns the columns of a row, by name."""
    metas: dict[str, bytes] = {}
    found: dict[str, Held] = {}
    for each in cells:
        family, column = _names(each.column)
        if family == _META:
            metas[column] = each.value
        else:
            found[column] = Held(metas.pop(column, None), each.version, each.value)
    for column, meta in metas.items():  # without a version, or before it
        _, commit, version = found.get(column, NOTHING)
        found[column] = Held(meta, commit, version)
    return found


@lru_cache(1_000)
def _names(column: bytes) -> tuple[bytes, str]:
    return column[:1], column[1:].decode()
