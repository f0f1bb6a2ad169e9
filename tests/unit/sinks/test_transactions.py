"""Sinks into servers: each record once over any failure of the server, and over commits that are never answered."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from photon.config.errors import UsageError
from photon.library import Batch
from photon.sinks.rolling import RollLimits
from photon.sinks.transactions import Committed, TakenOver, Unreachable, committed_of, pour_into

KINDS = ("joined",)
TOTAL = 40
FINE, NOT_AT_ALL, NOT_ANSWERED = range(3)


class Server:
    """Commits records and cursor together, or not at all. ``faults``: one is taken at each call, until none
    is left."""

    def __init__(self, faults: list[int]) -> None:
        self.faults = iter(faults)
        self.rows: list[bytes] = []
        self.committed = Committed.beginning(KINDS)

    def fault(self) -> int:
        return next(self.faults, FINE)


class Connection:
    def __init__(self, server: Server) -> None:
        self.server, self.rows = server, list[bytes]()
        if server.fault():
            raise Unreachable("away")
        self.stored = server.committed

    @property
    def committed(self) -> Committed:
        return self.stored

    def add(self, batch: Batch) -> int:
        if self.server.fault():
            raise Unreachable("away")
        self.rows += batch.lines()
        return len(batch.lines())

    def commit(self, after: Committed) -> None:
        fault = self.server.fault()
        if fault == NOT_AT_ALL:
            raise Unreachable("not committed")
        if self.server.committed != self.stored:
            raise TakenOver("another")
        self.server.rows += self.rows
        self.server.committed = self.stored = after
        self.rows = []
        if fault == NOT_ANSWERED:
            raise Unreachable("committed, but who knows")

    def close(self) -> None:
        self.rows = []


def batches(cursor: bytes | None, sleep: Callable[[float], object]) -> Iterator[Batch]:
    for at in range(0 if cursor is None else int(cursor), TOTAL, 2):
        sleep(0)
        yield Batch("joined", "s", b"%d\n%d\n" % (at, at + 1), b"%d" % (at + 2))


def poured(server: Server, connect: Callable[[Server], Connection] = Connection, limit: int = 12) -> int:
    said: list[str] = []
    return pour_into(
        lambda: connect(server), batches, RollLimits(limit), wait=lambda seconds: False, monotonic=lambda: 0.0,
        say=said.append,
    )  # fmt: skip


def all_once() -> list[bytes]:
    return [b"%d" % number for number in range(TOTAL)]


@given(faults=st.lists(st.sampled_from([FINE, FINE, FINE, NOT_AT_ALL, NOT_ANSWERED]), max_size=60))
def test_each_record_once(faults: list[int]) -> None:
    server = Server([FINE, *faults])
    assert poured(server) == TOTAL
    assert server.rows == all_once()
    assert poured(server) == 0, "and nothing more the next time"


def test_the_check_sees_a_sink_that_trusts_what_it_was_answered() -> None:
    class Trusting(Connection):
        """Continues from what it heard, not from the server's state."""

        heard = Committed.beginning(KINDS)

        def __init__(self, server: Server) -> None:
            super().__init__(server)
            server.committed = self.stored = Trusting.heard

        def commit(self, after: Committed) -> None:
            super().commit(after)
            Trusting.heard = after

    server = Server([FINE] * 4 + [NOT_ANSWERED])
    poured(server, Trusting)
    assert server.rows != all_once()


def test_of_two_sinks_of_one_name_one_ends_and_nothing_comes_twice() -> None:
    server = Server([])
    other = Connection(server)
    assert poured(server) == TOTAL
    other.add(next(batches(None, lambda seconds: None)))
    with pytest.raises(TakenOver):
        other.commit(Committed("joined", "2", 2))
    assert server.rows == all_once()


def test_a_server_that_never_answered_is_an_error_and_one_that_went_away_is_waited_for() -> None:
    with pytest.raises(Unreachable, match="away"):
        poured(Server([NOT_AT_ALL]))
    server, asked = Server([FINE, FINE, NOT_AT_ALL, *[NOT_AT_ALL] * 5]), []

    def wait(seconds: float) -> bool:
        asked.append(seconds)
        return len(asked) == 4

    written = pour_into(
        lambda: Connection(server), lambda cursor, sleep: batches(cursor, lambda seconds: None), RollLimits(4),
        wait=wait, monotonic=lambda: 0.0, say=lambda line: None,
    )  # fmt: skip
    assert (written, asked) == (0, [0.1, 0.2, 0.4, 0.8]), "ended while it waited"


def test_it_goes_on_only_once_something_is_committed() -> None:
    """Otherwise an alarm about a server that accepts nothing would end, and begin, with each attempt."""
    said: list[str] = []
    pour_into(
        lambda: Connection(Server([FINE, FINE, NOT_AT_ALL])),
        lambda cursor, sleep: batches(cursor, lambda seconds: None), RollLimits(4),
        wait=lambda seconds: len(said) == 2, monotonic=lambda: 0.0, say=said.append,
    )  # fmt: skip
    assert len(said) == 2, said
    assert all(said), said


def test_what_others_have_put_there_is_refused() -> None:
    with pytest.raises(UsageError, match="has no cursor of a Photon sink"):
        committed_of(b"{}", "here")
    with pytest.raises(UsageError, match="here: was begun with kinds joined; this run has joined and late; give"):
        Committed.beginning(KINDS).check(("joined", "late"), "here")
    whole = Committed("joined", '{"photon_cursor":1,"slots":{}}', 3)
    assert committed_of(msgspec.json.encode(whole), "here") == whole
