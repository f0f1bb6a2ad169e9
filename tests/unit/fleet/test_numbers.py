"""Sums, rates and quantiles; texts of several processes become one that Prometheus can read."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families as parsed

from photon.config.metrics.histogram import Histogram
from photon.config.metrics.readings import Readings
from photon.fleet.numbers import Numbers, merged, quantile, rate, samples, share_within, since
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


def _text(ids: float, slot: str) -> str:
    readings = Readings()
    readings.put("photon_joiner_open_ids", ids, join="j", slot=slot)
    readings.put("photon_cache_hits_total", ids)
    readings.put_histogram("photon_dispatcher_join_seconds", Histogram(), join="j")
    return readings.text()


def test_samples_of_one_metric_stand_together_under_one_head() -> None:
    odd = 'a"b\\c\nd'
    text = merged([({"process": "x"}, _text(1, "s1")), ({"process": odd}, _text(2, odd))])
    assert text.count("# TYPE photon_joiner_open_ids gauge") == 1
    assert text.count("# HELP ") == text.count("# TYPE ") == 3
    families = {family.name: family for family in parsed(text)}
    found = {(s.labels["process"], s.labels["slot"]): s.value for s in families["photon_joiner_open_ids"].samples}
    assert found == {("x", "s1"): 1.0, (odd, odd): 2.0}
    hits = {s.labels["process"]: s.value for s in families["photon_cache_hits"].samples}
    assert hits == {"x": 1.0, odd: 2.0}
    buckets = [s for s in families["photon_dispatcher_join_seconds"].samples if s.name.endswith("_bucket")]
    assert {s.labels["process"] for s in buckets} == {"x", odd}


def test_samples_are_what_was_put() -> None:
    odd = 'a"b\\c\nd\\n'
    found = {(s.name, *s.labels.values()): s.value for s in samples(_text(3, odd))}
    assert (found["photon_joiner_open_ids", "j", odd], found["photon_cache_hits_total",]) == (3, 3)
    assert found["photon_dispatcher_join_seconds_bucket", "j", "+Inf"] == 0


def test_lines_that_are_none_are_left_out() -> None:
    assert list(samples("nonsense\n# HELP a b\n\na{b=1 x y\n")) == []
    assert merged([({"p": "1"}, "nonsense\n")]) == ""


def test_without_further_labels_text_stays_as_it_is() -> None:
    text = '# HELP a b\n# TYPE a gauge\na{b="c"} 1.0\n'
    assert merged([({}, text)]) == text
