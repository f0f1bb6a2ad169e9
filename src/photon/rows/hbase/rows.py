"""Stores rows in HBase through Thrift 2 servers, with ``checkAndPut``: it checks one column and writes any number.

A version is HBase's timestamp. ``checkAndMutate`` is not used because it fails on the server with a
NullPointerException if a column must be absent; happybase is not, because it has no checkAndPut of several columns.

All state is in HBase, so any of several Thrift servers may be asked. A server that does not answer is skipped for a
second. Reads and puts are repeated elsewhere; a change without an answer is not, as it may have been done.

A connection occupies one of its server's threads (hbase.thrift.minWorkerThreads, for all clients): further
connections are never served. So there are few, and deferred changes get only some of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from operator import methodcaller
from typing import Any, TypeVar

from photon.config.clock import Clock, SystemClock
from photon.rows.api import ALL, EVER, NOW, Answer, Cell, Change, Delete, Groups, Put, Read, RowsFailed
from photon.rows.hbase.connection import NotConnected
from photon.rows.hbase.servers import Servers

LATER_THREADS = 2  # per server
LATER_MAX = 256  # most deferred changes that may wait; further ones are done at once
READ_ROWS = 1000
SCAN_ROWS = 1000
PUT_ROWS = 500
PUT_BYTES = 1 << 20
_TIME_END = 2**63 - 1
_ALL_VERSIONS = 1  # in a delete: all up to the timestamp

T = TypeVar("T")
R = TypeVar("R")


class HBaseRows:
    """Implements ``api.Rows``. Connects at the first request."""

    atomic = False

    def __init__(
        self,
        addresses: Sequence[str],
        key: str,
        table: str,
        groups: Groups,
        *,
        threads: int,
        call_s: float,
        clock: Clock | None = None,
        connects: Sequence[Callable[[], Any]] | None = None,
    ) -> None:
        """``addresses``: host:port of each Thrift 2 server. ``key``: the setting that names them. ``threads``: per
        server. ``call_s``: time limit of a request with its retries. ``connects``: see Servers. Raises
        UsageError."""
        self.clock = clock or SystemClock()
        self.servers = Servers(addresses, key, self.clock, call_s, connects)
        self._families, self._call_s = {family: kept for group in groups for family, kept in group.items()}, call_s
        self._types = self.servers.types
        self._table = table.encode()
        self._pool = ThreadPoolExecutor(threads * len(addresses), thread_name_prefix="rows")
        self._later = ThreadPoolExecutor(LATER_THREADS * len(addresses), thread_name_prefix="rows-later")
        self._left: set[Future[Answer]] = set()

    @property
    def round_trips(self) -> int:
        return self.servers.round_trips

    def create(self) -> bool:
        """Creates the HBase table; False if it already exists. Raises RowsFailed."""
        return self.servers.create(self._table, self._families)

    # -- reading -----------------------------------------------------------------------------------------------------
    def read(self, reads: Sequence[Read]) -> list[list[Cell]]:
        gets = [
            self._types.TGet(
                row=row, columns=self._columns(columns), timeRange=self._times(upto),
                maxVersions=ALL if every else 1,
            )
            for row, columns, upto, every in reads
        ]  # fmt: skip

        def some(batch: Sequence[Any]) -> list[list[Cell]]:
            return [_cells(each) for each in self._asked(methodcaller("getMultiple", self._table, batch), "read")]

        batches = [gets[at : at + READ_ROWS] for at in range(0, len(gets), READ_ROWS)]
        return [cells for found in self._each(some, batches) for cells in found]

    def scan(
        self, begin: bytes, end: bytes | None, columns: Sequence[bytes], limit: int, *, upto: int = EVER,
        every: bool = False,
    ) -> list[tuple[bytes, list[Cell]]]:  # fmt: skip
        found: list[tuple[bytes, list[Cell]]] = []
        wanted, times = self._columns(columns), self._times(upto)
        while len(found) < limit:
            rows = min(limit - len(found), SCAN_ROWS)
            scan = self._types.TScan(
                startRow=begin, stopRow=end or b"", columns=wanted, caching=rows, timeRange=times, limit=rows,
                maxVersions=ALL if every else 1,
            )  # fmt: skip
            some = self._asked(methodcaller("getScannerResults", self._table, scan, rows), "scan")
            found += [(each.row, _cells(each)) for each in some]
            if len(some) < rows:
                break
            begin = some[-1].row + b"\0"
        return found

    # -- writing -----------------------------------------------------------------------------------------------------
    def change(self, changes: Sequence[Change]) -> list[Answer]:
        if not changes:
            return []
        begun = [self._pool.submit(self._change, each) for each in changes[1:]]
        return [self._change(changes[0]), *(each.result() for each in begun)]

    def decide(self, changes: Sequence[Change], *, wait: bool = True) -> list[Answer]:
        done = self._change(changes[0])
        others = changes[1:]
        if done is not True:
            return [done, *([False] * len(others))]
        if wait:
            return [done, *self.change(others)]
        for each in others:
            if len(self._left) >= LATER_MAX:
                self._change(each)
                continue
            begun = self._later.submit(self._change, each)
            self._left.add(begun)
            begun.add_done_callback(self._left.discard)
        return [done]

    def commit(self, change: Change, puts: Sequence[Put]) -> bool:
        began, first = self.clock.monotonic(), change.cells[0]
        while (done := self._check_and_put(change)) is not True:
            if isinstance(done, NotConnected):  # nothing was sent
                if self.servers.given_up(began):
                    raise done
                continue
            if isinstance(done, RowsFailed) and self.servers.given_up(began):
                raise done
            [cells] = self.read([Read(change.row, (first.column,))])
            now = cells[0].value if cells else None
            if now == first.value:  # written by an attempt whose answer was lost
                break
            if now != change.expected:
                return False
        self.put(puts)
        return True

    def put(self, puts: Sequence[Put]) -> None:
        def some(batch: Sequence[Any]) -> None:
            self._asked(methodcaller("putMultiple", self._table, batch), "write")

        self._each(some, list(self._batches(puts)))

    def delete(self, deletes: Sequence[Delete]) -> None:
        made = [
            self._types.TDelete(row=row, timestamp=_stamp(upto))
            if column is None
            else self._types.TDelete(row=row, columns=[self._column(column, upto)], deleteType=_ALL_VERSIONS)
            for row, column, upto in deletes
        ]
        if made:
            self._asked(methodcaller("deleteMultiple", self._table, made), "write")

    def flush(self) -> None:
        wait(tuple(self._left), self._call_s)

    def close(self) -> None:
        self.flush()
        self.servers.interrupt()
        self._later.shutdown(wait=True, cancel_futures=True)
        self._pool.shutdown(wait=True)
        self.servers.close()

    # -- inside ------------------------------------------------------------------------------------------------------
    def _change(self, change: Change) -> Answer:
        began = self.clock.monotonic()
        while isinstance(done := self._check_and_put(change), NotConnected):  # nothing was sent
            if self.servers.given_up(began):
                break
        return done

    def _check_and_put(self, change: Change) -> Answer:
        column, put = change.cells[0].column, self._put(change.row, change.cells)
        arguments = (self._table, change.row, column[:1], column[1:], change.expected, put)
        try:
            return bool(self.servers.once(methodcaller("checkAndPut", *arguments)))
        except NotConnected as error:
            return error
        except Exception as error:  # a time-out, a broken connection, a moving region: so the change may be done
            return RowsFailed(f"HBase at {self.servers.where} does not answer: {error}")

    def _columns(self, columns: Sequence[bytes]) -> list[Any]:
        return [self._types.TColumn(family=each[:1], qualifier=each[1:] or None) for each in columns]

    def _column(self, column: bytes, upto: int) -> Any:
        return self._types.TColumn(family=column[:1], qualifier=column[1:], timestamp=_stamp(upto))

    def _times(self, upto: int) -> Any:
        return None if upto == EVER else self._types.TTimeRange(minStamp=0, maxStamp=min(upto + 1, _TIME_END))

    def _put(self, row: bytes, cells: Sequence[Cell]) -> Any:
        value = self._types.TColumnValue
        return self._types.TPut(
            row=row,
            columnValues=[
                value(
                    family=each.column[:1], qualifier=each.column[1:], value=each.value,
                    timestamp=each.version if each.version != NOW else None,
                )
                for each in cells
            ],
        )  # fmt: skip

    def _batches(self, puts: Sequence[Put]) -> Iterator[list[Any]]:
        batch: list[Any] = []
        size = 0
        for each in puts:
            assert each.cells is not None
            size += len(each.row) + sum(len(cell.value) for cell in each.cells)
            batch.append(self._put(each.row, each.cells))
            if size >= PUT_BYTES or len(batch) >= PUT_ROWS:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch

    def _each(self, work: Callable[[T], R], batches: Sequence[T]) -> list[R]:
        """Runs several batches at a time, each over its own connection."""
        if len(batches) < 2:
            return [work(each) for each in batches]
        return list(self._pool.map(work, batches))

    def _asked(self, question: Callable[[Any], T], what: str) -> T:
        return self.servers.read(question, what, self._table)


def _stamp(upto: int) -> int | None:
    return None if upto == EVER else upto


def _cells(result: Any) -> list[Cell]:
    return [Cell(each.family + each.qualifier, each.timestamp, each.value) for each in result.columnValues]
