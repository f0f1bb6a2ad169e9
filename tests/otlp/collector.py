"""A real collector on this machine, built by OpenTelemetry's own builder (``make test-otlp``, with Go).

It writes what it receives into files, a line of JSON a request. Only the process that was started here is signalled.
"""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from photon.supervision.ports import free_ports
from tests.integration.commands import until

PROGRAM = Path(__file__).parents[2] / "build" / "otlp" / "collector"
START_S = 60.0
CONFIG = """\
receivers:
  otlp:
    protocols:
      http: {{endpoint: "127.0.0.1:{port}"}}
exporters:
  file/traces: {{path: "{directory}/traces", append: true, flush_interval: 100ms}}
  file/metrics: {{path: "{directory}/metrics", append: true, flush_interval: 100ms}}
  file/logs: {{path: "{directory}/logs", append: true, flush_interval: 100ms}}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines:
    traces: {{receivers: [otlp], exporters: [file/traces]}}
    metrics: {{receivers: [otlp], exporters: [file/metrics]}}
    logs: {{receivers: [otlp], exporters: [file/logs]}}
"""


class Span(NamedTuple):
    name: str
    trace: str
    id: str
    parent: str
    service: str
    attributes: dict[str, Any]
    start_ns: int


class Point(NamedTuple):
    """``value``: of a histogram (count, counts by bucket)."""

    name: str
    labels: frozenset[tuple[str, str]]
    value: float | tuple[int, ...]


class Line(NamedTuple):
    service: str
    severity: str
    body: str
    attributes: dict[str, Any]


class Collector:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        (self.port,) = free_ports(1)
        self.endpoint = f"http://127.0.0.1:{self.port}"
        (directory / "collector.yaml").write_text(CONFIG.format(port=self.port, directory=directory))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        for path in map(self._directory.joinpath, ("traces", "metrics", "logs")):
            if path.exists():  # without the line that the kill cut
                path.write_bytes(b"".join(path.read_bytes().rpartition(b"\n")[:2]))
        with open(self._directory / "collector.log", "ab") as log:
            config = f"--config=file:{self._directory / 'collector.yaml'}"
            self._process = subprocess.Popen([PROGRAM, config], stdout=log, stderr=log)
        until(self._answers, START_S, "the collector listens")

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._directory / "collector.log").read_text()
        with socket.socket() as at:
            return at.connect_ex(("127.0.0.1", self.port)) == 0

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    # -- what it received ------------------------------------------------------------------------------------------
    def _received(self, signal: str, part: str) -> Iterator[tuple[str, Any]]:
        """(service, scope) of all whole lines."""
        path = self._directory / signal
        whole = path.read_bytes().rpartition(b"\n")[0] if path.exists() else b""
        for line in whole.splitlines():
            for resource in json.loads(line)[f"resource{part}"]:
                service = _attributes(resource["resource"])["service.name"]
                for scope in resource[f"scope{part}"]:
                    yield service, scope

    def spans(self) -> list[Span]:
        return [
            Span(
                each["name"], each["traceId"], each["spanId"], each.get("parentSpanId", ""), service,
                _attributes(each), int(each["startTimeUnixNano"]),
            )
            for service, scope in self._received("traces", "Spans")
            for each in scope["spans"]
        ]  # fmt: skip

    def points(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float | tuple[int, ...]]:
        """The newest value of each series."""
        found = {}
        for _, scope in self._received("metrics", "Metrics"):
            for metric in scope["metrics"]:
                kind = next(kind for kind in ("sum", "gauge", "histogram") if kind in metric)
                for point in metric[kind]["dataPoints"]:
                    labels = frozenset((name, str(value)) for name, value in _attributes(point).items())
                    counts = point.get("bucketCounts")
                    found[metric["name"], labels] = tuple(map(int, counts)) if counts else point.get("asDouble", 0.0)
        return found

    def lines(self) -> list[Line]:
        return [
            Line(service, each["severityText"], each["body"]["stringValue"], _attributes(each))
            for service, scope in self._received("logs", "Logs")
            for each in scope["logRecords"]
        ]


def _attributes(of: dict[str, Any]) -> dict[str, Any]:
    said = {each["key"]: next(iter(each["value"].items())) for each in of.get("attributes", ())}
    return {name: int(value) if kind == "intValue" else value for name, (kind, value) in said.items()}
