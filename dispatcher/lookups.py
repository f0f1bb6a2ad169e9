"""Asking the registry before a joiner (paper, section 3.2, step 1): ids with a verdict need no joiner. Pure.

Worth its round trip where another datacentre has probably been there before: in catch-up, or with several pipelines.
"""

from __future__ import annotations

import enum
from collections.abc import Set

import numpy as np

from photon.batch.columns import Mask, RowIndexes, split_digests
from photon.batch.events import Events
from photon.batch.verdicts import Verdicts
from photon.dispatcher.core import Core
from photon.dispatcher.events import Batch
from photon.idregistry.api import Answer, Kind
from photon.joiner.verdicts import tags_of


class LookUpPolicy(enum.StrEnum):
    """When to ask about events that were just read. Those left to another datacentre are asked about in any case."""

    NEVER = "never"
    """One datacentre and a fresh state: nobody can have been there."""
    BACKLOG = "backlog"
    """While there is a backlog (``Behind``)."""
    ALWAYS = "always"


BACKLOG_BYTES = 4 << 20
"""Unread bytes of the logs that are a backlog where one datacentre works alone: what it has done before a crash is
behind its offsets, but for little."""
NEAR_BYTES = 256 << 10
"""The same where several do."""
STALL_S = 0.5
"""A dispatcher that has not looked at its logs for so long has been overtaken; or for half a head start."""


class Behind:
    """Whether this dispatcher is behind the heads of its logs. Times: monotonic seconds."""

    def __init__(self, *, several: bool) -> None:
        self._several = several
        self._behind = several  # at its start: others went on while it was away
        self._looked_at: float | None = None

    def look(self, unread_bytes: int, caught_up: bool, now: float, head_start_s: float = 2 * STALL_S) -> bool:
        """After a scan, before reading. ``caught_up``: all that the scan before had found was read."""
        if not self._several:
            return unread_bytes > BACKLOG_BYTES
        stalled = self._looked_at is not None and now - self._looked_at > min(STALL_S, head_start_s / 2)
        self._looked_at = now
        if stalled or unread_bytes > NEAR_BYTES:
            self._behind = True
        elif caught_up:
            self._behind = False
        return self._behind


Lines = Set[tuple[bytes, int]]
"""Digests and ``line_tag``s."""
_KINDS = np.array(list(Kind), np.uint8)


def is_present(found: Verdicts) -> Mask:
    """Which ids have a verdict."""
    present: Mask = (found.outcomes == Answer.PRESENT) & np.isin(found.owner_kinds, _KINDS)
    return present


def are_lines(events: Events, lines: Lines) -> Mask:
    """Which events are these very lines."""
    if not lines:
        return np.zeros(len(events), np.bool_)
    tagged = zip(split_digests(events.digests), tags_of(events).tolist(), strict=True)
    return np.array([each in lines for each in tagged], np.bool_)


def settle(
    core: Core, batch: Batch, found: Verdicts | None, now_ns: int, now: float, waiting: Lines = frozenset()
) -> RowIndexes:
    """Counts what has a verdict; the others. Absent and unknown ones go on to a joiner. ``found`` None: nobody knows.
    ``waiting``: of what is read again, the lines that are rows of the retry store: they were counted before.

    A reopened id is answered ABSENT, and a hint may be stale only towards absent: it never decides wrongly.
    """
    left = np.ones(len(batch), np.bool_)
    if waiting:
        counted = are_lines(batch.events, waiting) & core.were_read(batch.rows)
        core.reread(batch.rows[counted])
        left &= ~counted
    if found is not None:
        present = is_present(found) & left
        late = (found.outcomes == Answer.BELOW_BOUNDARY) & left
        left &= ~(present | late)
        absent = left & (found.outcomes == Answer.ABSENT)
        core.looked_up(batch.rows[present], found.take(np.flatnonzero(present)), batch.rows[absent], now)
        core.late(batch.rows[late], now_ns)
    return batch.rows[left]
