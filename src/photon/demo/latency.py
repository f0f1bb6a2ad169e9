"""End-to-end latency while it happens: follows the joined output of every datacentre."""

from __future__ import annotations

import gzip
import statistics
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path

import orjson

RECENT = 5_000
"""Percentiles are shown over so many of the latest events."""


class Latencies:
    """From the write of a click's line to the moment its joined record was made."""

    def __init__(self, outputs: Iterable[Path], arrived_ns: Mapping[str, int]) -> None:
        """``outputs``: ``joined/`` directories. ``arrived_ns``: click id -> wall time, filled by the feed."""
        self._outputs = list(outputs)
        self._arrived_ns = arrived_ns
        self._read: dict[tuple[Path, str], int] = {}  # bytes of each file, uncompressed
        self.all_ms: list[float] = []

    def follow(self) -> None:
        """Takes up what was written since."""
        for directory in self._outputs:
            for name in sorted({path.name.removesuffix(".gz") for path in directory.glob("*.jsonl*")}):
                if name.endswith(".jsonl"):
                    self._follow_file(directory, name)

    def recent(self) -> tuple[float, float, float]:
        """p50, p90 and p99 in ms of the latest events."""
        return percentiles(self.all_ms[-RECENT:])

    def _follow_file(self, directory: Path, name: str) -> None:
        at = self._read.get((directory, name), 0)
        try:
            with open(directory / name, "rb") as file:
                file.seek(at)
                data = file.read()
        except FileNotFoundError:  # rolled and compressed meanwhile
            data = gzip.decompress((directory / f"{name}.gz").read_bytes())[at:]
        whole = data.rfind(b"\n") + 1
        self._read[directory, name] = at + whole
        for line in data[:whole].splitlines():
            record = orjson.loads(line)
            joined_ns = datetime.fromisoformat(record["joined_at"]).timestamp() * 1e9
            arrived_ns = self._arrived_ns.get(record["event_id"])
            if arrived_ns is not None:
                self.all_ms.append((joined_ns - arrived_ns) / 1e6)


def percentiles(values: Iterable[float]) -> tuple[float, float, float]:
    """p50, p90, p99; zeros of too few values."""
    listed = sorted(values)
    if len(listed) < 2:
        return (0.0, 0.0, 0.0)
    cuts = statistics.quantiles(listed, n=100, method="inclusive")
    return (cuts[49], cuts[89], cuts[98])
