"""Asking the registry before a joiner (paper, section 3.2, step 1): ids with a verdict need no joiner. Pure.

Worth its round trip where another datacentre has probably been there before: in catch-up, or with several pipelines.
"""

from __future__ import annotations

import enum

import numpy as np

from photon.dispatcher.core import Core
from photon.dispatcher.events import Batch, Item
from photon.idregistry.api import I64, Answer, Kind, LookUps
from photon.joiner.api import TakenBy
from photon.joiner.verdicts import tag_of


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


def question(batch: Batch) -> tuple[bytes, I64]:
    """Digests and event times, for ``Registry.look_up``."""
    digests = b"".join([item.event.digest for item in batch.items])
    return digests, np.array([item.event.event_time_ns for item in batch.items], dtype=np.int64)


def settle(core: Core, batch: Batch, found: LookUps, now_ns: int, now: float) -> list[Item]:
    """Counts what has a verdict; the others. Absent and unknown ones go on to a joiner.

    A reopened id is answered ABSENT, and a hint may be stale only towards absent: it never decides wrongly.
    """
    answers = found.answers
    if not ((answers == Answer.PRESENT) | (answers == Answer.BELOW_BOUNDARY)).any():
        core.present([], [] if (answers == Answer.UNKNOWN).any() else batch.items, now)
        return batch.items
    left: list[Item] = []
    present: list[tuple[Item, TakenBy]] = []
    names = found.datacentres
    columns = (
        answers.tolist(),
        found.owner_kinds.tolist(),
        found.owner_datacentres.tolist(),
        found.owner_tags.tolist(),
        [None] * len(answers) if found.owner_times is None else found.owner_times.tolist(),
    )
    for item, answer, kind, datacentre, tag, time_ns in zip(batch.items, *columns, strict=True):
        if answer == Answer.PRESENT and kind in _KINDS:
            present.append((item, TakenBy(names[datacentre], _KINDS[kind], tag == tag_of(item.event), time_ns)))
        elif answer == Answer.BELOW_BOUNDARY:
            core.late(item, now_ns)
        else:
            left.append(item)
    core.present(present, left, now)
    return left


_KINDS = {int(kind): kind for kind in Kind}
