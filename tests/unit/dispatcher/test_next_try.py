"""When an event whose primary has not come is tried again: soon while it is young, at its home."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from photon.config.clock import NEVER_NS, NS_PER_S
from photon.dispatcher.events import Item
from photon.dispatcher.next_try import Attempt, NextTries
from photon.dispatcher.retry import EARLY_BACKOFF, EARLY_S, TOO_NEW_ONCE_S, TOO_NEW_ONCE_TRIES, Patience
from photon.joiner.api import Outcome
from tests.unit.joiner.helpers import event

NOW_NS = 10**15
READ_PAST_NS = NOW_NS - NS_PER_S // 20


def item(name: bytes, age_s: float, attempts: int = 12) -> Item:
    made = Item(event(name, b"k"), None, NOW_NS - int(age_s * NS_PER_S))
    made.attempts = attempts
    return made


def attempt(outcome: Outcome = Outcome.NOT_YET, held: int = 0) -> Attempt:
    return Attempt(outcome, READ_PAST_NS, overloaded=False, rows=0, held=held)


def tries(*, once: bool = False, home: bytes | None = None) -> NextTries:
    def own(digests: bytes) -> npt.NDArray[np.bool_]:
        return np.array([digests[at : at + 16] == home for at in range(0, len(digests), 16)])

    return NextTries(
        Patience(once=once, unmatched_after_ns=3600 * NS_PER_S), 60.0, random.Random(1).random, own if home else None
    )


def test_the_young_are_tried_soon_however_old_the_others_are() -> None:
    young, old = item(b"young", 0.5), item(b"old", 30.0)
    plans = list(tries().plans(attempt(), [old, young], NOW_NS))
    assert [list(items) for items, _ in plans] == [[young], [old]]
    assert plans[0][1].delay_s <= EARLY_BACKOFF.first
    assert plans[1][1].delay_s > EARLY_BACKOFF.first


@pytest.mark.parametrize(
    ("age_s", "why"), [(EARLY_S + 0.1, "it is no longer young"), (0.01, "the logs were not read past its first read")]
)
def test_others_have_one_plan(age_s: float, why: str) -> None:
    (plan,) = tries().plans(attempt(), [item(b"a", age_s, attempts=0)], NOW_NS)
    assert plan[1] == tries().after(attempt(), plan[0], NOW_NS), why


def test_where_the_store_lags_they_are_young_for_longer_but_not_for_ever() -> None:
    for lag_s, age_s, early in ((20.0, 21.0, True), (20.0, 22.5, False), (70.0, 71.0, False)):
        lagging = replace(attempt(), read_past_ns=NOW_NS - int(lag_s * NS_PER_S))
        (plan,) = tries().plans(lagging, [item(b"a", age_s)], NOW_NS)
        assert plan[1].early is early, lag_s


def test_with_once_and_for_other_outcomes_nothing_is_early() -> None:
    young = item(b"young", 0.5)
    for each, of in ((tries(once=True), attempt()), (tries(), attempt(Outcome.RETRY))):
        ((items, _),) = each.plans(of, [young], NOW_NS)
        assert list(items) == [young]


def test_only_the_home_tries_soon() -> None:
    here, there = item(b"here", 0.5), item(b"there", 0.5)
    plans = list(tries(home=here.event.digest).plans(attempt(), [here, there], NOW_NS))
    assert [list(items) for items, _ in plans] == [[here], [there]]


def test_many_that_wait_are_tried_less_often() -> None:
    delays = [
        plan.delay_s
        for seed in range(200)
        for _, plan in NextTries(Patience(), 60.0, random.Random(seed).random).plans(
            attempt(held=4000), [item(b"a", 0.5)], NOW_NS
        )
    ]
    assert max(delays) > 5 * EARLY_BACKOFF.first
    assert max(delays) <= EARLY_BACKOFF.most


def early(ahead_s: float, attempts: int) -> Item:
    made = item(b"early", 0.0, attempts)
    made.event = made.event._replace(event_time_ns=NOW_NS + int(ahead_s * NS_PER_S))
    return made


def test_with_once_an_event_of_the_future_does_not_hold_up_the_end() -> None:
    too_new = attempt(Outcome.TOO_NEW)
    assert tries(once=True).after(too_new, [early(TOO_NEW_ONCE_S + 1, 0)], NOW_NS).settled
    near = tries(once=True).after(too_new, [early(3.0, 0)], NOW_NS)
    assert not near.settled
    assert near.delay_s == 3.0
    assert not tries().after(too_new, [early(10**6, 0)], NOW_NS).settled


def test_where_only_the_registrys_clock_is_behind_it_is_not_asked_all_the_time_nor_for_ever() -> None:
    too_new = replace(attempt(Outcome.TOO_NEW), read_past_ns=NEVER_NS)
    made, waited_s = early(-3600.0, 0), 0.0
    while not (plan := tries(once=True).after(too_new, [made], NOW_NS)).settled:
        waited_s += plan.delay_s
        made.attempts += 1
    assert made.attempts == TOO_NEW_ONCE_TRIES - 1
    assert waited_s < TOO_NEW_ONCE_S
    for attempts in range(20):
        assert tries().after(too_new, [early(-3600.0, attempts)], NOW_NS).delay_s >= 0.01
    assert max(tries().after(too_new, [early(-3600.0, 12)], NOW_NS).delay_s for _ in range(3)) > 1.0
