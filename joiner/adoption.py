"""Which slots nobody is at any more and one has to redo (rule 13): pure, told what lies on the disk and the time.

A joiner that was removed from the configuration, or whose process died and does not come back, leaves a slot
directory: its redo log may own ids that are not written yet, its files may not be final. Any joiner of that
datacentre on that machine takes such a slot's lock, redoes it under a new incarnation, and lets go. What it owned is
never taken by anybody else, only written through its own directory.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

ADOPT_AFTER_S = 60.0
PAUSE_FIRST_S, PAUSE_MOST_S = 10.0, 600.0
"""A slot that could not be brought to its end is tried again after so long, twice as long each time."""
SLOTS_MAX = 1024
"""Slot directories of one pipeline that are watched."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A slot directory at one look."""

    slot: str
    held: bool
    """Somebody has its lock."""
    taken: int
    """Another number whenever somebody has taken the lock."""
    left: bool
    """Something may be left to do: it was opened since it was last left empty."""


@dataclass(slots=True)
class _Free:
    """A slot whose lock nobody has, seconds of a monotonic clock."""

    since: float
    taken: int
    next: float = 0.0
    pause: float = 0.0


class Orphans:
    """Remembers since when each slot's lock is free. Not thread-safe."""

    def __init__(self, adopt_after_s: float) -> None:
        self._adopt_after_s = adopt_after_s
        self._free: dict[str, _Free] = {}

    def look(self, seen: Iterable[Seen], now: float) -> list[str]:
        """Slots that are to be adopted now, those that wait longest first."""
        free: dict[str, _Free] = {}
        for each in list(seen)[:SLOTS_MAX]:
            if each.held or not each.left:
                continue
            known = self._free.get(each.slot)
            if known is None or known.taken != each.taken:
                known = _Free(now, each.taken)
            free[each.slot] = known
        self._free = free
        due = [name for name, each in free.items() if now >= max(each.since + self._adopt_after_s, each.next)]
        return sorted(due, key=lambda name: (free[name].since, name))

    def tried(self, slot: str, taken: int, now: float, *, moved: bool = False) -> float:
        """It was taken up and is not done. Returns seconds to the next try.

        ``taken``: of the lock after our own try; ``moved``: a part of it was done, the rest may come soon.
        """
        free = self._free.setdefault(slot, _Free(now, taken))
        free.taken = taken
        free.pause = min(PAUSE_MOST_S, 2 * free.pause) if free.pause and not moved else PAUSE_FIRST_S
        free.next = now + free.pause
        return free.pause
