"""Timestamps: the machine, its leader, and clients that share requests."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from photon.tables.api import StoreFailed
from photon.tables.oracle import (
    AT_ONCE_MAX,
    Allocate,
    Answer,
    BatchedOracle,
    Confirm,
    OracleLeader,
    OracleMachine,
    Range,
    Refuse,
    allocate,
)
from photon.tables.store import in_file


def test_ranges_follow_each_other_over_a_snapshot() -> None:
    machine = OracleMachine()
    assert machine.apply(1, allocate(10)) == Range(1, 11)
    for other_command in (b"something else", b"A2 5", b"A1 many"):
        assert machine.apply(2, other_command) is None
    other = OracleMachine()
    other.restore(machine.snapshot())
    assert other.apply(3, allocate(5)) == Range(11, 16)
    with pytest.raises(ValueError, match="snapshot"):
        other.restore([b"X"])


def test_a_batch_is_answered_after_a_round_that_began_behind_it() -> None:
    leader = OracleLeader(range_size=10)
    assert leader.requested(1, 2) == [Allocate(10)]
    assert leader.requested(2, 1) == []
    assert leader.allocated(Range(1, 11)) == [Answer(1, 1), Confirm()]
    assert leader.requested(3, 4) == []
    assert leader.confirmed(11) == [Answer(2, 3), Confirm()]
    assert leader.confirmed(11) == [Answer(3, 4)]


def test_a_range_below_somebody_else_s_is_not_used() -> None:
    leader = OracleLeader(range_size=10)
    leader.requested(1, 1)
    leader.allocated(Range(1, 11))
    leader.requested(2, 1)
    assert leader.confirmed(21) == [Allocate(10)]
    assert leader.allocated(Range(21, 31)) == [Answer(2, 21)]
    leader.requested(3, 9)
    assert leader.confirmed(31) == [Answer(3, 22)]
    assert leader.requested(4, 1) == [Allocate(10)]
    assert leader.allocated(Range(41, 51)) == [Answer(4, 41)]


def test_who_does_not_lead_refuses_all() -> None:
    leader = OracleLeader(range_size=10)
    leader.requested(1, 1)
    leader.requested(2, 1)
    assert leader.failed() == [Refuse(1), Refuse(2)]
    assert leader.requested(3, AT_ONCE_MAX + 1) == [Refuse(3)]
    assert leader.requested(4, 1) == [Allocate(10)]


def test_those_who_come_while_a_request_is_on_its_way_share_the_next_one() -> None:
    asked: list[int] = []
    first, go = threading.Event(), threading.Event()

    def ask(n: int) -> int:
        asked.append(n)
        if len(asked) == 1:
            first.set()
            go.wait(60)
        return 100 * len(asked)

    oracle = BatchedOracle(ask)
    got: list[int] = []
    threads = [threading.Thread(target=lambda: got.append(oracle.timestamp())) for _ in range(5)]
    threads[0].start()
    first.wait(60)
    for each in threads[1:]:
        each.start()
    while len(oracle._waiting) < 4:
        first.wait(0.001)
    go.set()
    for each in threads:
        each.join()
    assert asked[0] == 1
    assert sum(asked) == 5
    assert len(asked) == 2
    assert sorted(got) == [100, 200, 201, 202, 203]


def test_a_request_that_fails_is_told_to_all_who_share_it_and_the_next_goes_on() -> None:
    fails = [True]

    def ask(n: int) -> int:
        if fails.pop() if fails else False:
            raise StoreFailed("away")
        return 1

    oracle = BatchedOracle(ask)
    with pytest.raises(StoreFailed):
        oracle.timestamp()
    assert oracle.timestamp() == 1


def test_a_request_that_is_interrupted_gives_nothing_to_those_who_share_it() -> None:
    begun, go, asked = threading.Event(), threading.Event(), []

    def ask(n: int) -> int:
        asked.append(n)
        begun.set()
        go.wait(60)
        if len(asked) == 2:
            raise KeyboardInterrupt
        return 10

    oracle = BatchedOracle(ask)
    told: list[object] = []

    def one() -> None:
        try:
            told.append(oracle.timestamp())
        except (StoreFailed, KeyboardInterrupt) as error:
            told.append(type(error))

    threads = [threading.Thread(target=one) for _ in range(3)]
    threads[0].start()
    begun.wait(60)
    for each in threads[1:]:
        each.start()
    while len(oracle._waiting) < 2:
        begun.wait(0.001)
    go.set()
    for each in threads:
        each.join()
    assert asked == [1, 2]
    assert sorted(map(str, told)) == sorted(map(str, (10, KeyboardInterrupt, StoreFailed)))


def test_the_embedded_oracle_rises_over_processes_and_restarts(tmp_path: Path) -> None:
    one, other = in_file(tmp_path / "t.db"), in_file(tmp_path / "t.db")
    got = [each.timestamp() for each in (one, one, other, one, other, other)]
    assert got[1] == got[0] + 1, "from its range"
    one.close()
    other.close()
    again = in_file(tmp_path / "t.db")
    got.append(again.timestamp())
    again.close()
    assert got == sorted(set(got))
