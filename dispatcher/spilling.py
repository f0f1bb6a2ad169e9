"""When a stretch may fall behind its log's offset before all of it has a verdict: the rest becomes rows. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from photon.dispatcher.events import Stretch
from photon.dispatcher.limits import Limits

HELD_LONG = 10
"""A stretch with events on their way is held so many times longer before they, too, become rows."""
STRAGGLERS = 0.25
"""So few of a stretch's events are not waited for where finished work waits for them and memory is short."""


class Spilling:
    """``once``: the run ends with the logs, so reading pauses rather than write rows."""

    def __init__(self, limits: Limits, *, once: bool) -> None:
        self._limits = limits
        self._once = once
        self._hold_s = limits.hold_once_s if once else limits.hold_s

    def may(self, stretch: Stretch, behind: Iterable[Stretch], window_bytes: int, now: float) -> bool:
        """Whether the first stretch of a log is held no longer. ``behind``: the log's later ones, in order."""
        pressed = not self._once and window_bytes > self._limits.spill_bytes
        if pressed and now - stretch.read_at >= self._hold_s and _holds_back(stretch, behind):
            return True
        if stretch.parked_at is None:
            return False  # all of it is on its way: rows would cost more than what is still to be done
        held = now - stretch.parked_at
        if stretch.left == stretch.settled + stretch.parked:
            return not stretch.parked or pressed or held >= self._hold_s
        return held >= HELD_LONG * self._hold_s


def _holds_back(stretch: Stretch, behind: Iterable[Stretch]) -> bool:
    """Whether a few stragglers stand before more of finished work than there is in this stretch itself."""
    if stretch.left > stretch.events * STRAGGLERS:
        return False
    done = 0
    for later in behind:
        if later.whole and not later.left:
            done += later.weight
            if done > stretch.weight:
                return True
    return False
