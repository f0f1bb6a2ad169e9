"""Events without a verdict, by event time. A dispatcher records them in its state; others read them.

With its commits a dispatcher writes a *claim*: the moment ``read_ns`` up to which all lines of the logs were read,
and the event times of its events in memory; other events without a verdict are rows of the retry store or reopened
ids. An event without a verdict when the claim was made is in one of these, or was in no log at ``read_ns``. So a
claim stays true at any age. After a start the last claim stays in force until all logs are read to where they ended
then, as its events are read again.

Each dispatcher of a datacentre claims for its own logs; the earliest claim holds for all.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec
import numpy as np

from photon.adapters.logs.lag import ReadTo, Unread
from photon.batch.columns import I64
from photon.config.clock import NEVER_NS
from photon.dispatcher.database import MINUTE_NS, opened, reading
from photon.dispatcher.partitions import files_of
from photon.outputs.watermarks import STEP_NS

PERIOD_S = 1.0  # interval of claims if nothing else is committed
STEPS_MAX = 512  # for a claim; if there are more, later ones are counted in earlier ones

Statement = tuple[str, Sequence[object]]  # SQL and its arguments
Counts = list[tuple[int, int]]  # (tenth of a second since 1970, events in it), in order


def counts_of(times: I64) -> Counts:
    """Counts times in steps of ``STEP_NS``. If there are too many steps, neighbours are merged into the earlier one,
    so the number of events before a moment is never too small.
    """
    steps, events = np.unique(times // STEP_NS, return_counts=True)
    if len(steps) > STEPS_MAX:
        begins = np.arange(0, len(steps), -(-len(steps) // STEPS_MAX))
        steps, events = steps[begins], np.add.reduceat(events, begins)
    return list(zip(steps.tolist(), events.tolist(), strict=True))


def summed(one: Counts, other: Counts) -> Counts:
    """Adds two counts. Events in both count twice: too many is safe, too few is not."""
    found = dict(one)
    for step, events in other:
        found[step] = found.get(step, 0) + events
    return sorted(found.items())


class Logs(Protocol):
    """The part of the follower's interface that claims need."""

    def unread_now(self) -> Unread: ...


class Claims:
    """Makes a dispatcher's claims. Times: ``at_ns`` wall clock, ``now`` monotonic seconds."""

    def __init__(self, db: sqlite3.Connection, logs: Logs, who: str = "its dispatcher") -> None:
        """``who``: the claims' owner, as named in messages."""
        self._before: tuple[Counts, Counts] | None = None
        known: int | None = None
        for read_ns, moving, waiting in db.execute("SELECT read_ns, moving, waiting FROM claims"):
            known, self._before = read_ns, (decoded(moving), decoded(waiting))
        self._read_to, self._who = ReadTo(logs, known), who
        self._next = float("-inf")

    @property
    def read_ns(self) -> int | None:
        return self._read_to.read_ns

    def scanned(self, at_ns: int) -> None:
        """Notes that a scan begun at ``at_ns`` is over, and that all blocks returned before have been processed."""
        self._look()
        self._read_to.scanned(at_ns)

    def _look(self) -> None:
        if self._read_to.look():
            self._before = None

    def due(self, now: float) -> bool:
        return now >= self._next

    def change(self, times: tuple[I64, I64], at_ns: int, now: float) -> list[Statement]:
        """Returns the statements to commit with the last ``Committing.changes``, once all blocks are processed.

        ``times``: ``Committing.undecided``.
        """
        self._next = now + PERIOD_S
        self._look()
        moving, waiting = map(counts_of, times)
        if self._before is not None:
            moving, waiting = summed(moving, self._before[0]), summed(waiting, self._before[1])
        row = (self._who, at_ns, self._read_to.read_ns, self._read_to.why, encoded(moving), encoded(waiting))
        return [("DELETE FROM claims", ()), ("INSERT INTO claims VALUES (?, ?, ?, ?, ?, ?)", row)]


def encoded(counts: Counts) -> str:
    return msgspec.json.encode(counts).decode()


def decoded(text: str) -> Counts:
    return msgspec.json.decode(text, type=Counts)


@dataclass(frozen=True, slots=True)
class Undecided:
    """Events without a verdict at one moment. Reads the database, so use it only while that is open."""

    said_ns: int  # time of the dispatcher's claim; of several, that of the dispatcher silent for longest, ``who``
    who: str
    read_ns: int | None  # all lines in the logs at that time have been read; ``None`` if there is no such claim yet
    why: str  # why ``read_ns`` is behind, for people; empty if it is not
    moving_ns: int  # oldest event time of events in flight; NEVER_NS if there is none
    oldest_ns: int  # the same for all events without a verdict, for any reason
    _db: sqlite3.Connection
    _memory: Counts

    def before(self, time_ns: int) -> int:
        """Returns the number of events before ``time_ns`` without a verdict; those in memory count by whole steps."""
        minute = time_ns // MINUTE_NS
        (rows,) = self._db.execute(
            "SELECT (SELECT coalesce(sum(events), 0) FROM waiting WHERE minute < ?1) + "
            "(SELECT count(*) FROM retries WHERE event_time_ns >= ?2 AND event_time_ns < ?3) + "
            "(SELECT count(*) FROM reopened WHERE event_time_ns < ?3 AND NOT missing)",
            (minute, minute * MINUTE_NS, time_ns),
        ).fetchone()
        return int(rows) + sum(events for step, events in self._memory if step * STEP_NS < time_ns)


def undecided(db: sqlite3.Connection, dispatchers: int = 1) -> Undecided | None:
    """Returns the events without a verdict in the state of ``dispatchers`` dispatchers. Call it within a transaction.

    ``None`` means that a dispatcher has made no claim.
    """
    rows = db.execute("SELECT at_ns, who, read_ns, why, moving, waiting FROM claims ORDER BY at_ns, who").fetchall()
    if len(rows) < dispatchers:
        return None
    said_ns, who, *_ = rows[0]
    why = next((why for *_, why, _, _ in rows if why), "")
    moving = sorted(each for row in rows for each in decoded(row[4]))
    waiting = sorted(each for row in rows for each in decoded(row[5]))
    # Ordered rather than min(): over several databases only this uses their indexes.
    stored = db.execute("SELECT event_time_ns FROM retries ORDER BY event_time_ns LIMIT 1").fetchall()
    given_up = db.execute("SELECT event_time_ns FROM reopened WHERE NOT missing ORDER BY 1 LIMIT 1").fetchall()
    moving_ns = moving[0][0] * STEP_NS if moving else NEVER_NS
    oldest = [each for (each,) in (*stored, *given_up)]
    oldest += [waiting[0][0] * STEP_NS] if waiting else []
    read = [row[2] for row in rows]
    read_ns = None if None in read else min(read)
    return Undecided(said_ns, who, read_ns, why, moving_ns, min([moving_ns, *oldest]), db, [*moving, *waiting])


@contextmanager
def read_undecided(path: Path) -> Iterator[Undecided | None]:
    """Reads a dispatcher's state, which may be in use. Raises StateError."""
    with opened(path) as db, reading(db):
        yield undecided(db, len(files_of(path)))
