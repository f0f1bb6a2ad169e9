"""Which joiner gets the next batch: the less busy of two, none that just failed or has its hands full. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from photon.dispatcher.retry import Backoff
from photon.joiner.api import JoinAnswers, Outcome

EJECTION = Backoff(first=0.1, most=1.0, floor=0.05)
"""A joiner that failed as a whole gets nothing for so long; longer each time. Not for long: the fault may be that of
the batch, whose ids all belong to a registry shard that has no leader."""
IN_FLIGHT_LEAST = 100
"""Events in flight at a joiner, at least, where answers are to come soon."""
SLOWER, FASTER = 0.75, 1.1
OVERLOAD = Backoff(first=0.02, most=0.5, floor=0.005)


@dataclass(slots=True)
class Target:
    """One joiner as the dispatcher sees it."""

    number: int
    outstanding: int = 0
    failures: int = 0  # in a row
    refusals: int = 0  # in a row: overloaded
    away_until: float = 0.0  # monotonic seconds
    events: int = 0  # outstanding
    limit: float = 0.0  # events, where answers are to come soon
    slowed_at: float = 0.0  # monotonic seconds; when the limit was last lowered


class Flow:
    """``in_flight``: batches outstanding per joiner. ``random``: uniform in [0, 1).

    ``soon``: how long an answer may take, in seconds; None where nobody else is at work on the same events. What
    waits at a joiner longer than needed to keep it busy may be taken by another datacentre meanwhile: so much of the
    work in flight is wasted when the two meet at one place of the logs.
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
        if joiners < 1:
            raise ValueError("a dispatcher needs at least one joiner")
        self.targets = [Target(number) for number in range(joiners)]
        self._in_flight = in_flight
        self._random = random
        self._soon = soon
        self._batch_events = batch_events
        for target in self.targets:
            target.limit = 2.0 * batch_events

    @property
    def outstanding(self) -> int:
        """Batches on their way."""
        return sum(target.outstanding for target in self.targets)

    def choose(self, now: float) -> Target | None:
        """Takes a place at one; None: wait, there is none now. Tell ``sent``; ``answered`` gives the place back."""
        free = [target for target in self.targets if self._free(target, now)]
        if not free:
            return None
        best = free[0]
        if len(free) > 1:
            first = int(self._random() * len(free))
            second = int(self._random() * (len(free) - 1))
            second += second >= first
            best = min(free[first], free[second], key=lambda t: t.outstanding)
        best.outstanding += 1
        return best

    def _limit(self, target: Target) -> int:
        """One that failed or refused is tried with a single batch."""
        return 1 if target.failures or target.refusals else self._in_flight

    def _free(self, target: Target, now: float) -> bool:
        if self._soon is not None and target.events >= target.limit:
            return False
        return target.outstanding < self._limit(target) and target.away_until <= now

    def sent(self, target: Target, events: int) -> None:
        """So many go to the place that was chosen; 0: nothing does."""
        target.events += events
        target.outstanding -= not events

    def answered(self, target: Target, events: int, answers: JoinAnswers | None, sent_at: float, now: float) -> None:
        """``answers`` None: the call itself failed."""
        if self._soon is not None:
            self._adapt(target, sent_at, now, self._soon())
        target.outstanding -= 1
        target.events -= events
        if answers is not None and answers.overloaded:
            target.refusals += 1
            target.away_until = now + OVERLOAD.delay(target.refusals, self._random)
        elif answers is None or _all_retry(answers.outcomes):
            target.failures += 1
            target.away_until = now + EJECTION.delay(target.failures, self._random)
        else:
            target.failures = target.refusals = 0

    def batch_events(self) -> int:
        """How many events the slowest joiner should get at a time."""
        if self._soon is None:
            return self._batch_events
        return min(self._batch_events, int(min(target.limit for target in self.targets) / 2))

    def _adapt(self, target: Target, sent_at: float, now: float, soon: float) -> None:
        """More in flight while answers come soon and the limit is used; less, once for all that was in flight."""
        if now - sent_at > soon:
            if sent_at >= target.slowed_at:
                target.limit = max(IN_FLIGHT_LEAST, target.limit * SLOWER)
                target.slowed_at = now
        elif 2 * target.events > target.limit:
            target.limit = min(self._in_flight * self._batch_events, target.limit * FASTER)

    def has_room(self, now: float) -> bool:
        """Whether some joiner would take a batch now."""
        return any(self._free(target, now) for target in self.targets)

    def next_free(self, now: float) -> float | None:
        """When a joiner that is away comes back; None: an answer is what to wait for."""
        away = [t.away_until for t in self.targets if t.away_until > now and t.outstanding < self._limit(t)]
        return min(away, default=None)


def _all_retry(outcomes: Sequence[Outcome]) -> bool:
    return bool(outcomes) and outcomes.count(Outcome.RETRY) == len(outcomes)
