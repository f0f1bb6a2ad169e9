"""One measure removed each: the world must notice. None of this is in the production code.

The ablations of the joiner's own protocol are in ``tests/simulation/joiner/ablations``; some are repeated here, as
they show over two datacentres, along with those that only the assembly shows.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from photon.batch.columns import I64, Mask, RowIndexes
from photon.batch.ids import Ids
from photon.batch.verdicts import Verdicts
from photon.config.interval_clock import Interval
from photon.dispatcher import core as dispatcher_core
from photon.dispatcher import engine as dispatcher_engine
from photon.dispatcher import exports as dispatcher_exports
from photon.dispatcher import progress as dispatcher_progress
from photon.dispatcher.committing import Committing
from photon.dispatcher.core import Core
from photon.dispatcher.counting import Counting
from photon.dispatcher.events import Batch, Stretch
from photon.dispatcher.open_events import NO_ROWS, NOTHING_STORED
from photon.dispatcher.replay import coverage
from photon.dispatcher.replay.coverage import Coverage, Span
from photon.dispatcher.replay.reopened import Id, Reopened
from photon.dispatcher.retry import Patience
from photon.dispatcher.retry_loader import RetryLoader
from photon.dispatcher.state import Changes
from photon.dispatcher.two_clocks import FirstRead
from photon.dispatcher.undecided import Undecided
from photon.eventstore.api import EventLookUps, LookUpCode, Progress
from photon.idregistry.api import DIGEST_BYTES, U8, Answer, Kind
from photon.idregistry.client.routing import RoutedRegistry
from photon.idregistry.core import clock_offsets
from photon.idregistry.core import commands as c
from photon.idregistry.core.clock_offsets import Offset
from photon.idregistry.core.shard_snapshot import NO_BOUNDARY
from photon.idregistry.core.state_machine import ShardMachine
from photon.idregistry.raft.api import Applied
from photon.idregistry.replica import shard_server
from photon.idregistry.replica.clocks import ClockWatch
from photon.joiner import engine as joiner_engine
from photon.joiner.api import ForeignEvent, JoinAnswers, Outcome
from photon.joiner.core import SlotCore
from photon.joiner.verdicts import Decided, Judge
from photon.outputs.log.writer import LogWriter
from photon.verifier.watermark import Sample, Watermarks
from tests.simulation.joiner import ablations as of_the_joiner
from tests.simulation.world import model_raft, site_faults
from tests.simulation.world import process as processes
from tests.simulation.world.loop import OWNER
from tests.simulation.world.retiring import lose_slot
from tests.simulation.world.state import SimulatedState
from tests.simulation.world.watermarks import Sampler
from tests.simulation.world.world import Variant, World


def _core(core: type[SlotCore]) -> Variant:
    tolerant = (joiner_engine, "SlotStore", of_the_joiner.Tolerant)
    return Variant(patches=((joiner_engine, "SlotCore", core), tolerant))


# -- the joiner ------------------------------------------------------------------------------------------------------
class HastyJudge(Judge):
    """Events that the event store has not read yet count as absent."""

    def decide(self, events: Any, found: EventLookUps, *under_way: Any) -> Decided:
        answers = found.codes.replace(bytes([LookUpCode.NOT_YET]), bytes([LookUpCode.ABSENT]))
        hasty = replace(events, as_of=np.zeros_like(events.as_of))
        return super().decide(hasty, replace(found, codes=answers), *under_way)


class UnmatchedUnregistered(RoutedRegistry):
    """An unmatched event is written without asking the registry."""

    async def insert(self, inserts: Ids, *, timeout: float) -> Verdicts:
        rows = np.flatnonzero(inserts.kinds != Kind.UNMATCHED)
        won = Verdicts.blank(len(inserts), Answer.COMMITTED)
        return won.put([(rows, await super().insert(inserts.take(rows), timeout=timeout))]) if len(rows) else won


# -- the dispatcher --------------------------------------------------------------------------------------------------
def by_the_store(progress: Progress, asked_ns: int) -> int:
    return progress.read_past_ns


class ByItsOwn(FirstRead):
    """The event store's clock is not asked."""

    def at_ns(self, now_ns: int, now: float) -> int:
        return now_ns


