"""Rows in HBase through its Thrift 2 servers: ``checkAndPut``, which checks one column and writes any number of them.

One HBase table holds all tables. A row's key is the table's name, a zero byte, and the row's. Three families:

    m:COLUMN             the meta, always at timestamp 1, so that a read of any time range that begins at 0 has it
    w:COLUMN             versions, at their commit timestamps
    n:COLUMN \\0 START    notifications (START: 8 bytes, big-endian), in files of their own, so that a scan for them
                         reads nothing else
    n:\\0                 who works on the row's notifications (``locks.py``)

What is not used, and why: ``checkAndMutate`` dies on the server with a NullPointerException where a column has to be
absent; happybase has no checkAndPut of several columns; no meta is ever deleted, as the tombstone would hide one that
is written afterwards at the same timestamp.

All state is in HBase, so any of several Thrift servers may be asked. A server that does not answer is left alone for
a second. Reads are repeated elsewhere; a mutation whose answer is lost is not, as nobody knows whether it was done.

A connection has a thread of its server's to itself (hbase.thrift.minWorkerThreads, of all clients): one more waits in
vain. So there are few, and what is done later (``decide``) has only some of them.
"""

from __future__ import annotations

import itertools
import struct
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from operator import methodcaller
from typing import Any, TypeVar

from photon.config.clock import Clock, SystemClock
from photon.config.errors import UsageError
from photon.eventstore.hbase.api import HBaseUnavailable
from photon.eventstore.hbase.connection import REFUSALS, Connections, one_line
from photon.eventstore.hbase.thrift2 import connector, interface
from photon.tables.api import NOTHING, SYSTEM, Cell, Held, Mutation, Notification, Read, RowRead, StoreFailed

ANSWER_SECONDS_MAX = 10.0
CALL_SECONDS_MAX = 20.0
"""A read, with its repetitions, is given up after so long; so is a flush."""
PAUSE_SECONDS = 0.05
SHUNNED_SECONDS = 1.0
CONNECTIONS_MAX = 8
"""To a server."""
LATER_THREADS = 2
"""For each server."""
LATER_MAX = 256
"""Mutations that wait to be done later; then one is done at once."""
READ_ROWS = 1000
SCAN_ROWS = 1000
SERVERS_MAX = 64
META_AT = 1
"""The timestamp of all metas."""
TIME_END = 2**63 - 1
VERSIONS_MAX = 2**31 - 1
META, VERSIONS, NOTIFY = b"m", b"w", b"n"
CLAIM = b"\0"
"""A qualifier of NOTIFY that is no notification's."""
_START = struct.Struct(">Q")
_ROW_BLOOM, _FAST_DIFF = 1, 4
_ONE_VERSION = 0
"""Of a delete: the version with exactly the timestamp."""
_ALL_VERSIONS = 1
_IDL = """
struct TTimeRange { 1: required i64 minStamp, 2: required i64 maxStamp }
struct TColumn { 1: required binary family, 2: optional binary qualifier, 3: optional i64 timestamp }
struct TColumnValue {
  1: required binary family, 2: required binary qualifier, 3: required binary value, 4: optional i64 timestamp
}
struct TResult { 1: optional binary row, 2: required list<TColumnValue> columnValues }
struct TGet {
  1: required binary row, 2: optional list<TColumn> columns, 4: optional TTimeRange timeRange,
  5: optional i32 maxVersions
}
struct TPut { 1: required binary row, 2: required list<TColumnValue> columnValues }
struct TDelete { 1: required binary row, 2: optional list<TColumn> columns, 4: optional i32 deleteType }
struct TScan {
  1: optional binary startRow, 2: optional binary stopRow, 3: optional list<TColumn> columns, 4: optional i32 caching,
  5: optional i32 maxVersions, 6: optional TTimeRange timeRange, 15: optional i32 limit
}
struct TTableName { 1: optional binary ns, 2: required binary qualifier }
struct TColumnFamilyDescriptor {
  1: required binary name, 5: optional i32 bloomnFilterType, 8: optional i32 dataBlockEncoding,
  10: optional i32 maxVersions
}
struct TTableDescriptor {
  1: required TTableName tableName, 2: optional list<TColumnFamilyDescriptor> columns,
  3: optional map<binary, binary> attributes
}
exception TIOError { 1: optional string message, 2: optional bool canRetry }
exception TIllegalArgument { 1: optional string message }
service THBaseService {
  list<TResult> getMultiple(1: required binary table, 2: required list<TGet> tgets) throws (1: TIOError io)
  bool checkAndPut(1: required binary table, 2: required binary row, 3: required binary family,
    4: required binary qualifier, 5: binary value, 6: required TPut tput) throws (1: TIOError io)
  void putMultiple(1: required binary table, 2: required list<TPut> tputs) throws (1: TIOError io)
  list<TDelete> deleteMultiple(1: required binary table, 2: required list<TDelete> tdeletes) throws (1: TIOError io)
  list<TResult> getScannerResults(1: required binary table, 2: required TScan tscan, 3: i32 numRows)
    throws (1: TIOError io, 2: TIllegalArgument ia)
  bool tableExists(1: required TTableName tableName) throws (1: TIOError io)
  void createTable(1: required TTableDescriptor desc, 2: optional list<binary> splitKeys) throws (1: TIOError io)
}
"""

