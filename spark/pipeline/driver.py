"""The driver's loop over batches. It does not use Spark, so simulations run it unchanged.

plan     the bytes of logs and the waiting events to read; durable before any part is done
do       each part by a task (``part``): decide, register, keep the result
commit   the batch's results, and where the next batch continues
show     winners are appended to the slot's published log for readers. Never before the commit: the verifier
         clears the ids of lines it reads, and a part repeated later would find its own ids cleared
tidy     the batch's staged files are removed
claim    the undecided events are recorded for the watermark (``claim``); never before ``show``

A start repeats ``show`` and ``tidy`` for the newest commits, and repeats a batch that has a plan but no commit.

If two drivers run one slot, the one that opened it last has a newer incarnation, and the registry refuses the older
one's inserts. Plans, decisions, results and commits are never replaced, so the older driver cannot change them; it
asks the registry before it shows anything, and ends. On one machine the slot's lock keeps a second driver from
starting.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np

from photon.adapters.logs.lag import LogLag
from photon.config.clock import Clock
from photon.config.disk import Disk
from photon.config.errors import PhotonError
from photon.dispatcher.events import LATE, REJECTED
from photon.dispatcher.retry import Patience
from photon.dispatcher.status import JoinTimes
from photon.dispatcher.two_clocks import FirstRead, heard, passed_by_both
from photon.dispatcher.undecided import PERIOD_S, counts_of
from photon.eventstore.api import Progress
from photon.eventstore.tiered import NOTHING_READ_NS
from photon.idregistry.api import Kind, Registry, Slot, incarnation_of
from photon.joiner.slot.finals import Finals, ready
from photon.joiner.slot.identity import SPARK_NAME, open_incarnation, read_state
from photon.joiner.slot.output import OutputLimits
from photon.joiner.slot.place import DIRECTORIES, DIRECTORY_OF
from photon.outputs.cleared import read_clearing
from photon.outputs.log.writer import LogWriter
from photon.outputs.published import read_damaged
from photon.spark.pipeline import rereading
from photon.spark.pipeline.claim import Claim, claimed
from photon.spark.pipeline.deciding import EventStoreSilent
from photon.spark.pipeline.journal import (
    CLAIM,
    WHOLE_EVERY,
    Commit,
    Ended,
    GivenUp,
    JoinOf,
    Journal,
    JournalDamaged,
    LogAt,
    Part,
    Plan,
    RereadAt,
    folded,
)
from photon.spark.pipeline.listing import NO_LISTING, Listing
from photon.spark.pipeline.part import Done, Fenced
from photon.spark.pipeline.planner import PlanLimits, advanced, forgotten, left_of, parts_of, unread
from photon.spark.pipeline.reading import read_waiting
from photon.spark.pipeline.staging import read_ids, read_staged, winners_in
from photon.spark.pipeline.waiting import WaitingIndex

INTRODUCE_S = 5.0
REGISTRY_S = 300.0


def exporter_of(slot: str) -> str:
    """Returns the name of the exporter that publishes a slot's rejected and late records, as a dispatcher does."""
    return f"dispatcher-{slot}"


class FencingRegistry(Registry, Protocol):
    async def introduce(self, *, timeout: float) -> bool: ...


class TellsProgress(Protocol):
    async def progress(self) -> Progress: ...


DoesParts = Callable[[Plan], Awaitable[list[Done]]]


@dataclass(frozen=True, slots=True)
class DriverPlaces:
    state: Path  # ``STATE/slots/SLOT``
    exports: Path  # ``STATE/exports``
    output: Path
    log: Path | None = None  # the state of the published log; None: ``state``


@dataclass(slots=True)
class Batch:
    """A finished batch, for display."""

    number: int
    counts: dict[str, int]  # of this batch
    waiting: int  # events that wait now