class RetryIsAVerdict(Core):
    """Events unknown to a joiner are taken for done."""

    def answered(self, batch: Batch, answers: JoinAnswers, now_ns: int, now: float) -> None:
        outcomes = answers.verdicts.outcomes
        outcomes[outcomes == Outcome.RETRY] = Outcome.JOINED
        super().answered(batch, answers, now_ns, now)


class OwnLinesAreDuplicates(Counting):
    """A line read again after a crash is not recognized."""

    def taken(self, rows: RowIndexes, owners: Verdicts, same_line: Mask) -> None:
        super().taken(rows, owners, np.zeros_like(same_line))


class WaitsInMemoryOnly(Committing):
    """The offset advances, and events without a verdict are not put into the retry store."""

    def changes(self, *args: Any, **kwargs: Any) -> Changes:
        found = super().changes(*args, **kwargs)
        found.stored = NOTHING_STORED
        return found


class OffsetBeforeRetries(SimulatedState):
    """Offsets and counts are committed in one transaction, the remaining events in the next."""

    def commit(self, changes: Changes) -> None:
        super().commit(Changes(positions=changes.positions))
        super().commit(replace(changes, positions={}))


class NotCutBack(LogWriter):
    """A start appends to the exported lines it finds."""

    def recover(self, kind: str, again: Any = None) -> bool:
        return True


def absent_is_a_verdict(core: Any, batch: Any, found: Any, *args: Any) -> Any:
    """A look-up's miss ends an event as a hit does."""
    if found is None:
        return _settle(core, batch, found, *args)
    datacentres = (*found.datacentres, "nowhere")
    missing = found.outcomes == Answer.ABSENT
    patched = replace(
        found,
        outcomes=np.where(missing, Answer.PRESENT, found.outcomes).astype(np.uint8),
        owner_kinds=np.where(missing, Kind.JOINED, found.owner_kinds).astype(np.uint8),
        owner_datacentres=np.where(missing, len(datacentres) - 1, found.owner_datacentres).astype(np.uint8),
        datacentres=datacentres,
    )
    return _settle(core, batch, patched, *args)


_settle = dispatcher_engine.settle


# -- reopened ids ----------------------------------------------------------------------------------------------------
def without_generation(self: Reopened, event: ForeignEvent, each: Id) -> ForeignEvent:
    """An event is dispatched again exactly as the first time."""
    return event


def listed_once(self: Reopened, each: Id, now: float) -> bool:
    """Ids seen on the list are noted durably before their verdict, and not looked for again."""
    process = OWNER.get()
    assert isinstance(process, processes.DispatcherProcess)
    seen = process.place.seen_on_list
    new = each.name not in seen
    seen.add(each.name)
    return new


