"""Decides when an event is tried again, and how long to wait for a missing primary event.

Pure (paper, section 3.2.1).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import repeat
from typing import NamedTuple

from photon.batch.columns import RowIndexes
from photon.config.back_off import LAST_STEP, BackOff
from photon.config.clock import NEVER_NS, NS_PER_S
from photon.dispatcher.open_events import OpenEvents, rows_of
from photon.eventstore.api import ALL_BUT_ENDS_NS
from photon.joiner.api import WAIT_NS, Outcome

SETTLED_NS = NEVER_NS  # as ``trigger_ns`` and next try: the answer will not change in this run
# As ``trigger_ns``: tried again when the primary logs are fully read, except perhaps for unfinished last lines.
COMPLETE_NS = ALL_BUT_ENDS_NS


# The primary event is absent: news is more likely from the next read of the primary logs than from the next attempt.
# Many events may wait for hours: if the store has very many rows, the bound grows with them.
NOT_YET_BACKOFF = BackOff(first=0.2, most=300.0)
# The bound of a back-off is long enough to try all rows of the store once at this rate. The mean rate is twice
# that, with full jitter.
RETRIES_A_SECOND = 1000
RETRY_BACKOFF = BackOff(first=0.1, most=10.0)
FAILED_HELD = 6  # consecutive failures up to which a row waits in memory for its next try: some seconds
# With --once, over complete primary logs: an event without a verdict after this many attempts (about a minute) waits
# for the next run. One whose primary log is gone waits for it at once.
ONCE_ATTEMPTS_MAX = 20
TOO_NEW_CHECK_S = 600.0  # interval of checking an event of the future, in case the clock was wrong
TOO_NEW_STEP_S = 0.05  # precision with which it is tried when its time has come
TOO_NEW_ONCE_S = 5.0  # with --once an event further in the future than this waits for the next run,
# and so does one that the registry's clock, but not ours, still considers early after this many tries.
TOO_NEW_ONCE_TRIES = 6
NOT_YET_MOST_S = 3600.0  # regardless of the number of rows, each is tried about twice in an hour
LONGEST_S = 2 * NOT_YET_MOST_S  # no back-off is longer, even if a wrong clock would make it so


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait for a missing primary event, from the foreign event's first read.

    ``once``: until the primary logs, which are complete by then, are read. ``slack_ns``: clock uncertainty plus the
    primary's greatest delay. ``unmatched_after_ns``: ``None`` means to wait permanently. ``whole_sets``: to wait even
    after one is found, for others (``Matching.whole_sets``) that may be up to ``after_ns`` later than the foreign
    event.
    """

    unmatched_after_ns: int | None = None
    slack_ns: int = 0
    once: bool = False
    keep_pending: bool = False
    whole_sets: bool = False
    after_ns: int = 0

    @property
    def at_first_ns(self) -> int:
        """``as_of`` before patience ends: WAIT_NS (no miss is final) or NEVER_NS (final once all is read)."""
        return NEVER_NS if self.once and not self.keep_pending else WAIT_NS

    @property
    def ends(self) -> bool:
        """True if patience ends at a time, neither never nor at the end of the logs."""
        return self.unmatched_after_ns is not None and not (self.once or self.keep_pending)

    def as_of_ns(self, first_read_ns: int) -> int:
        """Returns the time as of which a miss (ABSENT) makes the event unmatched; WAIT_NS if it never does."""
        if self.keep_pending:
            return WAIT_NS
        if self.once:
            return NEVER_NS
        if self.unmatched_after_ns is None:
            return WAIT_NS
        return min(first_read_ns + self.unmatched_after_ns + self.slack_ns, COMPLETE_NS)

    def final_as_of_ns(self, first_read_ns: int, event_time_ns: int) -> int:
        """Returns ``as_of_ns``, or the end of the event's window if a clock slightly ahead makes that later. The
        registry does not accept an event further ahead before its time has come.
        """
        as_of = self.as_of_ns(first_read_ns)
        if not self.whole_sets or as_of in (WAIT_NS, NEVER_NS):
            return as_of
        return max(as_of, min(event_time_ns + self.after_ns + self.slack_ns, as_of + self.slack_ns, COMPLETE_NS))

    def trigger_ns(self, first_read_ns: int, read_past_ns: int, event_time_ns: int = 0) -> int:
        """Returns the point of the primary logs from which a retry may succeed, after a try at ``read_past_ns``."""
        if read_past_ns >= COMPLETE_NS:
            return SETTLED_NS
        if read_past_ns < first_read_ns and not self.whole_sets:
            return first_read_ns
        as_of = self.final_as_of_ns(first_read_ns, event_time_ns)
        return as_of if read_past_ns < as_of < NEVER_NS else COMPLETE_NS


@dataclass(frozen=True, slots=True)
class Attempt:
    """A finished attempt to join a batch.

    ``read_past_ns``: the primary's progress at its start. ``rows``: number of rows in the retry store. ``gone``: the
    primary event's log is gone.
    """

    outcome: Outcome
    read_past_ns: int
    overloaded: bool
    rows: int
    gone: bool = False


