"""HBase through happybase: the only file that imports it.

happybase's own pool has no retry, no idle check and no maximum age, and Thrift servers hang up on idle connections
after about a minute. Here a connection

- is thrown away once it was idle for IDLE_SECONDS_MAX or has lived for AGE_SECONDS_MAX;
- is thrown away after any failure, a time-out above all: the answer still in flight would be read as the answer to
  the next question (Thrift's sequence number is not compared);
- is used by one call at a time, and their number is limited.

A call that fails is repeated on another connection, with a growing pause, until CALL_SECONDS_MAX have passed. All
calls may be repeated: reads by nature, writes because the file map's cells are a function of the logs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from photon.config.clock import Clock
from photon.config.errors import UsageError
from photon.eventstore.hbase.api import Cells, HBaseRefused, HBaseUnavailable, Put, Region
from photon.eventstore.hbase.schema import META

CONNECTIONS_MAX = 8
IDLE_SECONDS_MAX = 20.0
AGE_SECONDS_MAX = 600.0
ANSWER_SECONDS_MAX = 10.0  # longest wait for one answer
CALL_SECONDS_MAX = 20.0
"""Limit of a call with all its repetitions, after which the pending answer is given up, too."""
PAUSE_SECONDS = 0.05
PAUSE_SECONDS_MAX = 1.0
THREADS = 4  # batches of one read or write that are under way at a time
READ_ROWS = 1000
WRITE_ROWS = 2000
SCAN_ROWS = 1000
REFUSALS = ("TableNotFoundException", "AccessDeniedException", "NoSuchColumnFamilyException")

_GONE = (b"SPLIT", b"MERGED")  # states of regions that others have replaced

T = TypeVar("T")
Connect = Callable[[], Any]  # opens a happybase.Connection


def connector(address: str, answer_seconds: float = ANSWER_SECONDS_MAX) -> Connect:
    """Opens connections to the Thrift server (version 1, binary protocol, buffered) at host:port.

    Raises UsageError.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise UsageError(f"hbase.thrift = {address!r}: must be host:port of HBase's Thrift server")

    happybase = _happybase()

    def connect() -> Any:
        connection = happybase.Connection(host, int(port), timeout=int(answer_seconds * 1000), autoconnect=False)
        connection.open()
        return connection

    return connect


def _happybase() -> Any:
    try:
        import happybase
    except ImportError:
        raise UsageError("happybase is not installed: pip install 'photon-join[hbase]'") from None
    return happybase


@dataclass(slots=True)
class _Open:
    connection: Any
    opened: float
    used: float


class Connections:
    """Connections to one server: kept while they work, and lent to one request at a time. Opens nothing yet."""

    def __init__(self, connect: Connect, clock: Clock, most: int = CONNECTIONS_MAX) -> None:
        self._connect = connect
        self._clock = clock
        self._idle: list[_Open] = []
        self._lock = threading.Lock()
        self._free = threading.BoundedSemaphore(most)
        self._closed = False

    def ask(self, question: Callable[[Any], T]) -> T:
        """Asks once. Throws the connection away after any exception, which is passed on."""
        with self._free:
            used = self._borrow()
            good = False
            try:
                answer = question(used.connection)
                good = True
                return answer
            finally:
                self._give_back(used, good)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for each in idle:
            _close(each.connection)

    def _borrow(self) -> _Open:
        now = self._clock.monotonic()
        stale = []
        try:
            with self._lock:
                while self._idle:
                    each = self._idle.pop()
                    if now - each.used <= IDLE_SECONDS_MAX and now - each.opened <= AGE_SECONDS_MAX:
                        return each
                    stale.append(each)
        finally:
            for each in stale:
                _close(each.connection)
        return _Open(self._connect(), now, now)

    def _give_back(self, used: _Open, good: bool) -> None:
        used.used = self._clock.monotonic()
        with self._lock:
            if good and not self._closed:
                self._idle.append(used)
                return
        _close(used.connection)


