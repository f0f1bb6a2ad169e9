"""Connects the file map to HBase, through happybase.

A call that fails is repeated on another connection, with a growing pause, until CALL_SECONDS_MAX have passed.
Repeating a write is harmless too, because the file map's cells are a function of the logs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from photon.config.back_off import BackOff
from photon.config.clock import Clock
from photon.config.errors import UsageError
from photon.eventstore.hbase.api import SCAN_ROWS, Cells, HBaseRefused, HBaseUnavailable, Put, Region
from photon.eventstore.hbase.schema import META
from photon.rows.hbase.connection import ANSWER_SECONDS_MAX, REFUSALS, Connect, Connections, connector, one_line

CALL_SECONDS_MAX = 20.0  # limit of a call with all its repetitions, after which a pending answer is abandoned, too
PAUSES = BackOff(first=0.05, most=1.0)
THREADS = 4  # batches of one read or write that are under way at a time
READ_ROWS = 1000
WRITE_ROWS = 2000

_GONE = (b"SPLIT", b"MERGED")  # states of regions that others have replaced

T = TypeVar("T")


@dataclass(eq=False)
class ThriftHBase:
    """Implements api.HBase. Seconds are the clock's monotonic ones.

    ``connect`` replaces happybase's in tests. Creating it opens no connection. Raises UsageError.
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

    def scan(self, table: bytes, start: bytes, stop: bytes, rows: int = SCAN_ROWS) -> Iterator[tuple[bytes, Cells]]:
        """See api.HBase. A scanner never outlives its call, so no connection is kept between steps."""
        while True:
            begin = start

            def some(connection: Any, begin: bytes = begin) -> list[tuple[bytes, Cells]]:
                scanner = connection.table(table).scan(row_start=begin, row_stop=stop, batch_size=rows, limit=rows)
                return list(scanner)

            found = self.call(some, f"scan {table.decode()}")
            yield from found
            if len(found) < rows:
                return
            start = found[-1][0] + b"\0"

    def regions(self, table: bytes) -> list[Region]:
        what = f"find table {table.decode()}"
        if table not in self.call(lambda c: c.tables(), what):
            raise HBaseRefused(
                f"HBase at {self.address} has no table {table.decode()}: create it with photon eventstore init"
            )
        # Not the server's own getTableRegions: that uses a cache, which keeps a re-created table's old state.
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
        """Repeats a call until it is answered. Raises HBaseUnavailable, HBaseRefused, UsageError."""
        began = self.clock.monotonic()
        pauses = PAUSES.pauses()
        while True:
            pause = next(pauses)
            try:
                return self._connections.ask(ask)
            except Exception as error:
                problem = one_line(error)
                if isinstance(error, UsageError):
                    raise
                if any(each in problem for each in REFUSALS):
                    raise HBaseRefused(f"HBase at {self.address} failed to {what}: {problem}") from None
                if self._stopping.is_set() or self.clock.monotonic() - began + pause > self.call_seconds:
                    raise HBaseUnavailable(f"HBase at {self.address} cannot {what} now: {problem}") from None
            self._stopping.wait(pause)
