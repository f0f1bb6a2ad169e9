"""Reads the foreign records of a part from the logs, and from files of waiting events."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec
import numpy as np

from photon.adapters.contract import Adapter, LogFile
from photon.adapters.logs.reader import Source
from photon.adapters.logs.slices import LogUnreadable, Reading, Slice, StandingLog, open_log, read_slice
from photon.batch.columns import I64, Mask
from photon.batch.events import Events
from photon.config.versioned_file import decoded
from photon.idregistry.api import Digester
from photon.joiner.foreign_columns import Unreadable, events_of, records_of
from photon.spark.pipeline import waiting
from photon.spark.pipeline.journal import Journal, JournalDamaged, LogAt, Part, Plan, Reached, Reread, Rest, Stretch
from photon.spark.pipeline.listing import holds, proof_at
from photon.spark.pipeline.rereading import asked_for

EVENTS_NONE = Events.of([])


class Rejected(NamedTuple):
    """A record without id, key or time."""

    file: LogFile
    record: Unreadable


@dataclass(slots=True)
class PartRead:
    """The content of a part. ``events``: the events of the stretches, then waiting ones, in the order of the plan."""

    events: Events = EVENTS_NONE
    first_read_ns: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    fresh: int = 0  # events of the stretches
    known: int = 0  # events that were left out, as they have a verdict
    # Events whose ``first_read_ns`` differs from their file's, as the clock was ahead when they were read.
    corrected: Mask = field(default_factory=lambda: np.empty(0, np.bool_))
    rejected: list[Rejected] = field(default_factory=list)
    reached: list[Reached] = field(default_factory=list)


class ReadsPart(Protocol):
    def __call__(self, plan: Plan, part: Part) -> PartRead:
        """Reads the events of a part. Raises LogUnreadable, JournalDamaged, OSError."""
        ...


@dataclass(frozen=True, slots=True)
class LogReader:
    """Reads parts with the follower's own functions."""

    directory: Path
    reading: Reading
    adapter: Adapter
    digester: Digester
    journal: Journal
    # Returns where a log is now, by its identity; ``None`` if it is where planned.
    paths: Callable[[str], str | None] = lambda identity: None
    now_ns: Callable[[], int] = lambda: 0
    slack_ns: int = 0  # an event is first read at most this long after it is tried (``dispatcher.two_clocks``)

    def __call__(self, plan: Plan, part: Part) -> PartRead:
        read = PartRead()
        wanted = self.journal.reread(plan.reread) if plan.reread else None
        some: list[Events] = []
        first: list[I64] = []
        for stretch in part.stretches:
            before = sum(map(len, some))
            try:
                read.reached.append(self._stretch(stretch, wanted, some, read.rejected))
            except LogUnreadable:
                if wanted is None:
                    raise
                read.reached.append(_unread(stretch))  # reported when the order ends
            # One that is read as a whole may have grown since it was planned, if the batch is repeated.
            first_ns = plan.first_read_ns if stretch.log.splittable else max(plan.first_read_ns, self.now_ns())
            first.append(np.full(sum(map(len, some)) - before, first_ns, np.int64))
        read.fresh = sum(map(len, some))
        for rest in part.waiting:
            events, at = read_rest(self.journal, rest)
            some.append(events)
            first.append(at)
        read_at = np.concatenate([np.empty(0, np.int64), *first])
        latest_ns = plan.first_read_ns + self.slack_ns
        read.corrected = (read_at > latest_ns) & (np.arange(len(read_at)) >= read.fresh)
        read.events, read.first_read_ns = Events.concat(some), np.where(read.corrected, latest_ns, read_at)
        return read

    def _stretch(
        self, stretch: Stretch, wanted: Reread | None, some: list[Events], rejected: list[Rejected]
    ) -> Reached:
        log, path = stretch.log, self.paths(stretch.log.identity) or stretch.log.path
        nothing = _unread(stretch)
        try:
            source = open_log(self.directory, path, self.reading, stretch.begin)
        except LogUnreadable as unreadable:
            if isinstance(unreadable.__cause__, FileNotFoundError):
                return nothing  # renamed or gone: the next batch looks for it
            raise
        with closing(source):
            if not holds(source, log, self.directory, path, self.reading):
                return nothing  # renamed, and another log has its name now
            found: list[Events] = []
            bad: list[Rejected] = []
            offset, header, whole = self._read(stretch, path, source, found, bad)
            some += found if wanted is None else [asked_for(wanted, each) for each in found]
            rejected += bad if wanted is None else ()  # reported when first read
            proof = proof_at(source, msgspec.structs.replace(log, offset=offset))
        return Reached(log.identity, offset, header, whole and stretch.end is None, proof)

    def _read(
        self, stretch: Stretch, path: str, source: Source, some: list[Events], rejected: list[Rejected]
    ) -> tuple[int, bytes, bool]:
        """Returns the offset reached, the header in force there, and True if that is the stretch's end."""
        log, size = stretch.log, 0
        offset, header = stretch.begin, log.header
        # Bytes newer than the plan wait for the next one, when their events' patience begins.
        end = log.size if stretch.end is None and log.splittable else stretch.end
        for block in read_slice(
            self.directory, Slice(_standing(log, path), stretch.begin, end), self.reading, source
        ):
            records, offsets = records_of(block)
            read = events_of(block, records, offsets, self.adapter, self.digester)
            some.append(read.events)
            rejected += [Rejected(block.file, each) for each in read.unreadable]
            for long in block.oversized:
                why = f"the record is {long.length} bytes long, more than the limit; it begins as shown"
                rejected.append(Rejected(block.file, Unreadable(long.offset, long.head, why)))
            offset, header = max(offset, block.end), block.file.header
            size += len(block.data)
            if size >= stretch.bytes_max:
                return offset, header, False
        if stretch.end is None:
            return offset, header, True
        if stretch.end - offset > self.reading.max_record + 1:
            why = f"ends before byte {stretch.end}, which existed when the batch was planned"
            raise LogUnreadable(self.directory / path, offset, why)
        return max(offset, stretch.end), header, True


def _unread(stretch: Stretch) -> Reached:
    return Reached(stretch.log.identity, stretch.begin, stretch.log.header, ended=False, proof=stretch.log.proof)


def _standing(log: LogAt, path: str) -> StandingLog:
    return StandingLog(path, log.identity, log.header, log.data_start, log.size, log.mtime_ns, log.splittable)


def read_waiting(journal: Journal, name: str) -> waiting.WaitingFile:
    """Reads a file of waiting events. Raises JournalDamaged, OSError."""
    path = journal.waiting_path(name)
    try:
        return decoded(journal.disk.read(path), waiting.WaitingFile, msgspec.msgpack.decode)
    except (msgspec.MsgspecError, FileNotFoundError) as bad:
        raise JournalDamaged(f"{path}: unreadable ({bad}), and has undecided events; restore it") from None


def read_rest(journal: Journal, rest: Rest) -> tuple[Events, I64]:
    """Returns the events, and when each was first read. Raises JournalDamaged, OSError."""
    file = read_waiting(journal, rest.file)
    rows = np.array(rest.rows, np.intp)
    return waiting.events_of(file).take(rows), waiting.first_read_of(file)[rows]
