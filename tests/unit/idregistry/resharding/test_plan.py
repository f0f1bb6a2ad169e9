"""Caretakers' proposals, and messages to an operator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from photon.idregistry.api import Answer
from photon.idregistry.core import commands as c
from photon.idregistry.core.reshard_plan import Plan, seeds
from photon.idregistry.core.sharding import shards_of
from photon.idregistry.core.state_machine import WRONG_SHARD
from tests.unit.idregistry.resharding.deployment import S_NS, Deployment, digests_of

SECOND = 1_000_000_000
NOW = 10**18


def insert(registry: Deployment, first: int, count: int, time: int) -> list[int]:
    return registry.insert(digests_of(first, count), np.full(count, time, np.int64)).tolist()


def test_a_change_takes_effect_once_every_shard_may_have_prepared() -> None:
    registry = Deployment(2)
    made = registry.begin(3, NOW, lead_s=10)
    assert made.intend.starts_ns == NOW + S_NS + 10 * SECOND
    assert (made.added, made.leaving) == ((3,), ())
    assert "5 s ahead" in made.why[0]
    registry.care(NOW)
    changes = registry.config.changes
    assert (changes.config, changes.decided, changes.named) == (2, 2, (1, 2, 3))
    assert registry.shards[3].configured
    assert {machine.ranges for machine in registry.shards.values()} == {changes.ranges}


def test_an_event_from_the_future_is_named_as_the_reason() -> None:
    registry = Deployment(2)
    ahead = NOW + 3_600 * SECOND
    insert(registry, 1, 1, ahead)
    made = registry.begin(3, NOW)
    assert made.intend.starts_ns > ahead
    assert any("3600.0 s ahead of the clock" in why for why in made.why)
    registry.care(NOW)
    later = registry.begin(5, NOW)
    assert later.intend.starts_ns > made.intend.starts_ns
    assert any("not taken effect yet" in why for why in later.why)


def test_a_shard_that_entered_a_later_event_meanwhile_has_the_change_aborted() -> None:
    registry = Deployment(2)
    made = registry.begin(3, NOW)
    assert isinstance(made, Plan)
    insert(registry, 1, 1, made.intend.starts_ns)
    registry.care(NOW)
    last = registry.config.changes.last
    assert not last.activated
    assert "has entered an event time" in last.reason
    assert registry.config.changes.named == (1, 2)
    assert set(insert(registry, 100, 50, made.intend.starts_ns + 1)) == {Answer.COMMITTED}
    assert isinstance(registry.begin(3, NOW), Plan)
    registry.care(NOW)
    assert registry.config.changes.named == (1, 2, 4)


def test_a_shard_without_a_leader_is_waited_for_until_the_start() -> None:
    registry = Deployment(2)
    made = registry.begin(3, NOW)
    assert isinstance(made, Plan)
    registry.care(made.intend.starts_ns - 1, without=[2])
    assert registry.config.changes.pending is not None
    assert WRONG_SHARD in insert(registry, 0, 50, made.intend.starts_ns)
    registry.care(made.intend.starts_ns, without=[2])
    assert "shards [2] did not prepare" in registry.config.changes.last.reason
    registry.care(made.intend.starts_ns)
    assert set(insert(registry, 0, 50, made.intend.starts_ns)) == {Answer.COMMITTED}


def test_a_shard_that_was_away_for_several_changes_catches_up() -> None:
    registry = Deployment(2)
    for _ in range(3):
        made = registry.begin(3, NOW)
        assert isinstance(made, Plan)
        registry.care(made.intend.starts_ns, without=[2])
    assert registry.shards[2].sharding.standing.decided == 1
    assert isinstance(registry.begin(3, NOW), Plan)
    registry.care(NOW)
    assert registry.config.changes.named == (1, 2, 6)
    assert registry.shards[2].sharding.standing.decided == 5


def test_a_new_shard_has_the_fences_of_before_its_activation() -> None:
    registry = Deployment(2)
    made = registry.begin(3, NOW)
    assert isinstance(made, Plan)
    assert registry.to_config(c.RetireSlot("slot")) == ""
    registry.care(NOW)
    assert registry.shards[3].is_fenced("slot")
    assert set(insert(registry, 0, 90, made.intend.starts_ns)) >= {Answer.FENCED}


def test_shards_that_left_are_removed_when_they_are_empty_and_the_boundary_has_passed() -> None:
    registry = Deployment(3)
    insert(registry, 0, 30, NOW)
    made = registry.begin(2, NOW)
    assert made.leaving == (3,)
    registry.care(NOW)
    registry.to_shard(3, c.Boundary(made.intend.starts_ns + 86_400 * SECOND))
    registry.care(NOW)
    assert registry.config.changes.removed == (), "it holds owned ids"
    registry.clear(digests_of(0, 30), np.full(30, NOW, np.int64))
    registry.to_shard(3, c.Boundary(made.intend.starts_ns + 2 * 86_400 * SECOND))
    registry.care(NOW, retention=False)
    assert registry.config.changes.removed == ()
    registry.care(NOW)
    assert registry.config.changes.removed == (3,)
    assert registry.config.changes.live == (1, 2)


@pytest.mark.parametrize(
    ("count", "why"), [(2, "2 shards already"), (0, "is not from 1 to"), (c.MAX_SHARDS + 1, "is not from 1 to")]
)
def test_what_is_no_change(count: int, why: str) -> None:
    made = Deployment(2).begin(count, NOW)
    assert isinstance(made, str)
    assert why in made


def test_the_config_is_bounded_in_an_entry() -> None:
    registry = Deployment(2)
    now = NOW
    refused = ""
    for count in [2_000, 1_999] * 40:
        facts = {number: machine.sharding for number, machine in registry.shards.items()}
        assert len(facts) == len(registry.config.changes.live)
        made = registry.begin(count, now, lead_s=0)
        if isinstance(made, str):
            refused = made
            break
        assert registry.to_config(c.Decide(made.intend.config, False)) == ""
        now += SECOND
    assert "shard numbers are never reused" in refused


def test_slots_of_any_number_and_name_fit_into_entries() -> None:
    names = ["ü" * 512, *(f"slot-{n}" for n in range(3_000))]
    parts = list(seeds([(name, "datacentre", 7, False) for name in names]))
    assert [slot[0] for part in parts for slot in part.slots] == names
    assert all(c.decode_shard(c.encode(part)) == part for part in parts)


# (number, event time in seconds from the beginning): the same id comes with other times.
IDS = st.tuples(st.integers(0, 9), st.integers(-5, 25))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("change"), st.integers(1, 6), st.floats(0, 3)),
        st.tuples(st.just("care"), st.sets(st.integers(1, 12), max_size=3), st.integers(0, 5)),
        st.tuples(st.just("insert"), IDS, st.integers(0, 9)),
        st.tuples(st.just("insert"), IDS, st.integers(0, 9)),
    ),
    min_size=5,
    max_size=60,
)


@settings(max_examples=50, deadline=None)
@given(STEPS)
def test_no_id_is_entered_in_two_shards_whatever_config_its_caller_has(steps: list[tuple[str, Any, Any]]) -> None:
    registry = Deployment(2)
    configs = [registry.config.ranges]
    now = NOW
    entered: dict[bytes, set[int]] = {}
    for what, one, other in steps:
        if what == "change":
            registry.begin(one, now, lead_s=other)
        elif what == "care":
            now += other * SECOND
            registry.care(now, without=sorted(one))
        else:
            number, second = one
            digest, time = digests_of(number, 1), NOW + second * SECOND
            shard = int(shards_of(digest, configs[other % len(configs)][-1].shards)[0])
            machine = registry.shards.get(shard)
            if machine is not None and machine.configured and registry.insert_at(shard, digest, time):
                entered.setdefault(digest, set()).add(shard)
        if registry.config.ranges != configs[-1]:
            configs.append(registry.config.ranges)
    registry.care(now + 3_600 * SECOND)
    assert registry.config.changes.pending is None
    assert all(len(shards) == 1 for shards in entered.values())
