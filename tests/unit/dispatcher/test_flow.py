"""The joiner that gets the next batch; back-off and patience; asking the registry first."""

from __future__ import annotations

import random

import pytest

from photon.config.clock import NEVER_NS
from photon.dispatcher.flow import EJECTION, LAST_S, OWES_S, PROBE_EVENTS, USELESS_EVENTS, Flow, Target
from photon.dispatcher.lookups import BACKLOG_BYTES, NEAR_BYTES, STALL_S, Behind
from photon.dispatcher.retry import COMPLETE_NS, SETTLED_NS, Patience
from photon.joiner.api import UNKNOWN_REASON, WAIT_NS, JoinAnswers, Outcome
from tests.unit.joiner.told import answers_of

GOOD = answers_of([Outcome.JOINED])
NOTHING = JoinAnswers.alike(USELESS_EVENTS, Outcome.RETRY)
BROKEN = answers_of([Outcome.RETRY], failed=True)
BUSY = answers_of([Outcome.RETRY], overloaded=True)


def flow(joiners: int, in_flight: int = 8) -> Flow:
    return Flow(joiners, in_flight=in_flight, random=random.Random(1).random)


def send(f: Flow, now: float, events: int = 1) -> Target:
    target = f.choose(now)
    f.sent(target, events, now)
    return target


def test_no_joiner_gets_more_than_its_share() -> None:
    f = flow(3, in_flight=2)
    assert sorted(send(f, 0.0).number for _ in range(6)) == [0, 0, 1, 1, 2, 2]
    assert f.choose(0.0) is None
    assert f.next_free(0.0) is None
    f.answered(f.targets[1], 1, GOOD, 0.0, 0.0)
    assert send(f, 0.0).number == 1


def test_what_is_read_waits_for_others_while_batches_are_on_their_way() -> None:
    f = flow(2)
    assert f.company_s(0.005) == 0.0
    target = send(f, 0.0)
    send(f, 0.0)
    send(f, 0.0)
    assert f.company_s(0.004) == 0.006
    f.answered(target, 1, GOOD, 0.0, 0.0)
    assert f.company_s(0.004) == 0.004


def test_the_slow_one_gets_less() -> None:
    f = flow(2, in_flight=100)
    slow = fast = 0
    for _ in range(200):
        target = send(f, 0.0)
        if target.number:
            fast += 1
            f.answered(target, 1, GOOD, 0.0, 0.0)
        else:
            slow += 1
    assert slow < 10 < fast


def test_balanced_by_events_not_by_batches() -> None:
    f = flow(2, in_flight=100)
    big = send(f, 0.0, 1000)
    assert {send(f, 0.0, 10).number for _ in range(50)} == {1 - big.number}


@pytest.mark.parametrize("answer", [None, NOTHING, BROKEN, BUSY])
def test_a_failing_joiner_is_left_alone_for_a_while_then_tried_with_one_batch(answer: JoinAnswers | None) -> None:
    f = flow(2)
    bad = f.targets[0]
    bad.outstanding += 1
    f.sent(bad, 1, 9.0)
    f.answered(bad, 1, answer, 9.0, 10.0)
    assert {send(f, 10.0).number for _ in range(8)} == {1}
    assert f.choose(10.0) is None
    back = f.next_free(10.0)
    assert 10.0 < back <= 10.1
    assert send(f, back) is bad
    if answer is not BUSY:
        assert (f.ejected, f.most_events(bad), f.most_events(f.targets[1])) == (1, PROBE_EVENTS, 1000)
    assert f.choose(back) is None
    f.answered(bad, 1, GOOD, back, back)
    assert [send(f, back) for _ in range(8)] == [bad] * 8
    assert (f.ejected, f.most_events(bad)) == (0, 1000)


def test_an_overloaded_joiner_is_left_alone_for_twice_as_long_each_time() -> None:
    f = Flow(1, in_flight=8, random=lambda: 1.0)
    waits = []
    for answer in [BUSY] * 6 + [GOOD, BUSY]:
        now = f.targets[0].away_until
        f.answered(send(f, now), 1, answer, now, now)
        waits.append(f.targets[0].away_until - now)
    assert waits == pytest.approx([0.02, 0.04, 0.08, 0.16, 0.32, 0.5, 0.0, 0.02])


def test_what_the_registry_or_a_few_events_are_to_blame_for_is_no_failure() -> None:
    f = flow(2)
    unknown = JoinAnswers.alike(100, Outcome.RETRY, UNKNOWN_REASON)
    few = JoinAnswers.alike(USELESS_EVENTS - 1, Outcome.RETRY)
    for answers in (unknown, few):
        target = send(f, 5.0)
        f.answered(target, 1, answers, 5.0, 5.0)
        assert (target.failures, f.ejected) == (0, 0)


def test_calls_that_break_together_are_one_failure() -> None:
    f = flow(2)
    bad = f.targets[0]
    for _ in range(8):
        bad.outstanding += 1
        f.sent(bad, 1, 1.0)
    for _ in range(8):
        f.answered(bad, 1, None, 1.0, 2.0)
    assert bad.failures == 1


def test_one_that_owes_an_answer_gets_no_more_while_another_is_prompt() -> None:
    f = flow(2, in_flight=4)
    silent = send(f, 0.0)
    later = OWES_S + 0.01
    assert {send(f, later).number for _ in range(4)} == {1 - silent.number}
    assert f.choose(later) is None
    even_later = later + OWES_S + 0.01  # now both owe: nobody is better, so both may have more
    assert send(f, even_later) is silent
    f.answered(f.targets[1 - silent.number], 1, GOOD, later, even_later)


