"""Decides the events in one part of a backfill. All primary logs are read first, so every verdict is final."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import TYPE_CHECKING

import numpy as np

from photon.batch.columns import I64, U32, split_digests
from photon.batch.events import Events
from photon.batch.files import LogFile
from photon.batch.ids import Ids
from photon.batch.records import NO_RECORDS, Records
from photon.batch.verdicts import Verdicts as Answers
from photon.config.clock import NEVER_NS, Clock
from photon.config.errors import PhotonError
from photon.eventstore.api import EventLookUps, LookUpCode
from photon.idregistry.api import Answer
from photon.joiner.api import WAIT_NS, Outcome
from photon.joiner.verdicts import HUNG_TIMES, Decided, Judge, LineBuilder, LooksUp, rows_of, settle_mismatched
from photon.spark.pipeline.deciding import Verdicts
from photon.spark.pipeline.journal import Part, Plan
from photon.spark.pipeline.part import InsertsIds
from photon.spark.pipeline.reading import PartRead, ReadsPart
from photon.spark.primary_sets import is_too_large
from photon.spark.sources import TimeRange

if TYPE_CHECKING:
    import pyarrow as pa


class BackfillFailed(PhotonError):
    """The run cannot continue; the same command resumes it."""


@dataclass(frozen=True, slots=True)
class RangeReader:
    """Reads logs, and drops events outside the time range."""

    read: ReadsPart
    window: TimeRange

    def __call__(self, plan: Plan, part: Part) -> PartRead:
        read = self.read(plan, part)
        inside = self.window.holds(read.events.times)
        if not inside.all():
            rows = np.flatnonzero(inside)
            read.events, read.first_read_ns, read.fresh = read.events.take(rows), read.first_read_ns[rows], len(rows)
        return read


class FoundPrimaries:
    """The primary records of a part's keys, with the look-ups of an event store."""

    def __init__(self, table: pa.Table | None) -> None:
        """``table``: each key once, or once per requested ``event_time_ns``, with its ``primaries``: structs of
        ``log``, ``offset``, ``header`` and ``record``, in file order; null if no record has the key. ``None`` means
        that no key was searched for."""
        self._rows: dict[tuple[bytes, int | None], int] = {}
        self._counts, self._records = np.zeros(0, np.int64), NO_RECORDS
        if table is None:
            return
        import pyarrow.compute as pc

        keys, times = (table.column(name).to_pylist() for name in ("key", "event_time_ns"))
        self._rows = {asked: row for row, asked in enumerate(zip(keys, times, strict=True))}
        lists = table.column("primaries").combine_chunks()

        structs = lists.flatten()
        files, index = _files(structs.field("log"), structs.field("header"))
        records = structs.field("record").to_pylist()
        self._records = Records(files, index, structs.field("offset").to_numpy(), records)
        self._counts = np.asarray(pc.fill_null(pc.list_value_length(lists), 0), np.int64)

    async def look_up(
        self, keys: Sequence[bytes], as_of: Sequence[int], times: Sequence[int] | None = None
    ) -> EventLookUps:
        """Looks up the keys. Raises BackfillFailed if a key was never searched for."""
        try:
            asked = zip(keys, repeat(None) if times is None else times, strict=False)
            rows = np.array([self._rows[each] for each in asked], np.intp)
        except KeyError:
            raise BackfillFailed(
                "a log has changed since its keys were searched; run the same command again"
            ) from None
        counts, ends = self._counts[rows], np.cumsum(self._counts)[rows]
        codes = np.where(counts > 0, np.uint8(LookUpCode.FOUND), np.uint8(LookUpCode.ABSENT))
        for row in np.flatnonzero(counts > 1).tolist():
            if is_too_large(self._records.records[ends[row] - counts[row] : ends[row]]):
                codes[row] = LookUpCode.TOO_MANY
        found = codes == LookUpCode.FOUND
        counts = counts[found]
        before = np.cumsum(counts) - counts
        index = np.arange(counts.sum()) + np.repeat(ends[found] - counts - before, counts)
        return EventLookUps(codes.tobytes(), self._records.take(index), {}, counts.astype(np.uint32))


