"""The queue before the collector: bounded, counted, and never waited for."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

from structlog.testing import capture_logs

from photon.config.metrics.readings import Readings
from photon.config.telemetry.sender import BATCH_MAX, LOGS, METRICS, QUEUE_MAX, SPANS, Sender

SIGNALS = (SPANS, LOGS, METRICS)


class Collector:
    def __init__(self) -> None:
        self.problem = ""
        self.taken: list[Any] = []
        self.asked = 0

    def send(self, batch: Sequence[Any]) -> str:
        self.asked += 1
        if not self.problem:
            self.taken += batch
        return self.problem


def sender_to(collector: Collector) -> Sender:
    return Sender(dict.fromkeys(SIGNALS, collector.send), "http://collector:4318")


def test_what_waits_is_sent_in_order_and_in_batches() -> None:
    collector = Collector()
    sender = sender_to(collector)
    for number in range(BATCH_MAX + 1):
        sender.put(SPANS, number)
    sender.send(SIGNALS)
    assert collector.taken == list(range(BATCH_MAX + 1))
    assert collector.asked == 2
    assert (sender.sent[SPANS], sender.dropped[SPANS]) == (BATCH_MAX + 1, 0)


def test_the_oldest_give_way_and_are_counted() -> None:
    collector = Collector()
    sender = sender_to(collector)
    for number in range(QUEUE_MAX + 5):
        sender.put(LOGS, number)
    for reading in range(3):
        sender.put(METRICS, reading)
    sender.send(SIGNALS)
    assert collector.taken == [*range(5, QUEUE_MAX + 5), 2]
    assert (sender.dropped[LOGS], sender.dropped[METRICS]) == (5, 2)


def test_a_collector_that_is_away_is_told_of_once_and_what_it_misses_is_counted() -> None:
    collector = Collector()
    sender = sender_to(collector)
    collector.problem = "connection refused"
    with capture_logs() as lines:
        for _ in range(3):
            sender.put(SPANS, "span")
            sender.put(LOGS, "line")
            sender.send(SIGNALS)
        collector.problem = ""
        sender.put(SPANS, "span")
        sender.send(SIGNALS)
    assert [line["event"] for line in lines] == [
        "telemetry is not taken, and dropped meanwhile",
        "telemetry is sent again",
    ]
    assert lines[0]["problem"] == "connection refused"
    assert lines[1]["dropped"] == {SPANS: 3, LOGS: 3}
    into = Readings()
    sender.read(into)
    assert 'photon_telemetry_dropped_total{signal="spans"} 3.0' in into.text()
    assert 'photon_telemetry_sent_total{signal="spans"} 1.0' in into.text()


def test_a_collector_that_never_takes_lines_is_told_of_once() -> None:
    spans, logs = Collector(), Collector()
    logs.problem = "404"
    sender = Sender({SPANS: spans.send, LOGS: logs.send}, "http://collector:4318")
    with capture_logs() as lines:
        for _ in range(3):
            sender.put(SPANS, "span")
            sender.put(LOGS, "line")
            sender.send((SPANS, LOGS))
        sender.put(SPANS, "last")
        sender.start()
        sender.stop()
    assert [(line["event"], line["signal"]) for line in lines] == [
        ("telemetry is not taken, and dropped meanwhile", LOGS)
    ]
    assert spans.taken == ["span", "span", "span", "last"]


def test_nobody_waits_for_a_collector_that_hangs() -> None:
    hangs, begun = threading.Event(), threading.Event()

    def send(batch: Sequence[Any]) -> str:
        begun.set()
        hangs.wait(60.0)
        return ""

    sender = Sender({SPANS: send}, "http://collector:4318")
    sender.put(SPANS, 0)
    sender.start()
    try:
        assert begun.wait(30.0)
        at = time.thread_time()
        for number in range(2 * QUEUE_MAX):
            sender.put(SPANS, number)
        assert time.thread_time() - at < 5.0
        assert sender.dropped[SPANS] == QUEUE_MAX
    finally:
        hangs.set()
        sender.stop()
    assert sender.sent[SPANS] == QUEUE_MAX + 1
