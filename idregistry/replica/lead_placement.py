"""Chooses a shard's leader near the datacentre that inserts most. Pure.

With a leader nearby, a registration takes one round trip, to a majority; otherwise one more, to the leader. If one
datacentre inserts most of the ids (the others wait, or have no pipeline), the leader hands over to a replica in
that datacentre's region. If several share the work, no place is better than another, and the leader stays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

PERIOD_S = 2.5
# Number of successive periods that must agree before the lead is handed over, which delays inserts by some round
# trips.
PERIODS = 2
MOSTLY = 0.8  # share of a period's ids from one region
LEAST_IDS = 20  # a period with fewer ids is ignored


class LeadPlacement:
    """Decides for one shard whether this replica should keep leading. Times are monotonic seconds of the caller."""

    def __init__(self, name: str, near: Mapping[str, Sequence[str]]) -> None:
        """``near``: datacentre -> the replicas of its region; a missing datacentre has none."""
        self._name = name
        self._near = near
        self._ids: Counter[tuple[str, ...]] = Counter()  # ids, by the replicas near the inserting datacentre
        self._since = 0.0
        self._said: tuple[str, ...] = ()
        self._times = 0

    def inserted(self, datacentre: str, ids: int) -> None:
        """Counts ids that a datacentre registered through this replica."""
        if self._near:
            self._ids[tuple(self._near.get(datacentre, ()))] += ids

    def better(self, now: float) -> tuple[str, ...]:
        """Returns the replicas of which one should lead instead of this one; usually none. Call once a second."""
        if now - self._since < PERIOD_S:
            return ()
        late = now - self._since >= 2 * PERIOD_S  # not called meanwhile, as this replica did not lead
        ids, self._ids, self._since = self._ids, Counter(), now
        said: tuple[str, ...] = ()
        if not late and ids.total() >= LEAST_IDS:
            most, count = ids.most_common(1)[0]
            if count >= MOSTLY * ids.total() and self._name not in most:
                said = most
        self._times = self._times + 1 if said and said == self._said else int(bool(said))
        self._said = said
        if self._times < PERIODS:
            return ()
        self._times = 0
        return said
