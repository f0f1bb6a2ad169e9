"""A machine's two clocks: one that only runs, a little fast or slow, and one that people and time servers set."""

from __future__ import annotations

from collections.abc import Callable

NS = 1_000_000_000


class SimulatedClock:
    """Implements ``photon.config.clock.Clock``."""

    def __init__(
        self, now: Callable[[], float], *, rate: float, offset: float, skew: float = 0.0, epoch_ns: int = 0
    ) -> None:
        """``now``: the world's seconds. ``skew``: error of the wall clock in seconds; ``epoch_ns``: its start."""
        self._now = now
        self.rate = rate
        self.offset = offset
        self.skew = skew
        self._epoch_ns = epoch_ns

    def monotonic(self) -> float:
        return self._now() * self.rate + self.offset

    def now_ns(self) -> int:
        return self._epoch_ns + int((self._now() * self.rate + self.skew) * NS)

    def reboot(self, offset: float) -> None:
        """The machine was off: its monotonic clock starts anywhere."""
        self.offset = offset
