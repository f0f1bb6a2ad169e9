"""Retry times of an event without a verdict."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from photon.config.clock import NEVER_NS, NS_PER_S
from photon.dispatcher.retry import (
    NOT_YET_BACKOFF,
    ONCE_ATTEMPTS_MAX,
    RETRY_BACKOFF,
    TOO_NEW_ONCE_S,
    TOO_NEW_ONCE_TRIES,
    Attempt,
    NextTries,
    NextTry,
    Patience,
)
from photon.eventstore.api import ALL_BUT_ENDS_NS
from photon.joiner.api import Outcome
from tests.unit.dispatcher.world import StoredRow, opened
from tests.unit.joiner.helpers import event

NOW_NS = 10**15
READ_PAST_NS = NOW_NS - NS_PER_S // 20


def item(name: bytes, age_s: float, attempts: int = 12, ahead_s: float | None = None) -> StoredRow:
    """``ahead_s``: distance to its event time; ``None`` means that it is long ago."""
    made = event(name, b"k")
    if ahead_s is not None:
        made = made._replace(event_time_ns=NOW_NS + int(ahead_s * NS_PER_S))
    return StoredRow(made, NOW_NS - int(age_s * NS_PER_S), attempts)


def attempt(outcome: Outcome = Outcome.NOT_YET) -> Attempt:
    return Attempt(outcome, READ_PAST_NS, overloaded=False, rows=0)


def tries(*, once: bool = False) -> NextTries:
    return NextTries(Patience(once=once, unmatched_after_ns=3600 * NS_PER_S), 60.0, random.Random(1).random)


def plans(by: NextTries, of: Attempt, *items: StoredRow, failed: int = 0) -> list[tuple[list[bytes], NextTry]]:
    """Resulting plans, with the names of their events."""
    table, rows = opened(items)
    table.failed[rows] = failed
    return [(table.ids[some].tolist(), plan) for some, plan in by.plans(of, table, rows, NOW_NS)]


def plan_of(by: NextTries, of: Attempt, alone: StoredRow, *, failed: int = 0) -> NextTry:
    ((_, plan),) = plans(by, of, alone, failed=failed)
    return plan


def planned(attempt: Attempt, items: list[StoredRow], draw: float) -> dict[bytes, NextTry]:
    patience = Patience(unmatched_after_ns=20 * NS_PER_S)
    found = plans(NextTries(patience, 60.0, lambda: draw), attempt, *items)
    assert sum(len(group) for group, _ in found) == len(items)
    return {name: plan for group, plan in found for name in group}


@given(
    events=st.lists(st.tuples(st.floats(-2.0, 90.0), st.integers(0, 15), st.floats(-1.0, 700.0)), min_size=1),
    outcome=st.sampled_from([Outcome.NOT_YET, Outcome.RETRY, Outcome.TOO_NEW]),
    overloaded=st.booleans(),
    draw=st.floats(0.0, 1.0, exclude_max=True),
)
def test_what_follows_for_an_event_does_not_depend_on_the_others_in_its_batch(
    events: list[tuple[float, int, float]], outcome: Outcome, overloaded: bool, draw: float
) -> None:
    items = [item(b"%d" % number, *each) for number, each in enumerate(events)]
    of = replace(attempt(outcome), overloaded=overloaded)
    together = planned(of, items, draw)
    for each in items:
        assert planned(of, [each], draw)[each.event.event_id] == together[each.event.event_id]


def test_one_old_event_does_not_make_its_batch_wait() -> None:
    batch = [item(b"old", 30.0, attempts=10), *(item(b"%d" % n, 2.0, attempts=0) for n in range(249))]
    plans = planned(attempt(), batch, 0.99)
    assert plans[b"old"].delay_s > 100.0
    assert max(plans[b"%d" % n].delay_s for n in range(249)) <= NOT_YET_BACKOFF.first


@pytest.mark.parametrize("outcome", [Outcome.RETRY, Outcome.TOO_NEW])
def test_who_waited_long_for_its_primary_event_is_not_put_off_for_long_when_it_is_there(outcome: Outcome) -> None:
    """For example with a joiner that has not started: only failed tries count."""
    made, longest = item(b"a", 3000.0, attempts=20), NextTries(Patience(), 60.0, lambda: 0.999)
    for failed, most in ((0, 0.1), (1, 0.2), (3, 0.8), (15, RETRY_BACKOFF.most)):
        assert 0.9 * most < plan_of(longest, attempt(outcome), made, failed=failed).delay_s <= most
    assert plan_of(longest, replace(attempt(outcome), overloaded=True), made).delay_s <= RETRY_BACKOFF.first


def test_an_event_that_may_name_a_last_line_without_end_waits_for_the_next_run() -> None:
    for read_past_ns, once, settled in (
        (ALL_BUT_ENDS_NS, True, True),
        (NEVER_NS, True, False),  # the store has started again: it will say
        (ALL_BUT_ENDS_NS, False, False),
    ):
        missed = replace(attempt(), read_past_ns=read_past_ns)
        plan = plan_of(tries(once=once), missed, item(b"a", 30.0))
        assert (plan.settled, plan.given_up) == (settled, False), read_past_ns
    unavailable = replace(attempt(Outcome.RETRY), read_past_ns=ALL_BUT_ENDS_NS)
    assert plan_of(tries(once=True), unavailable, item(b"a", 30.0, attempts=ONCE_ATTEMPTS_MAX)).given_up


def test_with_once_an_event_whose_primary_log_is_gone_waits_for_the_next_run_at_once() -> None:
    gone = replace(attempt(Outcome.RETRY), read_past_ns=NEVER_NS, gone=True)
    assert plan_of(tries(once=True), gone, item(b"a", 30.0, attempts=0)).given_up
    assert not plan_of(tries(once=False), gone, item(b"a", 30.0, attempts=0)).settled
    assert not plan_of(tries(once=True), replace(gone, gone=False), item(b"a", 30.0, attempts=0)).settled


def early(ahead_s: float, attempts: int) -> StoredRow:
    return item(b"early", 0.0, attempts, ahead_s)


def test_with_once_an_event_of_the_future_does_not_hold_up_the_end() -> None:
    too_new = attempt(Outcome.TOO_NEW)
    assert plan_of(tries(once=True), too_new, early(TOO_NEW_ONCE_S + 1, 0)).settled
    near = plan_of(tries(once=True), too_new, early(3.0, 0))
    assert not near.settled
    assert near.delay_s == 3.0
    assert not plan_of(tries(), too_new, early(10**6, 0)).settled


def test_where_only_the_registrys_clock_is_behind_it_is_not_asked_all_the_time_nor_for_ever() -> None:
    too_new = replace(attempt(Outcome.TOO_NEW), read_past_ns=NEVER_NS)
    tried, waited_s = 0, 0.0
    while not (plan := plan_of(tries(once=True), too_new, early(-3600.0, tried), failed=tried)).settled:
        waited_s += plan.delay_s
        tried += 1
    assert tried == TOO_NEW_ONCE_TRIES - 1
    assert waited_s < TOO_NEW_ONCE_S
    made = early(-3600.0, 20)
    for failed in range(20):
        assert plan_of(tries(), too_new, made, failed=failed).delay_s >= 0.01
    assert max(plan_of(tries(), too_new, made, failed=12).delay_s for _ in range(3)) > 1.0
