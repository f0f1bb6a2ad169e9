"""Decides the events of a part by asking the event store and the adapter. It registers nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from photon.batch.columns import I64, RowIndexes
from photon.batch.events import Events
from photon.batch.records import NO_RECORDS
from photon.config.back_off import BackOff
from photon.config.clock import NS_PER_S, Clock
from photon.config.errors import PhotonError
from photon.dispatcher.retry import Patience
from photon.eventstore.api import EventLookUps, LookUpCode
from photon.eventstore.tiered import NOTHING_READ_NS
from photon.joiner.api import Outcome
from photon.joiner.rows import Rows
from photon.joiner.verdicts import Judge, LineBuilder, LooksUp, rows_of, settle_mismatched, taken
from photon.spark.pipeline.journal import Plan
from photon.spark.pipeline.reading import PartRead
from photon.spark.pipeline.waiting import AGAIN_S, as_of

UNAVAILABLE_S = 60.0  # how long an attempt retries a silent event store
PAUSES = BackOff(first=0.1, most=2.0)


class EventStoreSilent(PhotonError):
    """The event store does not answer. The batch is repeated later."""


@dataclass(frozen=True, slots=True)
class Verdicts:
    """``waits``: rows of the events without a verdict, ascending; ``again_ns``: the next try of each, as in
    ``WaitingFile``."""

    rows: Rows
    waits: RowIndexes
    again_ns: I64
    repeats: int  # lines with the id of an earlier line of this part
    without_primary: int = 0  # events that neither wait nor get a verdict


class Decides(Protocol):
    async def __call__(self, plan: Plan, token: int, read: PartRead) -> Verdicts:
        """Decides the events of a part. Raises EventStoreSilent, AdapterError."""
        ...


@dataclass(frozen=True, slots=True)
class Decider:
    """Decides events by the answers of an event store."""

    store: LooksUp
    judge: Judge
    lines: LineBuilder
    patience: Patience
    clock: Clock
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def __call__(self, plan: Plan, token: int, read: PartRead) -> Verdicts:
        times = read.events.times
        asked = np.flatnonzero(times <= plan.at_ns)  # the registry does not accept future events
        wanted = as_of(self.patience, read.first_read_ns, times, plan.read_past_ns)
        events = replace(read.events, as_of=wanted)
        found = await self._look_up(taken(events, asked))
        if len(asked) < len(events):
            codes = np.full(len(events), LookUpCode.NOT_YET, np.uint8)
            codes[asked] = np.frombuffer(found.codes, np.uint8)
            ambiguous = {int(asked[row]): place for row, place in found.ambiguous.items()}
            found = EventLookUps(codes.tobytes(), found.found, ambiguous, found.counts)
        decided = self.judge.decide(events, found, frozenset())
        settle_mismatched(events, decided, plan.read_past_ns)
        if plan.read_past_ns == NOTHING_READ_NS:
            decided.withhold_unmatched()
        self.judge.inline(events, decided)
        at_ns = self.clock.now_ns()
        rows = rows_of(events, decided, self.lines(events, decided, token, at_ns), token)
        outcomes = np.frombuffer(decided.outcomes, np.uint8)
        waits = np.frombuffer(decided.kinds, np.uint8) == 0
        waits[list(decided.repeats)] = False
        left = np.flatnonzero(waits)
        again = np.where(outcomes[left] == Outcome.NOT_YET, 0, plan.at_ns + int(AGAIN_S * NS_PER_S))
        again = np.where(times[left] > plan.at_ns, times[left], again)
        return Verdicts(rows, left, again.astype(np.int64), len(decided.repeats))

    async def _look_up(self, events: Events) -> EventLookUps:
        if not len(events):
            return EventLookUps(b"", NO_RECORDS)
        deadline, pauses = self.clock.monotonic() + UNAVAILABLE_S, PAUSES.pauses()
        while not any((found := await self.judge.look_up(self.store, events)).codes):
            if self.clock.monotonic() >= deadline:
                raise EventStoreSilent("the event store does not answer: see photon status")
            await self.pause(next(pauses))
        return found
