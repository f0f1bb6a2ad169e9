"""The pauses between attempts. Pure: randomness is an argument."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

LAST_STEP = 60  # after this many failures a back-off has its longest pause; more would overflow a float


@dataclass(frozen=True, slots=True)
class BackOff:
    """Pauses, in seconds, that double from ``first`` up to ``most``. With jitter, each is at least ``floor``."""

    first: float
    most: float
    floor: float = 0.01

    def delay(self, failures: int, random: Callable[[], float] | None = None) -> float:
        """Returns the pause after ``failures`` (at least 1) consecutive failures. ``random``: uniform in [0, 1), for
        full jitter."""
        bound = min(self.most, self.first * 2.0 ** min(failures - 1, LAST_STEP))
        return bound if random is None else max(self.floor, random() * bound)

    def pauses(self, random: Callable[[], float] | None = None) -> Iterator[float]:
        """Yields the pause after each consecutive failure, endlessly. Call it again after a success."""
        failures = 0
        while True:
            failures += 1
            yield self.delay(failures, random)
