"""What a dispatcher has of an event: in memory, in its retry store, and how far it has read each log."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from photon.config.clock import NEVER_NS
from photon.config.errors import PhotonError
from photon.dispatcher.database import BUSY_S, check_marks
from photon.dispatcher.open_events import OpenEvent
from photon.dispatcher.retry import SETTLED_NS
from photon.fleet.explain.budget import Budget
from photon.fleet.explain.evidence import FOUND_MAX, Evidence, Searched, Waiting
from photon.fleet.explain.question import Question
from photon.joiner.api import Outcome

if TYPE_CHECKING:
    from photon.dispatcher.core import Core

from photon.assembly.id_rules import adapter_of
from photon.config.settings import Settings
from photon.dispatcher.database import STATE_NAME
from photon.fleet.explain.logs import ForeignLogs

STEPS_BETWEEN_LOOKS = 20_000
"""Of SQLite's machine, between two looks at the clock."""
_REASONS = {
    Outcome.RETRY: "no verdict came: a joiner, its event store or the registry did not answer, or was overloaded",
    Outcome.NOT_YET: "its primary event was not there yet",
    Outcome.TOO_NEW: "its event time lies in the future",
}
STORED = "retry store"
MEMORY = "memory"


def in_memory(core: Core, question: Question, worker: str) -> Evidence:
    """Of a running dispatcher, on its event loop."""
    found = []
    for held in core.find(question.event_id, -1 if question.place is None else question.place.offset):
        event = held.event
        if question.means(event.event_id, event.file.path, event.offset):
            found.append(_of_held(held, worker))
            if len(found) >= FOUND_MAX:
                break
    return Evidence(waiting=found, searched=[Searched(what="events in the dispatcher's memory")])


def _of_held(held: OpenEvent, worker: str) -> Waiting:
    event = held.event
    if held.settled:
        state = "waits for the next run"
    elif held.left:
        state = "is left to its home datacentre for a moment"
    elif held.waits:
        state = "waits for its next try"
    else:
        state = "is on its way to a joiner"
    return Waiting(
        where=MEMORY,
        state=state,
        event_id=event.event_id,
        key=event.key,
        event_time_ns=event.event_time_ns,
        source_file=event.file.path,
        source_offset=event.offset,
        first_read_ns=held.first_read_ns,
        attempts=held.attempts,
        next_try_ns=held.next_try_ns if held.waits and 0 < held.next_try_ns < SETTLED_NS else None,
        last="" if held.last is None else _REASONS.get(held.last, ""),
        worker=worker,
    )


def in_retry_store(path: Path, question: Question, budget: Budget) -> Evidence:
    """Of the state at ``path``, also of one in use. Its rows have no index by id: all of them are looked at."""
    what = "the dispatcher's retry store"
    if not path.exists():
        return Evidence(searched=[Searched(what=what, why=f"{path}: there is none")])
    try:
        db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None, timeout=BUSY_S)
        try:
            db.set_progress_handler(lambda: int(budget.over), STEPS_BETWEEN_LOOKS)
            check_marks(db, path)
            found = list(_rows(db, question))
            (rows,) = db.execute("SELECT coalesce(max(value), 0) FROM meta WHERE name = 'retry_rows'").fetchone()
        finally:
            db.close()
    except sqlite3.Error as error:
        why = budget.why if budget.over else f"{path}: {error}"
        return Evidence(searched=[Searched(what=what, why=why)])
    except PhotonError as error:
        return Evidence(searched=[Searched(what=what, why=str(error))])
    return Evidence(waiting=found, searched=[Searched(what=f"{what} ({rows} rows)")])


def _rows(db: sqlite3.Connection, question: Question) -> Iterator[Waiting]:
    by_place, arguments = "", [question.event_id]
    if question.place is not None:
        by_place = " OR (retries.offset = ? AND files.path = ?)"
        arguments += [question.place.offset, question.place.file]  # type: ignore[list-item]
    sql = (
        "SELECT retries.id, event_id, key, event_time_ns, files.path, retries.offset, first_read_ns, attempts, "
        "next_try_ns, trigger_ns, coalesce(workers.name, '') FROM retries JOIN files ON files.id = retries.file "
        f"LEFT JOIN workers ON workers.incarnation = retries.owner WHERE event_id = ?{by_place} LIMIT ?"
    )
    for row in db.execute(sql, (*arguments, FOUND_MAX)):
        row_id, event_id, key, time_ns, file, offset, first_read_ns, attempts, next_ns, trigger_ns, worker = row
        settled = next_ns >= SETTLED_NS and trigger_ns >= SETTLED_NS
        yield Waiting(
            where=STORED,
            state="waits for the next run" if settled else "waits for its next try",
            event_id=bytes(event_id),
            key=bytes(key),
            event_time_ns=time_ns,
            source_file=file,
            source_offset=offset,
            first_read_ns=first_read_ns,
            attempts=attempts,
            next_try_ns=next_ns if next_ns < NEVER_NS - 1 else None,
            last=_last(attempts, trigger_ns, settled=settled),
            worker=worker,
            row=row_id,
        )


def _last(attempts: int, trigger_ns: int, *, settled: bool) -> str:
    """What the row tells of its last try: only a missing primary has it wait for a point of the primary logs."""
    if not attempts:
        return ""
    if trigger_ns < SETTLED_NS or settled:
        return _REASONS[Outcome.NOT_YET]
    return _REASONS[Outcome.RETRY]


def read_places(path: Path) -> dict[str, int] | None:
    """How far each log of the state is dealt with, by identity; None: there is no state that can be read."""
    if not path.exists():
        return None
    try:
        db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None, timeout=BUSY_S)
        try:
            check_marks(db, path)
            return dict(db.execute("SELECT identity, offset FROM logs").fetchall())
        finally:
            db.close()
    except (sqlite3.Error, PhotonError):
        return None


def foreign_logs(settings: Settings, base: Path, join: str, directory: Path, state: Path) -> ForeignLogs:
    """``state``: the pipeline's state directory. Raises UsageError: the join's adapter cannot be loaded."""
    configured = settings.join[join]
    return ForeignLogs(
        directory,
        configured.foreign_files,
        adapter_of(settings, join, base),
        settings.limits.record,
        lambda: read_places(state / STATE_NAME),
    )