def _files(logs: pa.Array, headers: pa.Array) -> tuple[list[LogFile], U32]:
    """Returns the distinct files, and each row's index into them."""
    made: dict[tuple[str, bytes | None], int] = {}
    rows = zip(logs.to_pylist(), headers.to_pylist(), strict=True)
    index = np.array([made.setdefault(each, len(made)) for each in rows], np.uint32)
    return [LogFile(log, header or b"") for log, header in made], index


@dataclass(frozen=True, slots=True)
class FinalDecider:
    """Decides at once: an event without a primary event is unmatched or gets no verdict, but never waits."""

    store: LooksUp
    judge: Judge
    whole_sets: bool
    lines: LineBuilder
    unmarked: LineBuilder  # lines without a token, of events before ``boundary_ns``
    boundary_ns: int
    unmatched: bool
    clock: Clock

    async def __call__(self, plan: Plan, token: int, read: PartRead) -> Verdicts:
        """Decides the events of a part. Raises BackfillFailed, AdapterError."""
        found = await self.judge.look_up(self.store, read.events)
        is_found = np.frombuffer(found.codes, np.uint8) != LookUpCode.ABSENT
        final = is_found if self.whole_sets else np.zeros(len(read.events), np.bool_)
        events = replace(read.events, as_of=np.where(final | self.unmatched, NEVER_NS, WAIT_NS))
        decided = self._decide(events, found)
        nothing = np.empty(0, np.intp)
        rows = rows_of(events, decided, self._lines(events, decided, token), token)
        without = decided.outcomes.count(Outcome.NOT_YET)
        return Verdicts(rows, nothing, nothing.astype(np.int64), len(decided.repeats), without)

    def _decide(self, events: Events, found: EventLookUps) -> Decided:
        for _ in range(HUNG_TIMES):
            decided = self.judge.decide(events, found, frozenset())
            settle_mismatched(events, decided, NEVER_NS)
            self.judge.inline(events, decided)
            undecided = (np.frombuffer(decided.kinds, np.uint8) == 0) & (
                np.frombuffer(decided.outcomes, np.uint8) != Outcome.NOT_YET
            )
            undecided[list(decided.repeats)] = False
            if not undecided.any():
                return decided
        row = int(np.flatnonzero(undecided)[0])
        why = decided.reasons.get(row, "no reason was given")
        raise BackfillFailed(f"{int(undecided.sum())} events cannot be decided ({why}); run the same command again")

    def _lines(self, events: Events, decided: Decided, token: int) -> list[bytes]:
        at_ns = self.clock.now_ns()
        below = events.times[decided.order()] < self.boundary_ns
        if not below.any():
            return self.lines(events, decided, token, at_ns)
        unmarked = self.unmarked(events, decided, token, at_ns)
        if below.all():
            return unmarked
        marked = self.lines(events, decided, token, at_ns)
        return [(unmarked if each else marked)[row] for row, each in enumerate(below.tolist())]


@dataclass(frozen=True, slots=True)
class ComparedIds:
    """Replaces the registry for ids older than its boundary, which can no longer be registered: an id that is in no
    output is free, any other is taken."""

    registry: InsertsIds
    boundary_ns: int
    free: frozenset[bytes]  # digests

    async def insert(self, inserts: Ids, *, timeout: float) -> Answers:
        is_free = np.array([digest in self.free for digest in split_digests(inserts.digests)], np.bool_)
        answers = Answers.plain(np.where(is_free, np.uint8(Answer.COMMITTED), np.uint8(Answer.TAKEN)))
        above = np.flatnonzero(inserts.times >= self.boundary_ns)
        if not len(above):
            return answers
        return answers.put([(above, await self.registry.insert(inserts.take(above), timeout=timeout))])

    async def look_up(self, digests: bytes, times: I64, *, timeout: float) -> Answers:
        return await self.registry.look_up(digests, times, timeout=timeout)
