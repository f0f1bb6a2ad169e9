"""Which replica is asked for look-ups: the nearest that answers and is not cut off from the others."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

SAMPLES = 5  # round trips of a replica whose median counts
CLEARLY = 0.7
NOISE_S = 0.002
"""Another replica is taken when its round trip is below CLEARLY times the present one's, and by more than NOISE_S."""
BEHIND_S = 2.0
"""A replica is behind when it has not applied what another had applied one or two times so long ago, or lacks ..."""
BEHIND_ENTRIES = 1_000  # ... more entries than commit within that time


@dataclass(slots=True)
class _Replica:
    failing: bool = False
    round_trips_s: deque[float] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    leaderless: set[int] = field(default_factory=set)
    applied: dict[int, int] = field(default_factory=dict)

    @property
    def distance_s(self) -> float:
        return statistics.median(self.round_trips_s) if self.round_trips_s else float("inf")


@dataclass(slots=True)
class _Top:
    """A group's greatest applied index over all replicas: now, when this period began, and when the last one did."""

    since: float
    now: int = 0
    recent: int = 0
    before: int = 0


class Nearest:
    """What is known of each replica. Times are monotonic seconds, given by the caller."""

    def __init__(self, names: Sequence[str]) -> None:
        """``names`` in the order of preference while nothing is known."""
        self._replicas = {name: _Replica() for name in names}
        self._tops: dict[int, _Top] = {}
        self._favourite = next(iter(names))

    def answered(self, name: str, round_trip_s: float) -> None:
        """It answered a small question after so long."""
        replica = self._replicas[name]
        if replica.failing:
            replica.round_trips_s.clear()  # of the way as it was before
        replica.failing = False
        replica.round_trips_s.append(round_trip_s)
        self._favourite = min(self._replicas, key=lambda each: (self._replicas[each].failing, self._distance(each)))

    def failed(self, name: str) -> None:
        """It did not answer in time: until it answers, the others come first."""
        self._replicas[name].failing = True

    def led(self, name: str, group: int, led: bool) -> None:
        """Whether it has heard of the group's leader of late."""
        (self._replicas[name].leaderless.discard if led else self._replicas[name].leaderless.add)(group)

    def applied(self, name: str, group: int, index: int, now: float) -> None:
        """It has applied so many entries of the group's log."""
        self._replicas[name].applied[group] = index
        top = self._tops.setdefault(group, _Top(now))
        if now - top.since >= BEHIND_S:
            top.before, top.recent, top.since = top.recent, top.now, now
        top.now = max(top.now, index)

    def round_trip_s(self, name: str) -> float:
        """Median of the last few; infinite when it never answered."""
        return self._replicas[name].distance_s

    def choose(self, group: int) -> str:
        return min(
            self._replicas,
            key=lambda name: (self._replicas[name].failing, self.doubtful(name, group), self._distance(name)),
        )

    def doubtful(self, name: str, group: int) -> bool:
        """Cut off from the leader, or far behind: what it calls absent may have been registered long ago."""
        replica, top = self._replicas[name], self._tops.get(group)
        if group in replica.leaderless:
            return True
        if top is None or group not in replica.applied:
            return False
        applied = replica.applied[group]
        return applied < top.before or applied < top.now - BEHIND_ENTRIES

    def _distance(self, name: str) -> float:
        distance = self._replicas[name].distance_s
        return CLEARLY * distance - NOISE_S if name == self._favourite else distance
