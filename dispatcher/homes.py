"""Decides which datacentre an event belongs to, and whether to leave the event to it. Pure (paper, section 3.2.2).

Every datacentre reads every event. If each joined all of them, the registry would let one win, and the others' work
would be wasted. So each event has a *home*, found by rendezvous hashing of its digest over the datacentres of the
deployment: the home takes it at once; the others wait for a *head start*, look it up, and take it if it is still
absent.

Datacentres do not report their health. A datacentre is trusted as long as it registers events left to it in time, so
that we need not join them. Without trust it gets no head start, except for a few *probes*: once it registers those in
time, it is trusted again.

Nothing here is needed for correctness: the registry decides, and a wrong guess costs a wasted join or a wait of one
head start. Two datacentres may therefore disagree about a third, and about each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from photon.batch.columns import F64, Mask
from photon.batch.verdicts import Verdicts
from photon.idregistry.api import DIGEST_BYTES, I64, U64
from photon.joiner.api import Outcome

NOBODY = -1  # replaces a datacentre's number: the event is left to nobody
YIELDED = -2  # likewise: an own event left to any datacentre that currently takes ours
PROBE_MASK = 15  # one of 16 events is a probe, the same ones in every datacentre

MEMORY = 16  # number of recent events left to a datacentre that decide whether it is trusted, approximately
# Trust stays lost at least for this time, longer when it is lost again soon after its return. So a datacentre that is
# permanently too slow is not tried every second.
SPELL_S, SPELL_MOST_S, SPELL_GROWS = 0.5, 30.0, 4
DISTRUST, TRUST = 0.75, 0.6  # trust is lost above, and returns below, these shares of events not taken in time
SPELL_REMEMBERED = 20  # soon means within this many spells
# Trust is lost only after this time above the bound (or two head starts): a hiccup causes many bad answers at once.
GRACE_S = 0.2

CONTEST_MEMORY = 32
# Share of own events that another datacentre had registered: above the first they are looked up before they are
# joined, below the second no longer.
CONTESTED, QUIET = 0.2, 0.05
# Value of the same share above which own events, except probes, are left to others too: the datacentre that takes
# them does not trust us, and taking them at once would make each a race. If they are left to us again, they are
# still absent after the time of a registration: less than a head start, at the end of which they would be gone.
YIELD = 0.35

# The head start until the registry's commit time is known: rather too long than a race for each early event.
FIRST_S = 0.5
LEAST_S, MOST_S = 0.02, 2.0
COMMITS = 2.0  # commit times in a head start: one for the home's registration, one for the steps before and after it
ANSWER_S, ANSWER_COMMITS = 0.25, 3.0
OWN_TIMES = 1.25
OWN_FADES = 0.02  # share of a slow answer forgotten with each further one
USUAL_STEP = 1.1
STRETCH_MOST = 8.0
STRETCH_EVENTS = 128  # the stretching of a measured head start is checked after this number of events
WASTED_MUCH, WASTED_LITTLE = 0.03, 0.005

# As numbers: numpy is slow to compare with enumeration members.
_JOINED, _REJECTED, _TAKEN = int(Outcome.JOINED), int(Outcome.REJECTED), int(Outcome.TAKEN)


@dataclass(frozen=True, slots=True)
class HomeStatus:
    """Another datacentre as seen from here. ``left``: events left to it so far; ``in_time``: taken by it in time."""

    datacentre: str
    trusted: bool
    left: int
    in_time: int


class Share:
    """The share of bad outcomes among recent ones: older outcomes count less and less. Takes groups in any order."""

    def __init__(self, memory: int) -> None:
        self._keep = 1.0 - 1.0 / memory
        self.value = 0.0

    def observe(self, good: int, bad: int) -> None:
        if good or bad:
            self.value += (bad / (good + bad) - self.value) * (1.0 - self._keep ** (good + bad))


class Trust:
    """Decides if one other datacentre can be trusted. Times: monotonic seconds."""

    def __init__(self) -> None:
        self.trusted = True
        self.left = self.in_time = 0
        self._late = Share(MEMORY)
        self._bad_since: float | None = None
        self._spell = SPELL_S
        self._changed_at = float("-inf")

    def observe(self, in_time: int, missed: int, ahead: int, now: float, grace_s: float) -> None:
        """Adds events left to the datacentre: it took ``in_time`` of them, and ``missed`` had to be joined here.
        ``ahead``: other events that it had registered before we read them.
        """
        self.in_time += in_time
        self._late.observe(in_time + ahead, missed)
        share = self._late.value
        if not self.trusted:
            if share < TRUST and now - self._changed_at >= self._spell:
                self.trusted = True
                self._changed_at = now
        elif share <= DISTRUST:
            self._bad_since = None
        elif self._bad_since is None:
            self._bad_since = now
        elif now - self._bad_since >= grace_s:
            again = now - self._changed_at < SPELL_REMEMBERED * self._spell
            self._spell = min(SPELL_GROWS * self._spell, SPELL_MOST_S) if again else SPELL_S
            self.trusted = False
            self._changed_at = now
            self._bad_since = None


class HeadStart:
    """The time for which events are left to their home: as configured, or derived from the registry's commit time.

    The commit time excludes queues and joiners; the home's are assumed to be as fast as ours, so the head start is at
    least the time our own events take. If the home needs longer, events are joined twice, and the head start is
    extended.
    """

    def __init__(self, configured_s: float | None = None) -> None:
        self._configured = configured_s
        self._base = FIRST_S
        self._stretch = 1.0
        self._own_s = FIRST_S / OWN_TIMES  # the home may be starting too; this fades as our own events complete
        self._usual_s = LEAST_S
        self._seen = self._wasted = 0

    @property
    def seconds(self) -> float:
        if self._configured is not None:
            return self._configured
        return min(self._unstretched * self._stretch, MOST_S)

    def measured(self, commit_s: float) -> None:
        """Sets the registry's commit time: seconds from a request to register until every datacentre can see it."""
        self._base = min(max(COMMITS * commit_s, LEAST_S), MOST_S)

    @property
    def least_s(self) -> float:
        """The head start of events that we take from their home only when otherwise idle."""
        return self._configured if self._configured is not None else min(self._unstretched, MOST_S)

    @property
    def yielded_s(self) -> float:
        """The time for which yielded events are left: enough for a datacentre that takes them at once."""
        return min(max(self._base, OWN_TIMES * self._usual_s), MOST_S)

    @property
    def _unstretched(self) -> float:
        return max(self._base, OWN_TIMES * self._own_s)

    @property
    def answer_s(self) -> float:
        """The time in which a joiner should answer; if fewer events were in flight, it would be idle."""
        return max(ANSWER_S, ANSWER_COMMITS * self._base / COMMITS)

    def took(self, seconds: float) -> None:
        """Notes how long the slowest of some of our own events took from its turn to its verdict."""
        self._own_s = seconds if seconds > self._own_s else self._own_s + (seconds - self._own_s) * OWN_FADES
        self._usual_s *= USUAL_STEP if seconds > self._usual_s else 1 / USUAL_STEP  # approximates their median

    def observe(self, left: int, wasted: int) -> None:
        """Notes ``left`` events left to others, and ``wasted`` joins of events that others had registered."""
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
    """Each event's rank, the number of datacentres it waits for (0: it is taken at once), and the first of them."""

    ranks: npt.NDArray[np.int64]
    homes: npt.NDArray[np.int64]  # a datacentre's number, NOBODY if the rank is 0


