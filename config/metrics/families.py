"""The form in which processes exchange metrics: values. Only ``/metrics`` formats them as Prometheus text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric


class Sample(NamedTuple):
    name: str
    labels: Mapping[str, str]
    value: float


class Family(NamedTuple):
    """All samples of one metric. ``kind``: counter, gauge or histogram, in Prometheus's terms."""

    name: str
    help: str
    kind: str
    samples: tuple[Sample, ...]


def families_of(metrics: Iterable[Metric]) -> list[Family]:
    return [
        Family(
            each.name,
            each.documentation,
            each.type,
            tuple(Sample(name, labels, float(value)) for name, labels, value, *_ in each.samples),
        )
        for each in metrics
    ]


def encode(metrics: Iterable[Metric]) -> bytes:
    return msgspec.msgpack.encode(families_of(metrics))


def decode(data: bytes) -> list[Family]:
    """Decodes families that another process encoded. Raises ValueError."""
    return msgspec.msgpack.decode(data or b"\x90", type=list[Family])


def text_of(said: Iterable[tuple[Mapping[str, str], Iterable[Family]]]) -> bytes:
    """Formats the metrics of several processes as Prometheus text; each process's labels are added to its samples."""
    from prometheus_client.metrics_core import Metric

    from photon.config.metrics.prometheus import text_of

    same: dict[str, Metric] = {}
    for labels, families in said:
        for each in families:
            metric = same.setdefault(each.name, Metric(each.name, each.help, each.kind))
            for name, own, value in each.samples:
                metric.add_sample(name, {**own, **labels}, value)
    return text_of(same.values())
