"""The clock of tests."""

from __future__ import annotations

from photon.config.clock import NS_PER_S


class ManualClock:
    """Moves when told."""

    def __init__(self, now_ns: int = 1_000) -> None:
        self.ns = now_ns

    def now_ns(self) -> int:
        return self.ns

    def monotonic(self) -> float:
        return self.ns / NS_PER_S

    def passes(self, seconds: float) -> None:
        self.ns += round(seconds * NS_PER_S)
