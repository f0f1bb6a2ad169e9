"""The join on Spark with one rule removed each: the simulator must notice. None of this is in the production code.

Not noticed, as another rule covers it:

- a driver that does not introduce its incarnation to the shards, or does not ask the registry whether it is the
  newest: attempts of an older driver repeat the decisions that stand, and the slot's state file stops that driver;
- a batch shown before its commit, a commit and a result that replace others: all results are durable before, equal
  until ids are cleared, which happens after they are shown, and commits follow from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from photon.adapters.logs.slices import StandingLog
from photon.batch.columns import RowIndexes
from photon.batch.events import Events
from photon.config.versioned_file import read_present
from photon.dispatcher.undecided import Counts
from photon.joiner.rows import Rows
from photon.spark.pipeline import driver, part, planner, reading, rereading
from photon.spark.pipeline.claim import Claim, claimed
from photon.spark.pipeline.deciding import Decider, Verdicts
from photon.spark.pipeline.driver import Batch, DoesParts, Driver
from photon.spark.pipeline.given_up import Search
from photon.spark.pipeline.journal import (
    Commit,
    Decision,
    F,
    Journal,
    LogAt,
    Part,
    Plan,
    Reached,
    Reread,
    RereadAt,
    Result,
    Stretch,
)
from photon.spark.pipeline.listing import Listing
from photon.spark.pipeline.part import Done, Worker
from photon.spark.pipeline.reading import LogReader, PartRead
from photon.spark.pipeline.registering import BatchCore
from photon.spark.pipeline.rereading import asked_for
from photon.spark.pipeline.waiting import encode_waiting
from tests.simulation.spark_join import world
from tests.simulation.world.world import Variant


# -- parts ---------------------------------------------------------------------------------------------------------
class DecidesAgain(Journal):
    """Rule 1: each attempt decides from scratch."""

    def decision(self, batch: int, part: int) -> Decision | None:
        return None

    def put_decision(self, batch: int, part: int, decision: Decision) -> Decision:
        self.disk.replace(self.part_path(self.part_name(batch, part, "decided")), msgspec.json.encode(decision))
        return decision


class DecisionAfterInsert(Journal):
    """Rule 1: the decision becomes durable together with the result."""

    decided: Decision | None = None

    def put_decision(self, batch: int, part: int, decision: Decision) -> Decision:
        self.decided = decision
        return decision

    def put_result(self, batch: int, part: int, result: Result) -> Result:
        if self.decided is not None:
            super().put_decision(batch, part, self.decided)
        return super().put_result(batch, part, result)


class TwoDecisionFiles(Journal):
    """Rule 1: staged events and waiting ones are named by two files, which two attempts may have put."""

    def put_decision(self, batch: int, part: int, decision: Decision) -> Decision:
        counts = super().put_decision(batch, part, decision)
        return msgspec.structs.replace(counts, waiting=decision.waiting, left=decision.left)


class NamesNotDurable(Journal):
    """An attempt trusts a decision whose name may not outlast a power cut. Many are killed while they put theirs."""

    def put_decision(self, batch: int, part: int, decision: Decision) -> Decision:
        disk: Any = self.disk
        if disk._disk.random.random() < 0.15:
            disk.crash_after(disk._disk.random.randint(3, 6))
        return super().put_decision(batch, part, decision)

    def _read(self, path: Path, kind: type[F]) -> F | None:
        return read_present(self.disk, path, kind, ValueError) if self.disk.exists(path) else None


class NewToken(Worker):
    """Rule 1: an attempt registers under a token of its own incarnation."""

    async def _insert(self, rows: Rows, core: BatchCore) -> RowIndexes:
        rows.tokens.setflags(write=True)
        rows.tokens[:] = (rows.tokens & np.uint64((1 << 40) - 1)) | np.uint64(self.incarnation << 40)
        return await super()._insert(rows, core)


def never_asked(rows: Rows, own: Sequence[int], deadline: float, *, asked_before: bool) -> BatchCore:
    """Rule 2: each attempt takes itself for the first."""
    return BatchCore(rows, own, deadline)


class NoLateCheck(Worker):
    """Rule 3: an attempt does not look for the commit once it has put its decision."""

    def _read(self, plan: Plan, number: int) -> PartRead:
        super()._check_open(plan)
        return self.read(plan, plan.parts[number])

    def _check_open(self, plan: Plan) -> None:
        return None


class ClearsAtOnce(Worker):
    """Ids are cleared once they are won, before anybody is shown their lines."""

    async def _insert(self, rows: Rows, core: BatchCore) -> RowIndexes:
        registry: Any = self.registry
        winners = await super()._insert(rows, core)
        inserts = rows.inserts(winners)
        await registry.clear(inserts.digests, inserts.times, inserts.tokens, timeout=2.0)
        return winners


class ReadsPastPlan(LogReader):
    """An attempt reads bytes that came long after the plan, as of which patience begins."""

    def _stretch(self, stretch: Stretch, *given: Any) -> Reached:
        log = msgspec.structs.replace(stretch.log, size=1 << 40)
        return super()._stretch(msgspec.structs.replace(stretch, log=log), *given)


class SleepsFirst(Worker):
    """No error, but it makes one frequent: an attempt sleeps before it reads logs."""

    async def __call__(self, plan: Plan, number: int) -> Done:
        if plan.parts[number].stretches and plan.number % 2:
            await self.pause(12.0)
        return await super().__call__(plan, number)


class SleepsLast(Worker):
    """Likewise: an attempt sleeps before it puts its result."""

    async def _insert(self, rows: Rows, core: BatchCore) -> RowIndexes:
        winners = await super()._insert(rows, core)
        await self.pause(2.0)
        return winners


class FutureDropped(Decider):
    """Events newer than the plan's clock are counted, and do not wait."""

    async def __call__(self, plan: Plan, token: int, read: PartRead) -> Verdicts:
        found = await super().__call__(plan, token, read)
        now = read.events.times[found.waits] <= plan.at_ns
        return replace(found, waits=found.waits[now], again_ns=found.again_ns[now])


