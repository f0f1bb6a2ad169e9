"""Points for the charts."""

from __future__ import annotations

import itertools

from photon.status.view import COARSE_S, EVERY_S, POINTS, History, Point, together


def point(at_s: float, **values: float | None) -> Point:
    names = ("read_per_s", "joined_per_s", "p50_s", "p90_s", "p99_s", "age_p50_s", "age_p99_s", "hit_ratio")
    return Point(**{"at_s": at_s, **dict.fromkeys(names), "lag_s": 0.0, "pending": 0.0} | values)  # type: ignore[arg-type]


def test_a_day_is_kept_in_coarse_points_and_a_quarter_of_an_hour_in_fine_ones() -> None:
    history, now = History(), 0.0
    for n in range(int(100_000 / EVERY_S)):
        now = n * EVERY_S
        assert history.due(now)
        history.add(point(now, read_per_s=float(n % 96)))
        assert not history.due(now + 1)
    found = history.as_json()
    fine, coarse = found["history"], found["day"]
    assert (len(fine), fine[-1]["at_s"]) == (POINTS, now)
    assert POINTS <= len(coarse) <= POINTS + 1
    assert coarse[-1]["at_s"] == now
    steps = {round(b["at_s"] - a["at_s"]) for a, b in itertools.pairwise(coarse)}  # type: ignore[operator]
    assert max(steps) == COARSE_S
    assert coarse[3]["read_per_s"] == 47.5


def test_of_what_went_wrong_the_worst_is_kept_and_of_the_rest_the_mean() -> None:
    found = together([point(1.0, p50_s=1.0, p99_s=1.0, lag_s=5.0), point(2.0, p50_s=3.0, p99_s=9.0), point(3.0)])
    assert (found.at_s, found.p50_s, found.p99_s, found.lag_s, found.hit_ratio) == (3.0, 2.0, 9.0, 5.0, None)


def test_a_clock_that_goes_back_begins_anew() -> None:
    history = History()
    history.add(point(1000.0))
    assert history.due(10.0)
    history.add(point(10.0))
    assert [each["at_s"] for each in history.as_json()["history"]] == [1000.0, 10.0]
