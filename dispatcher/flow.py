"""Which joiner gets the next batch: the less busy of two, none that just failed or has its hands full. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from photon.dispatcher.retry import Backoff
from photon.joiner.api import JoinAnswers, Outcome

EJECTION = Backoff(first=0.1, most=1.0, floor=0.05)
"""A joiner that failed as a whole gets nothing for so long; longer each time. Not for long: the fault may be that of
the batch, whose ids all belong to a registry shard that has no leader."""
OVERLOAD = Backoff(first=0.02, most=0.5, floor=0.005)


@dataclass(slots=True)
class Target:
    """One joiner as the dispatcher sees it."""

    number: int
    outstanding: int = 0
    failures: int = 0  # in a row
    refusals: int = 0  # in a row: overloaded
    away_until: float = 0.0  # monotonic seconds


class Flow:
    """``in_flight``: batches outstanding per joiner. ``random``: uniform in [0, 1)."""

    def __init__(self, joiners: int, *, in_flight: int, random: Callable[[], float]) -> None:
        if joiners < 1:
            raise ValueError("a dispatcher needs at least one joiner")
        self.targets = [Target(number) for number in range(joiners)]
        self._in_flight = in_flight
        self._random = random

    @property
    def outstanding(self) -> int:
        """Batches on their way."""
        return sum(target.outstanding for target in self.targets)

    def choose(self, now: float) -> Target | None:
        """Takes a place at one; None when there is none now: wait. ``answered`` gives the place back."""
        free = [t for t in self.targets if t.outstanding < self._limit(t) and t.away_until <= now]
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

    def answered(self, target: Target, answers: JoinAnswers | None, now: float) -> None:
        """None: the call itself failed."""
        target.outstanding -= 1
        if answers is not None and answers.overloaded:
            target.refusals += 1
            target.away_until = now + OVERLOAD.delay(target.refusals, self._random)
        elif answers is None or _all_retry(answers.outcomes):
            target.failures += 1
            target.away_until = now + EJECTION.delay(target.failures, self._random)
        else:
            target.failures = target.refusals = 0

    def has_room(self, now: float) -> bool:
        """Whether some joiner would take a batch now."""
        return any(t.away_until <= now and t.outstanding < self._limit(t) for t in self.targets)

    def next_free(self, now: float) -> float | None:
        """When a joiner that is away comes back; None: an answer is what to wait for."""
        away = [t.away_until for t in self.targets if t.away_until > now and t.outstanding < self._limit(t)]
        return min(away, default=None)


def _all_retry(outcomes: Sequence[Outcome]) -> bool:
    return bool(outcomes) and outcomes.count(Outcome.RETRY) == len(outcomes)
