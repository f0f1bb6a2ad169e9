"""Calls one of several Thrift 2 servers of an HBase. Any of them may be called, as all state is in HBase.

A server that does not answer is avoided for a second. Repeatable requests are repeated on another server; a
conditional mutation is not, since its outcome is unknown if its answer is lost.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from photon.config.clock import Clock
from photon.config.errors import UsageError
from photon.rows.api import Families, RowsFailed, TableMissing
from photon.rows.hbase.connection import ANSWER_SECONDS_MAX, REFUSALS, Connections, NotConnected, one_line
from photon.rows.hbase.thrift2 import FAST_DIFF, ROW_BLOOM, connector, types_of

PAUSE_SECONDS = 0.05
SHUNNED_SECONDS = 1.0
SERVERS_MAX = 64

T = TypeVar("T")


class Servers:
    """The Thrift 2 servers of one HBase. Thread-safe. Connects at the first request."""

    def __init__(
        self,
        addresses: Sequence[str],
        key: str,
        clock: Clock,
        call_seconds: float,
        connects: Sequence[Callable[[], Any]] | None = None,
    ) -> None:
        """``addresses``: host:port of each server. ``key``: the setting that names them, for errors.

        ``call_seconds``: time limit of a request with its retries. ``connects``: replaces thriftpy2's connections,
        for tests. Raises UsageError.
        """
        if not 1 <= len(addresses) <= SERVERS_MAX:
            raise UsageError(f"{key}: names {len(addresses)} servers; it must name 1 to {SERVERS_MAX}")
        self.types = types_of()
        self.where = ", ".join(addresses)
        self.round_trips = 0  # since the start; slightly too low if several threads count at once
        self._clock, self._call_seconds = clock, call_seconds
        opened = connects or [connector(each, self.types, key, ANSWER_SECONDS_MAX) for each in addresses]
        self._servers = [Connections(each, clock) for each in opened]
        self._shunned = [float("-inf")] * len(self._servers)
        self._turn = itertools.count()
        self._stopping = threading.Event()
        self.pause_s = PAUSE_SECONDS  # pause between two attempts

    def create(
        self,
        table: bytes,
        families: Families,
        *,
        ttl_s: int | None = None,
        attributes: Mapping[bytes, bytes] | None = None,
        splits: Sequence[bytes] | None = None,
    ) -> bool:
        """Creates a table; for NAMESPACE:NAME, also the namespace. ``families``: name -> versions. ``ttl_s``: seconds
        that cells live. ``splits``: the first row of each region except the first.

        Returns False if the table already exists. Raises RowsFailed.
        """
        types = self.types
        namespace, _, name = table.rpartition(b":")
        full = types.TTableName(ns=namespace or None, qualifier=name)
        if self.read(lambda c: c.tableExists(full), "look for", table):
            return False
        columns = [
            types.TColumnFamilyDescriptor(
                name=family,
                bloomnFilterType=ROW_BLOOM,
                dataBlockEncoding=FAST_DIFF,
                maxVersions=versions,
                timeToLive=ttl_s,
            )
            for family, versions in families.items()
        ]
        described = types.TTableDescriptor(tableName=full, columns=columns, attributes=attributes)
        if namespace:
            self._made(lambda c: c.createNamespace(types.TNamespaceDescriptor(name=namespace.decode())), table)
        return self._made(lambda c: c.createTable(described, splits), table)

    def _made(self, question: Callable[[Any], object], table: bytes) -> bool:
        """Creates a table or namespace; returns False if it already existed."""
        try:
            self.once(question)
        except Exception as error:
            problem = one_line(error)
            if "TableExistsException" in problem or "NamespaceExistException" in problem:
                return False
            raise RowsFailed(f"HBase at {self.where} cannot create table {table.decode()}: {problem}") from None
        return True

    def read(self, question: Callable[[Any], T], what: str, table: bytes) -> T:
        """Makes a repeatable request, and retries it until there is an answer or the time limit has passed.

        Raises RowsFailed, TableMissing.
        """
        began = self._clock.monotonic()
        while True:
            try:
                return self.once(question)
            except UsageError:
                raise
            except Exception as error:
                problem = one_line(error)
                # sometimes a missing table's message is only its name, followed by a Java trace
                if problem == table.decode() or any(each in problem for each in REFUSALS):
                    raise TableMissing(f"HBase at {self.where} has no table {table.decode()}") from None
                if self.given_up(began):
                    raise RowsFailed(
                        f"HBase at {self.where} cannot {what} table {table.decode()}: {problem}"
                    ) from None

    def given_up(self, began: float) -> bool:
        """True if a request that began then must not be retried; otherwise pauses before the retry."""
        late = self._clock.monotonic() - began > self._call_seconds
        return late or self._stopping.wait(self.pause_s)

    def once(self, question: Callable[[Any], T]) -> T:
        """Makes a request once, to the first server to which connecting succeeds.

        Raises NotConnected if nothing was sent; after any other exception the request may have been executed.
        """
        problem: NotConnected | None = None
        for at in self._order():
            try:
                answer = self._servers[at].ask(question)
                self.round_trips += 1
                return answer
            except NotConnected as error:
                problem = error
                self._shunned[at] = self._clock.monotonic() + SHUNNED_SECONDS
            except BaseException:
                self._shunned[at] = self._clock.monotonic() + SHUNNED_SECONDS
                raise
        assert problem is not None
        raise problem

    def _order(self) -> Iterable[int]:
        """Returns the servers in the order to try: each time another one first, silent ones last."""
        first, count, now = next(self._turn), len(self._servers), self._clock.monotonic()
        turn = [(first + step) % count for step in range(count)]
        return sorted(turn, key=lambda at: self._shunned[at] > now)

    def interrupt(self) -> None:
        """Stops all retries from now on."""
        self._stopping.set()

    def close(self) -> None:
        self._stopping.set()
        for each in self._servers:
            each.close()
