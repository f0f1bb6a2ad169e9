"""Which datacentre an event belongs to, and whether it can be left to it. Pure (paper, section 3.2.2).

Every datacentre reads every event, and each would join all of them: the registry lets one win, the other's work is
wasted. So each event has a *home*, found by rendezvous hashing of its digest over the datacentres of the deployment:
the home takes it at once; the others leave it alone for a *head start*, look it up, and take it when it is still
absent.

Nobody tells anybody how it is doing. Whether a datacentre is trusted with its events follows from what became of
those that were left to it: registered by it in time, or still there to be joined by us. One that is not trusted gets
no head start, but for a few *probes*: when those are registered in time again, trust returns.

Nothing here is needed for correctness: the registry decides, and a wrong guess costs a wasted join or a wait of one
head start. Two datacentres may therefore think differently of a third, and of each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from photon.idregistry.api import DIGEST_BYTES, U64

NOBODY = -1
"""In place of a datacentre's number: the event is not left to anybody."""
PROBE_MASK = np.uint64(15)
"""One of 16 events is a probe, the same ones in every datacentre."""

MEMORY = 16
"""About so many of the last events left to a datacentre decide whether it is trusted."""
DISTRUST, TRUST = 0.75, 0.4
"""Share of events not taken in time above which trust is lost, and below which it returns."""
GRACE_S = 0.2
"""Trust is lost only after so long above the bound (or two head starts): a hiccup gives many bad answers at once."""

CONTEST_MEMORY = 64
CONTESTED, QUIET = 0.2, 0.05
"""Share of own events that another datacentre had registered: above the first they are looked up before they are
joined, below the second no more."""

FIRST_S = 0.1
"""The head start until the registry's commit time is known."""
LEAST_S, MOST_S = 0.02, 2.0
COMMITS = 2.0
"""A head start is so many commit times: one for the home's registration, one for what comes before and after it."""
STRETCH_MOST = 8.0
STRETCH_EVENTS = 128
"""The stretch of a measured head start is looked at after each so many events."""
WASTED_MUCH, WASTED_LITTLE = 0.03, 0.005


@dataclass(frozen=True, slots=True)
class HomeStatus:
    """Another datacentre as seen from here. ``left``: events left to it so far; ``in_time``: taken by it in time."""

    datacentre: str
    trusted: bool
    left: int
    in_time: int


class Share:
    """The share of bad outcomes among the last ones, older ones fading. Whole groups at a time, in any order."""

    def __init__(self, memory: int) -> None:
        self._keep = 1.0 - 1.0 / memory
        self.value = 0.0

    def observe(self, good: int, bad: int) -> None:
        """Some more outcomes."""
        if good or bad:
            self.value += (bad / (good + bad) - self.value) * (1.0 - self._keep ** (good + bad))


class Trust:
    """Of one other datacentre. Times: monotonic seconds."""

    def __init__(self) -> None:
        self.trusted = True
        self.left = self.in_time = 0
        self._late = Share(MEMORY)
        self._bad_since: float | None = None

    def observe(self, in_time: int, missed: int, ahead: int, now: float, grace_s: float) -> None:
        """Of the events left to it, so many were taken by it, so many had to be joined here.

        ``ahead``: others that it had registered before we came to them.
        """
        self.in_time += in_time
        self._late.observe(in_time + ahead, missed)
        share = self._late.value
        if not self.trusted:
            self.trusted = share < TRUST
        elif share <= DISTRUST:
            self._bad_since = None
        elif self._bad_since is None:
            self._bad_since = now
        elif now - self._bad_since >= grace_s:
            self.trusted = False
            self._bad_since = None


class HeadStart:
    """How long events are left to their home: as configured, or as the registry's commit time says.

    What is measured leaves out the home's reading and joining. Where those take long, events come back too early and
    are joined twice; the head start then stretches.
    """

    def __init__(self, configured_s: float | None = None) -> None:
        self._configured = configured_s
        self._base = FIRST_S
        self._stretch = 1.0
        self._seen = self._wasted = 0

    @property
    def seconds(self) -> float:
        """Now."""
        return self._configured if self._configured is not None else min(self._base * self._stretch, MOST_S)

    def measured(self, commit_s: float) -> None:
        """``commit_s``: from asking a registration until every datacentre could know of it."""
        self._base = min(max(COMMITS * commit_s, LEAST_S), MOST_S)

    def observe(self, left: int, wasted: int) -> None:
        """Of so many events left to others, so many were sent to a joiner and then turned out to be taken by them."""
        self._seen += left
        self._wasted += wasted
        if self._seen < STRETCH_EVENTS:
            return
        share = self._wasted / self._seen
        if share > WASTED_MUCH:
            self._stretch = min(self._stretch * 1.5, STRETCH_MOST)
        elif share < WASTED_LITTLE:
            self._stretch = max(self._stretch * 0.95, 1.0)
        self._seen = self._wasted = 0


