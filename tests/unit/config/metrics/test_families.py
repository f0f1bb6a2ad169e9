"""Metrics between processes, and as the text that Prometheus reads."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families as parsed

from photon.config.metrics.families import Family, decode, encode, text_of
from photon.config.metrics.histogram import Histogram
from photon.config.metrics.readings import Readings

ODD = 'a"b\\c\nd'


def _said(ids: float, slot: str) -> list[Family]:
    readings = Readings()
    readings.put("photon_joiner_open_ids", ids, join="j", slot=slot)
    readings.put("photon_cache_hits_total", ids)
    readings.put_histogram("photon_dispatcher_join_seconds", Histogram(), join="j")
    return decode(encode(readings.families()))


def test_samples_of_one_metric_stand_together_under_one_head() -> None:
    text = text_of([({"process": "x"}, _said(1, "s1")), ({"process": ODD}, _said(2, ODD))]).decode()
    assert text.count("# TYPE photon_joiner_open_ids gauge") == 1
    assert text.count("# HELP ") == text.count("# TYPE ") == 3
    families = {family.name: family for family in parsed(text)}
    found = {(s.labels["process"], s.labels["slot"]): s.value for s in families["photon_joiner_open_ids"].samples}
    assert found == {("x", "s1"): 1.0, (ODD, ODD): 2.0}
    hits = {s.labels["process"]: s.value for s in families["photon_cache_hits"].samples}
    assert hits == {"x": 1.0, ODD: 2.0}
    buckets = [s for s in families["photon_dispatcher_join_seconds"].samples if s.name.endswith("_bucket")]
    assert {s.labels["process"] for s in buckets} == {"x", ODD}


def test_samples_arrive_as_they_were_put() -> None:
    found = {(s.name, *s.labels.values()): s.value for family in _said(3, ODD) for s in family.samples}
    assert (found["photon_joiner_open_ids", "j", ODD], found["photon_cache_hits_total",]) == (3, 3)
    assert found["photon_dispatcher_join_seconds_bucket", "j", "+Inf"] == 0


@pytest.mark.parametrize("data", [b"\xc1", b"\x91\x00", b"# HELP a b\n"])
def test_an_answer_that_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode(data)


def test_a_value_of_numpy_arrives_as_a_number() -> None:
    readings = Readings()
    readings.put("photon_cache_hits_total", np.int64(3))
    (family,) = decode(encode(readings.families()))
    assert family.samples[0].value == 3.0


def test_a_process_without_metrics_says_none() -> None:
    assert decode(b"") == []
