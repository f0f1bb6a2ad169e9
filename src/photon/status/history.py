"""What was, for the page's charts: a point each few seconds, so many of them. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass

POINTS = 180
EVERY_S = 5.0
"""Together a quarter of an hour."""


@dataclass(frozen=True, slots=True)
class Point:
    """One moment. None: not known."""

    at_s: float
    read_per_s: float | None
    joined_per_s: float | None
    p50_s: float | None
    p99_s: float | None
    hit_ratio: float | None
    lag_s: float
    pending: float


class History:
    """The newest points."""

    def __init__(self) -> None:
        self._points: deque[Point] = deque(maxlen=POINTS)

    def due(self, now_s: float) -> bool:
        """Whether the next point may be added."""
        return not self._points or now_s - self._points[-1].at_s >= EVERY_S or now_s < self._points[-1].at_s

    def add(self, point: Point) -> None:
        """As the newest."""
        self._points.append(point)

    def as_json(self) -> list[dict[str, float | None]]:
        """Oldest first."""
        return [asdict(point) for point in self._points]
