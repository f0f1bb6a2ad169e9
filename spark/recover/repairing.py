"""Goes through a report's findings, batch by batch, and gives events back if that is safe.

For each batch, it looks up the ids, writes the intended requests to the repairs log, asks the registry, writes its
answers, and advances the journal. After a kill, the next run continues with the interrupted batch: rows with an
answer keep it; the others are requested again if the registry can compare them, and otherwise (below the boundary,
protocol rule 15) left to the next verification.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import msgspec
import numpy as np

from photon.batch.verdicts import Verdicts
from photon.config.clock import Clock
from photon.config.disk import Disk
from photon.idregistry.api import I64, Answer
from photon.outputs.log.format import slot_of
from photon.spark.classes import Class
from photon.spark.recover.journal import RegistrySilent, RepairProgress, WrittenFile, read_journal, write_journal
from photon.spark.recover.marks import DamageMarks
from photon.spark.recover.planning import (
    ASKED,
    DISPATCHED,
    HELD,
    EarlierRepairs,
    RepairWay,
    ReportedProblem,
    ways,
    young,
)
from photon.spark.recover.repairs import ASKED as JUST_ASKED
from photon.spark.recover.repairs import CHANGED, REOPENED, UNANSWERED, RepairBatchName, Repairs
from photon.spark.recover.replays import ReplayHours
from photon.spark.recover.report import BATCH_ROWS, Damage, VerifyReport, damages, event_ids, findings
from photon.spark.recover.unseen import GONE, SeenOutputs, Why, grouped
from photon.spark.recover.written import Places, WrittenAt, elsewhere, names_of, search

if TYPE_CHECKING:
    from photon.idregistry.client.recovery import Recovery
    from photon.outputs.every_file import FoundFile

# The passes: a later run that also covers unmatched events continues with the second one.
LOSSES, UNMATCHED, DAMAGE = "losses", "unmatched", "damage"
CLASSES: Mapping[str, tuple[Class, ...]] = {
    LOSSES: (Class.LOST_UNREGISTERED, Class.LOST_OWNED, Class.LOST_RETIRED, Class.LOST_CLEARED),
    UNMATCHED: (Class.PRIMARY_EXISTS,),
}
ASK_S = 10.0
# Time limit where the entry may be collected before a second try: no longer than giving up, taking and clearing it
# takes.
ASK_OLD_S = 2.0
ATTEMPTS = 5
PAUSE_S = 1.0
MARGIN_NS = 3_600_000_000_000  # an event whose entry may be collected within an hour counts as old
SLOTS_MAX = 1_000  # slots that are counted by name
FILES_MAX = 1_000  # named files with records of lost events


class RepairLookUps(Protocol):
    async def look_up(self, digests: bytes, times: I64, *, timeout: float) -> Verdicts: ...


@dataclass(frozen=True, slots=True)
class RepairRules:
    """The rules of a repair. ``retention_ns``: ``None`` means that entries are never collected. ``rate``: maximum ids
    per second."""

    also_unmatched: bool
    retention_ns: int | None
    rate: float
    apply: bool


@dataclass(slots=True)
class RepairTally:
    """The result of one pass: the number of findings by class and by outcome, or planned outcome."""

    counts: dict[str, Counter[str]] = field(default_factory=dict)
    slots: Counter[str] = field(default_factory=Counter)
    refused: dict[tuple[str, Why, bool], Counter[str]] = field(default_factory=dict)  # see ``unseen.grouped``
    written: dict[str, WrittenFile] = field(default_factory=dict)

    def add(self, finding: ReportedProblem, what: str) -> None:
        self.counts.setdefault(str(finding.kind), Counter())[what] += 1
        if what == RepairWay.SLOT_DOWN:
            name = finding.slot or "unknown"
            self.slots[name if name in self.slots or len(self.slots) < SLOTS_MAX else "others"] += 1

    def refuse(self, slots: Sequence[tuple[str, str, Why]], *, perhaps: bool) -> None:
        """Counts an event that is not repaired because of these slots; with ``perhaps``, because of one of them."""
        for datacentre, slot, why in slots:
            self.refused.setdefault((datacentre, why, perhaps), Counter())[slot] += 1

    def found(self, finding: ReportedProblem, at: WrittenAt) -> None:
        """Counts an event whose record was found ``at`` another place."""
        known = self.written.get(at.path)
        if known is not None:
            self.written[at.path] = msgspec.structs.replace(known, events=known.events + 1)
        elif len(self.written) < FILES_MAX:
            event = finding.event_id.decode("utf-8", "backslashreplace")
            self.written[at.path] = WrittenFile(at.path, 1, event, at.offset)


class Repairing:
    """One run of a repair over one report. ``seen``: the outputs that the verification could read; ``files``: all
    output files; ``told``: called with the progress after each batch."""

    def __init__(
        self,
        report: VerifyReport,
        registry: RepairLookUps,
        gives: Recovery,
        disk: Disk,
        repairs: Repairs,
        marks: DamageMarks,
        seen: SeenOutputs,
        files: Sequence[FoundFile],
        clock: Clock,
        rules: RepairRules,
        told: Callable[[RepairProgress], None],
    ) -> None:
        self._report = report
        self._registry = registry
        self._gives = gives
        self._disk = disk
        self._repairs = repairs
        self._marks = marks
        self._seen = seen
        self._others = seen.others()
        self._files = files
        self._written: Places = {}
        self._clock = clock
        self._rules = rules
        self._told = told
        self._earlier = repairs.since(report.verdict.exported_ns)
        self._asked = set(self._earlier.asked)
        self._doubtful: set[bytes] = set()  # ids of the batch that were requested, but whose answer was lost

    async def run(self) -> RepairProgress:
        """Runs the repair. Returns the outcomes of this run and earlier ones; without ``apply``, the planned
        outcomes.

        Raises RegistrySilent, ReportRefused, RepairsDamaged, OSError.
        """
        progress = read_journal(self._disk, self._report.directory, self._report.name)
        stages = [LOSSES, UNMATCHED] if self._rules.also_unmatched else [LOSSES]
        open_stages = [stage for stage in stages if {stage, DAMAGE} - {*progress.ended}]
        sought = [kind for stage in open_stages for kind in CLASSES[stage]]
        self._written = search(self._disk, self._files, event_ids(self._report, sought))
        for stage, classes in CLASSES.items():
            if stage not in progress.ended:
                progress = await self._pass(progress, stage, classes)
        return self._mark_damages(progress)

    def _mark_damages(self, progress: RepairProgress) -> RepairProgress:
        """Marks damaged ranges whose events have been given back, so that readers skip them. Every run does so, as
        slots may be on different machines; marked ranges stay as they are."""
        counts, spared = Counter[str](), names_of(self._written)
        for batch in damages(self._report, BATCH_ROWS):
            held = [self._held_damage(each, spared) for each in batch]
            lost = [each for each, why in zip(batch, held, strict=True) if why is None]
            counts.update(str(why) for why in held if why is not None)
            counts.update(self._marks.mark(lost, progress.marked, apply=self._rules.apply))
        if counts:
            progress = _with(progress, DAMAGE, {str(Class.TORN): dict(counts)})
        if self._rules.apply:
            progress = msgspec.structs.replace(progress, marked=self._marks.marked(progress.marked))
            if DAMAGE not in progress.ended and not counts.keys() & set(HELD):
                progress = msgspec.structs.replace(progress, ended=[*progress.ended, DAMAGE])
            write_journal(self._disk, self._report.directory, progress)
        return progress

    def _held_damage(self, each: Damage, spared: frozenset[str]) -> RepairWay | None:
        """Returns why the file's range must not be marked: events in it were not given back. ``None`` if they were. A
        backfill's file belongs to no publishing slot."""
        name = each.file or ""
        why = self._seen.why(each.datacentre or "", slot_of(name))
        if why is not None and why.gone == GONE:
            return RepairWay.NOT_LOOKED_AT
        return RepairWay.WRITTEN if name in spared else None

    async def _pass(self, progress: RepairProgress, stage: str, classes: Sequence[Class]) -> RepairProgress:
        kept = self._rules.apply and (stage == LOSSES or self._rules.also_unmatched)
        if stage == LOSSES and not progress.done.get(
            stage
        ):  # so that events refused by an earlier run are reconsidered
            progress = msgspec.structs.replace(progress, waiting_slots={}, wanted=[])
        hours = ReplayHours(progress.wanted)
        tally = _tally(progress, stage)
        for number, batch in enumerate(findings(self._report, classes, BATCH_ROWS)):
            if number < progress.done.get(stage, 0):
                continue
            begun = self._clock.monotonic()
            for finding, what in zip(
                batch, await self._batch(RepairBatchName(self._report.name, stage, number), batch), strict=True
            ):
                self._count(tally, finding, what)
                if what == RepairWay.REPLAY and finding.datacentre:
                    hours.add(finding.datacentre, finding.log, finding.event_time_ns)
            progress = _after(progress, stage, number + 1 if kept else 0, tally, hours)
            if kept:
                write_journal(self._disk, self._report.directory, progress)
            self._told(progress)
            if self._rules.apply:
                await asyncio.sleep(max(0.0, begun + len(batch) / self._rules.rate - self._clock.monotonic()))
        if kept and any(of.keys() & set(HELD) for of in tally.counts.values()):
            progress = msgspec.structs.replace(progress, done={**progress.done, stage: 0})
            write_journal(self._disk, self._report.directory, progress)
        elif kept:
            progress = msgspec.structs.replace(progress, ended=[*progress.ended, stage])
            write_journal(self._disk, self._report.directory, progress)
        return progress

    def _count(self, tally: RepairTally, finding: ReportedProblem, what: str) -> None:
        tally.add(finding, what)
        if what == RepairWay.NOT_LOOKED_AT:
            tally.refuse(self._unseen(finding), perhaps=finding.slot is None)
        elif what == RepairWay.WRITTEN and (at := elsewhere(self._written, finding)) is not None:
            tally.found(finding, at)

    # -- a batch ---------------------------------------------------------------------------------------------------
    async def _batch(self, name: RepairBatchName, batch: Sequence[ReportedProblem]) -> list[str]:
        """Repairs a batch. Returns the outcome of each row, or the planned one: a RepairWay, or an answer of the
        registry."""
        before = self._repairs.answers(name) if self._rules.apply else {}
        chosen = await self._ways(batch)
        if not self._rules.apply:
            return [str(way) for way in chosen]
        became = [str(way) for way in chosen]
        open_rows = []
        for row, (finding, way) in enumerate(zip(batch, chosen, strict=True)):
            answered = before.get(finding.digest)
            if answered in (REOPENED, CHANGED):
                became[row] = answered
            elif way in ASKED:
                open_rows.append(row)
        self._doubtful = {digest for digest, answer in before.items() if answer in (JUST_ASKED, UNANSWERED)}
        opened = set(open_rows)
        told = [row for row, finding in enumerate(batch) if row in opened or finding.digest in before]
        if open_rows:
            await self._ask(name, batch, chosen, became, open_rows, told)
        return became

    async def _ways(self, batch: Sequence[ReportedProblem]) -> list[RepairWay]:
        """Looks the ids up again. Rows without an answer become RepairWay.UNKNOWN in a dry run; otherwise
        RegistrySilent is raised."""
        digests = b"".join(finding.digest for finding in batch)
        times = np.array([finding.event_time_ns for finding in batch], np.int64)
        now_ns = self._clock.now_ns()
        asked = [self._before(finding, now_ns) for finding in batch]
        for attempt in range(ATTEMPTS if self._rules.apply else 1):
            if attempt:
                await asyncio.sleep(PAUSE_S * attempt)
            found = await self._registry.look_up(digests, times, timeout=ASK_S)
            chosen = ways(batch, found.outcomes, asked, also_unmatched=self._rules.also_unmatched)
            chosen = [self._held(finding, way) for finding, way in zip(batch, chosen, strict=True)]
            if RepairWay.UNKNOWN not in chosen:
                return chosen
        if self._rules.apply:
            raise _silent("look-ups")
        return chosen

    def _held(self, finding: ReportedProblem, way: RepairWay) -> RepairWay:
        """Returns ``way``, or why not to take it: the event was given back before, or a file has or may have its
        record."""
        if way in (*DISPATCHED, RepairWay.CHANGED) and self._earlier.gave_up(finding):
            return RepairWay.EARLIER
        if way not in DISPATCHED:
            return way
        if way is not RepairWay.REPLAY and self._unseen(finding):
            return RepairWay.NOT_LOOKED_AT
        return way if elsewhere(self._written, finding) is None else RepairWay.WRITTEN

    def _unseen(self, finding: ReportedProblem) -> Sequence[tuple[str, str, Why]]:
        """Returns the unread slots that may have written the event. The registry's entry names the slot; if the
        registry has forgotten the id, any slot may have written it. For an unmatched line with a token there are
        none, as the line itself was read."""
        if finding.slot is None:
            return [] if finding.kind is Class.PRIMARY_EXISTS and finding.token is not None else self._others
        why = self._seen.why(finding.datacentre or "", finding.slot)
        return [] if why is None else [(finding.datacentre or "", finding.slot, why)]

    def _before(self, finding: ReportedProblem, now_ns: int) -> EarlierRepairs:
        if finding.digest not in self._asked:
            return EarlierRepairs.NOT_ASKED
        fresh = young(finding.event_time_ns, now_ns, self._rules.retention_ns, MARGIN_NS)
        return EarlierRepairs.ASKED_YOUNG if fresh else EarlierRepairs.ASKED_OLD

    async def _ask(
        self,
        name: RepairBatchName,
        batch: Sequence[ReportedProblem],
        chosen: Sequence[RepairWay],
        became: list[str],
        rows: Sequence[int],
        told: Sequence[int],
    ) -> None:
        """Requests ``rows``, and stores the outcomes in ``became``. Writes ``told`` to the repairs log before and
        after."""
        for row in rows:
            became[row] = JUST_ASKED
        self._note(name, batch, became, told)
        self._asked.update(batch[row].digest for row in rows)
        left = list(rows)
        for attempt in range(ATTEMPTS):
            if attempt:
                await asyncio.sleep(PAUSE_S * attempt)
            for way in ASKED:
                some = [row for row in left if chosen[row] is way]
                if some:
                    await self._reopen(batch, some, way, became)
            self._doubtful.update(batch[row].digest for row in left if became[row] == UNANSWERED)
            # Ids that may be collected are requested once, as a second request might not compare.
            left = [row for row in left if became[row] == UNANSWERED and self._may_ask_again(batch[row])]
            if not left:
                break
        self._note(name, batch, became, told)
        if left:
            raise _silent("requests to give ids up")
        for row in rows:
            if became[row] == UNANSWERED:
                became[row] = RepairWay.IN_DOUBT

    def _may_ask_again(self, finding: ReportedProblem) -> bool:
        return young(finding.event_time_ns, self._clock.now_ns(), self._rules.retention_ns, MARGIN_NS)

    async def _reopen(
        self, batch: Sequence[ReportedProblem], rows: Sequence[int], way: RepairWay, became: list[str]
    ) -> None:
        some = [batch[row] for row in rows]
        answers = await self._gives.reopen(
            b"".join(finding.digest for finding in some),
            np.array([finding.event_time_ns for finding in some], np.int64),
            np.array([finding.token or 0 for finding in some], np.uint64),
            np.array([finding.generation for finding in some], np.uint32),
            operator=way is not RepairWay.REOPEN_RETIRED,
            retired=way is RepairWay.REOPEN_RETIRED,
            timeout=ASK_S if all(map(self._may_ask_again, some)) else ASK_OLD_S,
        )
        named = {int(Answer.REOPENED): REOPENED, int(Answer.NO_OP): CHANGED}
        for row, answer in zip(rows, answers.tolist(), strict=True):
            became[row] = named.get(answer, UNANSWERED)

    def _note(
        self, name: RepairBatchName, batch: Sequence[ReportedProblem], became: Sequence[str], rows: Sequence[int]
    ) -> None:
        """Writes answers to the repairs log. A row without an answer may have been REOPENED, whatever the registry
        says now."""
        noted = [batch[row] for row in rows]
        answers = [
            UNANSWERED if became[row] != REOPENED and batch[row].digest in self._doubtful else became[row]
            for row in rows
        ]
        self._repairs.write(name, noted, answers, self._clock.now_ns())


