"""Looks events up in the registry before they go to a joiner (paper, section 3.2, step 1): an id with a verdict needs
no joiner. Pure.

That is worth a round trip if another datacentre has probably registered them: in catch-up, or with several pipelines.

Catch-up (``Backlog``) settles events that another datacentre has processed by the thousand. Sending an event to a
joiner costs several times as much as a look-up. So while there is a backlog, all events of a reading are looked up
together first; those without a verdict then proceed as usual (and are looked up again just before they are sent).
Reread logs are always handled like this: nothing is sent until it is known which lines were counted.

Invariant: a log's offset does not move past a stretch until the stretch's look-up is settled.
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
    """When newly read events are looked up. Events left to another datacentre always are."""

    NEVER = "never"  # one datacentre and a fresh state: there are no verdicts yet
    BACKLOG = "backlog"  # while there is a backlog (``Behind``), and asking pays if one datacentre works alone
    ALWAYS = "always"


# Unread bytes of the logs that count as a backlog if one datacentre works alone: its offsets cover almost all its
# work before a crash.
BACKLOG_BYTES = 4 << 20
NEAR_BYTES = 256 << 10  # the same if several datacentres do
STALL_S = 0.5  # a dispatcher that has not scanned its logs for this long, or half a head start, has been overtaken


class Behind:
    """Decides if this dispatcher is behind the ends of its logs. Times: monotonic seconds."""

    def __init__(self, *, several: bool) -> None:
        self._several = several
        self._behind = several  # true at its start, as others continued while it was away
        self._looked_at: float | None = None

    def look(self, unread_bytes: int, caught_up: bool, now: float, head_start_s: float = 2 * STALL_S) -> bool:
        """True if it is behind. Call between a scan and reading. ``caught_up``: all that was found is read."""
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
    """Counts events that have a verdict, and returns the rows of the others, which need a joiner.

    ``found`` is ``None`` if the registry did not answer. ``waiting``: lines of reread logs that are rows of the retry
    store, and so were counted before.

    A wrong answer can only be a stale ABSENT, which sends the event to a joiner and so does no harm. Reopened ids are
    ABSENT.
    """
    left = np.ones(len(batch), np.bool_)
    if waiting:
        counted = are_lines(batch.events, waiting) & core.counting.were_read(batch.rows)
        core.counting.reread(batch.rows[counted])
        left &= ~counted
    if found is not None:
        present = is_present(found) & left
        late = (found.outcomes == Answer.BELOW_BOUNDARY) & left
        left &= ~(present | late)
        absent = left & (found.outcomes == Answer.ABSENT)
        core.looked_up(batch.rows[present], found.take(np.flatnonzero(present)), batch.rows[absent], now)
        core.counting.late(batch.rows[late], now_ns)
    return batch.rows[left]


WORTH = 0.5  # below this share of events with a verdict, asking about all of them first costs more than it saves
PROBE_EVERY = 16  # then one reading in this many tries it again


def must_know(question: Batch, found: Verdicts | None) -> bool:
    """True if answers are missing that are needed to find where a rewritten log diverges."""
    if not any(stretch.events and stretch.rewritten for stretch in question.stretches):
        return False
    return found is None or found.says(Answer.UNKNOWN)


def divergences(question: Batch, found: Verdicts, waiting: Lines) -> dict[str, int]:
    """Returns the offset where each ``rewritten`` log diverges from the lines counted: at its first unknown line.

    Pass the offsets to ``OpenLogs.diverge`` before the question is settled. ``waiting``: as for ``settle``.
    """
    events = question.events
    known = is_present(found) | (found.outcomes == Answer.BELOW_BOUNDARY) | are_lines(events, waiting)
    places: dict[str, int] = {}
    end = 0
    for stretch in question.stretches:
        begin, end = end, end + stretch.events
        its = known[begin:end]
        if stretch.rewritten and stretch.identity not in places and not its.all():
            places[stretch.identity] = int(events.offsets[begin + int(its.argmin())])
    for stretch in question.stretches:
        if (
            stretch.rewritten
            and (at := min(places.get(stretch.identity, stretch.end), stretch.counted_to)) < stretch.end
        ):
            places[stretch.identity] = at
    return places


class Worth:
    """Decides if looking up events first pays: it does if most of them have a verdict."""

    def __init__(self) -> None:
        self._share = 1.0
        self._passed = 0

    @property
    def pays(self) -> bool:
        return self._share >= WORTH

    def next(self) -> bool:
        """True if the next stretch should be looked up first: if that pays, and once in a while as a probe."""
        if self.pays:
            return True
        self._passed += 1
        if self._passed < PROBE_EVERY:
            return False
        self._passed = 0
        return True

    def observe(self, decided: int, asked: int) -> None:
        """Notes that ``decided`` of ``asked`` events had a verdict."""
        if asked:
            self._share += (decided / asked - self._share) / 2


class Backlog:
    """Reads blocks during catch-up, and settles their look-ups. Times: ``now_ns`` wall clock, ``now`` monotonic s."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._stretches: list[Stretch] = []
        self._rows: list[RowIndexes] = []
        self.worth = Worth()

    def take(self, block: Block, now_ns: int, now: float) -> Iterable[None]:
        """Like ``Intake.take``, but adds the events to the next question instead of queueing them."""
        intake = self._core.intake
        stretch = self._core.logs.begin(block, now)
        self._stretches.append(stretch)
        for events in intake.read(stretch, block, now_ns):
            self._rows.append(intake.add(stretch, events, now_ns, now))
            yield

    def question(self) -> Batch:
        """Returns all events read since the last question. Pass each question to ``settle``."""
        rows, self._rows = np.concatenate([NO_ROWS, *self._rows]), []
        stretches, self._stretches = self._stretches, []
        return self._core.batch(rows, stretches=stretches)

    def settle(
        self, question: Batch, found: Verdicts | None, now_ns: int, now: float, waiting: Lines = frozenset()
    ) -> None:
        """Like ``lookups.settle``; queues the other events for a joiner."""
        left = settle(self._core, question, found, now_ns, now, waiting)
        self._core.queues.take(left, now, asked=True)
        for stretch in question.stretches:
            stretch.whole = True
            self._core.logs.weigh(stretch, -EVENT_BYTES * (stretch.events - stretch.left))
            self._core.counting.reject_unread(stretch, now_ns)
        if not question.repeated:
            self.worth.observe(len(question) - len(left), len(question))
