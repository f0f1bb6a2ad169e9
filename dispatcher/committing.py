"""Decides each transaction's content: how far the logs' offsets move, and which events become rows of the retry
store. Pure.

A log's offset moves past its first stretch once each event there has a verdict or becomes a row.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

import numpy as np

from photon.adapters.logs.api import LogPosition
from photon.batch.columns import I64, RowIndexes
from photon.dispatcher.counting import Counting
from photon.dispatcher.events import Stretch
from photon.dispatcher.limits import Limits
from photon.dispatcher.open_events import NO_GROUP, NO_ROWS, NOTHING_STORED, LoadedRows, OpenEvents, StoredEvents
from photon.dispatcher.open_logs import OpenLogs
from photon.dispatcher.retry import SETTLED_NS
from photon.dispatcher.state import Changes
from photon.dispatcher.waiting import Waiting
from photon.joiner.api import Outcome

HELD_LONG = 10  # factor for how much longer a stretch with events on their way is held before they become rows too
# Share of a stretch's events not waited for if they block finished work and memory is short.
STRAGGLERS = 0.25
_NOT_YET = int(Outcome.NOT_YET)


@dataclass(eq=False)
class Committing:
    """Plans transactions. Call ``changes``, commit, then call ``committed``. ``once``: as in ``engine.Options``."""

    table: OpenEvents
    logs: OpenLogs
    loaded: LoadedRows
    counting: Counting
    waiting: Waiting
    limits: Limits
    once: bool

    def __post_init__(self) -> None:
        self._hold_s = self.limits.hold_once_s if self.once else self.limits.hold_s
        # Rows stored while at a joiner, and their places among the new rows.
        self._on_their_way = self._new_ids = NO_ROWS
        self._stored = NOTHING_STORED

    def changes(self, now_ns: int, now: float, *, store_all: bool = False) -> Changes:
        """Returns the content of the next transaction. ``store_all``: no event is tried again in this run."""
        changes = self.counting.take_out()
        changes.updated = self.waiting.updates()
        changes.freed = self.loaded.delete(changes.deleted)
        leaving: list[RowIndexes] = []
        for stretches in self.logs.busy():
            while stretches:
                stretch = stretches[0]
                new_rows = sum(map(len, leaving))
                later = islice(stretches, 1, None)
                if not stretch.whole or (
                    stretch.left and not (store_all or self._may_store(stretch, later, new_rows, now))
                ):
                    break
                self.logs.passed(stretch)
                _note_passed(stretch, changes)
                if stretch.left:
                    leaving.append(self._leave(stretch))
        if leaving:
            changes.stored = self._store(np.concatenate(leaving), now_ns)
        return changes

    def _may_store(self, stretch: Stretch, later: Iterable[Stretch], new_rows: int, now: float) -> bool:
        """True if the rest of a log's first stretch should become rows, and there is room for them."""
        if stretch.store_now:
            return True
        limits = self.limits
        if self.loaded.stored_bytes >= limits.retry_store_bytes or new_rows >= limits.new_rows:
            return False
        # With --once reading pauses instead.
        pressed = not self.once and self.logs.window_bytes > limits.hold_bytes
        if pressed and now - stretch.read_at >= self._hold_s and _holds_back(stretch, later):
            return True
        if stretch.waiting_since is None:
            return False  # everything is in flight: rows would cost more than the remaining work
        held_s = now - stretch.waiting_since
        if stretch.left == stretch.settled + stretch.waiting:
            return not stretch.waiting or pressed or held_s >= self._hold_s
        return held_s >= HELD_LONG * self._hold_s

    def _leave(self, stretch: Stretch) -> RowIndexes:
        """Detaches a passed stretch's events without a verdict, and returns their rows: they go to the store."""
        left = self.table.of_stretch(stretch)
        self.loaded.store(left)
        self.table.stretch[left] = None
        return left

    def _store(self, rows: RowIndexes, now_ns: int) -> StoredEvents:
        """Turns events into rows of the store. Events in flight also stay in memory; their rows are for a restart."""
        table = self.table
        waits = table.group[rows] != NO_GROUP
        moving = ~waits & ~table.settled[rows]
        table.next_try_ns[rows[moving]], table.trigger_ns[rows[moving]] = now_ns, SETTLED_NS
        self._stored = StoredEvents.of(table, rows)
        self.waiting.store(rows[waits])
        table.release(rows[table.settled[rows]])
        self._on_their_way, self._new_ids = rows[moving], np.flatnonzero(moving)
        return self._stored

    def undecided(self) -> tuple[I64, I64]:
        """Returns the times of events that will have neither a verdict nor a row after the last ``changes``: (events
        in flight, events whose primary event was absent at their last try).
        """
        table = self.table
        own = table.taken & ~table.redispatched & (table.row_id == 0)
        own[self._on_their_way] = False
        waits = table.last == _NOT_YET
        return table.times[own & ~waits], table.times[own & waits]

    def committed(self) -> None:
        """Notes that the last changes are durable and that new rows have ids. Call it right after the commit."""
        rows, self._on_their_way = self._on_their_way, NO_ROWS
        stored, self._stored = self._stored, NOTHING_STORED
        if len(rows):
            self.table.row_id[rows] = stored.row_ids[self._new_ids]
            self.loaded.add(rows)


def _note_passed(stretch: Stretch, changes: Changes) -> None:
    """Adds a passed stretch's counts, its lines to export and its log's new offset to ``changes``."""
    identity = stretch.identity
    changes.cells.update(stretch.cells)
    changes.exports += stretch.exports
    changes.spans.append(stretch.passed())
    changes.rewritten.pop(identity, None)
    if stretch.diverged:
        changes.diverged.add(identity)
    elif stretch.rewritten and stretch.end < stretch.counted_to:
        changes.rewritten[identity] = stretch.counted_to
    changes.positions[identity] = LogPosition(
        identity, stretch.file.path, stretch.end, stretch.file.header, stretch.proof
    )


def _holds_back(stretch: Stretch, later: Iterable[Stretch]) -> bool:
    """True if a few stragglers block more finished work than this stretch contains."""
    if stretch.left > stretch.events * STRAGGLERS:
        return False
    done = 0
    for each in later:
        if each.whole and not each.left:
            done += each.weight
            if done > stretch.weight:
                return True
    return False
