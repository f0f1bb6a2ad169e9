"""When an ended process is restarted."""

from __future__ import annotations

from photon.supervision.states import EMBEDDED, FAILURES_MAX, LONG_RUN, SHORT_LIVES_MAX, STEADY_S, Restarts

ERROR, USAGE, KILLED, GOOD = 1, 2, -9, 0


def test_waits_grow_up_to_a_bound() -> None:
    restarts = Restarts(LONG_RUN)
    waits = [restarts.ended(ERROR, 0.1, 0.0) for _ in range(50)]
    assert waits == sorted(waits)
    assert waits[0] < 1.0
    assert waits[-1] == max(LONG_RUN.waits_s)


def test_jitter_adds_a_bounded_share() -> None:
    least, most = (Restarts(LONG_RUN).ended(ERROR, 0.1, draw) for draw in (0.0, 0.999))
    assert least < most < least * (1 + LONG_RUN.jitter)


def test_one_that_was_steady_begins_anew() -> None:
    restarts = Restarts(LONG_RUN)
    first = restarts.ended(ERROR, STEADY_S + 1, 0.0)
    for _ in range(10):
        restarts.ended(ERROR, 0.1, 0.0)
    assert restarts.failing
    assert restarts.ended(ERROR, STEADY_S + 1, 0.0) == first
    assert not restarts.failing


def test_it_is_failing_after_errors_in_a_row() -> None:
    restarts = Restarts(EMBEDDED)
    for number in range(1, FAILURES_MAX + 1):
        restarts.ended(ERROR, 0.1, 0.0)
        assert restarts.failing == (number == FAILURES_MAX)


def test_signals_count_only_when_there_are_very_many() -> None:
    restarts = Restarts(EMBEDDED)
    for number in range(1, SHORT_LIVES_MAX + 1):
        restarts.ended(KILLED, 0.1, 0.0)
        assert restarts.failing == (number == SHORT_LIVES_MAX)


def test_one_that_cannot_be_started_counts_as_a_failure() -> None:
    restarts = Restarts(LONG_RUN)
    for _ in range(FAILURES_MAX):
        restarts.ended(None, 0.0, 0.0)
    assert restarts.failing


def test_a_usage_error_is_failing_at_once_and_tried_slowly() -> None:
    restarts = Restarts(LONG_RUN)
    assert restarts.ended(USAGE, 0.1, 0.0) == LONG_RUN.usage_wait_s
    assert restarts.failing


def test_a_refusal_is_failing_at_once_however_long_the_start_took() -> None:
    restarts = Restarts(EMBEDDED)
    restarts.ended(3, 2 * STEADY_S, 0.0)
    assert restarts.failing


def test_coming_up_ends_the_failing_but_not_the_waits() -> None:
    restarts = Restarts(LONG_RUN)
    before = [restarts.ended(ERROR, 0.1, 0.0) for _ in range(4)][-1]
    restarts.came_up()
    assert not restarts.failing
    assert restarts.ended(ERROR, 1.0, 0.0) > before
    assert not restarts.failing


def test_an_operator_s_doing_is_no_failure() -> None:
    restarts = Restarts(LONG_RUN)
    assert {restarts.ended_by_operator() for _ in range(100)} == {min(LONG_RUN.waits_s)}
    assert not restarts.failing
