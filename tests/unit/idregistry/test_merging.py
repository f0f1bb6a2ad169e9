"""Consecutive batches as one: those that may be merged, and that the state is the same."""

from __future__ import annotations

import pytest

from photon.idregistry.core import commands as c
from photon.idregistry.core.batch_merging import merged
from photon.idregistry.core.state_machine import ShardMachine
from tests.unit.idregistry.model import BUCKET_BITS, Row, batch, reopen
from tests.unit.idregistry.shard import Shard


def indexes(*commands: c.ShardCommand) -> list[int]:
    """Under which indexes they are applied."""
    return [index for index, _ in merged(enumerate(commands, 1))]


def test_batches_become_one_and_other_commands_stand_between() -> None:
    rows = [Row(1), Row(2), Row(3, generation=1)]
    ours = batch(rows[:2]), batch(rows[2:], clears=rows[:1]), batch([], clears=rows[1:2])
    assert indexes(*ours, c.Boundary(5), *ours[:2]) == [3, 4, 6]
    [(_, whole)] = merged(enumerate(ours, 1))
    assert isinstance(whole, c.Batch)
    assert c.decode_shard(c.encode(whole)) == batch(rows, [(1, 3)], rows[:2])


def test_what_was_cleared_is_not_inserted_in_the_same_run() -> None:
    assert indexes(batch([Row(1)]), batch([], clears=[Row(1), Row(2)]), batch([Row(3), Row(2)])) == [2, 3]
    assert indexes(batch([Row(1)]), batch([Row(2)], clears=[Row(1)]), batch([Row(3)], clears=[Row(3)])) == [3]


def test_a_run_is_no_larger_than_an_entry_may_be() -> None:
    half = batch([Row(number) for number in range(c.MAX_ENTRY_IDS // 2)], [(1, c.MAX_ENTRY_IDS // 2)])
    assert indexes(half, half, half, batch([Row(9)])) == [2, 4]


@pytest.mark.parametrize(
    "commands",
    [
        pytest.param([batch([], clears=[Row(1)]), batch([Row(1)])], id="cleared in vain, then inserted"),
        pytest.param([batch([Row(1)]), batch([Row(1, 2)]), batch([Row(1)])], id="the first of equals"),
        pytest.param([batch([Row(1)]), batch([], clears=[Row(1)]), batch([Row(1, 2)])], id="taken after its clear"),
        pytest.param(
            [batch([Row(1)]), reopen([Row(1)]), batch([Row(1, 2)]), batch([Row(1, 2, generation=1)])], id="reopened"
        ),
        pytest.param([batch([Row(1)], [(9, 1)]), batch([Row(1, 2)]), c.CheckState(1)], id="a caller not known"),
    ],
)
def test_the_state_is_that_of_single_ones(commands: list[c.ShardCommand]) -> None:
    shard = Shard()
    for command in commands:
        shard.do(command)
    other = ShardMachine(BUCKET_BITS)
    other.apply_run(1, shard.log)
    assert list(other.snapshot()) == list(shard.machine.snapshot())
    assert other.applied == shard.index
