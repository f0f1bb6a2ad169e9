"""Texts of several processes become one that Prometheus can read."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families as parsed

from photon.config.metrics.histogram import Histogram
from photon.config.metrics.readings import Readings
from photon.fleet.numbers import merged, samples


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