# -- the driver ----------------------------------------------------------------------------------------------------
class PlansAgain(Journal):
    """Each driver plans a batch without commit from scratch."""

    def plan(self, number: int) -> Plan | None:
        return super().plan(number) if self.is_committed(number) else None

    def put_plan(self, plan: Plan) -> Plan:
        self.disk.replace(self._numbered("plans", plan.number), msgspec.json.encode(plan))
        return plan


class TidiedFirst(Driver):
    """Staged rows are removed before readers see them."""

    async def _show(self) -> None:
        self._tidy(self.committed)
        await super()._show()


class DropsWaiting(Driver):
    """A driver that repeats a batch forgets its events that go on waiting."""

    async def step(self, do: DoesParts) -> Batch | None:
        async def forget(plan: Plan) -> list[Done]:
            done = await do(plan)
            if plan.incarnation == self.incarnation:
                return done
            return [Done(msgspec.structs.replace(each.decision, left=[]), each.result) for each in done]

        return await super().step(forget)


class NotShownAtStart(Driver):
    """A start does not show what its predecessor committed."""

    async def _show(self) -> None:
        if self.begun:
            await super()._show()

    begun = False

    async def step(self, *given: Any) -> Any:
        self.begun = True
        return await super().step(*given)


class StateNotRead(Driver):
    """A driver asks the registry before it shows, and not the slot's state file after that."""

    def _check_state(self) -> None:
        return None


class NotFenced(StateNotRead):
    """A driver shows although a newer one has the slot."""

    async def _check_newest(self) -> None:
        return None


class GoesOnFull(Driver):
    """A driver goes on although its output could not be written."""

    async def step(self, do: DoesParts) -> Batch | None:
        try:
            return await super().step(do)
        except OSError:
            return None


def nothing_unread(*given: Any) -> list[StandingLog]:
    """The watermark goes by the listing, though a batch has not read all of it."""
    return []


def waiting_forgotten(before: Claim | None, listing: Listing, behind: Any, waiting: object, at_ns: int) -> Claim:
    """The watermark does not look at events that wait."""
    return claimed(before, listing, behind, [], at_ns)


def oldest_counted(before: Claim | None, listing: Listing, behind: Any, waiting: Counts, at_ns: int) -> Claim:
    """The watermark counts only the first of the events that wait."""
    return claimed(before, listing, behind, [(step, 1) for step, _ in waiting[:1]], at_ns)


class ClaimsFirst(Driver):
    """A claim is made before what it counts as decided is shown."""

    async def _show(self) -> None:
        if self.listing.logs:
            self._look()
        await super()._show()


def advanced_by_plan(parts: Iterable[Part], reached: Iterable[Sequence[Reached]]) -> list[LogAt]:
    """The next batch begins at the size that was planned, wherever reading ended."""
    logs = planner.advanced(parts, reached)
    return [msgspec.structs.replace(log, offset=max(log.offset, log.size)) for log in logs]


class NothingWithheld(Driver):
    """Events are called unmatched while a process has an older file."""

    def __post_init__(self) -> None:
        super().__post_init__()
        asked = self.withholds
        self.withholds = lambda: asked() and ""


class FutureReading(LogReader):
    """A time of first reading that a wrong clock made stays as it is."""

    def __call__(self, plan: Plan, part: Part) -> PartRead:
        object.__setattr__(self, "slack_ns", 1 << 61)
        return super().__call__(plan, part)


class FinishesNewest(Driver):
    """The newest file of a kind becomes final too."""

    def _finish(self) -> None:
        self._log.newest = dict  # type: ignore[method-assign]
        super()._finish()


# -- rereads -------------------------------------------------------------------------------------------------------
def no_generations(wanted: Reread, events: Events) -> Events:
    """Ids that the registry gave up are registered like any others."""
    found = asked_for(wanted, events)
    return replace(found, generations=np.zeros(len(found), np.uint32))


