"""Records the range of event times in each part of a log, to find an event again without reading everything.

A log is divided into chunks of CHUNK_BYTES (uncompressed, counted from its first byte: rotation and compression
change nothing). For each chunk the state keeps the least and the greatest event time of the records that were read
there, committed together with the offset that moves past them. Times are rounded outwards to GRAIN_NS, so that a
growing log does not cause a write to the table at every commit. A range may be too wide, which costs a useless read
of the chunk, but never too narrow: a chunk before the log's offset without a row was skipped, or read by a version
that kept none, and may hold anything; a chunk with an unknown part has an unbounded range (``unknown_from``).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from photon.adapters.logs.api import LogPosition
from photon.idregistry.api import I64

CHUNK_BYTES = 4 << 20
GRAIN_NS = 60_000_000_000
# Rows, some 70 bytes each: 4 TB of logs. Beyond this, rows of logs whose files are gone are dropped.
COVERED_MAX = 1_000_000
REMEMBERED_MAX = 65_536  # logs whose newest chunk is kept in memory to save writes
MIN_NS, MAX_NS = -(2**63), 2**63 - 1


class Span(NamedTuple):
    """A part of a log that was read, and its range of event times, ns UTC; (MAX_NS, MIN_NS) if it has no events."""

    identity: str
    begin: int
    end: int
    oldest_ns: int
    newest_ns: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """Records that begin in [``begin``, ``end``) of a log. Times: the range of its events' times, or a wider one."""

    identity: str
    begin: int
    end: int
    oldest_ns: int
    newest_ns: int
    read_to: int = 0  # a position of the log
    proof: bytes = b""  # proof of ``read_to`` (``identity.proof_of``); empty if unknown


def unknown_from(identity: str, offset: int) -> Span:
    """Returns the span of a log read from here, or from the start of that line: its chunks may hold anything."""
    return Span(identity, max(0, offset - CHUNK_BYTES), offset, MIN_NS, MAX_NS)


class Coverage:
    """Writes coverage together with commits. One object per open state: it remembers its last writes."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[int, int, int]] = {}  # identity -> a chunk, times that its row covers

    def put(self, db: sqlite3.Connection, spans: Iterable[Span]) -> None:
        """Adds spans within the caller's transaction."""
        rows: dict[tuple[str, int], tuple[int, int]] = {}
        for identity, begin, end, oldest, newest in spans:
            oldest, newest = _outwards(oldest, newest)
            for chunk in range(begin // CHUNK_BYTES, max(begin, end - 1) // CHUNK_BYTES + 1):
                if self._covers(identity, chunk, oldest, newest):
                    continue
                before = rows.get((identity, chunk), (oldest, newest))
                rows[identity, chunk] = (min(before[0], oldest), max(before[1], newest))
        db.executemany(
            "INSERT INTO covered VALUES (?, ?, ?, ?) ON CONFLICT (identity, chunk) DO UPDATE SET "
            "oldest_ns = min(oldest_ns, excluded.oldest_ns), newest_ns = max(newest_ns, excluded.newest_ns)",
            [(*where, *times) for where, times in rows.items()],
        )
        if len(self._last) > REMEMBERED_MAX:
            self._last.clear()
        for (identity, chunk), times in rows.items():
            self._last[identity] = (chunk, *times)

    def _covers(self, identity: str, chunk: int, oldest: int, newest: int) -> bool:
        known = self._last.get(identity)
        return known is not None and known[0] == chunk and known[1] <= oldest and newest <= known[2]


def _outwards(oldest: int, newest: int) -> tuple[int, int]:
    if oldest > newest:
        return MAX_NS, MIN_NS
    return max(oldest // GRAIN_NS * GRAIN_NS, MIN_NS), min(-(-newest // GRAIN_NS) * GRAIN_NS, MAX_NS)


def read_up_to(db: sqlite3.Connection) -> list[LogPosition]:
    """Returns how far each log was read. Raises sqlite3.Error."""
    rows = db.execute("SELECT identity, path, offset, header, proof FROM logs").fetchall()
    return [LogPosition(*row) for row in rows]


def chunks_between(db: sqlite3.Connection, positions: Iterable[LogPosition], from_ns: int, to_ns: int) -> list[Chunk]:
    """Returns chunks of these logs, up to their positions, that may hold event times in [``from_ns``, ``to_ns``).

    They are in order within each log. Raises sqlite3.Error.
    """
    rows: dict[str, list[tuple[int, int, int]]] = {}
    overlapping = "SELECT identity, chunk, oldest_ns, newest_ns FROM covered WHERE oldest_ns < ? AND newest_ns >= ?"
    for identity, *row in db.execute(overlapping, (to_ns, from_ns)):
        rows.setdefault(identity, []).append((row[0], row[1], row[2]))
    counts: dict[str, int] = dict(db.execute("SELECT identity, count(*) FROM covered GROUP BY identity").fetchall())
    found = []
    for position in positions:
        identity, end = position.identity, position.offset
        some = rows.get(identity, [])
        number = -(-end // CHUNK_BYTES)
        if counts.get(identity, 0) < number:
            some = some + [(chunk, MIN_NS, MAX_NS) for chunk in _without_row(db, identity, number)]
        for chunk, oldest, newest in sorted(some):
            begin, stop = chunk * CHUNK_BYTES, min((chunk + 1) * CHUNK_BYTES, end)
            if begin < stop:
                found.append(Chunk(identity, begin, stop, oldest, newest, end, position.proof))
    return found


def _without_row(db: sqlite3.Connection, identity: str, number: int) -> Iterable[int]:
    there = {chunk for (chunk,) in db.execute("SELECT chunk FROM covered WHERE identity = ?", (identity,))}
    return (chunk for chunk in range(number) if chunk not in there)


def holding(chunks: Sequence[Chunk], times: I64) -> list[Chunk]:
    """Returns the chunks that may hold an event of one of these times."""
    ordered = np.sort(times)
    first = np.searchsorted(ordered, np.array([chunk.oldest_ns for chunk in chunks], np.int64), "left")
    after = np.searchsorted(ordered, np.array([chunk.newest_ns for chunk in chunks], np.int64), "right")
    return [chunks[at] for at in np.flatnonzero(after > first).tolist()]


def too_many(db: sqlite3.Connection) -> bool:
    """True if the table has more rows than its limit. Raises sqlite3.Error."""
    (count,) = db.execute("SELECT count(*) FROM covered").fetchone()
    return bool(count > COVERED_MAX)


def rows_of_gone(db: sqlite3.Connection, live: Container[str]) -> list[tuple[str, tuple[str, int]]]:
    """Returns statements (SQL, arguments) that drop the rows of logs that are not ``live``. Raises sqlite3.Error.

    A log's newest row is kept: if the log returns and grows, that chunk was read in part. Earlier chunks are then
    searched regardless of time.
    """
    newest = db.execute("SELECT identity, max(chunk) FROM covered GROUP BY identity").fetchall()
    delete = "DELETE FROM covered WHERE identity = ? AND chunk < ?"
    return [(delete, (identity, chunk)) for identity, chunk in newest if identity not in live]
