"""The shards asked for an id that may have been registered before the shards changed, and those that answer."""

from __future__ import annotations

from typing import Any

import pytest

from photon.idregistry.api import Answer, token_of
from photon.idregistry.core import commands as c
from photon.idregistry.core.former_shards import NotKnown, held_elsewhere
from photon.idregistry.core.sharding import shards_of
from photon.idregistry.core.state_machine import WRONG_SHARD, ShardMachine
from tests.unit.idregistry.resharding.deployment import CALLER, Deployment, digests_of

DAY = 86_400 * 10**9
NOW = 1_000 * DAY
A, B, C = 1, 2, 3
RANGES = (
    c.Range(-(2**63), NOW, (A,)),
    c.Range(NOW, NOW + DAY, (B,)),
    c.Range(NOW + DAY, 2**63 - 1, (C,)),
)
ID = digests_of(1, 1)


def shard(number: int) -> ShardMachine:
    """After two changes: all ids were one shard's, then another one's, now a third's."""
    machine = ShardMachine()
    machine.apply(1, c.encode(c.Configure(number, RANGES, 3, 3)))
    machine.apply(2, c.encode(c.Announce("slot", "dc", [CALLER])))
    return machine


def batch(time: int, token: int, config: int) -> c.Batch:
    at, by = time.to_bytes(8, "little", signed=True), token_of(CALLER, token).to_bytes(8, "little")
    return c.Batch([(CALLER, 1)], ID, at, by, b"\1", bytes(4), config=config)


def inserted(machine: ShardMachine, index: int, command: c.Batch) -> int:
    result: Any = machine.apply(index, c.encode(command))
    return int(result.inserts.outcomes[0])


def test_a_former_shard_that_was_restored_and_is_closed_cannot_tell() -> None:
    shards = {number: shard(number) for number in (A, B, C)}
    shards[A]._state.held = True
    with pytest.raises(NotKnown, match=r"shard 1.* closed"):
        held_elsewhere(C, ID, shards, ())
    assert not held_elsewhere(C, ID, shards, (), restoring=True)[0][0]


def test_an_entry_that_was_looked_for_before_a_change_is_not_taken_after_it() -> None:
    deployment = Deployment(2)
    digest = next(d for d in (digests_of(n, 1) for n in range(99)) if shards_of(d, (1, 2)) != shards_of(d, (1, 2, 3)))
    former = int(shards_of(digest, (1, 2))[0])
    _, config = held_elsewhere(former, digest, deployment.shards, ())
    deployment.begin(3, NOW)
    deployment.care(NOW + DAY)
    assert deployment.config.ranges[-1].shards == (1, 2, 3)
    late = c.Batch(
        [(CALLER, 1)], digest, bytes(8), (1 << 40 | 1).to_bytes(8, "little"), b"\1", bytes(4), config=config
    )
    result: Any = deployment.to_shard(former, late)
    assert result.inserts.outcomes[0] != Answer.COMMITTED


def test_a_clear_that_was_looked_for_before_a_change_is_not_refused_after_it() -> None:
    """The id is another shard's, which the caller has to ask: if refused, its record would be permanent trouble."""
    late = c.Batch(clear_digests=ID, clear_times=bytes(8), clear_tokens=bytes(8), config=2)
    now = c.Batch(clear_digests=ID, clear_times=bytes(8), clear_tokens=bytes(8), config=3)
    machine = shard(C)
    assert [_cleared(machine, 3, late), _cleared(machine, 4, now)] == [WRONG_SHARD, Answer.REFUSED]


def _cleared(machine: ShardMachine, index: int, command: c.Batch) -> int:
    result: Any = machine.apply(index, c.encode(command))
    return int(result.clears.outcomes[0])
