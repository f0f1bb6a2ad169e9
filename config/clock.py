"""The clock. It is passed in everywhere: only this file and the entry points read the time."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol

NS_PER_S = 1_000_000_000
NEVER_NS = (
    2**63 - 1
)  # a time that no clock reaches: 'permanently', or 'not before the logs are read to their final end'


def utc(time_ns: int) -> str:
    """Formats a time for display: ``2026-11-24T20:22:11Z``."""
    return datetime.fromtimestamp(time_ns // NS_PER_S, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Clock(Protocol):
    def now_ns(self) -> int:
        """Returns wall clock time in int64 nanoseconds UTC. May jump."""
        ...

    def monotonic(self) -> float:
        """Returns seconds since an arbitrary moment; never goes back. For time-outs."""
        ...


class SystemClock:
    def now_ns(self) -> int:
        return time.time_ns()

    def monotonic(self) -> float:
        return time.monotonic()
