"""Sums over the processes of a pipeline, and what changed between two moments. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from photon.status.exposition import Sample, samples
from photon.status.gathering import Heard


class Numbers:
    """All samples of one moment."""

    def __init__(self, heard: Sequence[Heard]) -> None:
        self._by_name: dict[str, list[tuple[Heard, Sample]]] = {}
        for each in heard:
            for sample in samples(each.text):
                self._by_name.setdefault(sample.name, []).append((each, sample))

    def each(self, name: str, **labels: str) -> list[tuple[Heard, Sample]]:
        """Samples of a metric with these labels."""
        found = self._by_name.get(name, [])
        return [(who, s) for who, s in found if labels.items() <= s.labels.items()] if labels else found

    def sum(self, name: str, **labels: str) -> float:
        """0 when nobody says it."""
        return sum(sample.value for _, sample in self.each(name, **labels))

    def max(self, name: str, **labels: str) -> float:
        """Of what several processes say in common; 0 when nobody says it."""
        return max((sample.value for _, sample in self.each(name, **labels)), default=0.0)

    def of(self, who: Heard, name: str) -> float | None:
        """What one process says."""
        return next((sample.value for other, sample in self.each(name) if other is who), None)

    def by(self, label: str, name: str) -> dict[str, float]:
        """The highest for each value of a label."""
        found: dict[str, float] = {}
        for _, sample in self.each(name):
            key = sample.labels.get(label, "")
            found[key] = max(found.get(key, sample.value), sample.value)
        return found

    def buckets(self, name: str) -> dict[float, float]:
        """Of a histogram, summed over processes: upper bound -> how many are not above it."""
        found: dict[float, float] = {}
        for _, sample in self.each(f"{name}_bucket"):
            bound = float(sample.labels.get("le", "inf"))
            found[bound] = found.get(bound, 0.0) + sample.value
        return found


def rate(now: float, before: float | None, seconds: float) -> float | None:
    """A second; None: not known. A counter that begins again counts from 0."""
    if before is None or seconds <= 0:
        return None
    return (now - before if now >= before else now) / seconds


def since(now: Mapping[float, float], before: Mapping[float, float]) -> dict[float, float]:
    """What a histogram's buckets got; all when it began again."""
    grown = {bound: count - before.get(bound, 0.0) for bound, count in now.items()}
    return dict(now) if any(count < 0 for count in grown.values()) else grown


def quantile(buckets: Mapping[float, float], q: float) -> float | None:
    """By linear interpolation within a bucket, as Prometheus does it; None: there is nothing. Above the last bound it
    is that bound."""
    bounds = sorted(buckets)
    total = buckets[bounds[-1]] if bounds else 0.0
    if total <= 0:
        return None
    wanted, below, low = q * total, 0.0, 0.0
    for bound in bounds:
        count = buckets[bound]
        if count >= wanted:
            if bound == float("inf"):
                return low
            return low + (bound - low) * ((wanted - below) / (count - below) if count > below else 1.0)
        below, low = count, bound
    return low


def share_within(buckets: Mapping[float, float], bound: float) -> float | None:
    """Of all, those that took no longer than one of the bounds."""
    total = max(buckets.values(), default=0.0)
    return buckets[bound] / total if total > 0 and bound in buckets else None


def merged_ledger(ledgers: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Workers of a pipeline share one ledger: that of the one which has read most."""
    return max(ledgers, key=lambda one: one.get("total", {}).get("read", 0), default={})
