"""When an event is tried again, and how long a missing primary is waited for. Pure (paper, section 3.2.1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from photon.config.clock import NEVER_NS
from photon.eventstore.api import ALL_BUT_ENDS_NS
from photon.joiner.api import WAIT_NS

SETTLED_NS = NEVER_NS
"""As ``trigger_ns`` and next try: nothing in this run will change the answer."""
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
        bound = min(self.most, self.first * 2.0 ** min(attempts - 1, 60))
        return max(self.floor, random() * bound)


NOT_YET_BACKOFF = Backoff(first=0.2, most=300.0)
"""The primary event has not come: the next read of the primary logs is likelier news than the next attempt.
Events may wait for hours, many of them: where the store has very many rows, the bound grows with them."""
EARLY_S = 1.5
"""An event whose primary has not come though the logs were read past the moment when the event was read, but by no
more than this, is tried again soon: most such primaries are on their way."""
EARLY_MOST_S = 60.0
"""It is young for no longer, should the reading of the logs stand still."""
EARLY_BACKOFF = Backoff(first=0.08, most=2.0)
"""The same every time."""
EARLY_A_SECOND = 4000
"""Where very many wait in memory its bound grows, so that they cost no more tries than this, or twice as many."""
RETRIES_A_SECOND = 1000
"""The bound of a back-off is so long that all rows of the store can be tried once in it at this rate. The mean is
twice that, with full jitter."""
RETRY_BACKOFF = Backoff(first=0.1, most=10.0)
FAILED_HELD = 6
"""Tries in a row that failed, up to which a row waits in memory for the next one: some seconds."""
ONCE_ATTEMPTS_MAX = 20
"""With --once, over complete primary logs: an event that has no verdict after so many attempts (about a minute) waits
for the next run. A primary log that was deleted after it was mapped, say, would be waited for in vain."""
TOO_NEW_CHECK_S = 600.0
"""An event of the future is looked at this often, in case the clock was wrong."""
TOO_NEW_STEP_S = 0.05
"""It is tried when its time has come, to so much."""
TOO_NEW_ONCE_S = 5.0
"""With --once an event further in the future than this waits for the next run,"""
TOO_NEW_ONCE_TRIES = 6
"""and so does one for which the registry's clock, not this one, has not come so far after so many tries."""
NOT_YET_MOST_S = 3600.0
"""However many rows there are, each is tried about twice in an hour."""
LONGEST_S = 2 * NOT_YET_MOST_S
"""No back-off is longer, not even one that a clock made longer which was wrong by as much."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a missing primary event is waited for, counted from the foreign event's first read.

    ``once``: until the primary logs, complete by then, have been read. ``slack_ns``: clock uncertainty and the
    primary's greatest delay. ``unmatched_after_ns`` None: for ever.
    """

    unmatched_after_ns: int | None = None
    slack_ns: int = 0
    once: bool = False
    keep_pending: bool = False

    @property
    def at_first_ns(self) -> int:
        """What a miss is worth before patience has ended: WAIT_NS, nothing. NEVER_NS: a verdict, once all is read."""
        return NEVER_NS if self.once and not self.keep_pending else WAIT_NS

    def as_of_ns(self, first_read_ns: int) -> int:
        """ABSENT as of then makes it unmatched; WAIT_NS: never."""
        if self.keep_pending:
            return WAIT_NS
        if self.once:
            return NEVER_NS
        if self.unmatched_after_ns is None:
            return WAIT_NS
        return min(first_read_ns + self.unmatched_after_ns + self.slack_ns, COMPLETE_NS)

    def trigger_ns(self, first_read_ns: int, read_past_ns: int) -> int:
        """Past which point of the primary logs the next attempt pays, after one begun at ``read_past_ns``."""
        if read_past_ns >= COMPLETE_NS:
            return SETTLED_NS
        if read_past_ns < first_read_ns:
            return first_read_ns
        as_of = self.as_of_ns(first_read_ns)
        return as_of if read_past_ns < as_of < NEVER_NS else COMPLETE_NS
