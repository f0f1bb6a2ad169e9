"""The config group's side of changes of the shards."""

from __future__ import annotations

import pytest

from photon.idregistry.core import commands as c
from photon.idregistry.core import shard_changes
from photon.idregistry.core.shard_changes import Changes
from photon.idregistry.core.sharding import single_range


def begun(changes: Changes, count: int, starts_ns: int) -> Changes:
    after, reason = shard_changes.intend(
        changes, c.Intend(changes.decided + 1, starts_ns, shard_changes.new_shards(changes, count))
    )
    assert reason == ""
    return after


def ended(changes: Changes, *, activate: bool) -> Changes:
    after, reason = shard_changes.decide(changes, c.Decide(changes.pending.config, activate))
    assert reason == ""
    return after


def changed(changes: Changes, count: int, starts_ns: int) -> Changes:
    return ended(begun(changes, count, starts_ns), activate=True)


FIRST = shard_changes.set_up(single_range(2))


def test_growing_and_shrinking_keeps_older_times_where_they_are() -> None:
    three = changed(FIRST, 3, 100)
    five = changed(three, 5, 200)
    two = changed(five, 2, 300)
    assert [(each.start_ns, each.end_ns, each.shards) for each in two.ranges] == [
        (-(2**63), 100, (1, 2)),
        (100, 200, (1, 2, 3)),
        (200, 300, (1, 2, 3, 4, 5)),
        (300, 2**63 - 1, (1, 2)),
    ]
    assert (two.config, two.decided, two.live, two.named) == (4, 4, (1, 2, 3, 4, 5), (1, 2))
    assert two.last.intent.leaving == (3, 4, 5)
    assert two.until(4) == 300


def test_an_intent_changes_no_route_and_an_abort_leaves_none() -> None:
    begun_once = begun(FIRST, 3, 100)
    assert begun_once.ranges == FIRST.ranges
    aborted = ended(begun_once, activate=False)
    assert (aborted.ranges, aborted.config, aborted.decided) == (FIRST.ranges, 1, 2)


def test_numbers_of_shards_are_not_used_twice() -> None:
    aborted = ended(begun(FIRST, 3, 100), activate=False)
    assert shard_changes.new_shards(aborted, 3) == (1, 2, 4)
    refused, reason = shard_changes.intend(aborted, c.Intend(3, 100, (1, 2, 3)))
    assert refused == aborted
    assert "numbered from 4" in reason
    assert shard_changes.new_shards(changed(changed(FIRST, 3, 100), 2, 200), 3) == (1, 2, 4)


@pytest.mark.parametrize(
    ("intend", "why"),
    [
        (c.Intend(3, 100, (1, 2, 3)), "number 2"),
        (c.Intend(2, -(2**63), (1, 2, 3)), "not within the last range"),
        (c.Intend(2, 2**63 - 1, (1, 2, 3)), "not within the last range"),
        (c.Intend(2, 100, (1, 1)), "twice"),
        (c.Intend(2, 100, (1, 4)), "numbered from 3"),
    ],
)
def test_what_no_change_may_be(intend: c.Intend, why: str) -> None:
    after, reason = shard_changes.intend(FIRST, intend)
    assert after == FIRST
    assert why in reason


def test_one_change_at_a_time() -> None:
    pending = begun(FIRST, 3, 100)
    after, reason = shard_changes.intend(pending, c.Intend(3, 200, (1, 2, 4)))
    assert after == pending
    assert "under way" in reason


def test_the_first_decision_wins() -> None:
    activated = changed(FIRST, 3, 100)
    again, reason = shard_changes.decide(activated, c.Decide(2, True))
    assert (again, reason) == (activated, "")
    after, reason = shard_changes.decide(activated, c.Decide(2, False))
    assert after == activated
    assert "was activated" in reason
    after, reason = shard_changes.decide(activated, c.Decide(3, True))
    assert after == activated
    assert "not under way" in reason


def test_only_a_shard_without_new_events_is_dropped() -> None:
    shrunk = changed(changed(FIRST, 3, 100), 2, 200)
    assert shard_changes.drop(shrunk, 1)[1] == "shard 1 still takes new events"
    assert shard_changes.drop(shrunk, 9)[1] == "there is no shard 9"
    assert "under way" in shard_changes.drop(begun(shrunk, 3, 300), 3)[1]
    dropped, reason = shard_changes.drop(shrunk, 3)
    assert (reason, dropped.live, dropped.removed) == ("", (1, 2), (3,))
    assert shard_changes.drop(dropped, 3) == (dropped, "")
    assert shard_changes.new_shards(dropped, 3) == (1, 2, 4)


def test_a_configuration_may_name_any_number_of_shards_that_there_was() -> None:
    five = changed(changed(FIRST, 3, 100), 5, 200)
    assert [n for n in range(1, 8) if shard_changes.fits(five, single_range(n))] == [2, 3, 5]
    assert [n for n in range(1, 8) if shard_changes.fits(FIRST, single_range(n))] == [2]
