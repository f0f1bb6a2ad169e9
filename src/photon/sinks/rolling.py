"""Decides when a sink makes its records visible."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RollLimits:
    """The limits at which files are closed and transactions committed, whichever comes first."""

    bytes: int = 128 << 20  # bytes of JSON Lines added
    age_s: float = 600.0  # seconds since the first record


@dataclass(slots=True)
class Rolling:
    """Tracks the bytes and age of the current roll. Times are monotonic seconds."""

    limits: RollLimits
    filled: int = 0
    since_s: float | None = None  # None if nothing was added since the last roll

    def add(self, size: int, now_s: float) -> None:
        """Counts added bytes."""
        self.filled += size
        if self.since_s is None:
            self.since_s = now_s

    def due(self, now_s: float) -> bool:
        """True if the added records should become visible now."""
        if self.since_s is None:
            return False
        return self.filled >= self.limits.bytes or now_s - self.since_s >= self.limits.age_s

    def rolled(self) -> None:
        """Starts counting for the next roll."""
        self.filled, self.since_s = 0, None
