"""Requests to replay a time range, kept in the dispatcher's state, and their progress.

A command adds a row. The dispatcher finds it, even while running, and records the logs concerned (``plan``) and its
progress in each: all events before that offset have a verdict. A crash loses only events in flight, which are
dispatched again.

A command needs only SQLite's locking, not the dispatcher's lock, because only the dispatcher acts on a request's row.
"""

from __future__ import annotations

import enum
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from photon.adapters.logs.discovery import compile_patterns
from photon.adapters.logs.identity import log_name
from photon.adapters.logs.log_finder import LogFound, holding
from photon.dispatcher.database import Transaction, opened, opened_file
from photon.dispatcher.errors import StateError
from photon.dispatcher.partitions import files_of
from photon.dispatcher.replay.coverage import Chunk, chunks_between, read_up_to

WAITING_MAX = 100  # requests that are not done
KEPT_MAX = 100  # finished requests kept so that their outcome can be queried

Statement = tuple[str, Sequence[Any]]  # a change for a transaction: SQL and its arguments


class Step(enum.IntEnum):
    ASKED = 0
    RUNNING = 1
    DONE = 2
    CANCELLED = 3
    UNREAD = 4  # state of a log that is gone or unreadable


@dataclass(frozen=True, slots=True)
class Request:
    """A replay of event times in [``from_ns``, ``to_ns``) in logs whose path matches.

    Patience counts from the time of the request.
    """

    number: int
    from_ns: int
    to_ns: int
    pattern: str
    asked_ns: int
    step: Step
    ended_ns: int


@dataclass(frozen=True, slots=True)
class Part:
    """A request's progress in one log. Events before ``at`` have a verdict. Offsets count uncompressed bytes."""

    identity: str
    path: str
    begin: int
    at: int
    stop: int
    step: Step
    events: int
    known: int  # of these, events that had a verdict before


@dataclass(frozen=True, slots=True)
class Progress:
    """A request and its logs, none until a dispatcher has started it. ``events``, ``known``: sums over ``parts``."""

    request: Request
    parts: Sequence[Part]
    events: int
    known: int


def matches(pattern: str, path: str) -> bool:
    """Matches a glob against the log's path, with or without its rotation suffix; empty matches all."""
    compiled = compile_patterns((pattern or "**/*",))
    return any(compiled.match(name) for name in (path, log_name(path)))


# -- reading ---------------------------------------------------------------------------------------------------------
def requests(db: sqlite3.Connection) -> list[Request]:
    """Returns all requests, in order. Raises sqlite3.Error."""
    rows = db.execute("SELECT id, from_ns, to_ns, pattern, asked_ns, status, ended_ns FROM replays ORDER BY id")
    return [
        Request(number, from_ns, to_ns, pattern, asked_ns, Step(step), ended_ns)
        for number, from_ns, to_ns, pattern, asked_ns, step, ended_ns in rows.fetchall()
    ]


def current(db: sqlite3.Connection) -> Request | None:
    return next((each for each in requests(db) if each.step in (Step.ASKED, Step.RUNNING)), None)


def parts(db: sqlite3.Connection, number: int) -> list[Part]:
    rows = db.execute(
        "SELECT identity, path, begin, at, stop, status, events, known FROM replay_logs WHERE replay = ? "
        "ORDER BY path, identity",
        (number,),
    )
    return [
        Part(identity, path, begin, at, stop, Step(step), events, known)
        for identity, path, begin, at, stop, step, events, known in rows.fetchall()
    ]


# -- changing --------------------------------------------------------------------------------------------------------
def add(db: sqlite3.Connection, number: int, from_ns: int, to_ns: int, pattern: str, now_ns: int) -> None:
    """Adds a request within the caller's transaction."""
    db.execute(
        "DELETE FROM replays WHERE status >= ?1 AND id NOT IN "
        "(SELECT id FROM replays WHERE status >= ?1 ORDER BY id DESC LIMIT ?2)",
        (Step.DONE, KEPT_MAX),
    )
    db.execute("DELETE FROM replay_logs WHERE replay NOT IN (SELECT id FROM replays)")
    values = (number, from_ns, to_ns, pattern, now_ns, Step.ASKED)
    db.execute("INSERT INTO replays VALUES (?, ?, ?, ?, ?, ?, 0)", values)


def plan(request: Request, chunks: Iterable[Chunk], paths: dict[str, str]) -> list[Part]:
    """Returns one part for each log that matches and may hold events of the range. ``paths``: identity -> path."""
    found: dict[str, Part] = {}
    for chunk in chunks:
        path = paths[chunk.identity]
        known = found.get(chunk.identity)
        if known is not None:
            found[chunk.identity] = Part(chunk.identity, path, known.begin, known.begin, chunk.end, Step.ASKED, 0, 0)
        elif matches(request.pattern, path):
            found[chunk.identity] = Part(chunk.identity, path, chunk.begin, chunk.begin, chunk.end, Step.ASKED, 0, 0)
    return sorted(found.values(), key=lambda part: (part.path, part.identity))