def waits_without_generation(events: Events, *given: Any) -> bytes:
    """Likewise, once the event has waited."""
    return encode_waiting(replace(events, generations=np.zeros(len(events), np.uint32)), *given)


class OneLineOnly(Search):
    """Only the line counts that was registered before."""

    def next(self, *given: Any, **free: Any) -> Reread | None:
        wanted = super().next(*given, **free)
        return None if wanted is None else msgspec.structs.replace(wanted, any_line=False)


def done_at_once(at: RereadAt, number: int, *given: Any) -> RereadAt:
    """A reread ends with its first batch."""
    return RereadAt(number, "\U0010ffff")


class CountedAgain(Driver):
    """Events are counted each time they are read."""

    def _commit(self, plan: Plan, done: Sequence[Done]) -> Commit:
        commit, again = super()._commit(plan, done), sum(each.decision.counts.get("reread", 0) for each in done)
        counts = {**commit.counts, "events": commit.counts.get("events", 0) + again}
        return msgspec.structs.replace(commit, counts=counts)


@dataclass(frozen=True)
class Ablation:
    """``finds``: the violation's message."""

    variant: Variant
    finds: str


def _and(worker: type[Worker], variant: Variant) -> Variant:
    return replace(variant, patches=(*variant.patches, (world, "Worker", worker)))


def _with(name: str, instead: object, where: object = world, *faults: Any) -> Variant:
    """``faults``: in place of all others."""
    return Variant(patches=((where, name, instead),), faults=[(fault, 1) for fault in faults])


REOPENED = "are reopened"

ABLATIONS = {
    "each attempt decides": Ablation(_with("Journal", DecidesAgain), "lost|times"),
    "inserted before the decision is durable": Ablation(_with("Journal", DecisionAfterInsert), "lost|owned"),
    "waiting and staged events in two decisions": Ablation(_with("Journal", TwoDecisionFiles), "lost|ends"),
    "names of decisions may not be durable": Ablation(
        _and(SleepsLast, _with("Journal", NamesNotDurable, world, world.cut_power)), "lost"
    ),
    "registered under the token of the attempt": Ablation(_with("Worker", NewToken), "lost"),
    "as if never asked before": Ablation(_with("BatchCore", never_asked, part, world.wrong_clock), "lost"),
    "no look for the commit after the decision": Ablation(_with("Worker", NoLateCheck), "owned"),
    "cleared before the result": Ablation(_with("Worker", ClearsAtOnce), "lost"),
    "read past the plan": Ablation(
        _and(SleepsFirst, _with("LogReader", ReadsPastPlan, world, world.pause_one)), "wrong verdict"
    ),
    "events of the future are dropped": Ablation(_with("Decider", FutureDropped), "lost"),
    "each driver plans": Ablation(_with("Journal", PlansAgain, driver), "lost|times|failed|ends"),
    "tidied before shown": Ablation(_with("Driver", TidiedFirst), "files are gone"),
    "waiting events of a repeated batch are dropped": Ablation(_with("Driver", DropsWaiting), "lost"),
    "nothing shown at a start": Ablation(_with("Driver", NotShownAtStart, world, world.crash_one), "lost|owned"),
    "the state file is not read": Ablation(
        _with("Driver", StateNotRead, world, world.replace_driver), "times|changed|ends"
    ),
    "an older driver is not fenced": Ablation(_with("Driver", NotFenced), "times|changed|ends"),
    "unmatched under an older file": Ablation(_with("Driver", NothingWithheld), "older file"),
    "read in the future": Ablation(_with("LogReader", FutureReading, world, world.wrong_clock), "wait"),
    "a driver goes on with a full disk": Ablation(
        _with("Driver", GoesOnFull, world, world.full_disk), "times|changed|lost|ends|failed"
    ),
    "the newest file is final": Ablation(_with("Driver", FinishesNewest), "published|lost|ends|changed"),
    "reread: generation not carried": Ablation(_with("asked_for", no_generations, reading), REOPENED),
    "reread: generation not kept while it waits": Ablation(
        _with("encode_waiting", waits_without_generation, part), f"{REOPENED}|not idle|wait"
    ),
    "reread: one line only": Ablation(_with("Search", OneLineOnly), REOPENED),
    "reread: done with its first batch": Ablation(_with("moved", done_at_once, rereading), REOPENED),
    "reread: counted again": Ablation(_with("Driver", CountedAgain), "more are read"),
    "the watermark ignores what is unread": Ablation(_with("unread", nothing_unread, driver), "the watermark"),
    "the watermark ignores events that wait": Ablation(
        _with("claimed", waiting_forgotten, driver), "watermark passes"
    ),
    "the watermark counts one event that waits": Ablation(
        _with("claimed", oldest_counted, driver), "watermark counts fewer"
    ),
    "the watermark is claimed before lines are shown": Ablation(_with("Driver", ClaimsFirst), "watermark passes"),
    "positions by the plan": Ablation(_with("advanced", advanced_by_plan, driver), "lost|unreadable"),
}
