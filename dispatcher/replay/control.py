"""Asking for a replay from outside: of a dispatcher that runs, or of its state while it does not.

The database takes changes of several processes; the dispatcher's lock is not needed, for a request is a row that only
the dispatcher acts on.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from photon.adapters.contract import LINES, Framing
from photon.adapters.logs.log_finder import find_logs
from photon.dispatcher.database import SCHEMA_VERSION, Transaction, opened
from photon.dispatcher.errors import StateError
from photon.dispatcher.replay import requests as r
from photon.dispatcher.replay.coverage import chunks_between, read_up_to


@dataclass(frozen=True, slots=True)
class Preview:
    """What would be read again of one log. ``there``: whether a file holds it now."""

    path: str
    bytes: int
    there: bool


def preview(
    state: Path,
    logs: Path,
    patterns: Sequence[str],
    *,
    has_header: bool,
    from_ns: int,
    to_ns: int,
    pattern: str,
    framing: Framing = LINES,
) -> list[Preview]:
    """Changes nothing. Raises StateError, OSError."""
    with open_state(state) as db:
        positions = read_up_to(db)
        chunks = chunks_between(db, positions, from_ns, to_ns)
    asked = r.Request(0, from_ns, to_ns, pattern, 0, r.Step.ASKED, 0)
    parts = r.plan(asked, chunks, {position.identity: position.path for position in positions})
    size: dict[str, int] = {}
    for chunk in chunks:
        size[chunk.identity] = size.get(chunk.identity, 0) + chunk.end - chunk.begin
    found = find_logs(logs, patterns, has_header=has_header, framing=framing) if parts else {}
    return [
        Preview(
            found[part.identity].file.path if part.identity in found else part.path,
            size[part.identity],
            part.identity in found,
        )
        for part in parts
    ]


def ask(state: Path, from_ns: int, to_ns: int, pattern: str, now_ns: int) -> int:
    """The request's number. Raises StateError."""
    with open_state(state) as db:
        with Transaction(db, state):
            number = r.ask(db, from_ns, to_ns, pattern, now_ns)
        if number is None:
            raise StateError(str(state), f"{r.WAITING_MAX} replays wait already", "let them end, or cancel some")
        return number


def cancel(state: Path, number: int, now_ns: int) -> bool:
    """Whether it was there and not done. Raises StateError."""
    with open_state(state) as db, Transaction(db, state):
        return r.cancel(db, number, now_ns)


def progress(state: Path) -> list[r.Progress]:
    """Of all requests, those done too. Raises StateError."""
    with open_state(state) as db:
        return r.progress(db)


@contextmanager
def open_state(path: Path) -> Iterator[sqlite3.Connection]:
    """As ``opened``, to be changed."""
    with opened(path, "rw") as db:
        (version,) = db.execute("PRAGMA user_version").fetchone()
        if version != SCHEMA_VERSION:
            raise StateError(
                str(path), f"has format {version}, of an earlier Photon", "start this version's dispatcher on it"
            )
        yield db
