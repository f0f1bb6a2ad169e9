"""Rows of an HBase table whose cells have versions that are given by us, as HBase's timestamps: a cell has what was
written with the highest one, whatever was written last. So a write may be repeated, and may come late: it is as if it
had come in its turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from operator import methodcaller
from typing import Any, NamedTuple, TypeVar

from photon.computing.errors import ComputingError
from photon.config.clock import Clock, SystemClock
from photon.config.errors import PhotonError, UsageError
from photon.eventstore.hbase.api import HBaseUnavailable
from photon.eventstore.hbase.servers import Servers

FAMILY = b"c"
THREADS = 3
"""Of a process, for each server: a connection has one of the server's threads to itself, of which there are 16."""
CALL_SECONDS_MAX = 60.0  # a call, with its repetitions, is given up after this long: a region may be moving
GET_ROWS = 500
SCAN_ROWS = 1000
SCAN_WHOLE_ROWS = 100  # at a time, where they are read with all that they hold
PUT_BYTES = 1 << 20
PUT_ROWS = 500  # of one call

T = TypeVar("T")
R = TypeVar("R")


class Cell(NamedTuple):
    value: bytes
    version: int


Cells = dict[bytes, Cell]  # column -> what it has
Values = Mapping[bytes, bytes]
Put = tuple[bytes, Values]  # row, and what some of its columns have from now on


class VersionedRows:
    """Thread-safe. Nothing is opened yet. Errors are ComputingError, of one line."""

    def __init__(
        self,
        addresses: Sequence[str],
        table: str,
        clock: Clock | None = None,
        connects: Sequence[Callable[[], Any]] | None = None,
    ) -> None:
        """``addresses``: host:port of each Thrift 2 server; ``connects``: see Servers. Raises UsageError."""
        self.clock = clock or SystemClock()
        self.servers = Servers(addresses, "--hbase", self.clock, CALL_SECONDS_MAX, connects)
        self._table, self._types = table.encode(), self.servers.types
        self._pool = ThreadPoolExecutor(THREADS * len(addresses), thread_name_prefix="computing-hbase")

    def create(self) -> bool:
        """Makes the table; False: it is there already."""
        try:
            return self.servers.create(self._table, [(FAMILY, 1)])
        except UsageError:
            raise
        except PhotonError as error:
            raise ComputingError(str(error)) from None

    def get(self, rows: Sequence[bytes]) -> list[Cells]:
        """One for each; empty where there is nothing."""
        columns = [self._types.TColumn(family=FAMILY)]

        def some(batch: Sequence[bytes]) -> list[Cells]:
            gets = [self._types.TGet(row=row, columns=columns, maxVersions=1) for row in batch]
            return [_cells(each) for each in self._read(lambda c: c.getMultiple(self._table, gets), "read")]

        batches = [rows[at : at + GET_ROWS] for at in range(0, len(rows), GET_ROWS)]
        return [cells for found in self._each(some, batches) for cells in found]

    def scan(self, prefix: bytes, columns: Sequence[bytes] | None = None) -> Iterator[tuple[bytes, Cells]]:
        """Rows that begin so, and of them these columns, or all; in their order. Each page is a call of its own."""
        begin, end, count = prefix, _behind(prefix), SCAN_ROWS if columns else SCAN_WHOLE_ROWS
        types = self._types
        wanted = [types.TColumn(family=FAMILY, qualifier=each) for each in columns or (None,)]
        while True:
            scan = types.TScan(startRow=begin, stopRow=end, columns=wanted, caching=count, maxVersions=1, limit=count)
            found = self._read(methodcaller("getScannerResults", self._table, scan, count), "scan")
            for each in found:
                yield each.row, _cells(each)
            if len(found) < count:
                return
            begin = found[-1].row + b"\0"

    def put(self, puts: Sequence[Put], version: int) -> None:
        """All are durable when it returns; in no particular order."""

        def some(batch: Sequence[Any]) -> None:
            self._read(lambda c: c.putMultiple(self._table, batch), "write")

        self._each(some, list(self._batches(puts, version)))

    def replace(self, row: bytes, column: bytes, expected: bytes | None, values: Values, version: int) -> bool:
        """One mutation, done only where ``column`` has ``expected`` (None: nothing). False: it has not, and nothing
        was written. What ``values`` give the column must be unlike all that it ever had: that is how a lost answer
        is told from another's success."""
        put, began = self._put(row, values, version), self.clock.monotonic()
        while True:
            try:
                if self.servers.once(lambda c: c.checkAndPut(self._table, row, FAMILY, column, expected, put)):
                    return True
            except HBaseUnavailable as error:  # nothing was sent
                if self.servers.given_up(began):
                    raise ComputingError(str(error)) from None
            except Exception as error:  # a time-out, a broken connection, a region that moves: it may be done
                if self.servers.given_up(began):
                    raise ComputingError(f"HBase at {self.servers.where} does not answer: {error}") from None
            [cells] = self.get([row])
            now = cells[column].value if column in cells else None
            if now == values[column]:
                return True
            if now != expected:
                return False

    def delete(self, rows: Sequence[tuple[bytes, int]]) -> None:
        """What these rows have up to a version."""
        deletes = [self._types.TDelete(row=row, timestamp=version) for row, version in rows]
        if deletes:
            self._read(lambda c: c.deleteMultiple(self._table, deletes), "write")

    def close(self) -> None:
        self.servers.interrupt()
        self._pool.shutdown(wait=True)
        self.servers.close()

    # -- inside
    def _put(self, row: bytes, values: Values, version: int) -> Any:
        value = self._types.TColumnValue
        return self._types.TPut(
            row=row,
            columnValues=[
                value(family=FAMILY, qualifier=column, value=data, timestamp=version)
                for column, data in values.items()
            ],
        )

    def _batches(self, puts: Sequence[Put], version: int) -> Iterator[list[Any]]:
        batch: list[Any] = []
        size = 0
        for row, values in puts:
            size += len(row) + sum(map(len, values.values()))
            batch.append(self._put(row, values, version))
            if size >= PUT_BYTES or len(batch) >= PUT_ROWS:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch

    def _each(self, work: Callable[[T], R], batches: Sequence[T]) -> list[R]:
        """Several at a time, over as many connections."""
        if len(batches) < 2:
            return [work(each) for each in batches]
        return list(self._pool.map(work, batches))

    def _read(self, question: Callable[[Any], T], what: str) -> T:
        try:
            return self.servers.read(question, what, self._table)
        except UsageError:
            raise
        except PhotonError as error:
            raise ComputingError(str(error)) from None


def _cells(result: Any) -> Cells:
    return {each.qualifier: Cell(each.value, each.timestamp) for each in result.columnValues}


def _behind(prefix: bytes) -> bytes:
    """The first row that does not begin so. A prefix here ends in a byte that is not 255."""
    return prefix[:-1] + bytes([prefix[-1] + 1])
