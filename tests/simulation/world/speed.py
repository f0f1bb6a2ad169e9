"""The cost of simulations, printed at the end of a test run (``conftest``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Speed:
    """Cost of a simulation: events are the steps of its loop."""

    events: int = 0
    simulated_s: float = 0.0
    cpu_s: float = 0.0
    total: ClassVar[Speed]  # sum of all schedules of this process

    def __add__(self, other: Speed) -> Speed:
        return Speed(self.events + other.events, self.simulated_s + other.simulated_s, self.cpu_s + other.cpu_s)

    def __sub__(self, other: Speed) -> Speed:
        return self + Speed(-other.events, -other.simulated_s, -other.cpu_s)

    def __bool__(self) -> bool:
        return self.events > 0

    def __str__(self) -> str:
        cpu_s = max(self.cpu_s, 1e-9)
        return (
            f"{self.simulated_s:.0f} simulated seconds, {self.events} events in {self.cpu_s:.1f} s of CPU: "
            f"{self.simulated_s / cpu_s:.0f} simulated seconds and {self.events / cpu_s:.0f} events a second"
        )


Speed.total = Speed()
