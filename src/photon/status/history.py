"""What was, for the page's charts. Pure.

A point each few seconds for a quarter of an hour, and one each eight minutes for a day.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass

POINTS = 180
"""Of each."""
EVERY_S = 5.0
COARSE_S = 480.0


@dataclass(frozen=True, slots=True)
class Point:
    """One moment. None: not known."""

    at_s: float
    read_per_s: float | None
    joined_per_s: float | None
    p50_s: float | None
    p90_s: float | None
    p99_s: float | None
    age_p50_s: float | None
    age_p99_s: float | None
    hit_ratio: float | None
    lag_s: float
    pending: float


WORST = frozenset({"p99_s", "age_p99_s", "lag_s", "pending"})
"""Of these a longer time's point has the highest value, of the others the mean."""


class History:
    def __init__(self) -> None:
        self._fine: deque[Point] = deque(maxlen=POINTS)
        self._coarse: deque[Point] = deque(maxlen=POINTS)
        self._since: list[Point] = []
        """Points of which the next coarse one is made."""

    def due(self, now_s: float) -> bool:
        return not self._fine or now_s - self._fine[-1].at_s >= EVERY_S or now_s < self._fine[-1].at_s

    def add(self, point: Point) -> None:
        self._fine.append(point)
        self._since.append(point)
        if (
            len(self._since) >= COARSE_S / EVERY_S
            or not 0 <= point.at_s - self._since[0].at_s < COARSE_S - EVERY_S / 2
        ):
            self._coarse.append(together(self._since))
            self._since = []

    def as_json(self) -> dict[str, list[dict[str, float | None]]]:
        """``history`` and ``day``, oldest first. What has come since the day's last point is its newest."""
        coarse = [*self._coarse, together(self._since)] if self._since else list(self._coarse)
        return {"history": [_rounded(point) for point in self._fine], "day": [_rounded(point) for point in coarse]}


def together(points: Sequence[Point]) -> Point:
    """One point for several, at the time of the last one."""
    values: dict[str, float | None] = {}
    for name in Point.__dataclass_fields__:
        known = [value for point in points if (value := getattr(point, name)) is not None]
        values[name] = None if not known else max(known) if name in WORST else sum(known) / len(known)
    values["at_s"] = points[-1].at_s
    return Point(**values)  # type: ignore[arg-type]  # lag and pending are always known


def _rounded(point: Point) -> dict[str, float | None]:
    """Four digits are enough for a chart, and half of the bytes."""
    found = {name: None if value is None else float(f"{value:.4g}") for name, value in asdict(point).items()}
    return {**found, "at_s": round(point.at_s, 1)}
