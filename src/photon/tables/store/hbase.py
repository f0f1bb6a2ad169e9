"""Rows in HBase through its Thrift 2 servers, by ``checkAndPut``, which checks one column and writes any number.

One HBase table holds all tables. A row's key is the table's name, a zero byte, and the row's. Three families:

    m:COLUMN             the meta, always at timestamp 1, so that a read of any time range that begins at 0 has it
    w:COLUMN             versions, at their commit timestamps
    n:COLUMN \\0 START    notifications (START: 8 bytes, big-endian), in files of their own, so that a scan for them
                         reads nothing else
    n:\\0                 the client working on the row's notifications (``locks.py``)

Not used: ``checkAndMutate``, which fails on the server with a NullPointerException if a column has to be absent;
happybase, which has no checkAndPut of several columns; deletes of metas, as the tombstone would hide a meta written
later at the same timestamp.

All state is in HBase, so any of several Thrift servers may be asked. A server that does not answer is skipped for a
second. Reads are repeated elsewhere; a mutation without an answer is not, as it may have been done.

A connection occupies one of its server's threads (hbase.thrift.minWorkerThreads, for all clients): a connection
beyond them is never served. So there are few, and deferred mutations (``decide``) get only some of them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from operator import methodcaller
from typing import Any, TypeVar

from photon.config.clock import Clock, SystemClock
from photon.eventstore.hbase.api import HBaseRefused, HBaseUnavailable
from photon.eventstore.hbase.connection import CONNECTIONS_MAX
from photon.eventstore.hbase.servers import Servers
from photon.tables.api import NOTHING, SYSTEM, Cell, Held, Mutation, Notification, Read, RowRead, StoreFailed

CALL_SECONDS_MAX = 20.0  # seconds for a read with its repetitions, and for a flush
LATER_THREADS = 2  # per server
LATER_MAX = 256  # deferred mutations; beyond that one is done at once
READ_ROWS = 1000
SCAN_ROWS = 1000
META_AT = 1  # the timestamp of all metas
TIME_END = 2**63 - 1
VERSIONS_MAX = 2**31 - 1
META, VERSIONS, NOTIFY = b"m", b"w", b"n"
CLAIM = b"\0"  # a qualifier of NOTIFY that no notification uses
_START = struct.Struct(">Q")
_ONE_VERSION = 0  # in a delete: only the version with exactly the timestamp
_ALL_VERSIONS = 1

T = TypeVar("T")


class HBaseRows:
    """Implements api.RowStore. Opens nothing yet."""

    def __init__(self, addresses: Sequence[str], table: str, clock: Clock | None = None) -> None:
        """``addresses``: host:port of each Thrift 2 server. Raises UsageError."""
        self._clock = clock or SystemClock()
        self._hbase = Servers(addresses, "tables.thrift", self._clock, CALL_SECONDS_MAX)
        self._types = self._hbase.types
        self._table = table.encode()
        self._pool = ThreadPoolExecutor(CONNECTIONS_MAX * len(addresses), thread_name_prefix="tables-hbase")
        self._later = ThreadPoolExecutor(LATER_THREADS * len(addresses), thread_name_prefix="tables-later")
        self._left: set[Future[bool | None]] = set()

    @property
    def round_trips(self) -> int:
        return self._hbase.round_trips

    def create(self) -> bool:
        """Creates the HBase table; False if it exists already. Raises StoreFailed."""
        try:
            return self._hbase.create(self._table, ((META, 1), (VERSIONS, VERSIONS_MAX), (NOTIFY, 1)))
        except (HBaseUnavailable, HBaseRefused) as error:
            raise StoreFailed(str(error)) from None

    # -- api.RowStore ------------------------------------------------------------------------------------------
    def read(self, reads: Sequence[Read]) -> list[RowRead]:
        out: list[RowRead] = []
        for at in range(0, len(reads), READ_ROWS):
            gets = [
                self._types.TGet(
                    row=_key(each.table, each.row),
                    columns=self._columns(each.columns),
                    timeRange=self._upto(each.upto),
                    maxVersions=1,
                )
                for each in reads[at : at + READ_ROWS]
            ]
            found = self._read(methodcaller("getMultiple", self._table, gets), "read")
            out += [_held(each.columnValues) for each in found]
        return out

    def mutate(self, mutations: Sequence[Mutation], *, first_decides: bool = False) -> list[bool | None]:
        if not mutations:
            return []
        first, others = mutations[0], mutations[1:]
        if first_decides:
            done = self._mutate(first)
            return [done, *(self.mutate(others) if done else [False] * len(others))]
        begun = [self._pool.submit(self._mutate, each) for each in others]
        return [self._mutate(first), *(each.result() for each in begun)]

    def decide(self, mutations: Sequence[Mutation]) -> bool | None:
        done = self._mutate(mutations[0])
        for each in mutations[1:] if done else ():
            if len(self._left) >= LATER_MAX:
                self._mutate(each)
                continue
            begun = self._later.submit(self._mutate, each)
            self._left.add(begun)
            begun.add_done_callback(self._left.discard)
        return done

    def flush(self) -> None:
        wait(tuple(self._left), CALL_SECONDS_MAX)

    def scan(
        self, table: str, begin: str, end: str | None, columns: Sequence[str] | None, upto: int, limit: int
    ) -> list[tuple[str, RowRead]]:
        stop = _end(table) if end is None else _key(table, end)
        found = self._scan(_key(table, begin), stop, self._columns(columns), self._upto(upto), limit)
        return [(_row(each.row), _held(each.columnValues)) for each in found]

    def versions(self, cell: Cell, after: int) -> list[tuple[int, bytes]]:
        get = self._types.TGet(
            row=_key(cell.table, cell.row),
            columns=[self._types.TColumn(family=VERSIONS, qualifier=cell.column.encode())],
            timeRange=self._types.TTimeRange(minStamp=after + 1, maxStamp=TIME_END),
            maxVersions=VERSIONS_MAX,
        )
        [found] = self._read(lambda c: c.getMultiple(self._table, [get]), "read")
        return [(each.timestamp, each.value) for each in found.columnValues]

    def dirty(self, table: str, begin: str, limit: int) -> list[Notification]:
        found: list[Notification] = []
        columns, first = [self._types.TColumn(family=NOTIFY)], _key(table, begin)
        while len(found) < limit:
            rows = self._scan(first, _end(table), columns, None, limit)
            for each in rows:
                row = _row(each.row)
                for value in sorted(each.columnValues, key=lambda value: value.qualifier):
                    if value.qualifier != CLAIM:
                        column, start = value.qualifier[: -_START.size - 1], value.qualifier[-_START.size :]
                        found.append(Notification(table, row, column.decode(), *_START.unpack(start)))
            if len(rows) < limit:
                break
            first = rows[-1].row + b"\0"
        return found[:limit]

    def notify(self, notifications: Sequence[Notification]) -> None:
        if notifications:
            puts = [
                self._types.TPut(row=_key(each.table, each.row), columnValues=[self._notification(each)])
                for each in notifications
            ]
            self._read(lambda c: c.putMultiple(self._table, puts), "write")

    def forget(self, notifications: Sequence[Notification]) -> None:
        if notifications:
            deletes = [
                self._types.TDelete(
                    row=_key(each.table, each.row),
                    columns=[self._types.TColumn(family=NOTIFY, qualifier=_qualifier(each))],
                    deleteType=_ALL_VERSIONS,
                )
                for each in notifications
            ]
            self._read(lambda c: c.deleteMultiple(self._table, deletes), "write")

    def collect(self, table: str, safe_point: int, begin: str, limit: int) -> tuple[int, str | None]:
        columns = [self._types.TColumn(family=VERSIONS)]
        found = self._scan(
            _key(table, begin), _end(table), columns, self._upto(safe_point), limit + 1, versions=VERSIONS_MAX
        )
        deletes = []
        removed = 0
        for each in found[:limit]:
            newest: dict[bytes, int] = {}
            for value in each.columnValues:
                newest[value.qualifier] = max(newest.get(value.qualifier, 0), value.timestamp)
            gone = [
                self._types.TColumn(family=VERSIONS, qualifier=value.qualifier, timestamp=value.timestamp)
                for value in each.columnValues
                if value.timestamp < newest[value.qualifier]
            ]
            removed += len(gone)
            if gone:
                deletes.append(self._types.TDelete(row=each.row, columns=gone, deleteType=_ONE_VERSION))
        if deletes:
            self._read(lambda c: c.deleteMultiple(self._table, deletes), "write")
        return removed, _row(found[limit].row) if len(found) > limit else None

    def tables(self) -> list[str]:
        found = []
        begin = b""
        while rows := self._scan(begin, b"", None, None, 1):
            table = rows[0].row.partition(b"\0")[0]
            found.append(table.decode())
            begin = table + b"\1"
        return [each for each in found if each != SYSTEM]

    def close(self) -> None:
        self.flush()
        self._hbase.interrupt()
        self._later.shutdown(wait=True, cancel_futures=True)
        self._pool.shutdown(wait=True)
        self._hbase.close()

    # -- Claims -------------------------------------------------------------------------------------------------
    def claims(self, table: str, rows: Sequence[str]) -> list[bytes | None]:
        column = [self._types.TColumn(family=NOTIFY, qualifier=CLAIM)]
        gets = [self._types.TGet(row=_key(table, row), columns=column, maxVersions=1) for row in rows]
        found = self._read(methodcaller("getMultiple", self._table, gets), "read")
        return [each.columnValues[0].value if each.columnValues else None for each in found]

    def claim(self, table: str, rows: Sequence[str], claim: bytes) -> None:
        value = [self._types.TColumnValue(family=NOTIFY, qualifier=CLAIM, value=claim)]
        puts = [self._types.TPut(row=_key(table, row), columnValues=value) for row in rows]
        self._read(methodcaller("putMultiple", self._table, puts), "write")

    def unclaim(self, table: str, rows: Sequence[str]) -> None:
        column = [self._types.TColumn(family=NOTIFY, qualifier=CLAIM)]
        deletes = [
            self._types.TDelete(row=_key(table, row), columns=column, deleteType=_ALL_VERSIONS) for row in rows
        ]
        self._read(methodcaller("deleteMultiple", self._table, deletes), "write")

    # -- inside ------------------------------------------------------------------------------------------------
    def _columns(self, columns: Sequence[str] | None) -> list[Any]:
        column = self._types.TColumn
        if columns is None:
            return [column(family=META), column(family=VERSIONS)]
        return [column(family=family, qualifier=each.encode()) for each in columns for family in (META, VERSIONS)]

    def _upto(self, timestamp: int) -> Any:
        """A time range from 0, so that it includes the metas."""
        return self._types.TTimeRange(minStamp=0, maxStamp=min(max(timestamp, META_AT) + 1, TIME_END))

    def _notification(self, notification: Notification) -> Any:
        return self._types.TColumnValue(family=NOTIFY, qualifier=_qualifier(notification), value=b"")

    def _mutate(self, mutation: Mutation) -> bool | None:
        value, (table, row, name) = self._types.TColumnValue, mutation.cell
        column = name.encode()
        values = [value(family=META, qualifier=column, value=mutation.meta, timestamp=META_AT)]
        if mutation.version is not None:
            values.append(value(family=VERSIONS, qualifier=column, value=mutation.version, timestamp=mutation.commit))
        if mutation.notify:
            values.append(self._notification(Notification(table, row, name, mutation.notify)))
        key = _key(table, row)
        put = self._types.TPut(row=key, columnValues=values)
        expected = mutation.expected
        began = self._clock.monotonic()
        while True:
            try:
                return bool(self._hbase.once(lambda c: c.checkAndPut(self._table, key, META, column, expected, put)))
            except HBaseUnavailable:  # nothing was sent
                if self._hbase.given_up(began):
                    return None
            except Exception:  # a time-out, a broken connection, a moving region: the mutation may be done
                return None

    def _scan(self, begin: bytes, end: bytes, columns: Any, times: Any, limit: int, versions: int = 1) -> list[Any]:
        found: list[Any] = []
        while len(found) < limit:
            rows = min(limit - len(found), SCAN_ROWS)
            scan = self._types.TScan(
                startRow=begin, stopRow=end, columns=columns, caching=rows, maxVersions=versions,
                timeRange=times, limit=rows,
            )  # fmt: skip
            some = self._read(methodcaller("getScannerResults", self._table, scan, rows), "scan")
            found += some
            if len(some) < rows:
                break
            begin = some[-1].row + b"\0"
        return found

    def _read(self, question: Callable[[Any], T], what: str) -> T:
        """Asks a repeatable question. Raises StoreFailed."""
        try:
            return self._hbase.read(question, what, self._table)
        except HBaseRefused as error:
            raise StoreFailed(f"{error}: photon table init makes it") from None
        except HBaseUnavailable as error:
            raise StoreFailed(str(error)) from None


def _key(table: str, row: str) -> bytes:
    return b"%s\0%s" % (table.encode(), row.encode())


def _end(table: str) -> bytes:
    return table.encode() + b"\1"


def _row(key: bytes) -> str:
    return key.partition(b"\0")[2].decode()


def _qualifier(notification: Notification) -> bytes:
    return b"%s\0%s" % (notification.column.encode(), _START.pack(notification.start))


def _held(values: Iterable[Any]) -> dict[str, Held]:
    """A row's columns."""
    found: dict[str, Held] = {}
    for each in values:
        column = each.qualifier.decode()
        held = found.get(column, NOTHING)
        if each.family == META:
            found[column] = held._replace(meta=each.value)
        else:
            found[column] = held._replace(commit=each.timestamp, version=each.value)
    return found
