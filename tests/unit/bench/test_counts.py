"""The hot path makes no more calls per event than accepted."""

from __future__ import annotations

import pytest

from bench.counts import TOLERANCE, baseline, calls_of, count, python, regressions
from photon.idregistry.api import Digester


def test_the_hot_path_makes_no_more_calls_for_an_event_than_were_accepted() -> None:
    accepted = baseline()
    if accepted is None:
        pytest.skip(f"bench/counts.json has no counts of Python {python()}")
    for _ in range(3):  # on a busy machine loops turn idly, which only adds
        if not (worse := regressions(count(), accepted)):
            break
    assert worse == [], (
        "work is done for each event that was not done before, or for each event in place of each batch; "
        "if that is meant, make bench-counts and commit bench/counts.json"
    )


def test_one_more_call_an_event_is_seen() -> None:
    digester = Digester(b"0123456789abcdef", "join")

    def work(times: int) -> int:
        return calls_of(lambda: [digester.digest(b"id") for _ in range(times)])

    once = work(1)
    assert work(100) == 100 * once > 0
    assert regressions({"stage": 20.0 * (1 + TOLERANCE)}, {"stage": 20.0}) == []
    assert regressions({"stage": 21.6}, {"stage": 20.0}) == ["stage: 21.6, 8% more than the 20 accepted"]
    assert regressions({"stage": 1.0}, {"stage": 0.0}) == ["stage: 1, and not the 0 accepted"]
    assert regressions({"new": 1.0}, {}) == ["new: 1, but it has no baseline"]
