"""The Thrift server between us and HBase: it hangs up on idle connections, and it is slow at times."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from photon.config.clock import SystemClock
from photon.eventstore.hbase.api import HBaseUnavailable, Put
from photon.eventstore.hbase.connection import ThriftHBase
from tests.hbase.maps import TABLE, Maps

ROWS = [b"\x01test-%d" % number for number in range(4)]


class SlowProxy:
    """Forwards TCP connections one to one; answers wait while ``delay`` is set, and are delivered after all."""

    def __init__(self, port: int) -> None:
        self.to = port
        self.delay = 0.0
        self.accepted = 0
        self.answers = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._sockets = [self._listener]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self.to))
                self.accepted += 1
                self._sockets += [near, far]
                for pair, slow in (((near, far), False), ((far, near), True)):
                    thread = threading.Thread(target=self._pump, args=(*pair, slow))
                    self._threads.append(thread)
                    thread.start()

    def _pump(self, source: socket.socket, sink: socket.socket, slow: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if slow and self.delay:
                    time.sleep(self.delay)
                sink.sendall(data)
                self.answers += slow
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join()


@pytest.fixture
def rows(maps: Maps) -> Iterator[None]:
    hbase = maps.hbase()
    hbase.write(TABLE.encode(), [Put(row, {b"m:v": row}) for row in ROWS])
    yield
    hbase.close()


@pytest.fixture
def proxy(maps: Maps) -> Iterator[SlowProxy]:
    proxy = SlowProxy(maps.port)
    yield proxy
    proxy.close()


def test_an_answer_that_comes_too_late_is_never_taken_for_another_s(rows: None, proxy: SlowProxy) -> None:
    hbase = ThriftHBase(f"127.0.0.1:{proxy.port}", SystemClock(), answer_seconds=0.3, call_seconds=0.1)
    table = TABLE.encode()
    try:
        assert hbase.read(table, ROWS[:1]) == {ROWS[0]: {b"m:v": ROWS[0]}}
        assert proxy.accepted == 1
        proxy.delay = 0.6
        with pytest.raises(HBaseUnavailable, match="timed out"):
            hbase.read(table, ROWS[1:2])
        proxy.delay = 0.0
        for row in ROWS[2:]:  # the late answer is on its way
            assert hbase.read(table, [row]) == {row: {b"m:v": row}}
        assert proxy.accepted == 2  # one connection was thrown away, the next is kept
    finally:
        hbase.close()


def test_without_throwing_it_away_the_late_answer_would_be_taken(rows: None, proxy: SlowProxy) -> None:
    """What the rule is for: the defect is there."""
    import happybase

    connection = happybase.Connection("127.0.0.1", proxy.port, timeout=300)
    try:
        proxy.delay = 0.6
        with pytest.raises(TimeoutError):
            connection.table(TABLE).row(ROWS[0])
        proxy.delay = 0.0
        deadline = time.monotonic() + 30
        while not proxy.answers:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert connection.table(TABLE).row(ROWS[1]) == {b"m:v": ROWS[0]}
    finally:
        connection.close()


def test_a_connection_that_the_server_hung_up_on_is_replaced(rows: None, proxy: SlowProxy) -> None:
    """The server of these tests hangs up after a second of silence."""
    hbase = ThriftHBase(f"127.0.0.1:{proxy.port}", SystemClock())
    table = TABLE.encode()
    try:
        for round_ in range(2):
            assert hbase.read(table, ROWS[:1]) == {ROWS[0]: {b"m:v": ROWS[0]}}
            hbase.write(table, [Put(ROWS[0], {b"m:v": ROWS[0]})])
            assert proxy.accepted == round_ + 1
            time.sleep(2.5)
    finally:
        hbase.close()
