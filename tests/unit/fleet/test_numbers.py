"""Sums, rates and quantiles."""

from __future__ import annotations

import pytest

from photon.fleet.numbers import Numbers, quantile, rate, share_within, since
from tests.unit.fleet.heard import said

INF = float("inf")


def test_sums_and_maxima_over_processes() -> None:
    both = Numbers(
        [
            said("cache", "a", lambda r: r.put("photon_cache_hits_total", 2)),
            said("cache", "b", lambda r: r.put("photon_cache_hits_total", 5)),
        ]
    )
    assert (both.sum("photon_cache_hits_total"), both.max("photon_cache_hits_total")) == (7, 5)
    assert both.sum("photon_cache_misses_total") == 0


@pytest.mark.parametrize(("now", "before", "wanted"), [(30, 10, 2), (5, 10, 0.5), (5, None, None)])
def test_a_counter_that_begins_again_counts_from_nothing(now: float, before: float | None, wanted: float) -> None:
    assert rate(now, before, 10) == wanted


def test_quantiles_are_interpolated_within_a_bucket() -> None:
    buckets = {0.1: 0.0, 1.0: 50.0, 5.0: 100.0, INF: 100.0}
    assert quantile(buckets, 0.5) == 1.0
    assert quantile(buckets, 0.75) == pytest.approx(3.0)
    assert quantile({1.0: 0.0, INF: 10.0}, 0.5) == 1.0  # above the last bound: not known better
    assert quantile({1.0: 0.0, INF: 0.0}, 0.5) is None
    assert quantile({}, 0.5) is None


def test_a_histogram_that_begins_again_counts_from_nothing() -> None:
    assert since({1.0: 5, INF: 9}, {1.0: 2, INF: 4}) == {1.0: 3, INF: 5}
    assert since({1.0: 1, INF: 2}, {1.0: 2, INF: 4}) == {1.0: 1, INF: 2}


def test_share_within_a_bound() -> None:
    assert share_within({1.0: 3, INF: 4}, 1.0) == 0.75
    assert share_within({1.0: 0, INF: 0}, 1.0) is None
    assert share_within({1.0: 3, INF: 4}, 2.0) is None
