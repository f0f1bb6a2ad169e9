"""When an event is tried again, and how long a missing primary is waited for. Pure (paper, section 3.2.1)."""

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
from photon.eventstore.api import ALL_BUT_ENDS_NS
from photon.joiner.api import WAIT_NS, Outcome

SETTLED_NS = NEVER_NS  # as ``trigger_ns`` and next try: nothing in this run will change the answer
COMPLETE_NS = ALL_BUT_ENDS_NS
"""As ``trigger_ns``: tried again when the primary logs have been read for ever, or all but last lines without end."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential with full jitter: anything from ``floor`` to the bound of this attempt. Seconds."""

    first: float
    most: float
    floor: float = 0.01

    def delay(self, attempts: int, random: Callable[[], float]) -> float:
        """``attempts``: failed ones so far, at least 1. ``random``: uniform in [0, 1)."""
        bound = min(self.most, self.first * 2.0 ** min(attempts - 1, LAST_STEP))
        return max(self.floor, random() * bound)


NOT_YET_BACKOFF = Backoff(first=0.2, most=300.0)
"""The primary event has not come: the next read of the primary logs is likelier news than the next attempt.
Events may wait for hours, many of them: where the store has very many rows, the bound grows with them."""
LAST_STEP = 60  # after so many attempts a back-off has its longest bound
EARLY_S = 1.5
"""An event whose primary has not come though the logs were read past the moment when the event was read, but by no
more than this, is tried again soon: most such primaries are on their way."""
EARLY_MOST_S = 60.0  # it is young for no longer, should the reading of the logs stand still
EARLY_BACKOFF = Backoff(first=0.08, most=2.0)  # the same every time
EARLY_A_SECOND = 4000
"""Where very many wait in memory its bound grows, so that they cost no more tries than this, or twice as many."""
RETRIES_A_SECOND = 1000
"""The bound of a back-off is so long that all rows of the store can be tried once in it at this rate. The mean is
twice that, with full jitter."""
RETRY_BACKOFF = Backoff(first=0.1, most=10.0)
FAILED_HELD = 6  # tries in a row that failed, up to which a row waits in memory for the next one: some seconds
ONCE_ATTEMPTS_MAX = 20
"""With --once, over complete primary logs: an event that has no verdict after so many attempts (about a minute) waits
for the next run. One whose primary log is gone waits for it at once."""
TOO_NEW_CHECK_S = 600.0  # an event of the future is looked at this often, in case the clock was wrong
TOO_NEW_STEP_S = 0.05  # it is tried when its time has come, to so much
TOO_NEW_ONCE_S = 5.0  # with --once an event further in the future than this waits for the next run,
TOO_NEW_ONCE_TRIES = 6
"""and so does one for which the registry's clock, not this one, has not come so far after so many tries."""
NOT_YET_MOST_S = 3600.0  # however many rows there are, each is tried about twice in an hour
LONGEST_S = 2 * NOT_YET_MOST_S
"""No back-off is longer, not even one that a clock made longer which was wrong by as much."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a missing primary event is waited for, counted from the foreign event's first read.

    ``once``: until the primary logs, complete by then, have been read. ``slack_ns``: clock uncertainty and the
    primary's greatest delay. ``unmatched_after_ns`` None: for ever. ``whole_sets``: found ones are waited for as well
    (``Matching.whole_sets``); ``after_ns``: they may be so much later than the foreign event.
    """

    unmatched_after_ns: int | None = None
    slack_ns: int = 0
    once: bool = False
    keep_pending: bool = False
    whole_sets: bool = False
    after_ns: int = 0

    @property
    def at_first_ns(self) -> int:
        """What a miss is worth before patience has ended: WAIT_NS, nothing. NEVER_NS: a verdict, once all is read."""
        return NEVER_NS if self.once and not self.keep_pending else WAIT_NS

    @property
    def ends(self) -> bool:
        """By time: not for ever, nor when all is read."""
        return self.unmatched_after_ns is not None and not (self.once or self.keep_pending)

    def as_of_ns(self, first_read_ns: int) -> int:
        """ABSENT as of then makes it unmatched; WAIT_NS: never."""
        if self.keep_pending:
            return WAIT_NS
        if self.once:
            return NEVER_NS
        if self.unmatched_after_ns is None:
            return WAIT_NS
        return min(first_read_ns + self.unmatched_after_ns + self.slack_ns, COMPLETE_NS)

    def final_as_of_ns(self, first_read_ns: int, event_time_ns: int) -> int:
        """``as_of_ns``; of an event whose window ends later, as a clock that is a little ahead makes it, not before
        that. What is further ahead the registry takes when its time has come, and it is decided then."""
        as_of = self.as_of_ns(first_read_ns)
        if not self.whole_sets or as_of in (WAIT_NS, NEVER_NS):
            return as_of
        return max(as_of, min(event_time_ns + self.after_ns + self.slack_ns, as_of + self.slack_ns, COMPLETE_NS))

    def trigger_ns(self, first_read_ns: int, read_past_ns: int, event_time_ns: int = 0) -> int:
        """Past which point of the primary logs the next attempt pays, after one begun at ``read_past_ns``."""
        if read_past_ns >= COMPLETE_NS:
            return SETTLED_NS
        if read_past_ns < first_read_ns and not self.whole_sets:
            return first_read_ns
        as_of = self.final_as_of_ns(first_read_ns, event_time_ns)
        return as_of if read_past_ns < as_of < NEVER_NS else COMPLETE_NS