@dataclass(slots=True)
class Evidence:
    """Evidence from answers. ``in_time``, ``missed``: events by the number of the datacentre they were left to."""

    in_time: Counter[int] = field(default_factory=Counter)
    missed: Counter[int] = field(default_factory=Counter)
    # Events not left to anybody yet, found registered by this datacentre: it is further ahead in the logs.
    ahead: Counter[int] = field(default_factory=Counter)
    wasted: int = 0  # events left to another datacentre, joined here after the head start, and then found taken by it
    own: int = 0  # own events that got a verdict here, or that nobody took while we left them
    contested: int = 0  # own events that another datacentre had registered
    slowest_s: float = 0.0  # longest time of an own event from its turn to its verdict


class Homes:
    def __init__(self, own: str, datacentres: Iterable[str], head_start: HeadStart | None = None) -> None:
        """``datacentres``: all that join the same events; ours may be omitted."""
        self.names: Sequence[str] = sorted({own, *datacentres})
        self.own = self.names.index(own)
        digests = (blake2b(name.encode(), digest_size=8).digest() for name in self.names)
        self._seeds = [np.uint64(int.from_bytes(each, "little")) for each in digests]
        self.number: Mapping[str, int] = {name: at for at, name in enumerate(self.names)}
        self.head_start = head_start or HeadStart()
        self._trusts = {at: Trust() for at in range(len(self.names)) if at != self.own}
        self._contest = Share(CONTEST_MEMORY)
        self.contested = False  # another datacentre registers many of our events before us: so look them up first
        self.yielding = False  # it registers so many that it does not trust us: so leave them to it, except probes

    @property
    def ranks(self) -> int:
        return len(self._trusts)

    def wait_s(self, rank: int, *, backlog: bool) -> float:
        """Returns how long an event of this rank is left to others; 0 if it is yielded.

        The second substitute also waits for the first one.
        """
        if not rank:
            return self.head_start.yielded_s
        return rank * (self.head_start.least_s if backlog else self.head_start.seconds)

    def place(self, digests: bytes) -> Places:
        """Returns each event's place. A datacentre counts if it precedes us in the event's order and is trusted."""
        places = self._places(digests)
        if self.yielding:
            yielded = (places.ranks == 0) & ~_probes(_words(digests))
            places.ranks[yielded] = 1
            places.homes[yielded] = YIELDED
        return places

    def own_ones(self, digests: bytes) -> npt.NDArray[np.bool_]:
        mask: npt.NDArray[np.bool_] = self._places(digests).ranks == 0
        return mask

    def _places(self, digests: bytes) -> Places:
        words = _words(digests)
        probes = _probes(words)
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
        """Notes how many events are now left to these datacentres for the first time."""
        for number, count in left.items():
            self._trusts[number].left += count

    def of_answers(self, tells: Mask, left_to: I64, placed_at: F64, verdicts: Verdicts, now: float) -> Evidence:
        """Returns the evidence from a joiner's answers to a batch; ``tells`` marks events that count as evidence.

        ``left_to``, ``placed_at``: the datacentre each was left to, and since when.
        """
        evidence = Evidence()
        outcomes = verdicts.outcomes
        decided = tells & (outcomes >= _JOINED) & (outcomes <= _REJECTED)
        evidence.missed.update(left_to[decided & (left_to >= 0)].tolist())
        own = placed_at[decided & (left_to == NOBODY)]
        evidence.own = len(own)
        evidence.slowest_s = now - float(own.min(initial=now))
        taken = tells & (outcomes == _TAKEN) & (verdicts.owner_kinds != 0)
        if taken.any():
            owner, left_to = self._owners(verdicts)[taken], left_to[taken]
            evidence.contested += int(np.count_nonzero((left_to == NOBODY) & (owner != self.own)))
            in_time = owner[(left_to == owner) & (left_to != NOBODY)]
            evidence.in_time.update(in_time.tolist())
            evidence.wasted += len(in_time)
        return evidence

    def of_look_ups(self, tells: Mask, left_to: I64, digests: npt.NDArray[np.void], owners: Verdicts) -> Evidence:
        """Returns the evidence from registered events that a look-up found; ``tells``: as in ``of_answers``."""
        evidence = Evidence()
        if not len(left_to):
            return evidence
        owner = self._owners(owners)
        tells = tells & (owner != self.own) & (owner != NOBODY)
        if self.yielding:  # otherwise it was yielded at an earlier time
            evidence.contested += int(np.count_nonzero(tells & (left_to == YIELDED)))
        unplaced = tells & (left_to == NOBODY)  # not left to anyone: the other one is ahead of us
        evidence.ahead = Counter(owner[unplaced].tolist())
        evidence.in_time = Counter(owner[tells & (left_to == owner)].tolist())
        if unplaced.any():
            evidence.contested += int(np.count_nonzero(self.own_ones(digests[unplaced].tobytes())))
        return evidence

    def _owners(self, verdicts: Verdicts) -> I64:
        """Returns the numbers of the datacentres that own the ids."""
        numbers = np.array([self.number.get(name, NOBODY) for name in verdicts.datacentres], np.int64)
        owners: I64 = numbers[verdicts.owner_datacentres]
        return owners

    def observe(self, evidence: Evidence, now: float, *, backlog: bool = False) -> None:
        """Updates trust and head start. ``backlog``: the events were behind, so the head start is not adapted."""
        grace = max(GRACE_S, 2 * self.head_start.seconds)
        left = 0
        for number, trust in self._trusts.items():
            in_time, missed, ahead = evidence.in_time[number], evidence.missed[number], evidence.ahead[number]
            if in_time or missed or ahead:
                trust.observe(in_time, missed, ahead, now, grace)
                left += in_time + missed
        if not backlog:
            self.head_start.observe(left, evidence.wasted)
        if evidence.slowest_s:
            self.head_start.took(evidence.slowest_s)
        self._contest.observe(evidence.own, evidence.contested)
        self.contested = self._contest.value > (QUIET if self.contested else CONTESTED)
        trusting = any(
            trust.trusted for trust in self._trusts.values()
        )  # else there is no datacentre to leave them to
        self.yielding = trusting and self._contest.value > (YIELD / 2 if self.yielding else YIELD)

    def status(self) -> list[HomeStatus]:
        return [HomeStatus(self.names[n], t.trusted, t.left, t.in_time) for n, t in self._trusts.items()]


def _words(digests: bytes) -> U64:
    """Returns the digests as an n x 2 array of 64-bit words."""
    return np.frombuffer(digests, dtype="<u8").reshape(-1, DIGEST_BYTES // 8)


def _probes(words: U64) -> npt.NDArray[np.bool_]:
    mask: npt.NDArray[np.bool_] = (words[:, 1] & np.uint64(PROBE_MASK)) == 0
    return mask


def _mixed(words: U64, seed: np.uint64) -> U64:
    """Mixes words by the last steps of splitmix64, so that the orders of several datacentres are independent."""
    x = words ^ seed
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: U64 = x ^ (x >> np.uint64(31))
    return mixed
