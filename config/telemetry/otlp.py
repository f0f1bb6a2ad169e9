"""OpenTelemetry's library, from the extra ``otlp``: it makes spans and records, encodes and sends them.

Headers with secrets, certificates, compression, time-outs and more attributes of the resource are read by the library
from its own environment variables (``OTEL_EXPORTER_OTLP_HEADERS``, ``OTEL_RESOURCE_ATTRIBUTES``, ...).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from opentelemetry import trace
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk.metrics.export import Metric, MetricsData, ResourceMetrics, ScopeMetrics
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from photon.config.log import Fields
from photon.config.telemetry import spans
from photon.config.telemetry.sender import LOGS, METRICS, SPANS, Send, Sender

PREFIX = "photon."
SCOPE = InstrumentationScope("photon")
SEVERITIES = {
    "debug": SeverityNumber.DEBUG,
    "info": SeverityNumber.INFO,
    "warning": SeverityNumber.WARN,
    "error": SeverityNumber.ERROR,
    "critical": SeverityNumber.FATAL,
}
NOT_ATTRIBUTES = ("event", "level", "timestamp", "exception")

_W3C = TraceContextTextMapPropagator()


class _Span:
    def __init__(self, its: trace.Span) -> None:
        self.its = its

    def note(self, **attributes: Any) -> None:
        self.its.set_attributes(_named(attributes))

    def end(self, error: BaseException | None = None) -> None:
        if error is not None:
            self.its.set_status(trace.StatusCode.ERROR, f"{type(error).__name__}: {error}")
        self.its.end()

    def header(self) -> str:
        carrier: dict[str, str] = {}
        _W3C.inject(carrier, trace.set_span_in_context(self.its))
        return carrier.get(spans.TRACEPARENT, "")


class OtlpTracer:
    """spans.Tracer."""

    def __init__(self, share: float, resource: Resource, ended: Callable[[ReadableSpan], None]) -> None:
        self.share = share
        provider = TracerProvider(ALWAYS_ON, resource, shutdown_on_exit=False)
        provider.add_span_processor(_Ended(ended))
        self._tracer = provider.get_tracer(SCOPE.name)

    def begin(self, name: str, parent: spans.Span | None, attributes: dict[str, Any]) -> spans.Span:
        context = trace.set_span_in_context(parent.its if isinstance(parent, _Span) else trace.INVALID_SPAN)
        return _Span(self._tracer.start_span(name, context, attributes=_named(attributes)))

    def elsewhere(self, header: str) -> spans.Span | None:
        found = trace.get_current_span(_W3C.extract({spans.TRACEPARENT: header}))
        said = found.get_span_context()
        return _Span(found) if said.is_valid and said.trace_flags.sampled else None


class _Ended(SpanProcessor):
    def __init__(self, ended: Callable[[ReadableSpan], None]) -> None:
        self._ended = ended

    def on_end(self, span: ReadableSpan) -> None:
        self._ended(span)


def _named(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {PREFIX + name: value for name, value in attributes.items()}


class Otlp:
    """All that a process sends. ``tracer`` and ``log_line`` may be used from any thread."""

    def __init__(self, endpoint: str, share: float, attributes: Mapping[str, str]) -> None:
        """``endpoint``: http://HOST:PORT of a collector; ``attributes``: of the resource."""
        self._resource = Resource.create(dict(attributes))
        base = endpoint.rstrip("/")
        self._exporters: list[Any] = [
            OTLPSpanExporter(f"{base}/v1/traces"),
            OTLPLogExporter(f"{base}/v1/logs"),
            OTLPMetricExporter(f"{base}/v1/metrics"),
        ]
        self._said = _Said()
        spans_, logs, metrics = self._exporters
        sends: dict[str, Send] = {
            SPANS: lambda batch: self._sent(spans_, batch),
            LOGS: lambda batch: self._sent(logs, batch),
            METRICS: lambda batch: self._sent(metrics, batch[0]),
        }
        self.sender = Sender(sends, endpoint)
        self.tracer = OtlpTracer(share, self._resource, lambda span: self.sender.put(SPANS, span))

    def _sent(self, exporter: Any, batch: Any) -> str:
        self._said.first = ""
        try:
            result = exporter.export(batch)
        except Exception as error:  # of the library: the next batch may be another
            return f"{type(error).__name__}: {error}"
        return "" if result.name == "SUCCESS" else self._said.first or "no answer"

    def stop(self) -> None:
        self.sender.stop()
        for exporter in self._exporters:  # it may be waiting before another try
            exporter.shutdown()
        self._said.close()

    def log_line(self, logger: object, method: str, fields: Fields) -> Fields:
        """A processor of structlog, behind those that bound a line."""
        level = str(fields.get("level", method))
        attributes: dict[str, Any] = {name: _plain(v) for name, v in fields.items() if name not in NOT_ATTRIBUTES}
        if "exception" in fields:
            attributes["exception.stacktrace"] = _plain(fields["exception"])
        within = spans.current.get()
        record = LogRecord(
            timestamp=time.time_ns(),
            context=trace.set_span_in_context(within.its if isinstance(within, _Span) else trace.INVALID_SPAN),
            severity_text=level,
            severity_number=SEVERITIES.get(level, SeverityNumber.UNSPECIFIED),
            body=_plain(str(fields.get("event", ""))),
            attributes=attributes,
        )
        self.sender.put(LOGS, ReadableLogRecord(record, self._resource, SCOPE))
        return fields

    def metrics(self, metrics: Sequence[Metric]) -> None:
        of_scope = [ScopeMetrics(SCOPE, metrics, "")]
        self.sender.put(METRICS, MetricsData([ResourceMetrics(self._resource, of_scope, "")]))


def _plain(value: object) -> str | bool | int | float:
    """What can be encoded: numbers have 64 bits, texts are UTF-8."""
    if isinstance(value, bool | float) or (isinstance(value, int) and -(2**63) <= value < 2**63):
        return value
    return str(value).encode("utf-8", "backslashreplace").decode()


class _Said(logging.Handler):
    """What the library says goes here, and not to standard error: why something could not be sent."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.first = ""
        self._logger = logging.getLogger("opentelemetry")
        self._logger.addHandler(self)
        self._logger.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        self.first = self.first or record.getMessage()

    def close(self) -> None:
        self._logger.removeHandler(self)
        super().close()
