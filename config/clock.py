"""Time, passed in everywhere: nothing but this file and the entry points reads a clock."""

from __future__ import annotations

import time
from typing import Protocol

NS_PER_S = 1_000_000_000
NEVER_NS = 2**63 - 1
"""A time that no clock reaches: 'for ever', and 'not before all has been read for ever'."""


class Clock(Protocol):
    """What a component may know about time."""

    def now_ns(self) -> int:
        """Wall clock, int64 nanoseconds UTC. May jump."""
        ...

    def monotonic(self) -> float:
        """Seconds since some moment; never goes back. For time-outs."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now_ns(self) -> int:
        return time.time_ns()

    def monotonic(self) -> float:
        return time.monotonic()
