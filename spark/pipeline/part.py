"""Decides and registers one part of a batch, and records the result, which is the same in each attempt.

1. The first attempt's decision is final: registered and waiting events are in one file, never replaced. An attempt
   that finds it repeats it, under its token.
2. An earlier attempt may have registered rows, so each attempt inserts as if one had (``BatchCore``).
3. A committed batch may have been tidied, and then seems undecided. So an attempt that has stored its decision looks
   for the commit before it registers; otherwise it could own ids without records.
4. The result is never replaced either. It follows from the decision and the registry, so all attempts have the same.

The registry refuses an attempt whose incarnation is no longer the newest. Such an attempt ends without any effect.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import msgspec
import numpy as np

from photon.adapters.envelope import Envelope
from photon.batch.columns import I64, Mask, RowIndexes, split_digests
from photon.batch.ids import Ids
from photon.batch.verdicts import Verdicts
from photon.config.back_off import BackOff
from photon.config.clock import Clock
from photon.config.errors import PhotonError
from photon.dispatcher.events import LATE_REASON
from photon.idregistry.api import Answer, Kind
from photon.joiner.rows import Rows
from photon.joiner.slot.place import DIRECTORY_OF
from photon.spark.pipeline.deciding import Decides
from photon.spark.pipeline.journal import Decision, Journal, Part, Plan, Rest, Result
from photon.spark.pipeline.reading import PartRead, ReadsPart
from photon.spark.pipeline.registering import BatchCore, GiveUp, Insert
from photon.spark.pipeline.staging import read_staged, stage, winner_bits
from photon.spark.pipeline.waiting import encode_waiting

PATIENCE_S = 120.0  # how long an attempt retries the registry
INSERT_S = 10.0  # time limit of one request
PAUSES = BackOff(first=0.1, most=2.0)


class Fenced(PhotonError):
    """A newer driver has taken the slot, or the slot was retired."""


class RegistrySilent(PhotonError):
    """The registry does not answer. The batch is repeated later."""


class InsertsIds(Protocol):
    async def insert(self, inserts: Ids, *, timeout: float) -> Verdicts: ...
    async def look_up(self, digests: bytes, times: I64, *, timeout: float) -> Verdicts: ...


class Done(msgspec.Struct, frozen=True, array_like=True):
    decision: Decision
    result: Result


@dataclass(frozen=True, slots=True)
class Worker:
    """Processes parts one after the other, with one part in memory."""

    journal: Journal
    incarnation: int
    own_incarnations: list[int]
    registry: InsertsIds
    clock: Clock
    read: ReadsPart
    decide: Decides
    envelope: Envelope | None  # of rejected and late records; without it they are only counted
    pause: Callable[[float], Awaitable[None]]
    random_name: Callable[[], str]

    async def __call__(self, plan: Plan, number: int) -> Done:
        """Processes a part. Raises Fenced, RegistrySilent, EventStoreSilent, JournalDamaged, LogUnreadable,
        AdapterError, OSError."""
        journal, batch = self.journal, plan.number
        read: PartRead | None = None
        rows: Rows | None = None
        if (decision := journal.decision(batch, number)) is None:
            read = await self._unknown(self._read(plan, number)) if plan.reread else self._read(plan, number)
            decision, rows = await self._decide(plan, number, read)
        if (result := journal.result(batch, number)) is None:
            result = await self._register(plan, number, decision, read, rows)
        return Done(decision, result)

    def _read(self, plan: Plan, number: int) -> PartRead:
        self._check_open(plan)  # otherwise the plan's files may be gone
        return self.read(plan, plan.parts[number])

    def _check_open(self, plan: Plan) -> None:
        if self.journal.is_committed(plan.number):
            raise Fenced(f"batch {plan.number} is already committed; this attempt is too late")

    async def _unknown(self, read: PartRead) -> PartRead:
        """Drops events that already have a verdict, which would wait again if their primary record is gone by now."""
        events = read.events
        asked = np.flatnonzero(events.generations == 0)  # the others are known to have none
        if not len(asked):
            return read
        open_rows, deadline, pauses = (
            np.ones(len(events), np.bool_),
            self.clock.monotonic() + PATIENCE_S,
            PAUSES.pauses(),
        )
        while True:
            some = events.take(asked)
            codes = (await self.registry.look_up(some.digests, some.times, timeout=INSERT_S)).outcomes
            open_rows[asked] = ~np.isin(codes, (Answer.PRESENT, Answer.BELOW_BOUNDARY))
            if not len(asked := asked[codes == Answer.UNKNOWN]):
                break
            if self.clock.monotonic() >= deadline:
                raise RegistrySilent(f"the registry has not answered about {len(asked)} ids")
            await self.pause(next(pauses))
        rows = np.flatnonzero(open_rows)
        return replace(
            read, events=events.take(rows), first_read_ns=read.first_read_ns[rows], corrected=read.corrected[rows],
            fresh=len(rows), known=len(events) - len(rows),
        )  # fmt: skip

    # -- deciding ----------------------------------------------------------------------------------------------
    async def _decide(self, plan: Plan, number: int, read: PartRead) -> tuple[Decision, Rows | None]:
        """Returns the valid decision, and its rows if this attempt made it."""
        journal, disk, part = self.journal, self.journal.disk, plan.parts[number]
        token = plan.token(number, self.incarnation)
        found = await self.decide(plan, token, read)
        own = journal.part_name(plan.number, number, self.random_name())
        begins = (found.waits < read.fresh) | read.corrected[found.waits]  # to wait
        counts = {
            "events": read.fresh,
            "unreadable": len(read.rejected),
            "repeats": found.repeats,
            "without_primary": found.without_primary,
        }
        if plan.reread:  # counted when first read; those waiting now are counted again
            counts = {"reread": read.known + read.fresh, "reread_known": read.known, "events": len(found.waits)}
        made = Decision(
            staged=f"{own}.staged" if len(found.rows) else "",
            rejected=f"{own}.rejected" if read.rejected and self.envelope is not None else "",
            waiting=f"{own}.events" if begins.any() else "",
            left=_left(part, read.fresh, found.waits[~begins]),
            reached=read.reached,
            counts={name: count for name, count in counts.items() if count},
        )
        written: list[Path] = []
        if made.staged:
            written.append(journal.part_path(made.staged))
            stage(disk, written[-1], found.rows, token)
        if made.rejected and self.envelope is not None:
            written.append(journal.part_path(made.rejected))
            disk.replace(written[-1], self._rejected(read, self.envelope))
        if made.waiting:
            written.append(journal.waiting_path(made.waiting))
            rows = found.waits[begins]
            disk.replace(
                written[-1],
                encode_waiting(read.events.take(rows), read.first_read_ns[rows], found.again_ns[begins]),
            )
        await self.pause(0.0)
        counts_now = journal.put_decision(plan.number, number, made)
        if counts_now != made:
            for path in written:
                journal.remove(path)
        self._check_open(plan)
        return counts_now, found.rows if counts_now == made else None

    def _rejected(self, read: PartRead, envelope: Envelope) -> bytes:
        at_ns = self.clock.now_ns()
        made = envelope.unreadable
        return b"".join(made(bad.record, file, bad.offset, bad.reason, at_ns=at_ns) for file, bad in read.rejected)

    # -- registering -------------------------------------------------------------------------------------------
    async def _register(
        self, plan: Plan, number: int, decision: Decision, read: PartRead | None, rows: Rows | None
    ) -> Result:
        journal = self.journal
        if not decision.staged:
            return journal.put_result(plan.number, number, Result())
        if rows is None:
            rows = read_staged(journal.disk, journal.part_path(decision.staged))
        core = BatchCore(rows, self.own_incarnations, self.clock.monotonic() + PATIENCE_S, asked_before=True)
        winners = await self._insert(rows, core)
        late = ""
        if core.late.any() and self.envelope is not None and not plan.reread:
            late = journal.part_name(plan.number, number, f"{self.random_name()}.late")
            lines = self._late(plan, number, rows, core.late, read, self.envelope)
            journal.disk.replace(journal.part_path(late), lines)
        counts = {"own": core.counts.own, "elsewhere": core.counts.elsewhere, "late": core.counts.below_boundary}
        counts |= _by_kind(rows, winners)
        if plan.reread:
            counts = {"reread_new": len(winners)}
        await self.pause(0.0)
        return journal.put_result(
            plan.number,
            number,
            Result(
                rows=len(rows),
                won=winner_bits(len(rows), winners),
                late=late,
                counts={name: count for name, count in counts.items() if count},
            ),
        )

    async def _insert(self, rows: Rows, core: BatchCore) -> RowIndexes:
        """Returns the rows that won. Raises Fenced, RegistrySilent."""
        await self.pause(0.0)
        step, wait, pauses = core.begin(), 0.0, PAUSES.pauses()
        while isinstance(step, Insert):
            await self.pause(wait)
            answers = await self.registry.insert(rows.inserts(step.index), timeout=INSERT_S)
            step = core.answered(answers, self.clock.monotonic())
            wait = next(pauses)
        if isinstance(step, GiveUp):
            raise (Fenced if step.fenced else RegistrySilent)(step.reason)
        if len(step.winners):
            await self.pause(0.0)
        return step.winners

    def _late(
        self, plan: Plan, number: int, rows: Rows, late: Mask, read: PartRead | None, envelope: Envelope
    ) -> bytes:
        """Returns the lines of late events; rereads their records if another attempt made the decision."""
        if read is None:
            read = self._read(plan, number)
        wanted = {digest for digest, is_late in zip(rows.digest_list(), late.tolist(), strict=True) if is_late}
        found: dict[bytes, int] = {}
        for at, digest in enumerate(split_digests(read.events.digests)):
            if digest in wanted:
                found.setdefault(digest, at)
        events = read.events.take(np.array(sorted(found.values()), np.intp))
        reasons = [LATE_REASON] * len(events)
        return b"".join(envelope.undone(events, reasons, token=None, at_ns=self.clock.now_ns()))


def _left(part: Part, fresh: int, waits: RowIndexes) -> list[Rest]:
    """Returns the part's waiting events that keep waiting."""
    left, begin = [], fresh
    for rest in part.waiting:
        end = begin + len(rest.rows)
        rows = waits[(waits >= begin) & (waits < end)] - begin
        if len(rows):
            left.append(Rest(rest.file, [rest.rows[row] for row in rows.tolist()]))
        begin = end
    return left


def _by_kind(rows: Rows, winners: RowIndexes) -> dict[str, int]:
    kinds, counts = np.unique(rows.kinds[winners], return_counts=True)
    return {DIRECTORY_OF[Kind(kind)]: count for kind, count in zip(kinds.tolist(), counts.tolist(), strict=True)}
