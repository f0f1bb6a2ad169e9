"""Hours to be read again: always at least those needed, in few ranges."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from photon.spark.recover import replays
from photon.spark.recover.journal import WantedReplay
from photon.spark.recover.replays import HOUR_NS, REQUESTS_MAX, ReplayHours, at_most, requests


def test_one_log_is_named_several_are_not() -> None:
    hours = ReplayHours()
    for hour, log in ((5, "a.log"), (5, "a.log"), (6, "a.log"), (9, "a.log"), (9, "b.log"), (12, "x[1].log")):
        hours.add("east", log, hour * HOUR_NS + 1)
    hours.add("west", None, -1)
    found = requests(hours.wanted())
    assert [(each.datacentre, each.from_ns // HOUR_NS, each.to_ns // HOUR_NS, each.pattern, each.events)
            for each in found] == [
        ("east", 5, 7, "a.log", 3), ("east", 9, 10, "", 2), ("east", 12, 13, "", 1), ("west", -1, 0, "", 1),
    ]  # fmt: skip


@given(st.lists(st.tuples(st.integers(-50, 200), st.integers(1, 5)), min_size=1, max_size=60), st.integers(1, 8))
def test_few_ranges_hold_all_hours(some: list[tuple[int, int]], number: int) -> None:
    ranges = [WantedReplay("east", start, start + length, "", 1) for start, length in some]
    found = at_most(ranges, number)
    assert len(found) <= number
    assert all(left.to_hour < right.from_hour for left, right in pairwise(found))
    assert sum(each.events for each in found) == len(ranges)
    for each in ranges:
        assert any(one.from_hour <= each.from_hour and each.to_hour <= one.to_hour for one in found)


def test_kept_ranges_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    seed = 20261121
    draw = random.Random(seed)
    hours, all_hours = ReplayHours(), set()
    monkeypatch.setattr(replays, "WANTED_MAX", 100)
    for _ in range(3_000):
        hour = draw.randrange(100_000)
        all_hours.add(hour)
        hours.add(draw.choice(("east", "west")), "c.log", hour * HOUR_NS)
        assert len(hours.wanted()) <= 100
    found = requests(ReplayHours(hours.wanted()).wanted())
    assert len(found) <= 2 * REQUESTS_MAX
    assert sum(each.events for each in found) == 3_000
    for hour in all_hours:
        assert any(each.from_ns <= hour * HOUR_NS < each.to_ns for each in found)
