"""What follows an attempt that gave no verdict: when the next one is, or that there is none in this run. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import repeat
from typing import NamedTuple

import numpy as np

from photon.batch.columns import Mask, RowIndexes
from photon.config.clock import NEVER_NS, NS_PER_S
from photon.dispatcher.open_events import OpenEvents, rows_of
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
    """For events that are alike. ``settled``: none in this run; ``given_up``: though one might."""

    delay_s: float
    trigger_ns: int = SETTLED_NS
    settled: bool = False
    given_up: bool = False
    early: bool = False
    """Of the young: however many such tries there were, the back-off that follows begins with the first one's."""


class Likeness(NamedTuple):
    """What decides about the next try of an event beside its draw; and its trigger."""

    attempts: int
    failed: int = 0
    steps: int = 0  # of TOO_NEW_STEP_S, until its event time has come
    trigger_ns: int = SETTLED_NS


class NextTries:
    """``hold_s``: with --once, what is to be tried later than that waits for the next run. ``own_ones``: of digests,
    whose home this datacentre is (``Homes.own_ones``); None: it is alone."""

    def __init__(
        self,
        patience: Patience,
        hold_s: float,
        random: Callable[[], float],
        own_ones: Callable[[bytes], Mask] | None = None,
    ) -> None:
        self._own_ones = own_ones
        self._patience = patience
        self._hold_s = hold_s
        self._random = random

    def plans(
        self, attempt: Attempt, table: OpenEvents, rows: RowIndexes, now_ns: int
    ) -> Iterator[tuple[RowIndexes, NextTry]]:
        """By groups that are tried again together. What is said of an event follows from its own tries, age and time,
        never from those of the others in its batch; only what is alike in these shares a draw."""
        early = self._early(attempt, table, rows, now_ns)
        for soon, some in ((True, rows[early]), (False, rows[~early])):
            alike: dict[Likeness, list[int]] = {}
            likenesses = self._likenesses(attempt, table, some, now_ns, early=soon)
            for row, likeness in zip(some.tolist(), likenesses, strict=True):
                alike.setdefault(likeness, []).append(row)
            for likeness, group in alike.items():
                yield rows_of(group), self._soon(attempt, likeness) if soon else self.after(attempt, likeness)

    def _likenesses(
        self, attempt: Attempt, table: OpenEvents, rows: RowIndexes, now_ns: int, *, early: bool
    ) -> Iterator[Likeness]:
        if attempt.outcome == Outcome.NOT_YET:
            first_reads = table.first_read_ns[rows].tolist()
            triggers = {ns: self._patience.trigger_ns(ns, attempt.read_past_ns) for ns in set(first_reads)}
            attempts = repeat(0) if early else table.attempts[rows].tolist()
            return map(Likeness, attempts, repeat(0), repeat(0), [triggers[ns] for ns in first_reads])
        times = table.times[rows].tolist()
        steps = [_too_new_steps(ns, now_ns) for ns in times] if attempt.outcome == Outcome.TOO_NEW else repeat(0)
        return map(Likeness, table.attempts[rows].tolist(), table.failed[rows].tolist(), steps)

    def _early(self, attempt: Attempt, table: OpenEvents, rows: RowIndexes, now_ns: int) -> Mask:
        """Where several datacentres share the work only the events' home: else they would all join them at once.
        And only where nobody tells when a primary event comes: it costs each event some twenty tries."""
        if attempt.outcome != Outcome.NOT_YET or self._patience.once or attempt.followed:
            return np.zeros(len(rows), np.bool_)
        # By what was read, not by the time: where a store lags, the primary event may stand in what it has not read.
        since = max(attempt.read_past_ns - int(EARLY_S * NS_PER_S), now_ns - int(EARLY_MOST_S * NS_PER_S))
        first_read_ns = table.first_read_ns[rows]
        early: Mask = (first_read_ns > since) & (first_read_ns <= attempt.read_past_ns)
        if self._own_ones is not None and early.any():
            early[early] = self._own_ones(table.digests[rows[early]].tobytes())
        return early

    def _soon(self, attempt: Attempt, likeness: Likeness) -> NextTry:
        bound = min(max(EARLY_BACKOFF.first, attempt.held / EARLY_A_SECOND), EARLY_BACKOFF.most)
        delay = replace(EARLY_BACKOFF, first=bound).delay(1, self._random)
        return NextTry(delay, likeness.trigger_ns, early=True)

    def after(self, attempt: Attempt, likeness: Likeness) -> NextTry:
        """Of events that are alike."""
        patience = self._patience
        attempts = max(1, likeness.attempts + (not attempt.overloaded))
        if attempt.outcome == Outcome.NOT_YET:
            trigger = likeness.trigger_ns
            most = min(max(NOT_YET_BACKOFF.most, attempt.rows / RETRIES_A_SECOND), NOT_YET_MOST_S)
            delay = replace(NOT_YET_BACKOFF, most=most).delay(attempts, self._random)
            # Without keep_pending the complete logs give a verdict, unless the store has started again meanwhile.
            hopeless = patience.keep_pending or (patience.once and attempt.read_past_ns < NEVER_NS)
            return NextTry(delay, trigger, settled=trigger == SETTLED_NS and hopeless)
        # Of the tries before only those that failed: an event that had waited for hours for its primary event would
        # wait for as long as the longest back-off is when it comes and the joiner happens to have its hands full.
        failing_s = RETRY_BACKOFF.delay(max(1, likeness.failed + (not attempt.overloaded)), self._random)
        if attempt.outcome == Outcome.TOO_NEW:
            ahead_s = likeness.steps * TOO_NEW_STEP_S
            delay = min(max(ahead_s, failing_s), TOO_NEW_CHECK_S)
            far = ahead_s > min(self._hold_s, TOO_NEW_ONCE_S)
            # By this clock its time has come; once all is read nothing else is waited for.
            behind = ahead_s <= 0.0 and attempt.read_past_ns >= COMPLETE_NS and attempts >= TOO_NEW_ONCE_TRIES
            return NextTry(delay, settled=patience.once and (far or behind))
        tried = 0 if attempt.overloaded else attempts
        complete = patience.once and attempt.read_past_ns >= COMPLETE_NS
        settled = complete and tried >= ONCE_ATTEMPTS_MAX
        return NextTry(failing_s, settled=settled, given_up=settled)


def _too_new_steps(time_ns: int, now_ns: int) -> int:
    """Steps until an event time has come: 0 if it has; no more than make up TOO_NEW_CHECK_S."""
    ahead_s = (time_ns - now_ns) / NS_PER_S
    return math.ceil(min(max(ahead_s, 0.0), TOO_NEW_CHECK_S) / TOO_NEW_STEP_S)
