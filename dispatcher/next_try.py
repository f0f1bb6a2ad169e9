"""What follows an attempt that gave no verdict: when the next one is, or that there is none in this run. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from photon.config.clock import NEVER_NS, NS_PER_S
from photon.dispatcher.events import Item
from photon.dispatcher.retry import (
    COMPLETE_NS,
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
    TOO_NEW_STEP_S,
    Patience,
)
from photon.joiner.api import Outcome


@dataclass(frozen=True, slots=True)
class Attempt:
    """One that is over. ``read_past_ns``: the primary's progress as it began. ``rows``: of the retry store; ``held``:
    events that wait in memory; ``followed``: they are told when their primary event comes (``arrivals``)."""

    outcome: Outcome
    read_past_ns: int
    overloaded: bool
    rows: int
    held: int = 0
    followed: bool = False


@dataclass(frozen=True, slots=True)
class NextTry:
    """For items that are alike. ``settled``: none in this run; ``given_up``: though one might."""

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
        """By groups that are tried again together. What is said of an event follows from its own tries, age and time,
        never from those of the others in its batch; only what is alike in these shares a draw."""
        early = self._early(attempt, items, now_ns) if attempt.outcome == Outcome.NOT_YET else []
        chosen = set(map(id, early))
        for soon, some in ((True, early), (False, [item for item in items if id(item) not in chosen])):
            alike: dict[tuple[int, ...], list[Item]] = {}
            for item in some:
                alike.setdefault(self._likeness(attempt, item, now_ns, early=soon), []).append(item)
            for (*_, trigger_ns), group in alike.items():
                yield group, self._soon(attempt, trigger_ns) if soon else self.after(attempt, group, now_ns)

    def _likeness(self, attempt: Attempt, item: Item, now_ns: int, *, early: bool) -> tuple[int, ...]:
        """What decides about the next try of an event beside its draw; and its trigger."""
        if attempt.outcome == Outcome.NOT_YET:
            return 0 if early else item.attempts, self._trigger_ns(attempt, item)
        steps = _too_new_steps(item, now_ns) if attempt.outcome == Outcome.TOO_NEW else 0
        return item.attempts, item.failed, steps, SETTLED_NS

    def _early(self, attempt: Attempt, items: Sequence[Item], now_ns: int) -> list[Item]:
        """Where several datacentres share the work only the events' home: else they would all join them at once.
        And only where nobody tells when a primary event comes: it costs each event some twenty tries."""
        if self._patience.once or attempt.followed:
            return []
        # By what was read, not by the time: where a store lags, the primary event may stand in what it has not read.
        since = max(attempt.read_past_ns - int(EARLY_S * NS_PER_S), now_ns - int(EARLY_MOST_S * NS_PER_S))
        early = [item for item in items if since < item.first_read_ns <= attempt.read_past_ns]
        if early and self._own_ones is not None:
            own = self._own_ones(b"".join([item.event.digest for item in early]))
            early = [item for item, its in zip(early, own.tolist(), strict=True) if its]
        return early

    def _soon(self, attempt: Attempt, trigger_ns: int) -> NextTry:
        bound = min(max(EARLY_BACKOFF.first, attempt.held / EARLY_A_SECOND), EARLY_BACKOFF.most)
        delay = replace(EARLY_BACKOFF, first=bound).delay(1, self._random)
        return NextTry(delay, trigger_ns, early=True)

    def _trigger_ns(self, attempt: Attempt, item: Item) -> int:
        return self._patience.trigger_ns(item.first_read_ns, attempt.read_past_ns)

    def after(self, attempt: Attempt, alike: Sequence[Item], now_ns: int) -> NextTry:
        """``alike``: one at least, all of one ``_likeness``."""
        patience, first = self._patience, alike[0]
        attempts = max(1, first.attempts + (not attempt.overloaded))
        if attempt.outcome == Outcome.NOT_YET:
            trigger = self._trigger_ns(attempt, first)
            most = min(max(NOT_YET_BACKOFF.most, attempt.rows / RETRIES_A_SECOND), NOT_YET_MOST_S)
            delay = replace(NOT_YET_BACKOFF, most=most).delay(attempts, self._random)
            # Without keep_pending the complete logs give a verdict, unless the store has started again meanwhile.
            hopeless = patience.keep_pending or (patience.once and attempt.read_past_ns < NEVER_NS)
            return NextTry(delay, trigger, settled=trigger == SETTLED_NS and hopeless)
        # Of the tries before only those that failed: an event that had waited for hours for its primary event would
        # wait for as long as the longest back-off is when it comes and the joiner happens to have its hands full.
        failing_s = RETRY_BACKOFF.delay(max(1, first.failed + (not attempt.overloaded)), self._random)
        if attempt.outcome == Outcome.TOO_NEW:
            ahead_s = _too_new_steps(first, now_ns) * TOO_NEW_STEP_S
            delay = min(max(ahead_s, failing_s), TOO_NEW_CHECK_S)
            far = ahead_s > min(self._hold_s, TOO_NEW_ONCE_S)
            # By this clock its time has come; once all is read nothing else is waited for.
            behind = ahead_s <= 0.0 and attempt.read_past_ns >= COMPLETE_NS and attempts >= TOO_NEW_ONCE_TRIES
            return NextTry(delay, settled=patience.once and (far or behind))
        tried = 0 if attempt.overloaded else attempts
        complete = patience.once and attempt.read_past_ns >= COMPLETE_NS
        settled = complete and tried >= ONCE_ATTEMPTS_MAX
        return NextTry(failing_s, settled=settled, given_up=settled)


def _too_new_steps(item: Item, now_ns: int) -> int:
    """Steps until its event time has come: 0 if it has; no more than make up TOO_NEW_CHECK_S."""
    ahead_s = (item.event.event_time_ns - now_ns) / NS_PER_S
    return math.ceil(min(max(ahead_s, 0.0), TOO_NEW_CHECK_S) / TOO_NEW_STEP_S)
