"""The time for which a node is waited for, and when it is left alone."""

from __future__ import annotations

import pytest

from photon.eventstore.cache_nodes.node_client import (
    FAILURES_MAX,
    HEDGE_FACTOR,
    HEDGE_SECONDS_MAX,
    HEDGE_SECONDS_MIN,
    REST,
    WINDOW,
    NodeHealth,
)


def test_the_delay_follows_the_p95_within_its_bounds() -> None:
    pace = NodeHealth()
    assert pace.hedge_s == HEDGE_SECONDS_MAX
    for _ in range(WINDOW):
        pace.answered(0.0001)
    assert pace.hedge_s == HEDGE_SECONDS_MIN
    for number in range(WINDOW):
        pace.answered(0.5 if number % 100 == 0 else 0.01)  # 1 % slow ones are not waited for
    assert pace.hedge_s == pytest.approx(HEDGE_FACTOR * 0.01)
    for _ in range(WINDOW):
        pace.answered(3.0)
    assert pace.hedge_s == HEDGE_SECONDS_MAX


def test_a_node_that_fails_again_and_again_is_asked_once_in_a_while() -> None:
    pace = NodeHealth()
    for _ in range(FAILURES_MAX - 1):
        pace.failed(10.0)
        assert pace.may_ask(10.0)
    pace.failed(10.0)
    assert pace.resting
    assert not pace.may_ask(10.0 + REST.first / 2)
    assert pace.may_ask(10.0 + REST.first)
    assert not pace.may_ask(10.0 + REST.first)  # one question tries it
    pace.failed(10.6)
    assert not pace.may_ask(10.6 + REST.first)
    assert pace.may_ask(10.6 + 2 * REST.first)
    pace.answered(0.001)
    assert not pace.resting
    assert all(pace.may_ask(12.0) for _ in range(3))


def test_a_node_that_is_gone_for_long_is_still_tried() -> None:
    pace, now = NodeHealth(), 0.0
    for _ in range(2000):
        if pace.may_ask(now):
            pace.failed(now)
        now += 0.1
    assert pace.may_ask(now + REST.most)


def test_one_failure_among_answers_changes_nothing() -> None:
    pace = NodeHealth()
    for _ in range(20):
        pace.failed(1.0)
        pace.answered(0.001)
    assert not pace.resting
