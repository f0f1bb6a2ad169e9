"""A shard's side of changes of the shards."""

from __future__ import annotations

import numpy as np
import pytest

from photon.idregistry.core import commands as c
from photon.idregistry.core.shard_snapshot import ShardImage, ShardState, read_shard, write_shard
from photon.idregistry.core.shard_standing import Sharding, Standing
from photon.idregistry.core.sharding import single_range, with_range

RANGES = single_range(2)


def opened(number: int = 1) -> Sharding:
    shard = Sharding()
    assert shard.configure(c.Configure(number, RANGES)) == ""
    return shard


def entered(shard: Sharding, *times: int) -> Sharding:
    shard.entered(np.array(times, np.int64))
    return shard


def digest(last: int) -> bytes:
    return bytes(8) + last.to_bytes(8, "little")


def takes(shard: Sharding, last: int, time: int, config: int = -1) -> bool:
    """Accepts an id that no other shard holds by the current config, or by another."""
    known = shard.standing.config if config < 0 else config
    return bool(shard.takes(digest(last), np.array([time], np.int64), known)[0])


PREPARE = c.Prepare(2, 100, (1, 2, 3))


def test_prepares_only_while_all_that_was_ever_entered_is_earlier() -> None:
    assert entered(opened(), 50, 99).prepare(PREPARE) == ""
    late = entered(opened(), 100, 7)
    assert "event time of 100" in late.prepare(PREPARE)
    assert late.standing.refused == 2
    collected = entered(opened(), 3)
    collected.passed(100)
    assert "event time of 100" in collected.prepare(PREPARE)


def test_a_refusal_stands() -> None:
    shard = entered(opened(), 100)
    shard.prepare(PREPARE)
    assert shard.prepare(c.Prepare(2, 1_000, (1, 2, 3))) != ""
    assert shard.standing.prepared is None


def test_once_prepared_ids_must_be_its_own_under_both() -> None:
    shard = opened()
    # Shard 1 of two has even digests, of three those that three divides.
    assert [takes(shard, n, 100) for n in range(6)] == [True, False, True, False, True, False]
    shard.prepare(PREPARE)
    assert [takes(shard, n, 99) for n in range(6)] == [True, False, True, False, True, False]
    assert [takes(shard, n, 100) for n in range(6)] == [True, False, False, False, False, False]
    shard.activate(c.Activate(2))
    for time in (99, 100):  # regardless of its time
        assert [takes(shard, n, time) for n in range(6)] == [True, False, False, True, False, False]
    assert shard.standing == Standing(2, 2)


def test_an_id_that_another_shard_may_hold_is_entered_by_the_config_by_which_it_was_looked_for() -> None:
    shard = opened()
    shard.prepare(PREPARE)
    shard.activate(c.Activate(2))
    # Of two shards 3 was the other one's.
    assert [takes(shard, 3, 50, config) for config in (1, 2, 3)] == [False, True, False]
    assert [takes(shard, 0, 50, config) for config in (1, 2, 3)] == [True] * 3, "always this one's"


def test_an_abort_gives_everything_back_and_a_late_prepare_is_refused() -> None:
    shard = opened()
    shard.prepare(PREPARE)
    assert shard.abort(c.Abort(2)) == ""
    assert takes(shard, 2, 100)
    assert shard.standing == Standing(1, 2)
    assert "ended already" in shard.prepare(PREPARE)
    assert shard.prepare(c.Prepare(3, 200, (1, 2, 4))) == ""


def test_no_change_is_prepared_before_the_last_ones_end_is_known() -> None:
    shard = opened()
    assert "not the outcome of 2" in shard.prepare(c.Prepare(3, 200, (1, 2, 4)))
    shard.prepare(PREPARE)
    assert "has not ended here" in shard.prepare(c.Prepare(3, 200, (1, 2, 4)))
    assert shard.standing.refused == 0


def test_what_is_no_change_of_its_config_is_refused_and_nothing_else_happens() -> None:
    shard = opened()
    shard.prepare(PREPARE)
    shard.activate(c.Activate(2))
    assert "overlaps" in shard.prepare(c.Prepare(3, 100, (1,)))
    assert "twice" in shard.prepare(c.Prepare(3, 200, (1, 1)))
    assert shard.standing == Standing(2, 2)


def test_what_was_not_prepared_is_not_activated() -> None:
    shard = opened()
    assert "not prepared" in shard.activate(c.Activate(2))
    shard.prepare(PREPARE)
    assert "not prepared" in shard.activate(c.Activate(3))
    assert shard.activate(c.Activate(2)) == ""
    ranges = shard.ranges
    assert shard.activate(c.Activate(2)) == ""
    assert shard.abort(c.Abort(2)) == ""
    assert shard.ranges == ranges == with_range(RANGES, 100, (1, 2, 3))


def test_closes_only_when_nothing_can_come_any_more() -> None:
    shard = opened(2)
    assert "last range ends" in shard.close(0, 10**18)
    shard.prepare(c.Prepare(2, 100, (1,)))
    shard.activate(c.Activate(2))
    assert "1 ids" in shard.close(1, 100)
    assert "boundary is 99" in shard.close(0, 99)
    assert shard.close(0, 100) == ""
    assert not shard.keeps(digest(1), np.array([50], np.int64), 2)[0]


@pytest.mark.parametrize("prepared", [False, True])
def test_is_in_the_snapshot(prepared: bool) -> None:
    shard = entered(opened(), 50)
    if prepared:
        shard.prepare(PREPARE)
    assert read_shard(list(write_shard(ShardImage(7, 43, ShardState(shard), [])))).state.sharding == shard
