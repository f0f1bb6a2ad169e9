"""Chooses the joiner for the next batch: the less busy of two, excluding those that failed or are overloaded. Pure.

A joiner can be in trouble in three ways:

- it *failed* (the call broke, or it gave no verdict for a whole batch): it gets nothing for a time that grows with
  each consecutive failure, then one small batch as a probe. While no joiner is well, each is tried again after
  ``LAST_S`` at the latest: the cause is then probably common to all, such as the registry or the event store;
- it is *overloaded*: it gets nothing for a moment, then one batch;
- it *owes* an answer for so long that it may have died: it gets nothing while another joiner is well.

A joiner that is merely slow has more events outstanding, so it is seldom chosen, and gets what it can handle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from photon.config.back_off import BackOff
from photon.joiner.api import UNKNOWN_REASON, JoinAnswers

# Time for which a joiner that failed gets nothing; increases with each failure.
EJECTION = BackOff(first=0.1, most=30.0, floor=0.05)
LAST_S = 1.0  # maximum of this time while no other joiner is well
OVERLOAD = BackOff(first=0.02, most=0.5, floor=0.005)
PROBE_EVENTS = 100  # size of the batch that probes a joiner that failed: its events are delayed if it fails again
# A batch of this size without one verdict is evidence against the joiner; a smaller one perhaps only against its
# events.
USELESS_EVENTS = 20
OWES_S = 2.0  # an answer is owed after this time
IN_FLIGHT_LEAST = 100  # minimum of events in flight at a joiner, if answers should come soon
SLOWER, FASTER = 0.75, 1.1

COMPANY_MOST = 4.0  # longest wait of an event for others, as a multiple of a batch's time


@dataclass(slots=True)
class Target:
    """One joiner as the dispatcher sees it. Times: monotonic seconds."""

    number: int
    outstanding: int = 0  # batches
    events: int = 0  # outstanding
    failures: int = 0  # in a row
    failed_at: float = 0.0
    refusals: int = 0  # consecutive: overloaded
    away_until: float = 0.0
    sent: Counter[float] = field(default_factory=Counter)  # send times of the outstanding batches
    limit: float = 0.0  # maximum of events in flight, if answers should come soon
    answered_at: float = 0.0  # when it was last well, or overloaded
    slowed_at: float = 0.0  # when the limit was last lowered

    def owes(self, now: float) -> bool:
        return bool(self.sent) and now - min(self.sent) > OWES_S


class Flow:
    """Chooses joiners. ``in_flight``: batches outstanding per joiner. ``random``: uniform in [0, 1).

    ``soon``: how long an answer may take, in seconds; ``None`` if nobody else works on the same events. Events queued
    at a joiner beyond what keeps it busy may be joined by another datacentre meanwhile, which wastes work when both
    read the same part of the logs.
    """

    def __init__(
        self,
        joiners: int,
        *,
        in_flight: int,
        random: Callable[[], float],
        batch_events: int = 1000,
        soon: Callable[[], float] | None = None,
    ) -> None:
        self.targets: list[Target] = []
        self._leaving: list[Target] = []  # removed, with batches in flight
        self._added = 0
        self._in_flight = in_flight
        self._random = random
        self._soon = soon
        self._batch_events = batch_events
        for _ in range(joiners):
            self.add()

    def add(self) -> Target:
        """Adds a joiner. Numbers are not reused."""
        target = Target(self._added, limit=2.0 * self._batch_events)
        self._added += 1
        self.targets.append(target)
        return target

    def remove(self, target: Target) -> None:
        """Excludes a joiner from choices; still call ``answered`` for its batches in flight."""
        self.targets.remove(target)
        self._leaving = [each for each in (*self._leaving, target) if each.outstanding]

    @property
    def outstanding(self) -> int:
        return sum(target.outstanding for target in (*self.targets, *self._leaving))

    def choose(self, now: float) -> Target | None:
        """Reserves a place at a free joiner, if any. Call ``sent`` afterwards; ``answered`` frees the place."""
        free = self._free(now)
        if not free:
            return None
        best = free[0]
        if len(free) > 1:
            first = int(self._random() * len(free))
            second = int(self._random() * (len(free) - 1))
            second += second >= first
            best = min(free[first], free[second], key=lambda t: (t.events, t.outstanding))
        best.outstanding += 1
        return best

    def _free(self, now: float) -> list[Target]:
        free = [t for t in self.targets if self._has_place(t) and self._back(t, now) <= now]
        if any(self._well(target, now) for target in self.targets):
            free = [target for target in free if not target.owes(now)]
        return free

    @staticmethod
    def _well(target: Target, now: float) -> bool:
        return not target.failures and not target.owes(now)

    def _has_place(self, target: Target) -> bool:
        if self._soon is not None and target.events >= target.limit:
            return False
        return target.outstanding < (1 if target.failures or target.refusals else self._in_flight)

    def _back(self, target: Target, now: float) -> float:
        """Returns when the joiner is tried again."""
        if target.failures and not any(self._well(other, now) for other in self.targets):
            return min(target.away_until, target.failed_at + LAST_S)
        return target.away_until

    def sent(self, target: Target, events: int, now: float) -> None:
        """Notes how many events were sent to the reserved place. 0 gives it back."""
        if events:
            target.events += events
            target.sent[now] += 1
        else:
            target.outstanding -= 1

    def answered(self, target: Target, events: int, answers: JoinAnswers | None, sent_at: float, now: float) -> None:
        """Handles the outcome of a batch sent at ``sent_at``. ``answers`` is ``None`` if the call failed."""
        if self._soon is not None:
            self._adapt(target, sent_at, now, self._soon())
        target.outstanding -= 1
        target.events -= events
        target.sent[sent_at] -= 1
        if target.sent[sent_at] <= 0:
            del target.sent[sent_at]
        if answers is not None and not answers.failed:
            target.answered_at = now
        if answers is not None and answers.overloaded:
            target.refusals += 1
            target.away_until = now + OVERLOAD.delay(target.refusals, self._random)
        elif answers is None or _useless(answers):
            self._failed(target, sent_at, now)
        else:
            target.failures = target.refusals = 0
            target.away_until = now  # it may have been tried early

    def _failed(self, target: Target, sent_at: float, now: float) -> None:
        """Counts a failure. A call sent before the last failure does not count again: they broke together."""
        if not target.failures or sent_at >= target.failed_at:
            target.failures += 1
            target.failed_at = now
            target.away_until = now + EJECTION.delay(target.failures, self._random)

    def company_s(self, batch_wait_s: float) -> float:
        """Returns how many seconds a newly read event waits for a batch to fill: longer while more batches are in
        flight. Small batches cost as much as large ones, and delay later events. If none is in flight, an event is
        sent at once; if many are, it is slow anyway.
        """
        return batch_wait_s * min(self.outstanding / max(1, len(self.targets)), COMPANY_MOST)

    def batch_events(self) -> int:
        if self._soon is None:
            return self._batch_events
        slowest = min((target.limit for target in self.targets), default=2.0 * self._batch_events)
        return min(self._batch_events, int(slowest / 2))

    def most_events(self, target: Target) -> int:
        return PROBE_EVENTS if target.failures and len(self.targets) > 1 else self._batch_events

    def _adapt(self, target: Target, sent_at: float, now: float, soon: float) -> None:
        """Raises the joiner's limit if it is used and answers come soon; else lowers it, once per round trip."""
        if now - sent_at > soon:
            if sent_at >= target.slowed_at:
                target.limit = max(IN_FLIGHT_LEAST, target.limit * SLOWER)
                target.slowed_at = now
        elif 2 * target.events > target.limit:
            target.limit = min(self._in_flight * self._batch_events, target.limit * FASTER)

    def has_room(self, now: float) -> bool:
        return bool(self._free(now))

    def next_free(self, now: float) -> float | None:
        """Returns when an excluded joiner comes back; ``None`` means only after an answer."""
        away = [self._back(target, now) for target in self.targets if self._has_place(target)]
        return min((moment for moment in away if moment > now), default=None)

    @property
    def ejected(self) -> int:
        return sum(target.failures > 0 for target in self.targets)


def _useless(answers: JoinAnswers) -> bool:
    """True if the joiner gave no verdict for a whole batch, unless because the registry does not answer."""
    verdicts = answers.verdicts
    if len(verdicts) < USELESS_EVENTS or not answers.useless:
        return answers.failed
    return answers.failed or UNKNOWN_REASON not in verdicts.reasons.values()
