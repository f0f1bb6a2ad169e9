"""A histogram of times, filled a batch at a time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

# Upper bounds, in seconds, including the service level's 1, 10 and 60 s and the paper's 7 s.
BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 7.0, 10.0, 30.0, 60.0, 300.0, 3600.0)
_BOUNDS_NS = np.array([round(bound * 1e9) for bound in BOUNDS_S], np.int64)


class Histogram:
    """Counts values since the process started. Not thread-safe."""

    def __init__(self) -> None:
        self._counts = np.zeros(len(BOUNDS_S) + 1, np.int64)
        self._sum_ns = 0

    def add(self, times_ns: npt.NDArray[np.int64]) -> None:
        """Adds times; negative ones (clocks differ) count as 0."""
        times_ns = np.maximum(times_ns, 0)
        self._counts += np.bincount(np.searchsorted(_BOUNDS_NS, times_ns), minlength=len(self._counts))
        self._sum_ns += int(times_ns.sum())

    @property
    def count(self) -> int:
        return int(self._counts.sum())

    @property
    def sum_s(self) -> float:
        return self._sum_ns / 1e9

    def buckets(self) -> list[tuple[str, float]]:
        """Returns (upper bound, number of values up to it); the last bound is ``+Inf``."""
        names = [*map(repr, BOUNDS_S), "+Inf"]
        return list(zip(names, map(float, np.cumsum(self._counts).tolist()), strict=True))