@dataclass(eq=False)
class ThriftHBase:
    """Implements api.HBase. Seconds are the clock's monotonic ones.

    ``connect``: replaces happybase's own, for tests. Opens nothing yet. Raises UsageError.
    """

    address: str
    clock: Clock
    connect: Connect | None = None
    call_seconds: float = CALL_SECONDS_MAX
    answer_seconds: float = ANSWER_SECONDS_MAX

    def __post_init__(self) -> None:
        self._connections = Connections(self.connect or connector(self.address, self.answer_seconds), self.clock)
        self._stopping = threading.Event()
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="hbase")

    # -- api.HBase ---------------------------------------------------------------------------------------------
    def read(self, table: bytes, rows: Sequence[bytes], columns: Sequence[bytes] | None = None) -> dict[bytes, Cells]:
        def one(batch: Sequence[bytes]) -> list[tuple[bytes, Cells]]:
            found = self.call(lambda c: c.table(table).rows(batch), f"read {table.decode()}")
            return list(found)

        out: dict[bytes, Cells] = {}
        for found in self._each(one, [rows[i : i + READ_ROWS] for i in range(0, len(rows), READ_ROWS)]):
            out.update(found)
        return out

    def write(self, table: bytes, puts: Sequence[Put]) -> None:
        def one(batch: Sequence[Put]) -> None:
            def send(connection: Any) -> None:
                out = connection.table(table).batch()
                for row, cells in batch:
                    out.put(row, cells)
                out.send()

            self.call(send, f"write {table.decode()}")

        self._each(one, [puts[i : i + WRITE_ROWS] for i in range(0, len(puts), WRITE_ROWS)])

    def scan(self, table: bytes, start: bytes, stop: bytes) -> Iterator[tuple[bytes, Cells]]:
        """See api.HBase. A scanner never outlives its call, so no connection is kept between steps."""
        while True:
            begin = start

            def some(connection: Any, begin: bytes = begin) -> list[tuple[bytes, Cells]]:
                scanner = connection.table(table).scan(
                    row_start=begin, row_stop=stop, batch_size=SCAN_ROWS, limit=SCAN_ROWS
                )
                return list(scanner)

            found = self.call(some, f"scan {table.decode()}")
            yield from found
            if len(found) < SCAN_ROWS:
                return
            start = found[-1][0] + b"\0"

    def regions(self, table: bytes) -> list[Region]:
        what = f"find table {table.decode()}"
        if table not in self.call(lambda c: c.tables(), what):
            raise HBaseRefused(
                f"HBase at {self.address} has no table {table.decode()}: photon eventstore init makes it"
            )
        # Not the server's own getTableRegions: that uses a cache, which keeps the old state of a re-created table.
        rows = self.scan(META, table + b",,", table + b" ,,")
        names = [name for name, cells in rows if cells.get(b"info:state") not in _GONE]
        starts = [name[len(table) + 1 : name.rindex(b",")] for name in names]
        return [Region(*each) for each in zip(names, starts, [*starts[1:], b""], strict=True)]

    def interrupt(self) -> None:
        self._stopping.set()

    def close(self) -> None:
        self._stopping.set()
        self._pool.shutdown(wait=True)
        self._connections.close()

    # -- calls ---------------------------------------------------------------------------------------------
    def _each(self, one: Callable[[Any], T], batches: Sequence[Any]) -> list[T]:
        if len(batches) == 1:
            return [one(batches[0])]
        return list(self._pool.map(one, batches))

    def call(self, ask: Callable[[Any], T], what: str) -> T:
        """Asks over connections until there is an answer. Raises HBaseUnavailable, HBaseRefused, UsageError."""
        began = self.clock.monotonic()
        pause = PAUSE_SECONDS
        while True:
            try:
                return self._connections.ask(ask)
            except Exception as error:
                problem = one_line(error)
                if isinstance(error, UsageError):
                    raise
                if any(each in problem for each in REFUSALS):
                    raise HBaseRefused(f"HBase at {self.address} does not {what}: {problem}") from None
                if self._stopping.is_set() or self.clock.monotonic() - began + pause > self.call_seconds:
                    raise HBaseUnavailable(f"HBase at {self.address} does not {what} now: {problem}") from None
            self._stopping.wait(pause)
            pause = min(2 * pause, PAUSE_SECONDS_MAX)


def _close(connection: Any) -> None:
    try:
        connection.close()
    except Exception:  # it is being thrown away: its errors do not matter
        return


def one_line(error: Exception) -> str:
    """The first line of a Thrift error: the rest is a Java stack trace."""
    message = getattr(error, "message", None) or str(error) or type(error).__name__
    if isinstance(message, bytes):
        message = message.decode(errors="replace")
    lines = str(message).strip().splitlines() or [type(error).__name__]
    return lines[0].strip()[:300]
