"""Searches foreign logs for an event's record: only where nothing else knows it, for logs are large.

A log is searched for the id's bytes; a line that holds them is read as the dispatcher reads it, so that an id that
only occurs in another record's text is not taken for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from photon.adapters.contract import Adapter, LogFile
from photon.adapters.logs.api import Block
from photon.adapters.logs.framings import open_anywhere
from photon.adapters.logs.log_finder import LogFound, find_logs
from photon.adapters.logs.reader import Source
from photon.config.clock import NS_PER_S
from photon.fleet.explain.budget import CHUNK_BYTES, Budget
from photon.fleet.explain.evidence import Evidence, InLog, Searched
from photon.fleet.explain.question import Question, own_place
from photon.idregistry.api import Digester
from photon.joiner.foreign_columns import events_of, records_of

FOUND_IN_LOGS_MAX = 4
"""An id stands in one log, perhaps twice."""
SLACK_NS = 3600 * NS_PER_S
_NO_DIGESTS = Digester(b"", "")
"""What is asked here needs none."""


@dataclass(frozen=True, slots=True)
class ForeignLogs:
    """Of one pipeline. ``read_places``: see ``dispatchers.read_places``."""

    directory: Path
    patterns: Sequence[str]
    adapter: Adapter
    max_record: int
    read_places: Callable[[], dict[str, int] | None]


def search_logs(logs: ForeignLogs, question: Question, budget: Budget, *, time_ns: int | None) -> Evidence:
    """The event's record, and whether its log was read that far. ``time_ns``: the event's, where it is known."""
    adapter = logs.adapter
    what = f"foreign logs below {logs.directory}"
    try:
        found = find_logs(
            logs.directory, logs.patterns, has_header=adapter.foreign_has_header, framing=adapter.foreign_framing
        )
    except OSError as error:
        return Evidence(searched=[Searched(what=what, why=f"{logs.directory}: {error.strerror or error}")])
    read_to = logs.read_places() or {}
    hits: list[InLog] = []
    files, total, why = 0, 0, ""
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
    source = open_anywhere(logs.directory / log.file.path, logs.adapter.foreign_framing, logs.max_record)
    try:
        for offset, line in _candidates(source, identity, log, question, budget, logs.max_record):
            hit = _read(logs.adapter, identity, log, offset, line, question, read_to)
            if hit is not None:
                hits.append(hit)
                if len(hits) >= FOUND_IN_LOGS_MAX:
                    break
    finally:
        source.close()
    return hits


def _candidates(
    source: Source, identity: str, log: LogFound, question: Question, budget: Budget, max_record: int
) -> Iterator[tuple[int, bytes]]:
    """(offset, line) of those that may be the event's."""
    own = own_place(question.event_id)
    offsets = [own[1]] if own is not None and own[0] == identity else []
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
    """Lines that hold these bytes."""
    rest = b""
    while not budget.over:
        data = source.read(at + len(rest), CHUNK_BYTES)
        budget.spend(name, len(data))
        block = rest + data
        whole = block.rfind(b"\n") + 1 if data else len(block)
        if not whole and len(block) > max_record + CHUNK_BYTES:
            whole = len(block)  # no record: nothing reads it
        found = block.find(wanted, 0, whole)
        while found >= 0:
            begin = block.rfind(b"\n", 0, found) + 1
            end = block.find(b"\n", found) + 1 or whole
            yield at + begin, block[begin:end].removesuffix(b"\n") + b"\n"
            found = block.find(wanted, end, whole)
        if not data:
            return
        at, rest = at + whole, block[whole:]


def _read(
    adapter: Adapter, identity: str, log: LogFound, offset: int, line: bytes, question: Question, read_to: int | None
) -> InLog | None:
    """None: another event's record."""
    file = LogFile(log.file.path, log.head.header)
    block = Block(identity, file, offset, line, offset + len(line))
    records, offsets = records_of(block)
    events, unreadable = events_of(block, records, offsets, adapter, _NO_DIGESTS)
    for bad in unreadable:
        at_place = question.means(None, file.path, offset)
        if at_place or bad.record.find(question.event_id) >= 0:
            return InLog(file=file.path, offset=offset, read_to=read_to, reason=bad.reason)
    for event_id, key, time_ns in zip(events.ids, events.keys, events.times.tolist(), strict=True):
        if question.means(event_id, file.path, offset):
            return InLog(
                file=file.path,
                offset=offset,
                read_to=read_to,
                event_id=event_id,
                key=key,
                event_time_ns=time_ns,
            )
    return None