@dataclass(frozen=True, slots=True)
class NextTry:
    """When similar events are tried next.

    ``settled``: not in this run; ``given_up``: not in this run, although a try might succeed.
    """

    delay_s: float
    trigger_ns: int = SETTLED_NS
    settled: bool = False
    given_up: bool = False


class Likeness(NamedTuple):
    """The values that determine an event's next try, except for the random draw."""

    attempts: int
    failed: int = 0
    steps: int = 0  # multiples of TOO_NEW_STEP_S, until its event time has come
    trigger_ns: int = SETTLED_NS


@dataclass(eq=False)
class NextTries:
    """Plans next tries. ``hold_s``: with --once, events due later than that wait for the next run."""

    patience: Patience
    hold_s: float
    random: Callable[[], float]

    def plans(
        self, attempt: Attempt, table: OpenEvents, rows: RowIndexes, now_ns: int
    ) -> Iterator[tuple[RowIndexes, NextTry]]:
        """Yields groups of events that are tried again together.

        An event's result depends only on its own tries, age and time, not on its batch; events with equal values
        share a random draw.
        """
        alike: dict[Likeness, list[int]] = {}
        for row, likeness in zip(rows.tolist(), self._likenesses(attempt, table, rows, now_ns), strict=True):
            alike.setdefault(likeness, []).append(row)
        for likeness, group in alike.items():
            yield rows_of(group), self.after(attempt, likeness)

    def _likenesses(self, attempt: Attempt, table: OpenEvents, rows: RowIndexes, now_ns: int) -> Iterator[Likeness]:
        if attempt.outcome == Outcome.NOT_YET:
            first_reads = table.first_read_ns[rows].tolist()
            times = table.times[rows].tolist() if self.patience.whole_sets else [0] * len(rows)
            ages = list(zip(first_reads, times, strict=True))
            triggers = {age: self.patience.trigger_ns(age[0], attempt.read_past_ns, age[1]) for age in set(ages)}
            return map(Likeness, table.attempts[rows].tolist(), repeat(0), repeat(0), [triggers[age] for age in ages])
        times = table.times[rows].tolist()
        steps = [_too_new_steps(ns, now_ns) for ns in times] if attempt.outcome == Outcome.TOO_NEW else repeat(0)
        return map(Likeness, table.attempts[rows].tolist(), table.failed[rows].tolist(), steps)

    def after(self, attempt: Attempt, likeness: Likeness) -> NextTry:
        patience = self.patience
        attempts = max(1, likeness.attempts + (not attempt.overloaded))
        if attempt.outcome == Outcome.NOT_YET:
            trigger = likeness.trigger_ns
            most = min(max(NOT_YET_BACKOFF.most, attempt.rows / RETRIES_A_SECOND), NOT_YET_MOST_S)
            # If patience was already over, either this was the first attempt, which requests no verdict (it came late
            # because the event was left to others, or no joiner answered), or the store has restarted in the
            # meantime.
            over = trigger == SETTLED_NS or (trigger == COMPLETE_NS and patience.ends)
            if patience.whole_sets and not over:
                attempts = LAST_STEP  # only the trigger can change the answer
            delay = replace(NOT_YET_BACKOFF, most=most).delay(attempts, self.random)
            # Without keep_pending the complete logs give a verdict, unless the store has restarted in the meantime.
            hopeless = patience.keep_pending or (patience.once and attempt.read_past_ns < NEVER_NS)
            return NextTry(delay, trigger, settled=trigger == SETTLED_NS and hopeless)
        # Count only failed tries: otherwise an event that had waited for hours for its primary event
        # would wait for the longest back-off if that arrives while the joiner happens to be overloaded.
        failing_s = RETRY_BACKOFF.delay(max(1, likeness.failed + (not attempt.overloaded)), self.random)
        if attempt.outcome == Outcome.TOO_NEW:
            ahead_s = likeness.steps * TOO_NEW_STEP_S
            delay = min(max(ahead_s, failing_s), TOO_NEW_CHECK_S)
            far = ahead_s > min(self.hold_s, TOO_NEW_ONCE_S)
            # Its time has come by this clock; once everything is read, there is nothing else to wait for.
            behind = ahead_s <= 0.0 and attempt.read_past_ns >= COMPLETE_NS and attempts >= TOO_NEW_ONCE_TRIES
            return NextTry(delay, settled=patience.once and (far or behind))
        tried = 0 if attempt.overloaded else attempts
        complete = patience.once and attempt.read_past_ns >= COMPLETE_NS
        settled = complete and (attempt.gone or tried >= ONCE_ATTEMPTS_MAX)
        return NextTry(failing_s, settled=settled, given_up=settled)


def _too_new_steps(time_ns: int, now_ns: int) -> int:
    """Returns the number of TOO_NEW_STEP_S until an event time, at most for TOO_NEW_CHECK_S; 0 if it is past."""
    ahead_s = (time_ns - now_ns) / NS_PER_S
    return math.ceil(min(max(ahead_s, 0.0), TOO_NEW_CHECK_S) / TOO_NEW_STEP_S)
