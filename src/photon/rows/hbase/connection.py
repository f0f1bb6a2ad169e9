"""Connections to HBase's Thrift servers. Only this file imports happybase; ``thrift2.py`` uses another client.

happybase's own pool has no retry, no idle check and no maximum age, and Thrift servers hang up on idle connections
after about a minute. Here a connection

- is closed once it was idle for IDLE_SECONDS_MAX or has lived for AGE_SECONDS_MAX;
- is closed after any failure, especially a time-out: the answer still in flight would be read as the answer to the
  next request (Thrift's sequence number is not compared);
- is used by one call at a time, and their number is limited.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from photon.config.clock import Clock
from photon.config.errors import UsageError
from photon.rows.api import RowsFailed

CONNECTIONS_MAX = 8
IDLE_SECONDS_MAX = 20.0
AGE_SECONDS_MAX = 600.0
ANSWER_SECONDS_MAX = 10.0  # longest wait for one answer
REFUSALS = ("TableNotFoundException", "AccessDeniedException", "NoSuchColumnFamilyException")

T = TypeVar("T")
Connect = Callable[[], Any]  # opens a connection, which has ``close``


class NotConnected(RowsFailed):
    """Connecting failed, so nothing was sent."""


def connector(address: str, answer_seconds: float = ANSWER_SECONDS_MAX) -> Connect:
    """Returns a function that connects to the Thrift server (version 1, binary protocol, buffered) at host:port.

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
    """A pool of connections to one server, each used by one request at a time and kept while it works."""

    def __init__(self, connect: Connect, clock: Clock, most: int = CONNECTIONS_MAX) -> None:
        self._connect = connect
        self._clock = clock
        self._idle: list[_Open] = []
        self._lock = threading.Lock()
        self._free = threading.BoundedSemaphore(most)
        self._closed = False

    def ask(self, question: Callable[[Any], T]) -> T:
        """Makes one request. After any exception, closes the connection and raises the exception again."""
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


def _close(connection: Any) -> None:
    try:
        connection.close()
    except Exception:  # errors of closing do not matter
        return


def one_line(error: Exception) -> str:
    """Returns the first line of a Thrift error; the rest is a Java stack trace."""
    message = getattr(error, "message", None) or str(error) or type(error).__name__
    if isinstance(message, bytes):
        message = message.decode(errors="replace")
    lines = str(message).strip().splitlines() or [type(error).__name__]
    return lines[0].strip()[:300]
