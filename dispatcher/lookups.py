"""Asks the registry before a joiner (paper, section 3.2, step 1): ids with a verdict need no joiner. Pure.

Worth its round trip where another datacentre has probably been there before: in catch-up, or with several pipelines.

Catch-up (``Backlog``) settles events that another datacentre has been through by the thousand. What is done for an
event on its way to a joiner costs several times as much as finding out that it has a verdict. So while there is a
backlog all events of a reading are looked up at once, before any of them is sent; those without a verdict then go the
usual way (and are looked up once more just before a joiner gets them). What is read again is always dealt with like
this: nothing of it is sent before it is known which lines were counted.

Invariant: a stretch is not whole, so its log's offset does not pass it, before its question is settled.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Set

import numpy as np

from photon.adapters.logs.api import Block
from photon.batch.columns import Mask, RowIndexes, split_digests
from photon.batch.events import Events
from photon.batch.verdicts import Verdicts
from photon.dispatcher.core import Core
from photon.dispatcher.events import EVENT_BYTES, Batch, Stretch
from photon.dispatcher.open_events import NO_ROWS
from photon.idregistry.api import Answer, Kind
from photon.joiner.verdicts import tags_of


class LookUpPolicy(enum.StrEnum):
    """When to ask about events that were just read. Those left to another datacentre are asked about in any case."""

    NEVER = "never"  # one datacentre and a fresh state: nobody can have been there
    BACKLOG = "backlog"  # while there is a backlog (``Behind``)
    ALWAYS = "always"


BACKLOG_BYTES = 4 << 20
"""Unread bytes of the logs that are a backlog where one datacentre works alone: what it has done before a crash is
behind its offsets, but for little."""
NEAR_BYTES = 256 << 10  # the same where several do
STALL_S = 0.5  # a dispatcher that has not looked at its logs for so long has been overtaken; or for half a head start


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


Lines = Set[tuple[bytes, int]]  # digests and ``line_tag``s
_IS_KIND = np.isin(np.arange(256), list(Kind))


def is_present(found: Verdicts) -> Mask:
    present: Mask = (found.outcomes == Answer.PRESENT) & _IS_KIND[found.owner_kinds]
    return present


def are_lines(events: Events, lines: Lines) -> Mask:
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


WORTH = 0.5  # below this share of events that had a verdict, asking about all of them first costs more than it saves
PROBE_EVERY = 16  # it is then tried again with one of so many readings


def must_know(question: Batch, found: Verdicts | None) -> bool:
    """Whether an answer is missing without which it cannot be told where a log departs."""
    if not any(stretch.events and stretch.anew for stretch in question.stretches):
        return False
    return found is None or found.says(Answer.UNKNOWN)


def departures(question: Batch, found: Verdicts, waiting: Lines) -> dict[str, int]:
    """Where logs that are read ``anew`` go apart from what was counted: at the first line that nobody knows.

    To be told to the core before the question is settled. ``waiting``: as for ``settle``.
    """
    events = question.events
    known = is_present(found) | (found.outcomes == Answer.BELOW_BOUNDARY) | are_lines(events, waiting)
    places: dict[str, int] = {}
    end = 0
    for stretch in question.stretches:
        begin, end = end, end + stretch.events
        its = known[begin:end]
        if stretch.anew and stretch.identity not in places and not its.all():
            places[stretch.identity] = int(events.offsets[begin + int(its.argmin())])
    for stretch in question.stretches:
        if stretch.anew and (at := min(places.get(stretch.identity, stretch.end), stretch.seen_to)) < stretch.end:
            places[stretch.identity] = at
    return places


class Worth:
    """Whether asking about whole stretches first is worth its while: it is where most of them have a verdict."""

    def __init__(self) -> None:
        self._share = 1.0
        self._passed = 0

    def next(self) -> bool:
        if self._share >= WORTH:
            return True
        self._passed += 1
        if self._passed < PROBE_EVERY:
            return False
        self._passed = 0
        return True

    def observe(self, decided: int, asked: int) -> None:
        """Notes that of ``asked`` events ``decided`` had a verdict."""
        if asked:
            self._share += (decided / asked - self._share) / 2


class Backlog:
    """Takes blocks over for a core, and settles them. Times: ``now_ns`` wall clock, ``now`` monotonic seconds."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._stretches: list[Stretch] = []
        self._rows: list[RowIndexes] = []
        self.worth = Worth()

    def take(self, block: Block, now_ns: int, now: float) -> Iterable[None]:
        """Like ``Core.take``. Its events are part of the next question."""
        stretch = self._core.begin(block, now)
        self._stretches.append(stretch)
        for events in self._core.read(stretch, block, now_ns):
            self._rows.append(self._core.add(stretch, events, now_ns, now))
            yield

    def question(self) -> Batch:
        """All events that were taken since the last one. Give each question to ``settle``."""
        rows, self._rows = np.concatenate([NO_ROWS, *self._rows]), []
        stretches, self._stretches = self._stretches, []
        return self._core.question(rows, stretches)

    def settle(
        self, question: Batch, found: Verdicts | None, now_ns: int, now: float, waiting: Lines = frozenset()
    ) -> None:
        """Like ``lookups.settle``; the other events go on to a joiner."""
        left = settle(self._core, question, found, now_ns, now, waiting)
        self._core.send(left, now)
        for stretch in question.stretches:
            stretch.whole = True
            self._core.weigh(stretch, -EVENT_BYTES * (stretch.events - stretch.left))
            self._core.reject(stretch, now_ns)
        if not question.back:
            self.worth.observe(len(question) - len(left), len(question))
