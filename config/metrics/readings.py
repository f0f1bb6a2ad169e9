"""The metrics of a process, read from their sources. Only ``/metrics`` formats them as text."""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import orjson

from photon.config.metrics.histogram import Histogram
from photon.config.metrics.table import METRICS
from photon.config.structured import get_logger

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric as Family

log = get_logger(__name__)


class Readings:
    """Metric values at one moment. Only metrics in the table can be set, each with its labels."""

    def __init__(self) -> None:
        self._families: dict[str, Family] = {}

    def put(self, name: str, value: float, **labels: str) -> None:
        """Sets the value of a counter or gauge. Raises KeyError or ValueError if the table does not define it so."""
        self._family(name).add_metric(self._values(name, labels), value)

    def put_all(self, prefix: str, values: Mapping[str, float], **labels: str) -> None:
        for name, value in values.items():
            self.put(f"{prefix}_{name}", value, **labels)

    def put_histogram(self, name: str, histogram: Histogram, **labels: str) -> None:
        """Sets the value of a histogram. Raises KeyError or ValueError as ``put`` does."""
        self._family(name).add_metric(
            self._values(name, labels), buckets=histogram.buckets(), sum_value=histogram.sum_s
        )

    def families(self) -> Iterable[Family]:
        return self._families.values()

    def text(self) -> str:
        from photon.config.metrics.prometheus import text_of

        return text_of(self.families()).decode()

    def take(self, other: Readings) -> None:
        for name, family in other._families.items():
            known = self._families.setdefault(name, family)
            if known is not family:
                known.samples += family.samples

    def _family(self, name: str) -> Any:
        found = self._families.get(name)
        if found is None:
            from photon.config.metrics.prometheus import family

            found = self._families[name] = family(METRICS[name])
        return found

    @staticmethod
    def _values(name: str, labels: Mapping[str, str]) -> list[str]:
        metric = METRICS[name]
        if labels.keys() != set(metric.labels):
            raise ValueError(f"{name}: has the labels {metric.labels}, not {tuple(labels)}")
        return [labels[label] for label in metric.labels]


# Puts the metrics of one part. Runs on the process's event loop; one that reads files is a coroutine.
Source = Callable[[Readings], Awaitable[None] | None]
# Further details for the status page; a JSON object.
Details = Callable[[], "Awaitable[Mapping[str, Any]] | Mapping[str, Any]"]


class ProcessMetrics:
    """All metrics and details of a process."""

    def __init__(
        self, sources: Sequence[Source] = (), details: Details | None = None, now: Callable[[], float] = time.time
    ) -> None:
        """``now``: Unix time in seconds."""
        self._sources = list(sources)
        self._details = details
        self._now = now
        self._failures = 0
        self._said: set[str] = set()

    def add(self, source: Source) -> None:
        self._sources.append(source)

    async def families(self) -> list[Family]:
        """Returns all current metrics. A source that fails is left out, and logged once."""
        from photon import __version__
        from photon.config.metrics.prometheus import of_process

        readings = Readings()
        readings.put("photon_build_info", 1, version=__version__)
        for source in self._sources:
            part = Readings()
            try:
                waiting = source(part)
                if inspect.isawaitable(waiting):
                    await waiting
            except Exception as error:
                self._failed(error)
                continue
            readings.take(part)
        readings.put("photon_metrics_failures_total", self._failures)
        readings.put("photon_clock_seconds", self._now())  # last: nothing is awaited after it
        return [*readings.families(), *of_process()]

    async def details(self) -> bytes:
        """Returns the process's details as JSON; an empty object if there are none, or they cannot be read."""
        if self._details is None:
            return b"{}"
        try:
            said = self._details()
            return orjson.dumps(await said if inspect.isawaitable(said) else said)
        except Exception as error:
            self._failed(error)
            return b"{}"

    def _failed(self, error: Exception) -> None:
        self._failures += 1
        text = f"{type(error).__name__}: {error}"
        if text not in self._said and len(self._said) < SAID_MAX:
            self._said.add(text)
            log.warning("metrics: a part cannot be read", problem=text)


# This process's metrics by the address that serves them, or by kind if none does.
SERVED: WeakValueDictionary[str, ProcessMetrics] = WeakValueDictionary()
SAID_MAX = 16  # number of distinct failures that are logged
