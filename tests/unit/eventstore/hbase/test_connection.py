"""Connections: retried elsewhere after a failure, discarded after any error, when old or idle."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from photon.config.errors import UsageError
from photon.eventstore.hbase import connection as connection_module
from photon.eventstore.hbase.api import HBaseRefused, HBaseUnavailable
from photon.eventstore.hbase.connection import ThriftHBase
from photon.rows.hbase.connection import AGE_SECONDS_MAX, CONNECTIONS_MAX, IDLE_SECONDS_MAX
from tests.kit.clock import ManualClock


class Connection:
    """Gives the answers it was told to."""

    def __init__(self, number: int, answers: list[Any]) -> None:
        self.number = number
        self.answers = answers
        self.closed = False

    def ask(self) -> Any:
        assert not self.closed
        answer = self.answers.pop(0) if self.answers else self.number
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        self.closed = True


class Server:
    """Opens connections; ``answers`` are those of the next ones, one after the other."""

    def __init__(self) -> None:
        self.opened: list[Connection] = []
        self.answers: list[Any] = []
        self.clock = ManualClock()
        self.hbase = ThriftHBase("h:1", self.clock, connect=self.connect, call_seconds=0.3)

    def connect(self) -> Connection:
        self.opened.append(Connection(len(self.opened), self.answers))
        return self.opened[-1]

    def ask(self) -> Any:
        return self.hbase.call(lambda connection: connection.ask(), "ask")


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.hbase.close()
    assert all(each.closed for each in server.opened)


def test_a_connection_is_used_again(server: Server) -> None:
    assert [server.ask() for _ in range(3)] == [0, 0, 0]


@pytest.mark.parametrize(
    "failure", [TimeoutError("timed out"), ConnectionResetError(), RuntimeError("broken message")]
)
def test_after_a_failure_another_one_is_asked(server: Server, failure: Exception) -> None:
    server.ask()
    server.answers.append(failure)
    assert server.ask() == 1
    assert server.opened[0].closed  # its late answer would be taken for that to another question


def test_an_idle_or_old_one_is_not_used(server: Server) -> None:
    server.ask()
    server.clock.ns += int((IDLE_SECONDS_MAX + 1) * 1e9)
    assert server.ask() == 1
    assert server.opened[0].closed
    for _ in range(int(AGE_SECONDS_MAX / IDLE_SECONDS_MAX)):
        assert server.ask() == 1
        server.clock.ns += int(IDLE_SECONDS_MAX * 1e9)
    server.clock.ns += 10**9
    assert server.ask() == 2


def test_a_server_that_stays_away_is_given_up(server: Server) -> None:
    class Ticking(ManualClock):
        def monotonic(self) -> float:
            self.ns += 10**8
            return super().monotonic()

    hbase = ThriftHBase("h:1", Ticking(), connect=server.connect, call_seconds=2.0)
    server.answers += [OSError(111, "refused")] * 20
    with pytest.raises(HBaseUnavailable, match=r"^HBase at h:1 cannot ask now: .*refused"):
        hbase.call(lambda connection: connection.ask(), "ask")
    assert 2 <= 20 - len(server.answers) < 20
    hbase.close()


def test_a_refusal_is_not_tried_again(server: Server) -> None:
    server.answers += [RuntimeError("org.apache.hadoop.hbase.TableNotFoundException: t\n\tat Java"), "not asked"]
    with pytest.raises(HBaseRefused, match=r"failed to ask: .*TableNotFoundException: t$"):
        server.ask()
    assert server.answers == ["not asked"]


def test_whoever_is_being_stopped_does_not_try_again(server: Server) -> None:
    server.hbase.interrupt()
    server.answers.append(OSError("gone"))
    with pytest.raises(HBaseUnavailable):
        server.ask()
    assert server.ask() == 1


def test_no_more_connections_than_allowed(server: Server) -> None:
    import threading

    inside, release = threading.Semaphore(0), threading.Event()

    def wait(connection: Connection) -> None:
        inside.release()
        release.wait(30)

    asking = [threading.Thread(target=lambda: server.hbase.call(wait, "wait")) for _ in range(CONNECTIONS_MAX + 5)]
    for each in asking:
        each.start()
    for _ in range(CONNECTIONS_MAX):
        assert inside.acquire(timeout=30)
    release.set()
    for each in asking:
        each.join()
    assert len(server.opened) == CONNECTIONS_MAX


@pytest.mark.parametrize("address", ["host", "host:", ":9090", "host:x"])
def test_an_address_is_host_and_port(address: str) -> None:
    with pytest.raises(UsageError, match=r"hbase\.thrift = .*must be host:port"):
        ThriftHBase(address, ManualClock())


def test_without_happybase_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import builtins

    real: Callable[..., Any] = builtins.__import__

    def no_happybase(name: str, *args: Any, **named: Any) -> Any:
        if name == "happybase":
            raise ImportError(name)
        return real(name, *args, **named)

    monkeypatch.setattr(builtins, "__import__", no_happybase)
    with pytest.raises(UsageError, match=r"pip install 'photon-join\[hbase\]'"):
        connection_module.connector("h:1")
