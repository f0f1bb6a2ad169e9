"""What follows an attempt that gave no verdict: when the next one is, or that there is none in this run. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from photon.config.clock import NEVER_NS, NS_PER_S
from photon.dispatcher.events import Item
from photon.dispatcher.retry import (
    NOT_YET_BACKOFF,
    NOT_YET_MOST_S,
    ONCE_ATTEMPTS_MAX,
    RETRIES_A_SECOND,
    RETRY_BACKOFF,
    SETTLED_NS,
    TOO_NEW_CHECK_S,
    Patience,
)
from photon.joiner.api import Outcome


@dataclass(frozen=True, slots=True)
class Attempt:
    """One that is over. ``read_past_ns``: the primary's progress as it began. ``rows``: of the retry store."""

    outcome: Outcome
    read_past_ns: int
    overloaded: bool
    rows: int


@dataclass(frozen=True, slots=True)
class NextTry:
    """For all items of an attempt. ``settled``: none in this run; ``given_up``: though one might."""

    delay_s: float
    trigger_ns: int = SETTLED_NS
    settled: bool = False
    given_up: bool = False


class NextTries:
    """``hold_s``: with --once, what is to be tried later than that waits for the next run."""

    def __init__(self, patience: Patience, hold_s: float, random: Callable[[], float]) -> None:
        self._patience = patience
        self._hold_s = hold_s
        self._random = random

    def after(self, attempt: Attempt, items: Sequence[Item], now_ns: int) -> NextTry:
        """``items``: one at least, their ``attempts`` without this one."""
        patience = self._patience
        attempts = max(1, max(item.attempts for item in items) + (not attempt.overloaded))
        if attempt.outcome == Outcome.NOT_YET:
            trigger = max(patience.trigger_ns(item.first_read_ns, attempt.read_past_ns) for item in items)
            most = min(max(NOT_YET_BACKOFF.most, attempt.rows / RETRIES_A_SECOND), NOT_YET_MOST_S)
            delay = replace(NOT_YET_BACKOFF, most=most).delay(attempts, self._random)
            # Without keep_pending the complete logs give a verdict, unless the store has started again meanwhile.
            return NextTry(delay, trigger, settled=trigger == SETTLED_NS and patience.keep_pending)
        if attempt.outcome == Outcome.TOO_NEW:
            newest = max(item.event.event_time_ns for item in items)
            delay = min(max((newest - now_ns) / NS_PER_S, RETRY_BACKOFF.floor), TOO_NEW_CHECK_S)
            return NextTry(delay, settled=patience.once and delay > self._hold_s)
        tried = 0 if attempt.overloaded else min(item.attempts for item in items) + 1
        complete = patience.once and attempt.read_past_ns >= NEVER_NS
        settled = complete and tried >= ONCE_ATTEMPTS_MAX
        return NextTry(RETRY_BACKOFF.delay(attempts, self._random), settled=settled, given_up=settled)