@dataclass(frozen=True, slots=True)
class Places:
    """For each event: behind how many datacentres it waits (0: it is taken at once), and the first of them."""

    ranks: npt.NDArray[np.int64]
    homes: npt.NDArray[np.int64]  # a datacentre's number, NOBODY where the rank is 0


@dataclass(slots=True)
class Evidence:
    """What some answers say. ``in_time``, ``missed``: events by the number of the datacentre they were left to."""

    in_time: Counter[int] = field(default_factory=Counter)
    missed: Counter[int] = field(default_factory=Counter)
    ahead: Counter[int] = field(default_factory=Counter)
    """Events that were left to nobody yet, found registered by this datacentre: it is further in the logs."""
    wasted: int = 0
    """Events that were left to another datacentre, joined here after the head start, and taken by it meanwhile."""
    own: int = 0
    """Own events that got a verdict here."""
    contested: int = 0
    """Own events that another datacentre had registered."""


class Homes:
    """The datacentres that share a join, as one of them sees it."""

    def __init__(self, own: str, datacentres: Iterable[str], head_start: HeadStart | None = None) -> None:
        """``datacentres``: all that join the same events; the own one may or may not be among them."""
        self.names: Sequence[str] = sorted({own, *datacentres})
        self.own = self.names.index(own)
        self._seeds = [_seed(name) for name in self.names]
        self.number: Mapping[str, int] = {name: at for at, name in enumerate(self.names)}
        self.head_start = head_start or HeadStart()
        self._trusts = {at: Trust() for at in range(len(self.names)) if at != self.own}
        self._contest = Share(CONTEST_MEMORY)
        self.contested = False
        """Another datacentre registers many of our events before us: they are looked up first."""

    @property
    def ranks(self) -> int:
        """The greatest rank there is."""
        return len(self._trusts)

    def place(self, digests: bytes) -> Places:
        """Where each event stands. A datacentre counts when it precedes us in the event's order and is trusted."""
        words = np.frombuffer(digests, dtype="<u8").reshape(-1, DIGEST_BYTES // 8)
        probes = (words[:, 1] & PROBE_MASK) == 0
        own = _mixed(words[:, 0], self._seeds[self.own])
        ranks = np.zeros(len(words), dtype=np.int64)
        homes = np.full(len(words), NOBODY, dtype=np.int64)
        best = np.zeros(len(words), dtype=np.uint64)
        for number, trust in self._trusts.items():
            score = _mixed(words[:, 0], self._seeds[number])
            ahead = score > own
            if not trust.trusted:
                ahead &= probes
            ranks += ahead
            first = ahead & (score > best)
            homes[first] = number
            best[first] = score[first]
        return Places(ranks, homes)

    def count_left(self, left: Mapping[int, int]) -> None:
        """So many events are left to these datacentres now, for the first time."""
        for number, count in left.items():
            self._trusts[number].left += count

    def observe(self, evidence: Evidence, now: float) -> None:
        """Learns from answers."""
        grace = max(GRACE_S, 2 * self.head_start.seconds)
        left = 0
        for number, trust in self._trusts.items():
            in_time, missed, ahead = evidence.in_time[number], evidence.missed[number], evidence.ahead[number]
            if in_time or missed or ahead:
                trust.observe(in_time, missed, ahead, now, grace)
                left += in_time + missed
        self.head_start.observe(left, evidence.wasted)
        self._contest.observe(evidence.own, evidence.contested)
        self.contested = self._contest.value > (QUIET if self.contested else CONTESTED)

    def status(self) -> list[HomeStatus]:
        """Of each other datacentre."""
        return [HomeStatus(self.names[n], t.trusted, t.left, t.in_time) for n, t in self._trusts.items()]


def _seed(name: str) -> np.uint64:
    return np.uint64(int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little"))


def _mixed(words: U64, seed: np.uint64) -> U64:
    """The last steps of splitmix64: the orders of three and more datacentres must not depend on one another."""
    x = words ^ seed
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: U64 = x ^ (x >> np.uint64(31))
    return mixed
