"""Several Thrift 2 servers of one HBase, with what is used of tables: any may be asked, as all state is in HBase.

A server that does not answer is left alone for a second. What may be repeated is repeated elsewhere; a mutation with
a condition is not, as nobody knows whether it was done when its answer is lost.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from photon.config.clock import Clock
from photon.config.errors import UsageError
from photon.eventstore.hbase.api import HBaseRefused, HBaseUnavailable
from photon.eventstore.hbase.connection import REFUSALS, Connections, one_line
from photon.eventstore.hbase.thrift2 import connector, interface

ANSWER_SECONDS_MAX = 10.0
PAUSE_SECONDS = 0.05
SHUNNED_SECONDS = 1.0
SERVERS_MAX = 64
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
struct TDelete {
  1: required binary row, 2: optional list<TColumn> columns, 3: optional i64 timestamp, 4: optional i32 deleteType
}
struct TScan {
  1: optional binary startRow, 2: optional binary stopRow, 3: optional list<TColumn> columns, 4: optional i32 caching,
  5: optional i32 maxVersions, 6: optional TTimeRange timeRange, 15: optional i32 limit
}
struct TNamespaceDescriptor { 1: required string name, 2: optional map<string, string> configuration }
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
  void createNamespace(1: required TNamespaceDescriptor namespaceDesc) throws (1: TIOError io)
  bool tableExists(1: required TTableName tableName) throws (1: TIOError io)
  void createTable(1: required TTableDescriptor desc, 2: optional list<binary> splitKeys) throws (1: TIOError io)
}
"""
_ROW_BLOOM, _FAST_DIFF = 1, 4

T = TypeVar("T")


def types_of() -> Any:
    """The module of Thrift types. Raises UsageError."""
    return interface(_IDL)


class Servers:
    """Thread-safe. Nothing is opened yet."""

    def __init__(
        self,
        addresses: Sequence[str],
        key: str,
        clock: Clock,
        call_seconds: float,
        connects: Sequence[Callable[[], Any]] | None = None,
    ) -> None:
        """``addresses``: host:port of each, which ``key`` of the configuration names; ``call_seconds``: a question,
        with its repetitions, is given up after so long; ``connects``: in place of thriftpy2's own, for tests. Raises
        UsageError."""
        if not 1 <= len(addresses) <= SERVERS_MAX:
            raise UsageError(f"{key}: names {len(addresses)} servers, must be 1 to {SERVERS_MAX}")
        self.types = types_of()
        self.where = ", ".join(addresses)
        self.round_trips = 0  # so far; a little low where threads count at the same time
        self._clock, self._call_seconds = clock, call_seconds
        opened = connects or [connector(each, self.types, key, ANSWER_SECONDS_MAX) for each in addresses]
        self._servers = [Connections(each, clock) for each in opened]
        self._shunned = [float("-inf")] * len(self._servers)
        self._turn = itertools.count()
        self._stopping = threading.Event()
        self.pause_s = PAUSE_SECONDS  # between two tries

    def create(self, table: bytes, families: Sequence[tuple[bytes, int]]) -> bool:
        """``table``: may be NAMESPACE:NAME, and both are made; ``families``: name, versions. False: it is there
        already. Raises HBaseUnavailable, HBaseRefused."""
        types = self.types
        namespace, _, name = table.rpartition(b":")
        full = types.TTableName(ns=namespace or None, qualifier=name)
        if self.read(lambda c: c.tableExists(full), "look for", table):
            return False
        columns = [
            types.TColumnFamilyDescriptor(
                name=family, bloomnFilterType=_ROW_BLOOM, dataBlockEncoding=_FAST_DIFF, maxVersions=versions
            )
            for family, versions in families
        ]
        described = types.TTableDescriptor(tableName=full, columns=columns)
        if namespace:
            self._made(lambda c: c.createNamespace(types.TNamespaceDescriptor(name=namespace.decode())), table)
        return self._made(lambda c: c.createTable(described, None), table)

    def _made(self, question: Callable[[Any], object], table: bytes) -> bool:
        """False: it was there."""
        try:
            self.once(question)
        except Exception as error:
            problem = one_line(error)
            if "TableExistsException" in problem or "NamespaceExistException" in problem:
                return False
            raise HBaseUnavailable(f"HBase at {self.where} does not make table {table.decode()}: {problem}") from None
        return True

    def read(self, question: Callable[[Any], T], what: str, table: bytes) -> T:
        """Asks until there is an answer: of what may be repeated. Raises HBaseUnavailable; HBaseRefused where there
        is no such table, or access is denied."""
        began = self._clock.monotonic()
        while True:
            try:
                return self.once(question)
            except UsageError:
                raise
            except Exception as error:
                problem = one_line(error)
                # a missing table is named by itself sometimes, after which comes Java
                if problem == table.decode() or any(each in problem for each in REFUSALS):
                    raise HBaseRefused(f"HBase at {self.where} has no table {table.decode()}") from None
                if self.given_up(began):
                    raise HBaseUnavailable(
                        f"HBase at {self.where} does not {what} table {table.decode()}: {problem}"
                    ) from None

    def given_up(self, began: float) -> bool:
        """Whether a question that was first asked then is asked no more; otherwise it pauses before it is."""
        late = self._clock.monotonic() - began > self._call_seconds
        return late or self._stopping.wait(self.pause_s)

    def once(self, question: Callable[[Any], T]) -> T:
        """Asks a server, and others while there is none to connect to. Raises HBaseUnavailable: nothing was sent;
        whatever else it raises, it may have been done."""
        problem: HBaseUnavailable | None = None
        for at in self._order():
            try:
                answer = self._servers[at].ask(question)
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

    def interrupt(self) -> None:
        """From now on nothing is asked again."""
        self._stopping.set()

    def close(self) -> None:
        self._stopping.set()
        for each in self._servers:
            each.close()