def planned(number: int, some: Iterable[Part]) -> list[Statement]:
    """Returns statements that start a request with these parts, unless it has been cancelled meanwhile."""
    insert = "INSERT OR REPLACE INTO replay_logs VALUES (?, ?, ?, ?, ?, ?, ?, 0, 0)"
    rows: list[Statement] = [
        (insert, (number, part.identity, part.path, part.begin, part.at, part.stop, Step.RUNNING)) for part in some
    ]
    return [*rows, ("UPDATE replays SET status = ? WHERE id = ? AND status = ?", (Step.RUNNING, number, Step.ASKED))]


def moved(number: int, part: Part, at: int, events: int, known: int, step: Step) -> Statement:
    update = "UPDATE replay_logs SET at = ?, status = ?, events = events + ?, known = known + ? "
    return (f"{update}WHERE replay = ? AND identity = ?", (at, step, events, known, number, part.identity))


def unread(number: int, part: Part) -> Statement:
    values = (Step.UNREAD, number, part.identity)
    return ("UPDATE replay_logs SET status = ? WHERE replay = ? AND identity = ?", values)


def ended(number: int, now_ns: int) -> Statement:
    values = (Step.DONE, now_ns, number, Step.RUNNING)
    return ("UPDATE replays SET status = ?, ended_ns = ? WHERE id = ? AND status = ?", values)


@dataclass(frozen=True, slots=True)
class Preview:
    """The part of one log that a replay would read. ``there``: True if a file of it exists."""

    path: str
    bytes: int
    there: bool


def preview(
    state: Path, from_ns: int, to_ns: int, pattern: str, find: Callable[[], Mapping[str, LogFound]]
) -> list[Preview]:
    """Returns the parts of logs that a replay would read; changes nothing.

    ``find``: returns the existing logs. Raises StateError, OSError.
    """
    with opened(state) as db:
        positions = read_up_to(db)
        chunks = chunks_between(db, positions, from_ns, to_ns)
    asked = Request(0, from_ns, to_ns, pattern, 0, Step.ASKED, 0)
    concerned = plan(asked, chunks, {position.identity: position.path for position in positions})
    size: dict[str, int] = {}
    for chunk in chunks:
        size[chunk.identity] = size.get(chunk.identity, 0) + chunk.end - chunk.begin
    found = find() if concerned else {}
    previews = []
    for part in concerned:
        may = holding(found, part.identity)
        known = part.identity in found or len(may) == 1
        previews.append(Preview(may[0].file.path if known else part.path, size[part.identity], bool(may)))
    return previews


def ask(state: Path, from_ns: int, to_ns: int, pattern: str, now_ns: int) -> int:
    """Requests a replay from all dispatchers, and returns its number. Raises StateError."""
    with ExitStack() as stack:
        files = _there(state)
        each = [stack.enter_context(opened_file(file, "rw")) for file in files]
        for file, db in zip(files, each, strict=True):
            stack.enter_context(Transaction(db, file))
        waiting = max(
            db.execute("SELECT count(*) FROM replays WHERE status < ?", (Step.DONE,)).fetchone() for db in each
        )
        if waiting >= (WAITING_MAX,):
            raise StateError(str(state), f"{WAITING_MAX} replays are waiting already", "let them end, or cancel some")
        newest = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'replays'"
        number: int = 1 + max(db.execute(newest).fetchone() for db in each)[0]
        for db in each:
            add(db, number, from_ns, to_ns, pattern, now_ns)
    return number


def cancel(state: Path, number: int, now_ns: int) -> bool:
    """Cancels a request. Returns True if it existed and was not done. Raises StateError."""
    values = (Step.CANCELLED, now_ns, number, Step.DONE)
    update = "UPDATE replays SET status = ?, ended_ns = ? WHERE id = ? AND status < ?"
    found = False
    for file in _there(state):
        with opened_file(file, "rw") as db, Transaction(db, file):
            found = bool(db.execute(update, values).rowcount) or found
    return found


def progress(state: Path) -> list[Progress]:
    """Returns the progress of all requests, including finished ones. Raises StateError."""
    found: dict[int, list[tuple[Request, list[Part]]]] = {}
    for file in _there(state):
        with opened_file(file) as db:
            for each in requests(db):
                found.setdefault(each.number, []).append((each, parts(db, each.number)))
    return [_united(found[number]) for number in sorted(found)]


def _there(state: Path) -> list[Path]:
    return [file for file in files_of(state) if file.exists()] or [state]


def _united(found: Sequence[tuple[Request, Sequence[Part]]]) -> Progress:
    """Combines several dispatchers' progress on one request: it is done when all are."""
    steps = {request.step for request, _ in found}
    step = next(iter(steps)) if len(steps) == 1 else Step.CANCELLED if Step.CANCELLED in steps else Step.RUNNING
    request = replace(found[0][0], step=step, ended_ns=max(each.ended_ns for each, _ in found))
    own = sorted((part for _, some in found for part in some), key=lambda part: (part.path, part.identity))
    return Progress(request, own, sum(part.events for part in own), sum(part.known for part in own))
