"""The answer table row by row, and the checks before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from photon.idregistry.api import Answer, Kind
from photon.idregistry.core import commands as c
from photon.idregistry.core.shard_snapshot import SnapshotError
from photon.idregistry.core.state_machine import MAX_DATACENTRES, UNKNOWN_CALLER, WRONG_SHARD, ShardMachine
from tests.unit.idregistry.model import ALL_OF_TIME, Row, batch, reopen
from tests.unit.idregistry.shard import Shard

MINE, OTHER = Row(7, incarnation=1, batch=3), Row(7, incarnation=2, batch=9)
SAME_PROCESS = Row(7, incarnation=1, batch=4)
BELOW = c.Boundary(10**6)


def owned(shard: Shard) -> None:
    assert shard.insert(MINE) == [Answer.COMMITTED]


def cleared(shard: Shard) -> None:
    owned(shard)
    assert shard.clear(MINE) == [Answer.CLEARED]


def reopened(shard: Shard) -> None:
    owned(shard)
    assert shard.do(reopen([MINE])).tolist() == [Answer.REOPENED]


def absent_below(shard: Shard) -> None:
    assert shard.do(BELOW) == BELOW.time_ns


def absent(shard: Shard) -> None:
    """Nothing happened."""


def shard_in(state: Callable[[Shard], None]) -> Shard:
    shard = Shard()
    state(shard)
    return shard


CARRIES = Row(7, incarnation=2, batch=9, generation=1)
A = Answer


@pytest.mark.parametrize("below", [False, True], ids=["above", "below"])
@pytest.mark.parametrize(
    ("state", "row", "answer", "answer_below"),
    [
        (absent, MINE, A.COMMITTED, A.BELOW_BOUNDARY),
        (absent, CARRIES, A.COMMITTED, A.BELOW_BOUNDARY),
        (owned, MINE, A.COMMITTED, A.COMMITTED),
        (owned, OTHER, A.TAKEN, A.TAKEN),
        (owned, SAME_PROCESS, A.TAKEN, A.TAKEN),
        (cleared, MINE, A.DONE, A.BELOW_BOUNDARY),  # below: collected
        (cleared, OTHER, A.TAKEN, A.BELOW_BOUNDARY),
        (reopened, MINE, A.TAKEN, A.TAKEN),  # the dead's delayed insert
        (reopened, OTHER, A.TAKEN, A.TAKEN),
        (reopened, CARRIES, A.COMMITTED, A.COMMITTED),
    ],
)
def test_insert(state: Any, row: Row, answer: Answer, answer_below: Answer, below: bool) -> None:
    shard = shard_in(state)
    if below:
        shard.do(BELOW)
    assert shard.insert(row) == [answer_below if below else answer]


@pytest.mark.parametrize(
    ("state", "row", "answer"),
    [
        (absent, MINE, A.REFUSED),
        (absent_below, MINE, A.NO_OP),
        (owned, MINE, A.CLEARED),
        (owned, OTHER, A.REFUSED),
        (cleared, MINE, A.CLEARED),
        (reopened, MINE, A.REFUSED),
    ],
)
def test_clear(state: Any, row: Row, answer: Answer) -> None:
    assert shard_in(state).clear(row) == [answer]


@pytest.mark.parametrize(
    ("state", "row", "operator", "answer"),
    [
        (absent, MINE, True, A.NO_OP),
        (absent_below, MINE, False, A.NO_OP),
        (absent_below, MINE, True, A.REOPENED),
        (owned, MINE, False, A.REOPENED),
        (owned, OTHER, False, A.NO_OP),
        (owned, OTHER, True, A.NO_OP),
        (cleared, MINE, False, A.NO_OP),
        (cleared, MINE, True, A.REOPENED),
        (cleared, OTHER, True, A.NO_OP),
        (cleared, Row(7, 1, 3, generation=5), True, A.NO_OP),
        (reopened, MINE, True, A.NO_OP),
    ],
)
def test_reopen(state: Any, row: Row, operator: bool, answer: Answer) -> None:
    assert shard_in(state).do(reopen([row], operator)).tolist() == [answer]


@pytest.mark.parametrize(
    ("state", "answer"),
    [
        (absent, A.ABSENT),
        (absent_below, A.BELOW_BOUNDARY),
        (owned, A.PRESENT),
        (cleared, A.PRESENT),
        (reopened, A.ABSENT),
    ],
)
def test_look_up(state: Any, answer: Answer) -> None:
    assert shard_in(state).look_up(7) == [answer]


def test_taken_says_who_and_what_for() -> None:
    shard = Shard()
    shard.insert(Row(7, incarnation=2, batch=9, kind=Kind.UNMATCHED))
    found = shard.do(batch([MINE, Row(8)])).inserts
    assert found.outcomes.tolist() == [A.TAKEN, A.COMMITTED]
    assert found.owner_tokens.tolist() == [OTHER.token, 0]
    assert found.owner_kinds.tolist() == [Kind.UNMATCHED, 0]
    assert found.owner_tags.tolist() == [7, 0]
    assert found.datacentres[found.owner_datacentres[0]] == "dc2"


def test_first_wins_within_a_batch() -> None:
    mine = [A.COMMITTED, A.TAKEN, A.COMMITTED, A.COMMITTED, A.TAKEN]
    assert Shard().insert(MINE, OTHER, MINE, Row(8), SAME_PROCESS) == mine


def test_a_fenced_row_leaves_the_id_to_the_next() -> None:
    shard = Shard()
    shard.do(c.Fence("a"))
    assert shard.insert(MINE, OTHER) == [A.FENCED, A.COMMITTED]


def test_reopened_is_taken_once_within_a_batch() -> None:
    late = Row(7, incarnation=1, batch=5, generation=1)
    answers = [A.TAKEN, A.COMMITTED, A.TAKEN, A.COMMITTED]
    assert shard_in(reopened).insert(OTHER, CARRIES, late, CARRIES) == answers


def test_a_reopened_id_can_be_reopened_again() -> None:
    shard = shard_in(reopened)
    assert shard.insert(CARRIES) == [A.COMMITTED]
    assert shard.do(reopen([CARRIES])).tolist() == [A.REOPENED]
    assert shard.insert(CARRIES) == [A.TAKEN]
    assert shard.insert(Row(7, 1, 6, generation=2)) == [A.COMMITTED]


@pytest.mark.parametrize("state", [absent, owned, cleared, reopened, absent_below])
def test_stale_and_fenced_in_every_row(state: Any) -> None:
    """A fence is checked before the incarnation."""
    shard = shard_in(state)
    shard.do(c.Announce("a", "dc1", [3]))
    assert shard.insert(MINE) == [A.STALE_INCARNATION]
    for each in (shard_in(state), shard):
        each.do(c.Fence("a"))
        assert each.insert(MINE) == [A.FENCED]


def test_a_fence_may_come_before_the_slot_is_known() -> None:
    shard = Shard()
    shard.do(c.Fence("c"))
    shard.do(c.Announce("c", "dc3", [5]))
    assert shard.insert(Row(1, incarnation=5)) == [A.FENCED]


def test_a_successor_redoes_under_its_predecessors_tokens() -> None:
    shard = shard_in(owned)
    shard.do(c.Announce("a", "dc1", [1, 3]))
    assert shard.insert(MINE, Row(8, 1, 3), callers=[(3, 2)]) == [A.COMMITTED, A.COMMITTED]


def test_unknown_incarnations_are_not_inserted() -> None:
    shard = Shard()
    assert shard.insert(Row(1, incarnation=9)) == [UNKNOWN_CALLER]
    assert shard.insert(Row(1, incarnation=2), callers=[(1, 1)]) == [UNKNOWN_CALLER]  # another slot's token
    assert shard.look_up(1) == [A.ABSENT]


def test_an_incarnation_belongs_to_one_slot() -> None:
    shard = Shard()
    assert "belongs to slot a" in shard.do(c.Announce("b", "dc2", [1, 9]))
    assert not shard.machine.knows([9])


def test_there_are_so_many_datacentres_and_no_more() -> None:
    shard = Shard()
    for n in range(3, MAX_DATACENTRES + 1):
        assert shard.do(c.Announce(f"s{n}", f"dc{n}", [n])) == ""
    another = shard.do(c.Announce("of another", "another", [1000]))
    assert another == f"more than {MAX_DATACENTRES} datacentres"
    assert shard.do(c.Announce("of one of them", "dc7", [1001])) == ""


@pytest.mark.parametrize(
    ("newest", "retired", "heard"), [(0, False, True), (1, False, True), (2, False, False), (1, True, False)]
)
def test_what_a_shard_has_heard_of_a_slot(newest: int, retired: bool, heard: bool) -> None:
    assert Shard().machine.has_heard(("a", "dc1", newest, retired)) is heard


def test_ids_of_another_shard_are_refused() -> None:
    shard = Shard(configured=False)
    shard.do(c.Announce("a", "dc1", [1]))
    assert shard.insert(MINE) == [WRONG_SHARD]
    config = (c.Range(-(2**63), 2**62, (1, 2)),)
    assert shard.do(c.Configure(1, config)) == ""
    assert shard.insert(Row(6), Row(7), Row(8)) == [A.COMMITTED, WRONG_SHARD, A.COMMITTED]
    assert "configured" in shard.do(c.Configure(2, config))
    assert shard.do(c.Configure(1, config)) == ""


def test_the_boundary_never_moves_back() -> None:
    shard = Shard()
    assert shard.do(c.Boundary(500)) == 500
    assert shard.do(c.Boundary(400)) == 500


def test_collection_drops_cleared_ids_only() -> None:
    shard = Shard()
    rows = [Row(i) for i in range(200)]
    shard.insert(*rows)
    shard.clear(*rows[:150])
    shard.do(reopen(rows[150:160]))
    shard.do(BELOW)
    assert shard.machine.ids == 50
    assert shard.look_up(0, 155, 199) == [A.BELOW_BOUNDARY, A.ABSENT, A.PRESENT]
    assert shard.clear(rows[199]) == [A.CLEARED]
    shard.do(c.Boundary(BELOW.time_ns + 1))
    assert shard.machine.ids == 49


def test_a_command_of_another_release_stops_the_replica() -> None:
    with pytest.raises(c.CommandError):
        ShardMachine().apply(1, b"\x02rubbish")


def test_a_snapshot_is_of_its_moment() -> None:
    shard = Shard()
    shard.insert(*(Row(i) for i in range(50)))
    chunks = iter(shard.machine.snapshot())
    shard.clear(Row(3))
    shard.do(reopen([Row(4)]))
    shard.insert(*(Row(i) for i in range(50, 90)))
    other = ShardMachine()
    other.restore(chunks)
    assert other.ids == 50
    shard.machine = other
    assert shard.clear(Row(3, batch=1)) == [A.REFUSED]  # still owned
    assert shard.look_up(4, 60) == [A.PRESENT, A.ABSENT]


def test_large_snapshots_come_in_small_chunks() -> None:
    machine = ShardMachine()
    machine.apply(1, c.encode(c.Configure(1, ALL_OF_TIME)))
    machine.apply(2, c.encode(c.Announce("s", "dc", [1])))
    rng = np.random.default_rng(5)
    for index in range(8):
        n = 10_000
        columns = (rng.bytes(n * 16), np.arange(n, dtype="<i8"), np.full(n, 1 << 40, "<u8"))
        command = c.Batch(
            [(1, n)], columns[0], columns[1].tobytes(), columns[2].tobytes(), b"\x01" * n, bytes(4 * n), b""
        )
        machine.apply(3 + index, c.encode(command))
    chunks = list(machine.snapshot())
    assert max(map(len, chunks)) <= 1 << 20
    other = ShardMachine()
    other.restore(chunks)
    assert other.ids == 80_000
    assert list(other.snapshot()) == chunks


@pytest.mark.parametrize("damage", ["cut", "empty", "rubbish", "headless", "version", "row"])
def test_a_damaged_snapshot_is_refused(damage: str) -> None:
    chunks = list(shard_in(owned).machine.snapshot())
    chunks = {
        "cut": chunks[:-1],
        "empty": [],
        "rubbish": [b"\x00\x01"],
        "headless": chunks[1:],
        "version": [chunks[0].replace(b"\xa7version\x02", b"\xa7version\x03"), *chunks[1:]],
        "row": [chunks[0], chunks[1], chunks[-1]],
    }[damage]
    with pytest.raises(SnapshotError, match="shard snapshot"):
        ShardMachine().restore(chunks)