def test_ejections_grow_while_others_are_well_and_never_are_all_left_alone() -> None:
    f = flow(2)
    bad = f.targets[0]
    now = 0.0
    for _ in range(30):
        bad.outstanding += 1
        f.sent(bad, 1, now)
        f.answered(bad, 1, None, now, now)
        now = bad.away_until
    pause = bad.away_until - bad.failed_at
    assert bad.failures == 30
    assert pause <= EJECTION.most
    bad.away_until, bad.failed_at = now + EJECTION.most, now
    assert send(f, now).number == 1
    f.answered(f.targets[1], 1, None, now, now)
    assert f.next_free(now) <= now + LAST_S
    assert f.choose(now + LAST_S) is not None


def sharing(batch_events: int = 1000) -> Flow:
    return Flow(1, in_flight=8, random=random.Random(1).random, batch_events=batch_events, soon=lambda: 0.25)


def keep_busy(f: Flow, speed: float, seconds: float) -> float:
    """A joiner that processes ``speed`` events a second; returns the durations of the last answers."""
    now = free = took = 0.0
    waiting: list[tuple[float, float, int]] = []  # (answered, sent, events)
    while now < seconds:
        while (target := f.choose(now)) is not None:
            events = f.batch_events()
            f.sent(target, events, now)
            free = max(free, now) + events / speed
            waiting.append((free, now, events))
        now, sent, events = waiting.pop(0)
        took = now - sent
        f.answered(f.targets[0], events, GOOD, sent, now)
    return took


@pytest.mark.parametrize("speed", [600.0, 3000.0, 20_000.0])
def test_where_others_share_the_work_little_waits_at_a_joiner(speed: float) -> None:
    f = sharing()
    assert keep_busy(f, speed, 30.0) < 0.4
    assert f.targets[0].limit >= min(0.1 * speed, 8000)  # and it is kept busy


def test_alone_a_joiner_gets_all_that_is_allowed() -> None:
    f = flow(1)
    assert keep_busy(f, 600.0, 60.0) > 5.0
    assert f.batch_events() == 1000


def test_a_place_for_which_there_is_no_batch_is_given_back() -> None:
    f = sharing()
    target = f.choose(0.0)
    f.sent(target, 0, 0.0)
    assert f.outstanding == target.events == 0


def test_a_single_joiner_that_fails_is_tried_at_least_once_a_second() -> None:
    f = flow(1)
    now = 0.0
    for _ in range(30):
        f.answered(send(f, now), 1, None, now, now)
        back = f.next_free(now)
        assert back <= now + LAST_S
        now = back
    assert f.targets[0].failures == 30


def test_without_joiners_nothing_is_sent_until_one_comes() -> None:
    f = flow(0)
    assert f.choose(0.0) is None
    assert not f.has_room(0.0)
    assert f.next_free(0.0) is None
    assert f.batch_events() == 1000
    target = f.add()
    assert f.choose(0.0) is target


def test_a_joiner_that_was_removed_gets_no_more_and_what_is_on_its_way_still_counts() -> None:
    f = flow(2)
    first, second = f.targets
    sent = [send(f, 0.0) for _ in range(6)]
    on_their_way = sent.count(first)
    f.remove(first)
    assert f.outstanding == 6
    for _ in range(2 * 8 - 6):
        target = f.choose(0.0)
        assert target in (second, None)
        if target is not None:
            f.sent(target, 1, 0.0)
    for _ in range(on_their_way):
        f.answered(first, 1, None, 0.0, 1.0)
    assert f.outstanding == second.outstanding == 8
    assert f.ejected == 0
    assert f.add().number == 2


def test_patience_counts_from_the_first_read() -> None:
    live = Patience(unmatched_after_ns=1000, slack_ns=5)
    assert live.as_of_ns(50) == 1055
    assert Patience().as_of_ns(50) == WAIT_NS
    assert Patience(once=True, unmatched_after_ns=1000).as_of_ns(50) == NEVER_NS
    assert Patience(once=True, keep_pending=True).as_of_ns(50) == WAIT_NS
    assert live.as_of_ns(NEVER_NS - 10) == COMPLETE_NS
    steps = [(0, 50), (49, 50), (50, 1055), (1054, 1055), (1055, COMPLETE_NS), (NEVER_NS, SETTLED_NS)]
    assert [live.trigger_ns(50, past) for past, _ in steps] == [trigger for _, trigger in steps]
    assert Patience(once=True).trigger_ns(50, 60) == COMPLETE_NS


def test_when_to_look_up() -> None:
    alone = Behind(several=False)
    assert not alone.look(BACKLOG_BYTES, False, 0.0)
    assert alone.look(BACKLOG_BYTES + 1, True, 0.1)
    assert not alone.look(0, True, 9.0)
    shared = Behind(several=True)
    assert shared.look(0, False, 0.0)  # at its start: until the head has been reached
    assert not shared.look(NEAR_BYTES, True, 0.1)
    assert shared.look(NEAR_BYTES + 1, True, 0.2)
    assert shared.look(0, False, 0.3)
    assert not shared.look(0, True, 0.4)
    assert shared.look(0, True, 0.4 + 2 * STALL_S)  # it was stopped for a while
