"""The part of prometheus_client that we use. Imported at the first reading, as loading it is slow (HTTP server)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from photon.config.metrics.table import Kind, Metric


def family(metric: Metric) -> Family:
    """Returns a metric's family, without samples."""
    if metric.kind is Kind.COUNTER:
        return CounterMetricFamily(metric.name, metric.help, labels=metric.labels)
    if metric.kind is Kind.GAUGE:
        return GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
    return HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)


def of_process() -> Iterable[Family]:
    """Yields current memory, CPU time and open files of this process."""
    return ProcessCollector(registry=None).collect()


def text_of(*families: Iterable[Family]) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    for each in families:
        registry.register(_Collected(each))
    return generate_latest(registry)


class _Collected(Collector):
    def __init__(self, families: Iterable[Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[Family]:
        """Returns the families. prometheus_client calls this method of a collector."""
        yield from self._families
