"""When a file of a sink ends. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RollLimits:
    """Whichever comes first."""

    bytes: int = 128 << 20
    """Of JSON Lines that went into it."""
    age_s: float = 600.0
    """Since its first record."""


@dataclass(slots=True)
class Rolling:
    """Of the files that are being written, all kinds together. Times are monotonic seconds."""

    limits: RollLimits
    filled: int = 0
    since_s: float | None = None
    """None: nothing was written since the last roll."""

    def add(self, size: int, now_s: float) -> None:
        """So many bytes of lines were written."""
        self.filled += size
        if self.since_s is None:
            self.since_s = now_s

    def due(self, now_s: float) -> bool:
        """Whether to end the files now."""
        if self.since_s is None:
            return False
        return self.filled >= self.limits.bytes or now_s - self.since_s >= self.limits.age_s

    def rolled(self) -> None:
        """They are ended."""
        self.filled, self.since_s = 0, None
