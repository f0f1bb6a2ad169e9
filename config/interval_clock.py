"""A clock whose readings are intervals that contain the true time, as estimated by the machine itself.

A machine with a time daemon knows a bound on its own error from the kernel; any other is assumed to be within
``clock.uncertainty``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from photon.config.clock import Clock

ASK_SECONDS = 1.0  # shortest time between two queries to the kernel: its bound grows by half a millisecond a second


@dataclass(frozen=True, slots=True)
class KernelTime:
    synchronised: bool
    # Bound on the error, meaningful while synchronised: since the last correction it grows with time.
    max_error_ns: int


@dataclass(frozen=True, slots=True)
class Interval:
    """A reading. The true time is within ``error_ns`` of ``now_ns``."""

    now_ns: int
    error_ns: int
    synchronised: bool  # True: the error is the kernel's own estimate; False: it is the configured S

    @property
    def earliest_ns(self) -> int:
        return self.now_ns - self.error_ns

    @property
    def latest_ns(self) -> int:
        return self.now_ns + self.error_ns


def interval(now_ns: int, kernel: KernelTime | None, uncertainty_ns: int) -> Interval:
    """Returns the interval around a reading of the wall clock.

    ``uncertainty_ns``: ``clock.uncertainty``. ``kernel``: ``None`` if the kernel could not be asked; the clock then
    counts as unsynchronised.
    """
    if kernel is None or not kernel.synchronised:
        return Interval(now_ns, uncertainty_ns, synchronised=False)
    return Interval(now_ns, kernel.max_error_ns, synchronised=True)


class IntervalClock:
    def __init__(
        self, clock: Clock, uncertainty_ns: int, kernel: Callable[[], KernelTime | None] = lambda: None
    ) -> None:
        """``uncertainty_ns``: ``clock.uncertainty``. ``kernel``: see kernel_time; by default, it is not asked."""
        self.clock = clock
        self.uncertainty_ns = uncertainty_ns
        self._kernel = kernel
        self._said: KernelTime | None = None
        self._asked_at = -float("inf")

    def read(self) -> Interval:
        monotonic = self.clock.monotonic()
        if monotonic - self._asked_at >= ASK_SECONDS:
            self._said, self._asked_at = self._kernel(), monotonic
        return interval(self.clock.now_ns(), self._said, self.uncertainty_ns)
