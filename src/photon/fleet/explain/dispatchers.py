"""Searches a dispatcher, or the join on Spark, for an event: in memory, among waiting events, and in foreign logs,
whether already read or not."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from photon.adapters.contract import Adapter, LogFile
from photon.adapters.join_adapters import adapter_of
from photon.adapters.logs.api import Block
from photon.adapters.logs.framings import open_anywhere
from photon.adapters.logs.links import log_path
from photon.adapters.logs.log_finder import LogFinder, LogFound
from photon.adapters.logs.place_ids import CONTEXT_BYTES
from photon.adapters.logs.reader import Source
from photon.batch.events import ForeignEvent
from photon.config.clock import NEVER_NS, NS_PER_S
from photon.config.disk import RealDisk
from photon.config.errors import PhotonError
from photon.config.settings import Settings
from photon.dispatcher.database import STATE_NAME, opened, opened_file
from photon.dispatcher.open_events import OpenEvent
from photon.dispatcher.partitions import all_of, file_of, read_number, there
from photon.dispatcher.retry import SETTLED_NS
from photon.fleet.explain.evidence import FOUND_MAX, ON_SPARK, Evidence, InLog, Searched, Waiting
from photon.fleet.explain.question import CHUNK_BYTES, Budget, Question, own_offset
from photon.idregistry.api import Digester
from photon.joiner.api import Outcome
from photon.joiner.foreign_columns import events_of, records_of
from photon.spark.pipeline.journal import journal_of
from photon.spark.pipeline.standing import read_standing, waiting_in
from photon.spark.pipeline.waiting import WaitingFile, first_read_of
from photon.spark.pipeline.waiting import events_of as waiting_events

if TYPE_CHECKING:
    from photon.dispatcher.core import Core

FOUND_IN_LOGS_MAX = 4  # an id is in one log, perhaps twice
SLACK_NS = 3600 * NS_PER_S
_NO_DIGESTS = Digester(b"", "")  # no digests are needed here, so there is no key
STEPS_BETWEEN_LOOKS = 20_000  # steps of SQLite's virtual machine between two time checks
_REASONS = {
    Outcome.RETRY: "no verdict came: a joiner, its event store or the registry did not answer, or was overloaded",
    Outcome.NOT_YET: "its primary event was not there yet",
    Outcome.TOO_NEW: "its event time is in the future",
}
STORED = "retry store"
MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class ForeignLogs:
    """The foreign logs of one pipeline. ``read_places``: as the function ``read_places``."""

    directory: Path
    patterns: Sequence[str]
    adapter: Adapter
    max_record: int
    read_places: Callable[[], dict[str, int] | None]


def search_logs(logs: ForeignLogs, question: Question, budget: Budget) -> Evidence:
    """Searches the foreign logs for the event. Its evidence tells how far the log has been read."""
    adapter, time_ns = logs.adapter, question.time_ns
    what = f"foreign logs below {logs.directory}"
    try:
        finder = LogFinder(
            logs.directory,
            logs.patterns,
            has_header=adapter.foreign_has_header,
            framing=adapter.foreign_framing,
            links=adapter.foreign_links,
        )
        found = finder.find()
    except OSError as error:
        return Evidence(searched=[Searched(what=what, why=f"{logs.directory}: {error.strerror or error}")])
    read_to = logs.read_places() or {}
    hits: list[InLog] = []
    files, total, why = 0, 0, str(finder.unread[0]) if finder.unread else ""
    for identity, log in sorted(found.items(), key=lambda each: -each[1].file.mtime_ns):
        if budget.over:
            why = budget.why
            break
        if time_ns is not None and log.file.mtime_ns < time_ns - SLACK_NS:
            continue
        try:
            hits += _in_log(logs, identity, log, question, budget, read_to.get(identity))
        except OSError as error:
            why = f"{log.file.path}: {error.strerror or error}"
            continue
        files, total = files + 1, total + log.file.size
        if hits:
            break
    why = why or (budget.why if budget.over and not hits else "")
    return Evidence(
        in_logs=hits[:FOUND_IN_LOGS_MAX], searched=[Searched(what=what, files=files, bytes=total, why=why)]
    )


def _in_log(
    logs: ForeignLogs, identity: str, log: LogFound, question: Question, budget: Budget, read_to: int | None
) -> list[InLog]:
    hits: list[InLog] = []
    place = log_path(logs.directory, log.file.path, logs.adapter.foreign_links)
    source = open_anywhere(place, logs.adapter.foreign_framing, logs.max_record)
    try:
        for offset, line in _candidates(source, log, question, budget, logs.max_record):
            front = min(CONTEXT_BYTES, offset)
            file = LogFile(log.file.path, log.head.header)
            block = Block(identity, file, offset, line, offset + len(line), before=source.read(offset - front, front))
            hit = _read(logs.adapter, block, question, read_to)
            if hit is not None:
                hits.append(hit)
                if len(hits) >= FOUND_IN_LOGS_MAX:
                    break
    finally:
        source.close()
    return hits


def _candidates(
    source: Source, log: LogFound, question: Question, budget: Budget, max_record: int
) -> Iterator[tuple[int, bytes]]:
    """Yields (offset, line) of each line that may contain the event."""
    own = own_offset(question.event_id)
    offsets = [] if own is None else [own]
    if question.place is not None and log.file.path == question.place.file:
        offsets.append(question.place.offset)
    for offset in offsets:
        if offset < log.head.data_start or (offset > log.head.data_start and source.read(offset - 1, 1) != b"\n"):
            continue
        data = source.read(offset, max_record + 2)
        if data:
            yield offset, data[: data.find(b"\n") + 1] or data + b"\n"
    if not offsets:
        yield from _holding(source, log.head.data_start, log.file.path, question.event_id, budget, max_record)


def _holding(
    source: Source, at: int, name: str, wanted: bytes, budget: Budget, max_record: int
) -> Iterator[tuple[int, bytes]]:
    rest = b""
    while not budget.over:
        data = source.read(at + len(rest), CHUNK_BYTES)
        budget.spend(name, len(data))
        block = rest + data
        whole = block.rfind(b"\n") + 1 if data else len(block)
        if not whole and len(block) > max_record + CHUNK_BYTES:
            whole = len(block)  # too long for a record: skip it
        found = block.find(wanted, 0, whole)
        while found >= 0:
            begin = block.rfind(b"\n", 0, found) + 1
            end = block.find(b"\n", found) + 1 or whole
            yield at + begin, block[begin:end].removesuffix(b"\n") + b"\n"
            found = block.find(wanted, end, whole)
        if not data:
            return
        at, rest = at + whole, block[whole:]


def _read(adapter: Adapter, block: Block, question: Question, read_to: int | None) -> InLog | None:
    """Reads the event from a line. Returns `None` if the line belongs to another event."""
    file, offset = block.file, block.offset
    records, offsets = records_of(block)
    events, unreadable, _ = events_of(block, records, offsets, adapter, _NO_DIGESTS)
    for bad in unreadable:
        at_place = question.means(None, file.path, offset)
        if at_place or bad.record.find(question.event_id) >= 0:
            return InLog(file=file.path, offset=offset, read_to=read_to, reason=bad.reason)
    for event_id, key, time_ns in zip(events.ids, events.keys, events.times.tolist(), strict=True):
        if question.means(event_id, file.path, offset):
            return InLog(
                file=file.path, offset=offset, read_to=read_to, event_id=event_id, key=key, event_time_ns=time_ns
            )
    return None


def in_memory(core: Core, question: Question, partition: str) -> Evidence:
    """Searches a running dispatcher's memory. Call it on the dispatcher's event loop."""
    found = []
    for held in core.find(question.event_id, -1 if question.place is None else question.place.offset):
        event = held.event
        if question.means(event.event_id, event.file.path, event.offset):
            found.append(_of_held(held, partition))
            if len(found) >= FOUND_MAX:
                break
    return Evidence(waiting=found, searched=[Searched(what="events in the dispatcher's memory")])


def _of_held(held: OpenEvent, partition: str) -> Waiting:
    event = held.event
    if held.settled:
        state = "waits for the next run"
    elif held.left:
        state = "is left to its home datacentre for a while"
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
        partition=partition,
    )


def in_retry_store(path: Path, question: Question, budget: Budget) -> Evidence:
    """Searches the retry store in the state at ``path``, even while it is in use. Reads all rows, because there is no
    index by id."""
    what = "the dispatcher's retry store"
    found, rows = list[Waiting](), 0
    try:
        if not there(path):
            return Evidence(searched=[Searched(what=what, why=f"{path}: no such file")])
        for partition in all_of(read_number(path).dispatchers):
            if not (file := file_of(path, partition)).exists():
                continue
            with opened_file(file) as db:
                db.set_progress_handler(lambda: int(budget.over), STEPS_BETWEEN_LOOKS)
                found += _rows(db, question, partition.name)
                rows += db.execute("SELECT coalesce(max(value), 0) FROM meta WHERE name = 'retry_rows'").fetchone()[0]
    except PhotonError as error:
        return Evidence(searched=[Searched(what=what, why=budget.why if budget.over else str(error))])
    return Evidence(waiting=found, searched=[Searched(what=f"{what} ({rows} rows)")])


def _rows(db: sqlite3.Connection, question: Question, partition: str) -> Iterator[Waiting]:
    by_place, arguments = "", [question.event_id]
    if question.place is not None:
        by_place = " OR (retries.offset = ? AND files.path = ?)"
        arguments += [question.place.offset, question.place.file]  # type: ignore[list-item]
    sql = (
        "SELECT retries.id, event_id, key, event_time_ns, files.path, retries.offset, first_read_ns, attempts, "
        "next_try_ns, trigger_ns FROM retries JOIN files ON files.id = retries.file "
        f"WHERE event_id = ?{by_place} LIMIT ?"
    )
    for row in db.execute(sql, (*arguments, FOUND_MAX)):
        row_id, event_id, key, time_ns, file, offset, first_read_ns, attempts, next_ns, trigger_ns = row
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
            partition=partition,
            row=row_id,
        )


def in_waiting_files(directory: Path, question: Question, budget: Budget) -> Evidence:
    """Searches the waiting events of a join on Spark, even while it runs. ``directory``: directory of its journal."""

    def found_in(file: WaitingFile, rows: Sequence[int]) -> list[Waiting]:
        if budget.over:
            return []
        events, first_read = waiting_events(file), first_read_of(file)
        return [
            _of_event(event, int(first_read[row]))
            for row in rows
            if question.means((event := events.row(row)).event_id, event.file.path, event.offset)
        ]

    try:
        standing = read_standing(RealDisk(), directory, found_in)
    except (PhotonError, OSError) as error:
        return Evidence(searched=[Searched(what=ON_SPARK, why=str(error))])
    if standing is None:
        return Evidence(searched=[Searched(what=ON_SPARK, why=f"{directory}: has no commit")])
    commit, found = standing
    what, why = f"{ON_SPARK} ({waiting_in(commit)} events)", budget.why if budget.over else ""
    return Evidence(waiting=[one for some in found for one in some], searched=[Searched(what=what, why=why)])


def _of_event(event: ForeignEvent, first_read_ns: int) -> Waiting:
    return Waiting(
        where=ON_SPARK,
        state="waits for its next try",
        event_id=event.event_id,
        key=event.key,
        event_time_ns=event.event_time_ns,
        source_file=event.file.path,
        source_offset=event.offset,
        first_read_ns=first_read_ns,
        attempts=1,
        last=_REASONS[Outcome.NOT_YET],
    )


def places_on_spark(directory: Path) -> dict[str, int] | None:
    """Like ``read_places``, for a join on Spark. ``directory``: the directory of its journal."""
    try:
        standing = read_standing(RealDisk(), directory, lambda file, rows: None)
    except (PhotonError, OSError):
        return None
    return None if standing is None else {log.identity: log.offset for log in standing[0].logs}


def _last(attempts: int, trigger_ns: int, *, settled: bool) -> str:
    """Describes the result of a row's last try. A row waits for a point in the primary logs only if its primary event
    was missing."""
    if not attempts:
        return ""
    if trigger_ns < SETTLED_NS or settled:
        return _REASONS[Outcome.NOT_YET]
    return _REASONS[Outcome.RETRY]


def read_places(path: Path) -> dict[str, int] | None:
    """Returns for each log, by identity, how far it has been processed; `None` if the state cannot be read."""
    try:
        with opened(path) as db:
            return dict(db.execute("SELECT identity, offset FROM logs").fetchall())
    except PhotonError:
        return None


def foreign_logs(settings: Settings, base: Path, datacentre: str, directory: Path, state: Path) -> ForeignLogs:
    """Returns a datacentre's foreign logs. ``state``: the pipeline's state directory. Raises UsageError if the join's
    adapter cannot be loaded."""
    pipeline = settings.datacentre[datacentre]
    join = pipeline.join
    configured = settings.join[join]
    return ForeignLogs(
        directory,
        configured.foreign_files,
        adapter_of(settings, join, base),
        settings.limits.record,
        lambda: (
            places_on_spark(journal_of(state, pipeline.spark_slot(datacentre)))
            if pipeline.on_spark
            else read_places(state / STATE_NAME)
        ),
    )