def first_times_only(self: Coverage, db: sqlite3.Connection, spans: Iterable[Span]) -> None:
    """A chunk's times are those of its first read."""
    rows = [(s.identity, s.begin // coverage.CHUNK_BYTES, s.oldest_ns, s.newest_ns) for s in spans]
    db.executemany("INSERT OR IGNORE INTO covered VALUES (?, ?, ?, ?)", rows)


def nowhere_else(self: Reopened, each: Id) -> bool:
    """A reopened id is looked for only where its times point."""
    return False


def counted_anew(self: Stretch, verdicts: U8) -> U8:
    """The ledger counts the new verdict of an event in addition to the old one."""
    return verdicts


# -- the registry ----------------------------------------------------------------------------------------------------
class AnswersWithoutMajority(model_raft.ModelGroup):
    """A leader that nobody follows any more answers from its own copy."""

    def proposed(self, end: model_raft.GroupEnd, proposal: model_raft.Proposal) -> None:
        if self.fit(end.name):
            super().proposed(end, proposal)
        else:
            end.answer(proposal, Applied(end.machine.apply(end.applied, proposal.command)))


# -- clocks a day apart ------------------------------------------------------------------------------------------
def no_objection(self: ClockWatch) -> str:
    """The boundary follows the leader's clock, regardless of the others."""
    return ""


def by_its_own(now: Interval, middle: Offset, uncertainty_ns: int) -> int:
    """A leader's clock decides even if it is surely wrong."""
    return max(now.latest_ns, now.now_ns + uncertainty_ns)


def not_noticed(self: RetryLoader, now_ns: int) -> None:
    """Rows wait until the clock has reached its earlier time again."""


# -- retirement (rule 14) -----------------------------------------------------------------------------------------
def deleted(self: ShardMachine, command: c.Reopen) -> U8:
    """A given-up id counts as never owned: anyone may take it, and no list names it."""
    answers = _reopen(self, command)
    for row in np.flatnonzero(answers == Answer.REOPENED).tolist():
        digest = command.digests[row * DIGEST_BYTES : (row + 1) * DIGEST_BYTES]
        time = int(command.ids().times[row])
        entry = self._table.get(digest)
        assert entry is not None
        self._table.put(digest, time, replace(entry, generation=0))
    return answers


_reopen = ShardMachine._reopen


# -- watermarks ------------------------------------------------------------------------------------------------------
class AfterTheData(Sampler):
    """Reads the published data first."""

    steps = ("published", "dispatcher", "slots")


class SlotsFirst(Sampler):
    """Asks the slots before the dispatcher."""

    steps = ("slots", "dispatcher", "published")


class WaitingNotCounted(Sampler):
    """An event whose primary event is late holds nothing back."""

    def dispatcher(self) -> None:
        super().dispatcher()
        if self.asked is not None:
            self.asked = replace(self.asked, oldest_ns=self.asked.moving_ns)


def rows_only(self: Undecided, time_ns: int) -> int:
    """Counts only the retry store's rows as waiting."""
    return _before(replace(self, _memory=[]), time_ns)


_before = Undecided.before


def shown_or_not(self: Watermarks, sample: Sample, before_ns: int) -> int:
    """Does not count events that have a verdict but are not published yet."""
    return _waiting(self, replace(sample, slots=()), before_ns)


_waiting = Watermarks._waiting


def stored_and_held(self: Committing) -> tuple[I64, I64]:
    """An event that becomes a row while a joiner holds it counts both as a row and as held."""
    on_their_way, self._on_their_way = self._on_their_way, NO_ROWS
    found = _undecided(self)
    self._on_their_way = on_their_way
    return found


_undecided = Committing.undecided


@dataclass(frozen=True)
class Ablation:
    """A removed measure, and the violation the world must find then (a regular expression)."""

    variant: Variant
    finds: str
    shows: Callable[[World], bool] = lambda world: True  # only such schedules can show it
    apart: bool = False  # only schedules with clocks a day apart can


def final_when_read(self: Patience, first_read_ns: int, event_time_ns: int) -> int:
    """A set is final as soon as the primary logs have been read past the event's first read."""
    return first_read_ns


def _loses_slots(world: World) -> bool:
    """A slot is lost and retired."""
    return world.loses_slots


_CLOCKS = ((site_faults.wrong_clock, 1),)
_KILLS = ((site_faults.kill_datacentre, 1),)
_LOSSES = ((lose_slot, 1),)
_STOPS = ((site_faults.stop_one, 1),)
LOST = "lost"
TWICE = "twice"
LEDGER = "ledger"
RECOVERED = "registered and never written"  # recovery by token had work, though no disk lost anything
_DISPATCHER = dispatcher_engine
_SLOT_STORE = (joiner_engine, "SlotStore")
REOPENED = "are reopened"
WAITS = "not at rest"
BELOW_WATERMARK = "late: |waited: "
WAITING = "waiting of "
NO_VERDICT = "are said to have no verdict"
ABLATIONS: dict[str, Ablation] = {  # the joiner's own rules have theirs in tests/simulation/joiner
    "joiner: unknown taken for committed": Ablation(_core(of_the_joiner.UnknownIs), TWICE),
    "joiner: no redo": Ablation(Variant(patches=((*_SLOT_STORE, of_the_joiner.NoRedo),)), f"{LOST}|{RECOVERED}"),
    "joiner: output not looked into": Ablation(Variant(patches=((*_SLOT_STORE, of_the_joiner.NotLookedUp),)), TWICE),
    "joiner: unmatched not registered": Ablation(
        Variant(patches=((processes, "RoutedRegistry", UnmatchedUnregistered),)), TWICE
    ),
    "joiner: not yet taken for absent": Ablation(
        Variant(patches=((joiner_engine, "Judge", HastyJudge),)), "wrong verdict"
    ),
    "dispatcher: the store's clock ends patience": Ablation(
        Variant(patches=((dispatcher_progress, "passed_by_both", by_the_store),), faults=_CLOCKS), "wrong verdict"
    ),
    "dispatcher: patience begins by its own clock": Ablation(
        Variant(patches=((dispatcher_core, "FirstRead", ByItsOwn),), faults=_CLOCKS), "wrong verdict"
    ),
    "dispatcher: a set called final before its window is over": Ablation(
        Variant(sets=True, patches=((Patience, "final_as_of_ns", final_when_read),)), "wrong set|wrong verdict"
    ),
    "dispatcher: retry taken for a verdict": Ablation(
        Variant(patches=((_DISPATCHER, "Core", RetryIsAVerdict),)), LOST
    ),
    "dispatcher: waits in memory only": Ablation(
        Variant(patches=((dispatcher_core, "Committing", WaitsInMemoryOnly),)), LEDGER
    ),
    "dispatcher: offset before retries": Ablation(
        Variant(patches=((processes, "SimulatedState", OffsetBeforeRetries),)), f"{LOST}|{LEDGER}"
    ),
    "dispatcher: own lines are duplicates": Ablation(
        Variant(patches=((dispatcher_core, "Counting", OwnLinesAreDuplicates),)), LEDGER
    ),
    "dispatcher: a look-up's miss is a verdict": Ablation(
        Variant(patches=((_DISPATCHER, "settle", absent_is_a_verdict),)), LOST
    ),
    "dispatcher: exports not cut back": Ablation(
        Variant(patches=((dispatcher_exports, "LogWriter", NotCutBack),)), "unreadable"
    ),
    "reopened: generation not carried": Ablation(
        Variant(patches=((Reopened, "_ready", without_generation),)), REOPENED
    ),
    "reopened: noted as done before it is": Ablation(
        Variant(patches=((Reopened, "_is_due", listed_once),), faults=_KILLS), REOPENED, shows=_loses_slots
    ),
    "reopened: times of a chunk too narrow": Ablation(
        # The second try searches all logs, which hides it.
        Variant(patches=((Coverage, "put", first_times_only), (Reopened, "_looks_everywhere", nowhere_else))),
        REOPENED,
    ),
    "reopened: counted anew": Ablation(
        Variant(patches=((Stretch, "counted", counted_anew),), faults=_LOSSES),
        f"{LEDGER}|{NO_VERDICT}",
        shows=_loses_slots,
    ),
    "retired: deleted in place of reopened": Ablation(
        Variant(patches=((ShardMachine, "_reopen", deleted),)), f"{REOPENED}|{LOST}", shows=_loses_slots
    ),
    "watermark: sampled after the data": Ablation(Variant(sampler=AfterTheData), BELOW_WATERMARK),
    "watermark: slots before the dispatcher": Ablation(Variant(sampler=SlotsFirst, faults=_STOPS), BELOW_WATERMARK),
    "watermark: late primaries not counted": Ablation(Variant(sampler=WaitingNotCounted), BELOW_WATERMARK),
    "waiting: of slots not counted": Ablation(Variant(patches=((Watermarks, "_waiting", shown_or_not),)), WAITING),
    "waiting: in memory not counted": Ablation(Variant(patches=((Undecided, "before", rows_only),)), NO_VERDICT),
    "waiting: what is being stored counted twice": Ablation(
        Variant(patches=((Committing, "undecided", stored_and_held),)), NO_VERDICT
    ),
    "registry: a deposed leader answers": Ablation(
        Variant(patches=((model_raft, "ModelGroup", AnswersWithoutMajority),)), f"{TWICE}|{LOST}"
    ),
    "clocks: any leader's moves the boundary": Ablation(
        Variant(patches=((ClockWatch, "objection", no_objection),)), "moved the boundary", apart=True
    ),
    "clocks: any leader's says what is too new": Ablation(
        Variant(patches=((clock_offsets, "too_new_after", by_its_own),)), WAITS, apart=True
    ),
    "clocks: a known id is too new": Ablation(
        Variant(patches=((shard_server, "FOREVER", (NO_BOUNDARY, NO_BOUNDARY)),)), WAITS, apart=True
    ),
    "clocks: one that goes back is not noticed": Ablation(
        Variant(patches=((RetryLoader, "clock_went_back", not_noticed),)), WAITS, apart=True
    ),
}
