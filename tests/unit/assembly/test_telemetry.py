"""A process keeps sending its metrics, even if one reading fails."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from photon.assembly import telemetry
from photon.config.loader import convert
from photon.config.metrics.readings import SERVED, ProcessMetrics


class Otlp:
    def __init__(self) -> None:
        self.came = asyncio.Event()

    def metrics(self, metrics: object) -> None:
        self.came.set()


async def test_a_reading_that_fails_is_said_and_the_next_one_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    failures = [OSError("/proc is gone")]

    async def families(self: ProcessMetrics) -> list[Any]:
        if failures:
            raise failures.pop()
        return []

    monkeypatch.setattr(ProcessMetrics, "families", families)
    settings = convert({"telemetry": {"endpoint": "http://127.0.0.1:9", "interval": "10ms"}}, "f")
    assert settings.telemetry is not None
    otlp: Any = Otlp()
    kept = SERVED["127.0.0.1:1"] = ProcessMetrics()
    with capture_logs() as lines:
        measuring = asyncio.create_task(telemetry._measure(otlp, settings.telemetry, settings, {"service": "joiner"}))
        async with asyncio.timeout(60.0):
            await otlp.came.wait()
        measuring.cancel()
    del kept
    assert [line["event"] for line in lines] == ["the metrics cannot be sent"]
