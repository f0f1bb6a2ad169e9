"""A process's metrics as OpenTelemetry's points: the same names, labels and values as in Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
    Sum,
)
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.samples import Sample

# A counter's start time. The ledger's counters survive restarts; the process's start would make them look new.
UNKNOWN_NS = 0
CUMULATIVE = AggregationTemporality.CUMULATIVE
NOT_KNOWN: Any = None  # minimum and maximum of a histogram; OTLP can omit them


Labels = Mapping[str, str]


def metrics_of(said: Iterable[tuple[Iterable[Family], Labels]], now_ns: int) -> list[Metric]:
    """Converts ``said``, readings of this process's services. The labels of a reading are added to all its points."""
    same: dict[str, list[tuple[Family, Labels]]] = {}
    for families, labels in said:
        for family in families:
            if family.samples:
                same.setdefault(family.name, []).append((family, labels))
    return [_metric(several, now_ns) for several in same.values()]


def _metric(several: Sequence[tuple[Family, Labels]], now_ns: int) -> Metric:
    family, _ = several[0]
    if family.type == "histogram":
        histograms = [each for its, labels in several for each in _histograms(its.samples, labels, now_ns)]
        return Metric(family.name, family.documentation, "", Histogram(histograms, CUMULATIVE))
    points = [
        NumberDataPoint({**each.labels, **labels}, UNKNOWN_NS, now_ns, float(each.value))
        for its, labels in several
        for each in its.samples
    ]
    data = Sum(points, CUMULATIVE, is_monotonic=True) if family.type == "counter" else Gauge(points)
    return Metric(family.samples[0].name, family.documentation, "", data)


def _histograms(samples: Iterable[Sample], labels: Labels, now_ns: int) -> Iterator[HistogramDataPoint]:
    """Converts Prometheus's samples (one per bound, cumulative) to points."""
    series: dict[tuple[tuple[str, str], ...], list[tuple[str, float]]] = {}
    sums: dict[tuple[tuple[str, str], ...], float] = {}
    for each in samples:
        its = tuple((label, value) for label, value in each.labels.items() if label != "le")
        if each.name.endswith("_bucket"):
            series.setdefault(its, []).append((each.labels["le"], each.value))
        elif each.name.endswith("_sum"):
            sums[its] = each.value
    for its, buckets in series.items():
        below = [int(count) for _, count in buckets]
        counts = [count - before for count, before in zip(below, [0, *below], strict=False)]
        bounds = [float(bound) for bound, _ in buckets[:-1]]  # the last one is infinite
        yield HistogramDataPoint(
            {**dict(its), **labels}, UNKNOWN_NS, now_ns, below[-1], sums[its], counts, bounds, NOT_KNOWN, NOT_KNOWN
        )
