"""Catch-up: events that another datacentre has been through, settled by the thousand. Pure (paper, 3.2, step 1).

What is done for an event on its way to a joiner costs several times as much as finding out that it has a verdict. So
while there is a backlog all events of a reading are looked up at once, before any of them is sent; those without a
verdict then go the usual way (and are looked up once more just before a joiner gets them). What is read again is
always dealt with like this: nothing of it is sent before it is known which lines were counted.

Invariant: a stretch is not whole, so its log's offset does not pass it, before its question is settled.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from photon.adapters.logs.api import Block
from photon.batch.columns import RowIndexes
from photon.batch.verdicts import Verdicts
from photon.dispatcher.core import Core
from photon.dispatcher.events import EVENT_BYTES, Batch, Stretch
from photon.dispatcher.lookups import Lines, are_lines, is_present, settle
from photon.dispatcher.open_events import NO_ROWS
from photon.idregistry.api import Answer

WORTH = 0.5
"""Below this share of events that had a verdict, asking about all of them first costs more than it saves."""
PROBE_EVERY = 16
"""It is then tried again with one of so many readings."""


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
        """For what is read next."""
        if self._share >= WORTH:
            return True
        self._passed += 1
        if self._passed < PROBE_EVERY:
            return False
        self._passed = 0
        return True

    def observe(self, decided: int, asked: int) -> None:
        """Of so many events that were asked about, so many had a verdict."""
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
        """As ``Core.take``. Its events are part of the next question."""
        stretch = self._core.begin(block, now)
        self._stretches.append(stretch)
        for events in self._core.read(stretch, block, now_ns):
            self._rows.append(self._core.add(stretch, events, now_ns, now))
            yield

    def question(self) -> Batch:
        """Of all that was taken since the last one. Give each to ``settle``."""
        rows, self._rows = np.concatenate([NO_ROWS, *self._rows]), []
        stretches, self._stretches = self._stretches, []
        return self._core.question(rows, stretches)

    def settle(
        self, question: Batch, found: Verdicts | None, now_ns: int, now: float, waiting: Lines = frozenset()
    ) -> None:
        """As ``lookups.settle``; the others go on to a joiner."""
        left = settle(self._core, question, found, now_ns, now, waiting)
        self._core.send(left, now)
        for stretch in question.stretches:
            stretch.whole = True
            self._core.weigh(stretch, -EVENT_BYTES * (stretch.events - stretch.left))
            self._core.reject(stretch, now_ns)
        if not question.back:
            self.worth.observe(len(question) - len(left), len(question))