def _silent(what: str) -> RegistrySilent:
    return RegistrySilent(f"the registry does not answer {what}; start it and run this again to continue")


def _tally(progress: RepairProgress, stage: str) -> RepairTally:
    """Sums the finished batches; batches of an earlier dry run do not count."""
    begun = bool(progress.done.get(stage))
    done = progress.counts.get(stage, {}) if begun else {}
    tally = RepairTally({kind: Counter(of) for kind, of in done.items()}, Counter(progress.waiting_slots))
    for each in progress.unseen.get(stage, ()) if begun else ():
        why = Why(each.seen, each.do, each.gone)
        tally.refused[each.datacentre, why, each.perhaps] = Counter(each.slots)
    tally.written = {each.file: each for each in progress.written.get(stage, ()) if begun}
    return tally


def _after(progress: RepairProgress, stage: str, done: int, tally: RepairTally, hours: ReplayHours) -> RepairProgress:
    return msgspec.structs.replace(
        progress,
        done={**progress.done, stage: done},
        counts=_with(progress, stage, {kind: dict(of) for kind, of in tally.counts.items()}).counts,
        waiting_slots=dict(tally.slots),
        wanted=hours.wanted(),
        unseen={**progress.unseen, stage: grouped(tally.refused)},
        written={**progress.written, stage: list(tally.written.values())},
    )


def _with(progress: RepairProgress, stage: str, counts: dict[str, dict[str, int]]) -> RepairProgress:
    return msgspec.structs.replace(progress, counts={**progress.counts, stage: counts})
