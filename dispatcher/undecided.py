"""Events without a verdict, by event time: recorded by a dispatcher in its state, and read by others.

A dispatcher writes a *claim* with its commits: the moment up to which all lines of the logs have been read, and the
event times of its events in memory; other events without a verdict are rows of the retry store, and reopened ids. An
event without a verdict at the moment of the claim is in one of these, or was not read by then and is in no log as it
was at ``read_ns``. So a claim stays true at any age. After a start the last one remains in force, since its events
are to be read again, until everything in the logs at that start has been read.

With several workers each claims for the logs it has leases on, and only if every visible log has a reader; the least
of their claims holds for the state as a whole (owner 0), in the same transaction. A lease that changes hands
withdraws all their claims of what was read, since they refer to other shares. Events that a dead worker had in memory
are counted until the living have read everything in the logs under unchanged leases: its events are included then.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np

from photon.adapters.logs.lag import Unread
from photon.batch.columns import I64
from photon.config.clock import NEVER_NS
from photon.dispatcher.database import MINUTE_NS, opened, reading
from photon.outputs.watermarks import STEP_NS

PERIOD_S = 0.5  # interval of claims if nothing else is committed
STEPS_MAX = 512  # for a claim; if there are more, later ones are counted in earlier ones

Statement = tuple[str, Sequence[object]]  # SQL and its arguments
Counts = list[tuple[int, int]]  # (tenth of a second since 1970, events in it), in order


def counts_of(times: I64) -> Counts:
    """Counts by ``STEP_NS``. Of too many steps, neighbours are merged into the earliest one.

    So the number of events before a moment is never too small.
    """
    steps, events = np.unique(times // STEP_NS, return_counts=True)
    if len(steps) > STEPS_MAX:
        begins = np.arange(0, len(steps), -(-len(steps) // STEPS_MAX))
        steps, events = steps[begins], np.add.reduceat(events, begins)
    return list(zip(steps.tolist(), events.tolist(), strict=True))


def summed(one: Counts, other: Counts) -> Counts:
    """Adds both. Events in both count twice: better than too few."""
    found = dict(one)
    for step, events in other:
        found[step] = found.get(step, 0) + events
    return sorted(found.items())


class Logs(Protocol):
    """The part of a follower that is used."""

    def unread_now(self) -> Unread: ...


class Claims:
    """Claims of a dispatcher that has its state alone. Times: ``at_ns`` wall clock, ``now`` monotonic seconds."""

    def __init__(self, db: sqlite3.Connection, logs: Logs) -> None:
        self.read_ns: int | None = None
        self._before: tuple[Counts, Counts] | None = None
        for owner, read_ns, *texts in db.execute("SELECT owner, read_ns, moving, waiting FROM claims"):
            moving, waiting = map(_decoded, texts)
            if self._before is not None:
                moving, waiting = summed(self._before[0], moving), summed(self._before[1], waiting)
            self._before = moving, waiting
            if owner == 0:
                self.read_ns = read_ns
        self._logs = logs
        self._mark: tuple[int, Unread] | None = None
        self._why = ""
        self._next = float("-inf")

    def scanned(self, at_ns: int) -> None:
        """Notes that a scan begun at this time is over, and everything returned before has been processed."""
        self._look()
        if self._mark is None:
            unread = self._logs.unread_now()
            self._why = unread.doubt
            if not unread.doubt:
                self._mark = (at_ns, unread)

    def _look(self) -> None:
        if self._mark is None:
            return
        at_ns, unread = self._mark
        behind = unread.next()
        self._why = behind and f"{behind} is not read to its end"
        if not behind:
            self._mark = self._before = None
            self.read_ns = at_ns if self.read_ns is None else max(self.read_ns, at_ns)

    def due(self, now: float) -> bool:
        return now >= self._next

    def change(self, times: tuple[I64, I64], at_ns: int, now: float) -> list[Statement]:
        """Returns the statements to commit with the core's last ``changes``, once all blocks are processed.

        ``times``: ``Core.undecided``.
        """
        self._next = now + PERIOD_S
        self._look()
        moving, waiting = map(counts_of, times)
        if self._before is not None:
            moving, waiting = summed(moving, self._before[0]), summed(waiting, self._before[1])
        return self._put(at_ns, (self._why, _encoded(moving), _encoded(waiting)))

    def _put(self, at_ns: int, rest: tuple[str, str, str]) -> list[Statement]:
        """Includes events that workers had in memory, if they had the state before."""
        row = (0, at_ns, self.read_ns, *rest)
        return [("DELETE FROM claims", ()), ("INSERT INTO claims VALUES (?, ?, ?, ?, ?, ?)", row)]


_MOVES = "coalesce((SELECT value FROM meta WHERE name = 'lease_moves'), 0)"
# The moment up to which all living workers claim to have read everything; no row if one makes no claim.
_UNITED = (
    "SELECT read_ns FROM (SELECT min(read_ns) AS read_ns, count(read_ns) AS said, count(*) AS living "
    "FROM workers LEFT JOIN claims ON owner = incarnation WHERE NOT fenced) WHERE said = living"
)
# To commit together with leases that change hands.
LEASES_MOVED: Sequence[Statement] = (
    ("INSERT INTO meta VALUES ('lease_moves', 1) ON CONFLICT DO UPDATE SET value = value + 1", ()),
    ("UPDATE claims SET read_ns = NULL WHERE owner <> 0", ()),
)


def lease_moves(db: sqlite3.Connection) -> int:
    """Returns a number that is incremented whenever a lease changes hands."""
    return int(db.execute(f"SELECT {_MOVES}").fetchone()[0])


class WorkerClaims(Claims):
    """Claims of one of several workers. ``logs`` are in doubt while a visible log has no reader, or changes hands."""

    def __init__(self, db: sqlite3.Connection, logs: Logs, owner: int) -> None:
        super().__init__(db, logs)
        self._db, self._owner = db, owner
        self.read_ns = self._before = None  # the previous claim keeps a row of its own
        self._moves = -1

    def scanned(self, at_ns: int) -> None:
        moves = lease_moves(self._db)
        if moves != self._moves:
            self._moves, self._mark, self.read_ns = moves, None, None
        super().scanned(at_ns)

    def _put(self, at_ns: int, rest: tuple[str, str, str]) -> list[Statement]:
        read = f"CASE WHEN {_MOVES} = ? THEN ? END"
        united = (
            f"INSERT INTO claims SELECT 0, ?, read_ns, '', '[]', '[]' FROM ({_UNITED}) WHERE true "
            "ON CONFLICT DO UPDATE SET at_ns = excluded.at_ns, moving = '[]', waiting = '[]', "
            "read_ns = max(excluded.read_ns, coalesce(claims.read_ns, excluded.read_ns))"
        )
        living = "SELECT incarnation FROM workers WHERE NOT fenced"
        dead = f"DELETE FROM claims WHERE owner <> 0 AND owner NOT IN ({living}) AND EXISTS ({_UNITED})"
        own = (self._owner, at_ns, self._moves, self.read_ns, *rest)
        return [(f"INSERT OR REPLACE INTO claims SELECT ?, ?, {read}, ?, ?, ?", own), (united, (at_ns,)), (dead, ())]


def _encoded(counts: Counts) -> str:
    return msgspec.json.encode(counts).decode()


def _decoded(text: str) -> Counts:
    return msgspec.json.decode(text, type=Counts)


@dataclass(frozen=True, slots=True)
class Undecided:
    """Events without a verdict at one moment. Counts in the database: use it while that is open."""

    said_ns: int  # time of the dispatcher's claim; with several workers that of the one silent for longest, ``who``
    who: str
    read_ns: int | None  # all lines in the logs at that time have been read; ``None`` if there is no such claim yet
    why: str  # why that is behind, for people; empty if there is no reason
    moving_ns: int  # oldest event time on its way to a verdict; NEVER_NS if there is none
    oldest_ns: int  # the same for all events without a verdict, for any reason
    _db: sqlite3.Connection
    _memory: Counts

    def before(self, time_ns: int) -> int:
        """Returns the number of events before this time without a verdict. Those in memory count by whole steps."""
        minute = time_ns // MINUTE_NS
        (rows,) = self._db.execute(
            "SELECT (SELECT coalesce(sum(events), 0) FROM waiting WHERE minute < ?1) + "
            "(SELECT count(*) FROM retries WHERE event_time_ns >= ?2 AND event_time_ns < ?3) + "
            "(SELECT count(*) FROM reopened WHERE event_time_ns < ?3 AND NOT missing)",
            (minute, minute * MINUTE_NS, time_ns),
        ).fetchone()
        return int(rows) + sum(events for step, events in self._memory if step * STEP_NS < time_ns)


def undecided(db: sqlite3.Connection) -> Undecided | None:
    """Returns the events without a verdict in a state, which the caller keeps at one moment.

    ``None`` means that no dispatcher has made a claim.
    """
    rows = {row[0]: row[1:] for row in db.execute("SELECT owner, at_ns, read_ns, why, moving, waiting FROM claims")}
    if not rows:
        return None
    workers = db.execute("SELECT incarnation, name FROM workers WHERE NOT fenced").fetchall()
    speakers = {owner: f"dispatcher {name}" for owner, name in workers} or {0: "its dispatcher"}
    said_ns, who = min((rows[owner][0] if owner in rows else 0, who) for owner, who in speakers.items())
    why = next(filter(None, (_held_by(who, rows.get(owner)) for owner, who in speakers.items())), "")
    moving = sorted(each for row in rows.values() for each in _decoded(row[3]))
    waiting = sorted(each for row in rows.values() for each in _decoded(row[4]))
    (stored,) = db.execute("SELECT min(event_time_ns) FROM retries").fetchone()
    (given_up,) = db.execute("SELECT min(event_time_ns) FROM reopened WHERE NOT missing").fetchone()
    moving_ns = moving[0][0] * STEP_NS if moving else NEVER_NS
    oldest = [each for each in (stored, given_up) if each is not None]
    oldest += [waiting[0][0] * STEP_NS] if waiting else []
    read_ns = rows[0][1] if 0 in rows else None
    return Undecided(said_ns, who, read_ns, why, moving_ns, min([moving_ns, *oldest]), db, [*moving, *waiting])


def _held_by(who: str, row: Sequence[Any] | None) -> str:
    if row is None:
        return f"{who} has not said anything yet"
    _, read_ns, why, *_ = row
    return why or ("" if read_ns is not None else f"{who} has not read its logs to their ends since it has them")


@contextmanager
def read_undecided(path: Path) -> Iterator[Undecided | None]:
    """Reads a dispatcher's state, which may be in use. Raises StateError."""
    with opened(path) as db, reading(db):
        yield undecided(db)
