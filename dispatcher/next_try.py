"""What follows an attempt that gave no verdict: when the next one is, or that there is none in this run. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from photon.config.clock import NEVER_NS, NS_PER_S
from photon.dispatcher.events import Item
from photon.dispatcher.retry import (
    EARLY_A_SECOND,
    EARLY_BACKOFF,
    EARLY_MOST_S,
    EARLY_S,
    NOT_YET_BACKOFF,
    NOT_YET_MOST_S,
    ONCE_ATTEMPTS_MAX,
    RETRIES_A_SECOND,
    RETRY_BACKOFF,
    SETTLED_NS,
    TOO_NEW_CHECK_S,
    TOO_NEW_ONCE_S,
    TOO_NEW_ONCE_TRIES,
    Patience,
)
from photon.joiner.api import Outcome


@dataclass(frozen=True, slots=True)
class Attempt:
    """One that is over. ``read_past_ns``: the primary's progress as it began. ``rows``: of the retry store; ``held``:
    events that wait in memory."""

    outcome: Outcome
    read_past_ns: int
    overloaded: bool
    rows: int
    held: int = 0


@dataclass(frozen=True, slots=True)
class NextTry:
    """For all items of an attempt. ``settled``: none in this run; ``given_up``: though one might."""

    delay_s: float
    trigger_ns: int = SETTLED_NS
    settled: bool = False
    given_up: bool = False
    early: bool = False
    """Of the young: however many such tries there were, the back-off that follows begins with the first one's."""


class NextTries:
    """``hold_s``: with --once, what is to be tried later than that waits for the next run. ``own_ones``: of digests,
    whose home this datacentre is (``Homes.own_ones``); None: it is alone."""

    def __init__(
        self,
        patience: Patience,
        hold_s: float,
        random: Callable[[], float],
        own_ones: Callable[[bytes], npt.NDArray[np.bool_]] | None = None,
    ) -> None:
        self._own_ones = own_ones
        self._patience = patience
        self._hold_s = hold_s
        self._random = random

    def plans(self, attempt: Attempt, items: Sequence[Item], now_ns: int) -> Iterator[tuple[Sequence[Item], NextTry]]:
        """By groups that are tried again together: the patience of the old is no reason for the young to wait."""
        early = self._early(attempt, items, now_ns) if attempt.outcome == Outcome.NOT_YET else []
        if early:
            yield early, self._soon(attempt, early)
            chosen = set(map(id, early))
            items = [item for item in items if id(item) not in chosen]
        if items:
            yield items, self.after(attempt, items, now_ns)

    def _early(self, attempt: Attempt, items: Sequence[Item], now_ns: int) -> list[Item]:
        """Where several datacentres share the work only the events' home: else they would all join them at once."""
        if self._patience.once:
            return []
        # By what was read, not by the time: where a store lags, the primary event may stand in what it has not read.
        since = max(attempt.read_past_ns - int(EARLY_S * NS_PER_S), now_ns - int(EARLY_MOST_S * NS_PER_S))
        early = [item for item in items if since < item.first_read_ns <= attempt.read_past_ns]
        if early and self._own_ones is not None:
            own = self._own_ones(b"".join([item.event.digest for item in early]))
            early = [item for item, its in zip(early, own.tolist(), strict=True) if its]
        return early

    def _soon(self, attempt: Attempt, items: Sequence[Item]) -> NextTry:
        bound = min(max(EARLY_BACKOFF.first, attempt.held / EARLY_A_SECOND), EARLY_BACKOFF.most)
        delay = replace(EARLY_BACKOFF, first=bound).delay(1, self._random)
        return NextTry(delay, self._trigger_ns(attempt, items), early=True)

    def _trigger_ns(self, attempt: Attempt, items: Sequence[Item]) -> int:
        return max(self._patience.trigger_ns(item.first_read_ns, attempt.read_past_ns) for item in items)

    def after(self, attempt: Attempt, items: Sequence[Item], now_ns: int) -> NextTry:
        """``items``: one at least, their ``attempts`` without this one."""
        patience = self._patience
        attempts = max(1, max(item.attempts for item in items) + (not attempt.overloaded))
        if attempt.outcome == Outcome.NOT_YET:
            trigger = self._trigger_ns(attempt, items)
            most = min(max(NOT_YET_BACKOFF.most, attempt.rows / RETRIES_A_SECOND), NOT_YET_MOST_S)
            delay = replace(NOT_YET_BACKOFF, most=most).delay(attempts, self._random)
            # Without keep_pending the complete logs give a verdict, unless the store has started again meanwhile.
            return NextTry(delay, trigger, settled=trigger == SETTLED_NS and patience.keep_pending)
        if attempt.outcome == Outcome.TOO_NEW:
            ahead_s = (max(item.event.event_time_ns for item in items) - now_ns) / NS_PER_S
            delay = min(max(ahead_s, RETRY_BACKOFF.delay(attempts, self._random)), TOO_NEW_CHECK_S)
            far = ahead_s > min(self._hold_s, TOO_NEW_ONCE_S)
            # By this clock its time has come; once all is read nothing else is waited for.
            behind = ahead_s <= 0.0 and attempt.read_past_ns >= NEVER_NS and attempts >= TOO_NEW_ONCE_TRIES
            return NextTry(delay, settled=patience.once and (far or behind))
        tried = 0 if attempt.overloaded else min(item.attempts for item in items) + 1
        complete = patience.once and attempt.read_past_ns >= NEVER_NS
        settled = complete and tried >= ONCE_ATTEMPTS_MAX
        return NextTry(RETRY_BACKOFF.delay(attempts, self._random), settled=settled, given_up=settled)