@dataclass(frozen=True, slots=True)
class Attempt:
    """One that is over. ``read_past_ns``: the primary's progress as it began. ``rows``: of the retry store; ``held``:
    events that wait in memory; ``followed``: they are told when their primary event comes (``arrivals``); ``gone``:
    the primary log that holds it is gone."""

    outcome: Outcome
    read_past_ns: int
    overloaded: bool
    rows: int
    held: int = 0
    followed: bool = False
    gone: bool = False


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


@dataclass(eq=False)
class NextTries:
    """``hold_s``: with --once, what is to be tried later than that waits for the next run. ``own_ones``: of digests,
    whose home this datacentre is (``Homes.own_ones``); None: it is alone."""

    patience: Patience
    hold_s: float
    random: Callable[[], float]
    own_ones: Callable[[bytes], Mask] | None = None

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
            times = table.times[rows].tolist() if self.patience.whole_sets else [0] * len(rows)
            ages = list(zip(first_reads, times, strict=True))
            triggers = {age: self.patience.trigger_ns(age[0], attempt.read_past_ns, age[1]) for age in set(ages)}
            attempts = repeat(0) if early else table.attempts[rows].tolist()
            return map(Likeness, attempts, repeat(0), repeat(0), [triggers[age] for age in ages])
        times = table.times[rows].tolist()
        steps = [_too_new_steps(ns, now_ns) for ns in times] if attempt.outcome == Outcome.TOO_NEW else repeat(0)
        return map(Likeness, table.attempts[rows].tolist(), table.failed[rows].tolist(), steps)

    def _early(self, attempt: Attempt, table: OpenEvents, rows: RowIndexes, now_ns: int) -> Mask:
        """Where several datacentres share the work only the events' home: else they would all join them at once.
        And only where nobody tells when a primary event comes: it costs each event some twenty tries."""
        patience = self.patience
        if attempt.outcome != Outcome.NOT_YET or patience.once or attempt.followed or patience.whole_sets:
            return np.zeros(len(rows), np.bool_)
        # By what was read, not by the time: where a store lags, the primary event may stand in what it has not read.
        since = max(attempt.read_past_ns - int(EARLY_S * NS_PER_S), now_ns - int(EARLY_MOST_S * NS_PER_S))
        first_read_ns = table.first_read_ns[rows]
        early: Mask = (first_read_ns > since) & (first_read_ns <= attempt.read_past_ns)
        if self.own_ones is not None and early.any():
            early[early] = self.own_ones(table.digests[rows[early]].tobytes())
        return early

    def _soon(self, attempt: Attempt, likeness: Likeness) -> NextTry:
        bound = min(max(EARLY_BACKOFF.first, attempt.held / EARLY_A_SECOND), EARLY_BACKOFF.most)
        delay = replace(EARLY_BACKOFF, first=bound).delay(1, self.random)
        return NextTry(delay, likeness.trigger_ns, early=True)

    def after(self, attempt: Attempt, likeness: Likeness) -> NextTry:
        patience = self.patience
        attempts = max(1, likeness.attempts + (not attempt.overloaded))
        if attempt.outcome == Outcome.NOT_YET:
            trigger = likeness.trigger_ns
            most = min(max(NOT_YET_BACKOFF.most, attempt.rows / RETRIES_A_SECOND), NOT_YET_MOST_S)
            # Where patience was over as the attempt began, it was the first one, which asks for no verdict (it came
            # late: the event was left to others, or no joiner answered), or the store has started again meanwhile.
            over = trigger == SETTLED_NS or (trigger == COMPLETE_NS and patience.ends)
            if patience.whole_sets and not over:
                attempts = LAST_STEP  # nothing but the trigger changes the answer
            delay = replace(NOT_YET_BACKOFF, most=most).delay(attempts, self.random)
            # Without keep_pending the complete logs give a verdict, unless the store has started again meanwhile.
            hopeless = patience.keep_pending or (patience.once and attempt.read_past_ns < NEVER_NS)
            return NextTry(delay, trigger, settled=trigger == SETTLED_NS and hopeless)
        # Of the tries before only those that failed: an event that had waited for hours for its primary event would
        # wait for as long as the longest back-off is when it comes and the joiner happens to have its hands full.
        failing_s = RETRY_BACKOFF.delay(max(1, likeness.failed + (not attempt.overloaded)), self.random)
        if attempt.outcome == Outcome.TOO_NEW:
            ahead_s = likeness.steps * TOO_NEW_STEP_S
            delay = min(max(ahead_s, failing_s), TOO_NEW_CHECK_S)
            far = ahead_s > min(self.hold_s, TOO_NEW_ONCE_S)
            # By this clock its time has come; once all is read nothing else is waited for.
            behind = ahead_s <= 0.0 and attempt.read_past_ns >= COMPLETE_NS and attempts >= TOO_NEW_ONCE_TRIES
            return NextTry(delay, settled=patience.once and (far or behind))
        tried = 0 if attempt.overloaded else attempts
        complete = patience.once and attempt.read_past_ns >= COMPLETE_NS
        settled = complete and (attempt.gone or tried >= ONCE_ATTEMPTS_MAX)
        return NextTry(failing_s, settled=settled, given_up=settled)


def _too_new_steps(time_ns: int, now_ns: int) -> int:
    """Steps until an event time has come: 0 if it has; no more than make up TOO_NEW_CHECK_S."""
    ahead_s = (time_ns - now_ns) / NS_PER_S
    return math.ceil(min(max(ahead_s, 0.0), TOO_NEW_CHECK_S) / TOO_NEW_STEP_S)
