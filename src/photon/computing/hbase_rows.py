"""Rows of an HBase table whose cells have versions assigned by us, as HBase's timestamps: a cell has the value
written with the highest version, regardless of the order of writes. So a write may be repeated, and may come late,
with the same result as in its turn."""

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
THREADS = 3  # Threads per process and server: a connection occupies one of the server's 16 threads.
CALL_SECONDS_MAX = 60.0  # seconds for a call with its repetitions: a region may be moving
GET_ROWS = 500
SCAN_ROWS = 1000
SCAN_WHOLE_ROWS = 100  # at a time, when whole rows are read
PUT_BYTES = 1 << 20
PUT_ROWS = 500  # per call

T = TypeVar("T")
R = TypeVar("R")


class Cell(NamedTuple):
    value: bytes
    version: int


Cells = dict[bytes, Cell]  # column -> its value
Values = Mapping[bytes, bytes]
Put = tuple[bytes, Values]  # row, and new values of some of its columns


class VersionedRows:
    """Thread-safe. Opens nothing yet. Errors are ComputingError, of one line."""

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
        """Creates the table; False if it exists already."""
        try:
            return self.servers.create(self._table, [(FAMILY, 1)])
        except UsageError:
            raise
        except PhotonError as error:
            raise ComputingError(str(error)) from None

    def get(self, rows: Sequence[bytes]) -> list[Cells]:
        """One result for each row; empty if the row does not exist."""
        columns = [self._types.TColumn(family=FAMILY)]

        def some(batch: Sequence[bytes]) -> list[Cells]:
            gets = [self._types.TGet(row=row, columns=columns, maxVersions=1) for row in batch]
            return [_cells(each) for each in self._read(lambda c: c.getMultiple(self._table, gets), "read")]

        batches = [rows[at : at + GET_ROWS] for at in range(0, len(rows), GET_ROWS)]
        return [cells for found in self._each(some, batches) for cells in found]

    def scan(self, prefix: bytes, columns: Sequence[bytes] | None = None) -> Iterator[tuple[bytes, Cells]]:
        """Rows with this prefix in order, with these columns or all. Each page is a separate call."""
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
        """Everything is durable when this returns; in no particular order."""

        def some(batch: Sequence[Any]) -> None:
            self._read(lambda c: c.putMultiple(self._table, batch), "write")

        self._each(some, list(self._batches(puts, version)))

    def replace(self, row: bytes, column: bytes, expected: bytes | None, values: Values, version: int) -> bool:
        """One atomic mutation, done only if ``column`` has the value ``expected`` (``None`` means no value). False
        means that it has another, and nothing was written. The column's new value must differ from all its earlier
        ones: that distinguishes a lost answer from another writer's success."""
        put, began = self._put(row, values, version), self.clock.monotonic()
        while True:
            try:
                if self.servers.once(lambda c: c.checkAndPut(self._table, row, FAMILY, column, expected, put)):
                    return True
            except HBaseUnavailable as error:  # nothing was sent
                if self.servers.given_up(began):
                    raise ComputingError(str(error)) from None
            except Exception as error:  # a time-out, a broken connection, a moving region: the mutation may be done
                if self.servers.given_up(began):
                    raise ComputingError(f"HBase at {self.servers.where} does not answer: {error}") from None
            [cells] = self.get([row])
            now = cells[column].value if column in cells else None
            if now == values[column]:
                return True
            if now != expected:
                return False

    def delete(self, rows: Sequence[tuple[bytes, int]]) -> None:
        """Deletes these rows' cells up to a version."""
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
        """Runs several batches at a time, over as many connections."""
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
    """The first row after those with this prefix, whose last byte must not be 255."""
    return prefix[:-1] + bytes([prefix[-1] + 1])
