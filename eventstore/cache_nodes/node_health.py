"""How long a cache node is waited for, and when it is left alone: pure, times are arguments.

A look-up that has waited longer than HEDGE_FACTOR times the p95 of recent answers goes on to the logs, and whichever
answers first counts. Between HEDGE_SECONDS_MIN and _MAX: a slow node lifts its own p95, so the bound is what holds
then. A node that failed FAILURES_MAX times in a row is not asked at all for a while; then one question tries it.
"""

from __future__ import annotations

from collections import deque

WINDOW = 256
"""Answers that the p95 is taken over."""
RECKONED_EVERY = 16
"""The p95 is computed again after so many answers."""
HEDGE_FACTOR = 2.0
HEDGE_SECONDS_MIN = 0.005
HEDGE_SECONDS_MAX = 0.1
FAILURES_MAX = 3
REST_SECONDS = 0.5
REST_SECONDS_MAX = 5.0
"""It doubles up to this while the node goes on failing."""


class NodeHealth:
    """Hedging delay and back-off of one node. One thread."""

    def __init__(self) -> None:
        self._took: deque[float] = deque(maxlen=WINDOW)
        self._since = 0
        self._failures = 0
        self._rests = 0
        self._rest_until = 0.0
        self.hedge_s = HEDGE_SECONDS_MAX
        """After so long the logs are asked too. Long until something is known."""

    @property
    def resting(self) -> bool:
        """It has failed and has not answered since."""
        return self._rests > 0

    def may_ask(self, now: float) -> bool:
        """While the node rests, True only once per rest period: that one question tries it."""
        if not self._rests:
            return True
        if now < self._rest_until:
            return False
        self._rest_until = now + self._rest_s()
        return True

    def answered(self, took_s: float) -> None:
        self._failures = self._rests = 0
        self._took.append(took_s)
        self._since += 1
        if self._since >= RECKONED_EVERY or len(self._took) < RECKONED_EVERY:
            self._since = 0
            p95 = sorted(self._took)[int(0.95 * (len(self._took) - 1))]
            self.hedge_s = min(max(HEDGE_FACTOR * p95, HEDGE_SECONDS_MIN), HEDGE_SECONDS_MAX)

    def failed(self, now: float) -> None:
        """Call it when the node did not answer or refused."""
        self._failures += 1
        if self._failures >= FAILURES_MAX:
            self._rests += 1
            self._rest_until = now + self._rest_s()

    def _rest_s(self) -> float:
        return min(REST_SECONDS * 2.0 ** min(self._rests - 1, 10), REST_SECONDS_MAX)
