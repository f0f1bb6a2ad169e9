"""Chooses the replica for look-ups: the nearest that answers and is not cut off from the others."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

SAMPLES = 5  # a replica's distance is the median of its last SAMPLES round trips
CLEARLY = 0.7
# Switch to another replica if its round trip is below CLEARLY times the present one's, and shorter by more than
# NOISE_S.
NOISE_S = 0.002
# A replica is behind if it lacks entries that another had applied BEHIND_S to 2 * BEHIND_S ago, or more than
# BEHIND_ENTRIES entries.
BEHIND_S = 2.0
BEHIND_ENTRIES = 1_000  # more than commit within BEHIND_S


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
    """A group's highest applied index on any replica: now, at the start of the current period of BEHIND_S, and at
    the start of the previous one.
    """

    since: float
    now: int = 0
    recent: int = 0
    before: int = 0


class Nearest:
    """Tracks each replica's round-trip time and state. Times are monotonic seconds, given by the caller."""

    def __init__(self, names: Sequence[str]) -> None:
        """``names``: replicas in order of preference while nothing is measured."""
        self._replicas = {name: _Replica() for name in names}
        self._tops: dict[int, _Top] = {}
        self._favourite = next(iter(names))

    def answered(self, name: str, round_trip_s: float) -> None:
        """Records that a replica answered Describe, and the round-trip time."""
        replica = self._replicas[name]
        if replica.failing:
            replica.round_trips_s.clear()  # they were measured on the earlier route
        replica.failing = False
        replica.round_trips_s.append(round_trip_s)
        self._favourite = min(self._replicas, key=lambda each: (self._replicas[each].failing, self._distance(each)))

    def failed(self, name: str) -> None:
        """Records that a replica did not answer: other replicas are preferred until it does."""
        self._replicas[name].failing = True

    def led(self, name: str, group: int, led: bool) -> None:
        """Records whether a replica has heard from the group's leader recently."""
        (self._replicas[name].leaderless.discard if led else self._replicas[name].leaderless.add)(group)

    def applied(self, name: str, group: int, index: int, now: float) -> None:
        """Records that a replica has applied the group's log up to ``index``."""
        self._replicas[name].applied[group] = index
        top = self._tops.setdefault(group, _Top(now))
        if now - top.since >= BEHIND_S:
            top.before, top.recent, top.since = top.recent, top.now, now
        top.now = max(top.now, index)

    def round_trip_s(self, name: str) -> float:
        """Returns the median of a replica's last few round trips; infinity if it never answered."""
        return self._replicas[name].distance_s

    def choose(self, group: int) -> str:
        return min(
            self._replicas,
            key=lambda name: (self._replicas[name].failing, self.doubtful(name, group), self._distance(name)),
        )

    def doubtful(self, name: str, group: int) -> bool:
        """True if a replica is cut off or far behind: an id it reports absent may have been registered long ago."""
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