T = TypeVar("T")


class HBaseRows:
    """Implements api.RowStore. Nothing is opened yet."""

    def __init__(self, addresses: Sequence[str], table: str, clock: Clock | None = None) -> None:
        """``addresses``: host:port of each Thrift 2 server. Raises UsageError."""
        if not 1 <= len(addresses) <= SERVERS_MAX:
            raise UsageError(f"tables.thrift: names {len(addresses)} servers, must be 1 to {SERVERS_MAX}")
        self._clock = clock or SystemClock()
        self._types = interface(_IDL)
        self._servers = [
            (
                each,
                Connections(
                    connector(each, self._types, "tables.thrift", ANSWER_SECONDS_MAX), self._clock, CONNECTIONS_MAX
                ),
            )
            for each in addresses
        ]
        self._shunned = [float("-inf")] * len(addresses)
        self._turn = itertools.count()
        self._table = table.encode()
        self._stopping = threading.Event()
        self._pool = ThreadPoolExecutor(CONNECTIONS_MAX * len(addresses), thread_name_prefix="tables-hbase")
        self._later = ThreadPoolExecutor(LATER_THREADS * len(addresses), thread_name_prefix="tables-later")
        self._left: set[Future[bool | None]] = set()
        self.round_trips = 0
        """A little low where threads count at the same time."""

    def create(self) -> bool:
        """Makes the HBase table; False: it is there already. Raises StoreFailed."""
        types = self._types
        namespace, _, name = self._table.rpartition(b":")
        full = types.TTableName(ns=namespace or None, qualifier=name)
        if self._read(lambda c: c.tableExists(full), "look for"):
            return False
        families = [
            types.TColumnFamilyDescriptor(
                name=family, bloomnFilterType=_ROW_BLOOM, dataBlockEncoding=_FAST_DIFF, maxVersions=versions
            )
            for family, versions in ((META, 1), (VERSIONS, VERSIONS_MAX), (NOTIFY, 1))
        ]
        try:
            self._once(lambda c: c.createTable(types.TTableDescriptor(tableName=full, columns=families), None))
        except Exception as error:
            problem = one_line(error)
            if "TableExistsException" in problem:
                return False
            raise self._failed("make", problem) from None
        return True

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
        self._stopping.set()
        self._later.shutdown(wait=True, cancel_futures=True)
        self._pool.shutdown(wait=True)
        for _, connections in self._servers:
            connections.close()

    # -- locks.Claims -------------------------------------------------------------------------------------------
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
        """From 0, so that the metas are in it."""
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
        deadline = self._clock.monotonic() + CALL_SECONDS_MAX
        while True:
            try:
                return bool(self._once(lambda c: c.checkAndPut(self._table, key, META, column, expected, put)))
            except HBaseUnavailable:  # nothing was sent
                if self._stopping.wait(PAUSE_SECONDS) or self._clock.monotonic() > deadline:
                    return None
            except Exception:  # a time-out, a broken connection, a region that moves: it may be done
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
        """Of what may be repeated. Raises StoreFailed."""
        began = self._clock.monotonic()
        while True:
            try:
                return self._once(question)
            except Exception as error:
                problem = one_line(error)
                refused = isinstance(error, UsageError) or self._is_missing(problem)
                late = self._clock.monotonic() - began > CALL_SECONDS_MAX
                if refused or late or self._stopping.is_set():
                    raise self._failed(what, problem) from None
            self._stopping.wait(PAUSE_SECONDS)

    def _once(self, question: Callable[[Any], T]) -> T:
        """Asks a server, and others while there is none to connect to. Raises HBaseUnavailable: nothing was sent."""
        problem: HBaseUnavailable | None = None
        for at in self._order():
            try:
                answer = self._servers[at][1].ask(question)
                self.round_trips += 1
                return answer
            except HBaseUnavailable as error:
                problem = error
                self._shunned[at] = self._clock.monotonic() + SHUNNED_SECONDS
            except BaseException:
                self._shunned[at] = self._clock.monotonic() + SHUNNED_SECONDS
                raise
        assert problem is not None
        raise problem

    def _order(self) -> Iterable[int]:
        """In turn; those that did not answer last."""
        first, count, now = next(self._turn), len(self._servers), self._clock.monotonic()
        turn = [(first + step) % count for step in range(count)]
        return sorted(turn, key=lambda at: self._shunned[at] > now)

    def _failed(self, what: str, problem: str) -> StoreFailed:
        servers = ", ".join(address for address, _ in self._servers)
        if self._is_missing(problem):
            return StoreFailed(f"HBase at {servers} has no table {self._table.decode()}: photon table init makes it")
        return StoreFailed(f"HBase at {servers} does not {what} table {self._table.decode()}: {problem}")

    def _is_missing(self, problem: str) -> bool:
        """It says so, or only gives the table's name, after which comes Java."""
        return problem == self._table.decode() or any(each in problem for each in REFUSALS)


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
