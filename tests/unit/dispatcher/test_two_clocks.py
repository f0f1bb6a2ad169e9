"""No single wrong clock ends the patience with an event early, and a temporarily wrong clock recovers afterwards."""

from __future__ import annotations

from dataclasses import replace

import pytest

from photon.adapters.contract import LogFile
from photon.config.clock import NEVER_NS, NS_PER_S
from photon.dispatcher.retry import COMPLETE_NS, Attempt, Likeness, NextTries, Patience
from photon.dispatcher.two_clocks import AHEAD_MOST_NS, FirstRead, Heard, heard, passed_by_both
from photon.eventstore.api import ALL_BUT_ENDS_NS, Progress
from photon.eventstore.tiered import NOTHING_READ_NS
from photon.joiner.api import WAIT_NS, ForeignEvent, Outcome
from tests.unit.dispatcher.world import StoredRow, opened

S = NS_PER_S
PATIENCE = Patience(unmatched_after_ns=10 * S, slack_ns=5 * S)


def told(store_now_ns: int, lag_ns: int) -> Progress:
    """Answer of a store whose last scan began ``lag_ns`` before."""
    return Progress(read_past_ns=store_now_ns - lag_ns, read_past_age_ns=lag_ns)


@pytest.mark.parametrize(("store", "passed"), [(1000, 997), (1060, 997), (990, 987)])
def test_what_was_read_is_told_by_the_clock_that_is_behind(store: int, passed: int) -> None:
    assert passed_by_both(told(store * S, 3 * S), 1000 * S) == passed * S


@pytest.mark.parametrize("extreme", [NOTHING_READ_NS, ALL_BUT_ENDS_NS, NEVER_NS])
def test_nothing_and_everything_are_no_times(extreme: int) -> None:
    progress = Progress(read_past_ns=extreme, read_past_age_ns=5, now_ns=1060 * S)
    assert passed_by_both(progress, 1000 * S) == extreme
    assert heard(progress, 1000 * S, 7.0) == Heard(1000 * S, 7.0, 60 * S)


def test_a_store_of_an_earlier_version_tells_its_clock_by_what_it_read() -> None:
    assert heard(told(1060 * S, 3 * S), 1000 * S, 7.0) == Heard(1000 * S, 7.0, 60 * S)
    assert heard(Progress(NEVER_NS, 3), 1000 * S, 7.0) == Heard(1000 * S, 7.0, 0)
    assert heard(Progress(NOTHING_READ_NS), 1000 * S, 7.0) is None


@pytest.mark.parametrize(
    ("ahead", "since"), [(-60, 1000), (0, 1000), (5, 1000), (6, 1006), (60, 1060), (10**6, 1000 + 86400)]
)
def test_patience_begins_at_the_later_clock_within_a_day(ahead: int, since: int) -> None:
    first = FirstRead(PATIENCE.slack_ns)
    first.hear(Heard(1000 * S, 7.0, ahead * S))
    assert first.at_ns(1000 * S, 7.0) == since * S
    assert first.at_ns(1003 * S, 10.0) == (since + 3) * S
    assert AHEAD_MOST_NS == 86400 * S


def test_a_clock_that_is_set_back_between_two_answers_changes_nothing() -> None:
    first = FirstRead(PATIENCE.slack_ns)
    first.hear(Heard(1000 * S, 7.0, 0))
    assert first.at_ns(942 * S, 9.0) == 1002 * S
    first.hear(Heard(943 * S, 10.0, 60 * S))
    assert first.at_ns(944 * S, 11.0) == 1004 * S
    assert first.at_ns(1005 * S, 12.0) == 1065 * S  # right again, and not heard since: it waits for longer
    assert first.at_ns(800 * S, 13.0) == 1006 * S  # set back once more: the last answer counts


def test_an_event_that_was_read_after_now_is_waited_for_from_now_on() -> None:
    first = FirstRead(PATIENCE.slack_ns)
    assert _limited(first, 9000 * S, 1000 * S, 7.0) == 9000 * S  # the store's clock is not known
    first.hear(Heard(1000 * S, 7.0, 0))
    assert _limited(first, 9000 * S, 1000 * S, 7.0) == 1005 * S
    assert _limited(first, 900 * S, 1000 * S, 7.0) == 900 * S
    assert _limited(first, 1002 * S, 942 * S, 9.0) == 1002 * S  # this clock alone has been set back meanwhile
    first.hear(Heard(943 * S, 10.0, 60 * S))
    assert _limited(first, 1003 * S, 944 * S, 11.0) == 1003 * S  # the store's was not


def _limited(first: FirstRead, read_ns: int, now_ns: int, now: float) -> int:
    table, rows = opened([StoredRow(ForeignEvent(b"a", b"a" * 16, 0, b"k", b"x", LogFile("a.log"), 0, 0), read_ns)])
    first.limit(table, rows, now_ns, now)
    return int(table.first_read_ns[rows[0]])


SETS = Patience(unmatched_after_ns=10 * S, slack_ns=5 * S, whole_sets=True, after_ns=4 * S)


def test_a_set_is_final_when_its_window_is_over_by_the_event_and_by_the_clock() -> None:
    assert SETS.final_as_of_ns(100 * S, 90 * S) == 115 * S
    assert SETS.final_as_of_ns(100 * S, 108 * S) == 117 * S  # a little ahead: its window ends later
    assert SETS.final_as_of_ns(100 * S, 2**63 - 1) == 120 * S  # not taken now, and decided again
    assert SETS.final_as_of_ns(2**62, 2**62) <= COMPLETE_NS
    assert replace(SETS, once=True).final_as_of_ns(100 * S, 130 * S) == NEVER_NS
    assert replace(SETS, unmatched_after_ns=None).final_as_of_ns(100 * S, 130 * S) == WAIT_NS


@pytest.mark.parametrize(
    ("patience", "read_past_ns", "soon"),
    [
        (SETS, 20 * S, False),
        (SETS, 115 * S, True),
        (replace(SETS, unmatched_after_ns=None), 115 * S, False),
        (replace(SETS, keep_pending=True), 115 * S, False),
        (replace(SETS, once=True), 115 * S, False),
        (replace(SETS, once=True), NEVER_NS, True),
    ],
)
def test_a_set_is_tried_soon_only_when_that_may_change_it(patience: Patience, read_past_ns: int, soon: bool) -> None:
    tries = NextTries(patience, 60.0, lambda: 0.999)
    attempt = Attempt(Outcome.NOT_YET, read_past_ns, False, 0)
    plan = tries.after(attempt, Likeness(0, 0, 0, patience.trigger_ns(100 * S, read_past_ns, 100 * S)))
    assert (plan.delay_s < 1.0) == soon
    assert not plan.settled
