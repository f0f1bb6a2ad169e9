"""Between a process and its collector: nobody waits, the end flushes, problems are said once."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from photon.config.telemetry import otlp as module
from photon.config.telemetry import spans
from photon.config.telemetry.otlp import STOP_S, Otlp

SIGNALS = 3


class Collector:
    """All three exporters."""

    def __init__(self) -> None:
        self.taken: list[Any] = []
        self.takes = threading.Event()
        self.takes.set()
        self.ended = 0

    def export(self, batch: Any) -> None:
        self.takes.wait(60.0)
        self.taken += batch if isinstance(batch, Sequence) else [batch]

    def shutdown(self) -> None:
        self.ended += 1


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Collector:
    made = Collector()
    for name in ("OTLPSpanExporter", "OTLPLogExporter", "OTLPMetricExporter"):
        monkeypatch.setattr(module, name, lambda endpoint: made)
    return made


def test_a_log_line_has_the_ids_of_the_span_that_it_is_written_in(
    monkeypatch: pytest.MonkeyPatch, collector: Collector
) -> None:
    otlp = Otlp("http://127.0.0.1:9", 1.0, {"service.name": "photon-joiner"})
    monkeypatch.setattr(spans, "tracer", otlp.tracer)
    fields = {
        "event": "slot opened",
        "level": "warning",
        "timestamp": "t",
        "slot": "s",
        "many": 2**70,
        "bad": "\udcff",
    }
    assert otlp.log_line(None, "warning", dict(fields)) == fields
    with spans.root("batch", 1) as span:
        otlp.log_line(None, "info", {"event": "within"})
    otlp.stop()
    outside, within = (each for each in collector.taken if hasattr(each, "log_record"))
    assert (outside.log_record.body, outside.log_record.severity_text) == ("slot opened", "warning")
    assert outside.log_record.severity_number.name == "WARN"
    assert outside.log_record.attributes == {"slot": "s", "many": str(2**70), "bad": "\\udcff"}
    assert outside.log_record.trace_id == 0
    assert outside.resource.attributes["service.name"] == "photon-joiner"
    assert span is not None
    assert f"{within.log_record.trace_id:032x}-{within.log_record.span_id:016x}" in span.header()
    assert [each.name for each in collector.taken if each not in (outside, within)] == ["batch"]


def test_nobody_waits_for_a_collector_that_hangs(collector: Collector) -> None:
    collector.takes.clear()
    otlp = Otlp("http://127.0.0.1:9", 1.0, {})
    try:
        at = time.thread_time()
        for _ in range(5_000):
            otlp.log_line(None, "info", {"event": "line"})
            otlp.metrics([])
        assert time.thread_time() - at < 5.0
        before = time.monotonic()
        otlp.stop()
        assert time.monotonic() - before < STOP_S + 10.0
        assert collector.ended >= SIGNALS
        assert collector.taken == []
    finally:
        collector.takes.set()


def test_a_reading_is_dropped_while_the_one_before_is_sent(collector: Collector) -> None:
    collector.takes.clear()
    otlp = Otlp("http://127.0.0.1:9", 1.0, {})
    for _ in range(3):
        otlp.metrics([])
    collector.takes.set()
    otlp.stop()
    assert len(collector.taken) == 1


def test_the_librarys_problems_become_one_line(
    collector: Collector, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    otlp = Otlp("http://collector:4318", 1.0, {})
    library = logging.getLogger("opentelemetry.exporter")
    with capture_logs() as lines:
        for _ in range(3):
            library.warning("connection refused")
        otlp.stop()
        library.error("at the end")
    assert [(line["event"], line["endpoint"], line["problem"]) for line in lines] == [
        ("telemetry may be dropped", "http://collector:4318", "connection refused")
    ]
    assert capfd.readouterr().err == "", "nothing goes to standard error past the log"
