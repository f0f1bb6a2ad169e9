"""Metrics as OpenTelemetry's points: names, labels and values stay."""

from __future__ import annotations

import numpy as np
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.sdk.metrics.export import MetricsData, ResourceMetrics, ScopeMetrics
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from photon.config.metrics.histogram import BOUNDS_S, Histogram
from photon.config.metrics.readings import Readings
from photon.config.telemetry.points import metrics_of


def test_all_kinds() -> None:
    one, other, times = Readings(), Readings(), Histogram()
    one.put("photon_cache_hits_total", 3)
    one.put("photon_registry_ids", 7, shard="2")
    times.add(np.array([1_000_000, 3_000_000_000, 10**15], np.int64))
    one.put_histogram("photon_dispatcher_join_seconds", times, join="clicks")
    other.put("photon_cache_hits_total", 4)
    said = [(one.families(), {"process": "a"}), (other.families(), {"process": "b"})]
    made = metrics_of(said, 5)
    scope = ScopeMetrics(InstrumentationScope("photon"), made, "")
    encoded = encode_metrics(MetricsData([ResourceMetrics(Resource.get_empty(), [scope], "")]))
    found = {each.name: each for each in encoded.resource_metrics[0].scope_metrics[0].metrics}
    assert set(found) == {"photon_cache_hits_total", "photon_registry_ids", "photon_dispatcher_join_seconds"}
    hits = found["photon_cache_hits_total"].sum
    assert hits.is_monotonic
    assert [point.as_double for point in hits.data_points] == [3.0, 4.0]
    assert [point.attributes[0].value.string_value for point in hits.data_points] == ["a", "b"]
    (ids,) = found["photon_registry_ids"].gauge.data_points
    assert ({each.key: each.value.string_value for each in ids.attributes}, ids.as_double, ids.time_unix_nano) == (
        {"shard": "2", "process": "a"}, 7.0, 5,
    )  # fmt: skip
    (joins,) = found["photon_dispatcher_join_seconds"].histogram.data_points
    assert tuple(joins.explicit_bounds) == BOUNDS_S
    assert (joins.count, joins.sum, sum(joins.bucket_counts)) == (3, times.sum_s, 3)
    assert [at for at, count in enumerate(joins.bucket_counts) if count] == [0, BOUNDS_S.index(5.0), len(BOUNDS_S)]
    assert not joins.HasField("min")