@dataclass
class Driver:
    """Runs the join of one slot. Call ``begin``, then ``step`` until told to stop."""

    disk: Disk
    places: DriverPlaces
    join: str
    slot: Slot
    registry: FencingRegistry
    store: TellsProgress
    clock: Clock
    patience: Patience
    limits: PlanLimits
    list_logs: Callable[[Mapping[str, LogAt]], Listing]
    pause: Callable[[float], Awaitable[None]]
    draw_nonce: Callable[[], bytes]
    random: Callable[[], float]
    withholds: Callable[[], str] = lambda: ""  # why no event may be declared unmatched now; empty if events may
    uncertainty_ns: int = 0
    output: OutputLimits = field(default_factory=OutputLimits)
    rule: bytes = b""  # rule of ids, see ``journal.JoinOf``
    incarnation: int = 0
    own_incarnations: list[int] = field(default_factory=list)
    committed: int = -1  # the newest batch
    logs: dict[str, LogAt] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)  # of all batches
    read_past_ns: int = 0  # value in this process's newest plan
    first_read_ns: int = 0
    full: bool = False  # the limit of waiting events is reached, so nothing new is read
    listing: Listing = NO_LISTING  # the newest one of this process
    behind: dict[str, LogLag] = field(default_factory=dict)  # logs of that listing with undecided bytes, by identity
    batch_s: float = 0.0  # duration of the newest batch
    times: JoinTimes = field(default_factory=JoinTimes)  # of joined events, until they were shown
    busy: bool = False  # a batch has begun and is not done
    reread: RereadAt = field(default_factory=RereadAt)  # position of the current reread
    given_up: Sequence[GivenUp] = ()  # given-up ids that may be in a log here

    def __post_init__(self) -> None:
        self.journal = Journal(self.disk, self.places.state / SPARK_NAME)
        self.claim: Claim | None = None
        self._claim_at = float("-inf")
        self._has_reread = False  # True if the newest batch did so
        self.waiting = WaitingIndex(self.patience, self.random)
        disk, root, state = self.disk, self.places.output, self.places.log or self.places.state
        exporter = exporter_of(self.slot.name)
        self._log, self._exports = (
            LogWriter(
                disk, root, own, slot, kinds,
                roll_bytes=self.output.roll_bytes, roll_after_s=self.output.roll_after_s,
            )
            for own, slot, kinds in (
                (state, self.slot.name, DIRECTORIES), (self.places.exports / exporter, exporter, (REJECTED, LATE)),
            )
        )  # fmt: skip
        self._finals = Finals(self._log, compress=self.output.compress)
        self._first_read = FirstRead(self.uncertainty_ns)

    # -- start -------------------------------------------------------------------------------------------------
    async def begin(self) -> None:
        """Opens the slot, and shows an earlier driver's commits that are not shown yet.

        Raises UsageError, SlotRefused, JournalDamaged, NotOfThisState, PublishedDamaged, Fenced, OSError.
        """
        self.disk.make_dir(self.places.state)
        if has_begun := self.disk.exists(self.places.state / "slot.json"):
            self.journal.check_begun()
        self.journal.prepare(JoinOf(self.join, self.slot.datacentre, self.rule))
        before = self._incarnations()
        opened = await open_incarnation(
            self.disk,
            self.places.state / "slot.json",
            self.slot,
            self.registry,
            draw_nonce=self.draw_nonce,
            pause=self.pause,
        )
        self.incarnation = opened.incarnation
        self.own_incarnations = sorted({*before, opened.incarnation})
        self.registry.announce(self.slot, self.own_incarnations)
        await self._introduce()
        self._load()
        for writer in (self._exports, self._log):
            writer.load()
            self.journal.check_commits(writer.upto)
            writer.expect(self._tidied(), str(self.journal.directory))
            if self.committed < 0 or not has_begun:  # positions may have been moved before the first start
                writer.expect_nothing(str(self.journal.directory))
            for kind in writer.kinds:
                writer.recover(kind)
        self._finals.load()
        self._finals.settle()
        await self._show()

    def _incarnations(self) -> list[int]:
        """Returns the incarnations of drivers whose batches may have to be repeated."""
        newest = max((commit.number for commit in self.journal.commits()), default=-1)
        plan = self.journal.plan(newest + 1)
        # A killed skip has no incarnation.
        found = {plan.incarnation} if plan is not None and plan.incarnation else set()
        for name in self.journal.parts().get(newest + 1, ()):
            if name.endswith(".staged") and not name.startswith("."):
                found.add(incarnation_of(read_ids(self.disk, self.journal.part_path(name)).token))
        return sorted(found)

    def _load(self) -> None:
        """Loads the commits. Waiting events count as never tried."""
        self.claim = self.journal.read_last(CLAIM, Claim)
        if not (commits := self.journal.commits()):
            return
        commit = folded(commits)
        self.committed, self.counts, self.reread = commit.number, commit.counts, commit.reread
        self.logs = {log.identity: log for log in commit.logs}
        for name, rows in commit.waiting.items():
            self.waiting.add(name, read_waiting(self.journal, name), rows, 0, 0)

    def _take(self, commit: Commit, plan: Plan, done: Sequence[Done]) -> None:
        """Applies the commit of the batch just done."""
        self.committed, self.counts, self.reread = commit.number, commit.counts, commit.reread
        if commit.whole:
            self.logs = {}
            for settled in self.waiting.files.keys() - commit.waiting.keys():
                del self.waiting.files[settled]
        self.logs |= {log.identity: log for log in commit.logs}
        for name, rows in commit.waiting.items():
            if name in self.waiting.files:
                self.waiting.retain(name, rows)
            elif rows:
                self.waiting.add(name, read_waiting(self.journal, name), rows, plan.read_past_ns, plan.at_ns)
        for each in done:
            for rest in each.decision.left:
                self.waiting.tried(rest.file, rest.rows, plan.read_past_ns, plan.at_ns)

    def _tidied(self) -> int:
        """Returns the newest batch whose staged rows are gone, which readers must therefore see already."""
        left = [number for number, names in self.journal.parts().items() if number <= self.committed and names]
        return min(left, default=self.committed + 1) - 1

    async def _introduce(self) -> None:
        """Announces this incarnation to each shard, as an older one could still win ids until then."""
        deadline = self.clock.monotonic() + REGISTRY_S
        while not await self.registry.introduce(timeout=INTRODUCE_S):
            if self.clock.monotonic() >= deadline:
                raise PhotonError("the registry does not answer; run the same command again once it does")
            await self.pause(0.1)

    # -- one batch ---------------------------------------------------------------------------------------------
    async def step(self, do: DoesParts) -> Batch | None:
        """Does the next batch, if there is anything to do. Raises like ``begin`` and ``do``; the next call then
        repeats the batch.
        """
        number = self.committed + 1
        plan = self.journal.plan(number)
        if plan is None:
            if (made := await self._plan(number)) is None:
                self._finish()
                self._look()
                return None
            await self.pause(0.0)
            plan = self.journal.put_plan(made)
        if plan.incarnation > self.incarnation:
            raise Fenced(f"slot {self.slot.name}: a newer driver has taken over; let it finish")
        begun, self.busy, self._has_reread = self.clock.monotonic(), True, bool(plan.reread)
        done = await do(plan)
        await self.pause(0.0)
        self._check_state()
        before = self.counts
        commit = self.journal.put_commit(self._commit(plan, done))
        self._take(commit, plan, done)
        await self._show()
        self._finish()
        self._look()
        self.batch_s, self.busy = self.clock.monotonic() - begun, False
        counts = {name: count - before.get(name, 0) for name, count in commit.counts.items()}
        return Batch(number, {name: count for name, count in counts.items() if count}, len(self.waiting))

    async def _plan(self, number: int) -> Plan | None:
        asked_ns, asked = self.clock.now_ns(), self.clock.monotonic()
        progress = await self.store.progress()
        if (told := heard(progress, asked_ns, asked)) is None:
            # An event read now could not start to wait.
            raise EventStoreSilent("the event store has not answered yet: see photon status")
        self._first_read.hear(told)
        self.read_past_ns = NOTHING_READ_NS if self.withholds() else passed_by_both(progress, asked_ns)
        self.listing = self.list_logs(self.logs)
        now_ns = self.clock.now_ns()  # taken after listing the logs, so no event was read later
        self.first_read_ns = self._first_read.at_ns(now_ns, self.clock.monotonic())
        due = self.waiting.due(self.read_past_ns, now_ns, self.limits.batch_rows)
        self.full = self.waiting.size >= self.limits.waiting_bytes
        parts = parts_of(() if self.full else self.listing.logs, self.logs, due, self.limits, now_ns)
        reread, again = self._reread() if not (self.full or (parts and self._has_reread)) else (0, [])
        parts = again or parts
        if not parts:
            return None
        return Plan(
            number=number,
            incarnation=self.incarnation,
            at_ns=now_ns,
            first_read_ns=self.first_read_ns,
            read_past_ns=self.read_past_ns,
            parts=parts,
            reread=reread if again else 0,
        )

    def _reread(self) -> tuple[int, list[Part]]:
        """Returns the oldest open reread and its next parts. Ends rereads that have no parts left."""
        for number in [number for number, ended in self.journal.rereads().items() if not ended]:
            wanted = self.journal.reread(number)
            at = self.reread if self.reread.number == number else RereadAt(number)
            if parts := rereading.parts_of(wanted, at, self.listing.logs, self.logs, self.limits):
                return number, parts
            gone = rereading.gone_from(wanted, at, self.listing.logs, self.logs)
            self.journal.end_reread(
                number, Ended(at_ns=self.clock.now_ns(), events=at.events, known=at.known, gone=gone)
            )
        return 0, []

    def _look(self) -> None:
        """Notes which logs of the newest listing have undecided bytes. Call it between two batches."""
        left = unread(self.listing.logs, self.logs, self.limits, self.clock.now_ns())
        self.behind = {
            log.identity: LogLag(
                log.path,
                left_of(log, self.logs),
                log.mtime_ns if (before := self.behind.get(log.identity)) is None else before.since_ns,
            )
            for log in left
        }
        self._claim()

    def _claim(self) -> None:
        at, at_ns = self.clock.monotonic(), self.clock.now_ns()
        if at < self._claim_at + PERIOD_S and (self.behind or (self.claim is not None and not self.claim.why)):
            return
        given_up = np.array([each.time_ns for each in self.given_up], np.int64)
        waiting = counts_of(np.concatenate([self.waiting.times(), given_up]))
        self.claim, self._claim_at = claimed(self.claim, self.listing, self.behind.values(), waiting, at_ns), at
        self.journal.put_last(CLAIM, self.claim)

    def _commit(self, plan: Plan, done: Sequence[Done]) -> Commit:
        counts = dict(self.counts)
        changed: dict[str, list[int]] = {}
        for part, each in zip(plan.parts, done, strict=True):
            for told in (each.decision.counts, each.result.counts):
                for name, count in told.items():
                    counts[name] = counts.get(name, 0) + count
            left = {rest.file: set(rest.rows) for rest in each.decision.left}
            for rest in part.waiting:
                settled = set(rest.rows) - left.get(rest.file, set())
                known = changed.get(rest.file)
                open_rows = self.waiting.open_rows(rest.file) if known is None else known
                changed[rest.file] = [row for row in open_rows if row not in settled]
            if name := each.decision.waiting:
                changed[name] = list(range(len(read_waiting(self.journal, name).ids)))
        reread, logs = self.reread, list[LogAt]()
        if plan.reread:
            reread = rereading.moved(reread, plan.reread, plan.parts, [each.decision for each in done])
        else:
            logs = advanced(plan.parts, [each.decision.reached for each in done])
        whole = plan.number % WHOLE_EVERY == 0
        if whole:
            every = self.logs | {log.identity: log for log in logs}
            listed = {log.identity for log in self.listing.logs}
            gone = forgotten(every, listed, plan.at_ns) if listed else ()
            logs = [log for name, log in every.items() if name not in gone]
            kept = {name: self.waiting.open_rows(name) for name in self.waiting.files}
            changed = {name: rows for name, rows in (kept | changed).items() if rows}
        return Commit(number=plan.number, logs=logs, waiting=changed, whole=whole, counts=counts, reread=reread)

    # -- what readers see --------------------------------------------------------------------------------------
    async def _show(self) -> None:
        """Appends the winners of all committed batches not yet shown, and removes their staged files."""
        newest = self.committed
        first = min(self._exports.upto, self._log.upto) + 1
        if first <= newest:
            await self._check_newest()
            self._check_state()  # last and fast, as the published log has no other guard
        for number in range(first, newest + 1):
            self._append(number)
        if newest >= 0:
            self._tidy(newest)

    def _append(self, number: int) -> None:
        """Appends one batch, in the order of its parts. A repetition appends the same bytes."""
        plan = self.journal.plan(number)
        if plan is None:
            raise JournalDamaged(f"{self.journal.directory}: the plan of batch {number} is missing; restore it")
        for part in range(len(plan.parts)):
            decision, result = self.journal.decision(number, part), self.journal.result(number, part)
            if decision is None or result is None:
                raise JournalDamaged(
                    f"{self.journal.directory}: part {part} of batch {number} is committed, but its files are "
                    "gone: restore them, or records are lost"
                )
            if number > self._exports.upto:
                for kind, name in ((REJECTED, decision.rejected), (LATE, result.late)):
                    if name:
                        self._exports.append(kind, self.disk.read(self.journal.part_path(name)))
            if number > self._log.upto and decision.staged:
                rows = read_staged(self.disk, self.journal.part_path(decision.staged))
                winners = winners_in(result.won, result.rows)
                logs = rows.logs(winners)
                joined = rows.times[winners[logs == Kind.JOINED]]
                self.times.since_event.add(self.clock.now_ns() - joined)
                for kind in sorted(set(logs.tolist())):
                    lines = [rows.lines[row] for row in winners[logs == kind].tolist()]
                    self._log.append(DIRECTORY_OF[Kind(kind)], b"".join(lines), self.clock.monotonic())
        for writer in (self._exports, self._log):
            if number > writer.upto:
                writer.publish(number, now=self.clock.monotonic())

    def _finish(self) -> None:
        """Closes files that are due. Marks files whose ids are all cleared as final, except the newest of each kind,
        from which the next start continues."""
        self._check_state()
        for writer in (self._exports, self._log):
            writer.publish(now=self.clock.monotonic())
        older = set(self._log.rolled) - set(self._log.newest().values())
        if not older:
            return
        damaged = {each.file for each in read_damaged(self.disk, self._log.state)}
        for name in ready(self._log, read_clearing(self.disk, self._log.state)):
            if name in older - damaged:
                self._finals.finish(name)
                self._log.forget([name])
                self._log.show()

    def _tidy(self, newest: int) -> None:
        """Removes journal files that no later start needs."""
        self.journal.tidy_parts(newest)
        for name in self.disk.names(self.journal.directory / "waiting"):
            if name not in self.waiting.files and int(name.lstrip(".").partition("-")[0]) <= newest:
                self.journal.remove(self.journal.waiting_path(name))
        self.journal.forget_before(newest - newest % WHOLE_EVERY)

    async def _check_newest(self) -> None:
        deadline = self.clock.monotonic() + REGISTRY_S
        while (witnessed := await self.registry.read_witness(self.slot.name)) is None:
            if self.clock.monotonic() >= deadline:
                raise PhotonError("the registry does not answer; run the same command again once it does")
            await self.pause(0.1)
        if witnessed.newest != self.incarnation:
            raise Fenced(f"slot {self.slot.name}: a newer driver has taken over; let it finish")

    def _check_state(self) -> None:
        """Raises Fenced if another driver has begun to open the slot, as this one may have been suspended since its
        last check."""
        state = read_state(self.disk, self.places.state / "slot.json", self.slot)
        if state.last != self.incarnation or state.nonce:
            raise Fenced(f"slot {self.slot.name}: a newer driver has taken over; let it finish")

    def close(self) -> None:
        for writer in (self._exports, self._log):
            writer.close()
