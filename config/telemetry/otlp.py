"""Uses OpenTelemetry's library, from the extra ``otlp``, to make, encode and send spans and records.

The library reads headers with secrets, certificates, compression, time-outs and further resource attributes from its
own environment variables (``OTEL_EXPORTER_OTLP_HEADERS``, ``OTEL_RESOURCE_ATTRIBUTES``, ...).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from opentelemetry import trace
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.metrics.export import Metric, MetricsData, ResourceMetrics, ScopeMetrics
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from photon.config.log import Fields
from photon.config.structured import get_logger
from photon.config.telemetry import spans

STOP_S = 2.0  # time for the last spans and lines at the end of the process
SAID_S = 60.0  # between two log lines about the library's problems
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
_log = get_logger(__name__)


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
    """Implements ``spans.Tracer`` with OpenTelemetry's library."""

    def __init__(self, share: float, resource: Resource, ended: SpanProcessor) -> None:
        self.share = share
        provider = TracerProvider(ALWAYS_ON, resource, shutdown_on_exit=False)
        provider.add_span_processor(ended)
        self._tracer = provider.get_tracer(SCOPE.name)

    def begin(self, name: str, parent: spans.Span | None, attributes: dict[str, Any]) -> spans.Span:
        context = trace.set_span_in_context(parent.its if isinstance(parent, _Span) else trace.INVALID_SPAN)
        return _Span(self._tracer.start_span(name, context, attributes=_named(attributes)))

    def elsewhere(self, header: str) -> spans.Span | None:
        found = trace.get_current_span(_W3C.extract({spans.TRACEPARENT: header}))
        said = found.get_span_context()
        return _Span(found) if said.is_valid and said.trace_flags.sampled else None


def _named(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {PREFIX + name: value for name, value in attributes.items()}


class Otlp:
    """Sends a process's spans, log lines and metrics. ``tracer`` and ``log_line`` are thread-safe."""

    def __init__(self, endpoint: str, share: float, attributes: Mapping[str, str]) -> None:
        """``endpoint``: http://HOST:PORT of a collector. ``attributes``: attributes of the resource."""
        self._resource = Resource.create(dict(attributes))
        base = endpoint.rstrip("/")
        self._problems = _Problems(endpoint)
        self._span_exporter = OTLPSpanExporter(f"{base}/v1/traces")
        self._log_exporter = OTLPLogExporter(f"{base}/v1/logs")
        self._metric_exporter = OTLPMetricExporter(f"{base}/v1/metrics")
        self._spans = BatchSpanProcessor(self._span_exporter)
        self._logs = BatchLogRecordProcessor(self._log_exporter)
        self._reading = threading.Thread()  # sends the metrics
        self.tracer = OtlpTracer(share, self._resource, self._spans)
        provider = LoggerProvider(self._resource, shutdown_on_exit=False)
        provider.add_log_record_processor(self._logs)
        self._logger = provider.get_logger(SCOPE.name)

    def stop(self) -> None:
        """Sends the remaining data; takes at most STOP_S."""
        ends = time.monotonic() + STOP_S
        ending = [threading.Thread(target=each.shutdown, daemon=True) for each in (self._spans, self._logs)]
        for thread in ending:
            thread.start()
        for thread in (*ending, self._reading):
            if thread.ident is not None:
                thread.join(max(0.0, ends - time.monotonic()))
        self._problems.setLevel(logging.CRITICAL)
        for exporter in (self._span_exporter, self._log_exporter, self._metric_exporter):
            exporter.shutdown()  # interrupts the wait before another attempt

    def log_line(self, logger: object, method: str, fields: Fields) -> Fields:
        """A structlog processor that sends each line. It comes after the processors that limit a line's length."""
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
        self._logger.emit(record)
        return fields

    def metrics(self, metrics: Sequence[Metric]) -> None:
        """Sends a reading of metrics without waiting; drops it if the previous one is still being sent."""
        if not self._reading.is_alive():
            data = MetricsData([ResourceMetrics(self._resource, [ScopeMetrics(SCOPE, metrics, "")], "")])
            self._reading = threading.Thread(target=self._metric_exporter.export, args=(data,), daemon=True)
            self._reading.start()


def _plain(value: object) -> str | bool | int | float:
    """Converts a value to one that OTLP can encode: numbers have 64 bits, text is UTF-8."""
    if isinstance(value, bool | float) or (isinstance(value, int) and -(2**63) <= value < 2**63):
        return value
    return str(value).encode("utf-8", "backslashreplace").decode()


class _Problems(logging.Handler):
    """Turns the library's warnings into log lines, one per SAID_S: an absent collector fails every request."""

    def __init__(self, endpoint: str) -> None:
        super().__init__(logging.WARNING)
        self._endpoint = endpoint
        self._next_s = 0.0
        logger = logging.getLogger("opentelemetry")
        logger.addHandler(self)
        logger.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        now_s = time.monotonic()
        if now_s >= self._next_s:
            self._next_s = now_s + SAID_S  # before logging: the line is itself sent, and may fail
            _log.warning("telemetry may be dropped", endpoint=self._endpoint, problem=record.getMessage())
