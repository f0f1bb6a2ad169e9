"""Recovery by token (protocol rule 13; the paper's 3.3.3): ids that a dead joiner owns and never wrote.

A slot's joiner publishes ``redone.json`` once its predecessors, incarnations up to i, have left nothing in its redo
log: each of their batches was dropped, or stands in synced output, within the lengths that the file names (the
place). As long as redo logs are sound, nothing is left to do then. But a batch of a log may rot, or a whole directory
be put back from an older copy, and what it had registered would stay owned for ever by somebody who has forgotten it.
So once all output up to the place has been read, and every id in it was cleared, the ids that are *still* owned by
incarnations up to i have a record nowhere and nobody who would write it: they are given up (reopened), and the
dispatchers of all datacentres read them again (``dispatcher/replay/reopened.py``).

Why no id is written twice
- First the place was read, then the registry is scanned. A record of theirs stands below the place, or in a file that
  was final before: its id was cleared before the scan began, and a scan shows owned ids only. A line that cannot be
  read, or whose token the registry refused, counts as unread: nothing is given up before it has been looked after.
- Bytes that readers were not shown yet (not synced, not witnessed) are no bytes that the verifier has read: it waits.
- Reopening compares on the whole token when it is applied: an id that somebody has taken since is left alone,
  however late the request comes.
- A registry that was restored from a backup has forgotten clears, and who was given which id since. Its shards are
  closed, and give nothing up, until the outputs were registered again; and the incarnations after it are so much
  higher that ids of those before it are told apart: they are left to the operator.

Why no id is lost, an insert of the dead process that is still under way included
- It may arrive after the scan, in a shard that has not heard of a newer incarnation yet (one that has says STALE).
  If it takes an id that is nobody's, that id is owned by i or before, without a record. So one scan proves nothing:
  the scan is done again, first soon, then more and more seldom, for as long as the verifier runs. Waiting until each
  shard knows the newer incarnation would not be enough: a shard that is split off later is told, but only then.
- It cannot take an id that was reopened: reopening raises the generation, and an insert carries the one it was
  dispatched with.
- After a crash at any point the scan begins again. What was reopened is on the registry's list until it has a new
owner.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from photon.config.disk import Disk
from photon.config.structured import get_logger
from photon.config.versioned_file import read_versioned
from photon.idregistry.api import BATCH_BITS, DIGEST_BYTES, Answer
from photon.idregistry.core.commands import take
from photon.idregistry.core.outcomes import Refusal
from photon.idregistry.core.scans import EntryPage
from photon.idregistry.operate.backup import INCARNATIONS_SINCE_MAX
from photon.outputs.cleared import Clearing, read_clearing
from photon.outputs.log.format import Redone
from photon.outputs.published import PublishedDamaged, SlotOutput, read_slot

if TYPE_CHECKING:
    from photon.idregistry.client.recovery import Recovery

REDONE_NAME = "redone.json"
EXAMPLES_MAX = 20  # ids that a report names; the counts are complete

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RecoveryLimits:
    """Sizes in ids, times in seconds."""

    page_ids: int = 2048
    rest_s: float = 0.02  # between two questions: one question takes the registry some milliseconds
    ask_s: float = 5.0
    retry_s: float = 5.0  # after a shard that did not answer: it alone is asked again
    again_first_s: float = 60.0
    again_most_s: float = 3600.0  # from one scan to the next, twice as long each time nothing was found


@dataclass(slots=True)
class RecoveryReport:
    scanned: bool = False  # the last shard was scanned to its end, and every answer was heard
    recovered: int = 0
    unknown: int = 0  # asked to be given up, and no answer: the next scan shows whether they were
    older: int = 0  # owned since before the registry was restored from a backup: left to the operator
    waits: str = ""  # why nothing may be given up yet; empty when nothing stands in the way
    examples: list[str] = field(default_factory=list)


def read_redone(disk: Disk, state: Path) -> Redone | None:
    """What the slot in this state directory has published; None: nothing yet. Raises PublishedDamaged, OSError."""
    return read_versioned(disk, state / REDONE_NAME, Redone, PublishedDamaged)


def unread(redone: Redone, published: SlotOutput, clearing: Clearing) -> str:
    """Why not all output up to the place has been read and cleared; empty when it has."""
    files = {file.name: file for file in published.files}
    for name, length in sorted(redone.files.items()):
        file = files.get(name)
        if file is None:
            return f"{name} is not published any more"
        if file.final:
            if file.length < length:
                return f"{name} has become final with {file.length} bytes, {length} were synced"
            continue
        if trouble := clearing.trouble.get(name):
            return f"{trouble} lines of {name} cannot be read, or the registry refused them"
        if (done := clearing.files.get(name, 0)) < length:
            return f"{name} is cleared up to byte {done} of {length}"
    return ""


@dataclass(eq=False)
class SlotRecovery:
    """Of one slot. It remembers nothing on disk: whatever it did before, doing it again changes nothing."""

    disk: Disk
    slot_state: Path
    registry: Recovery
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep
    limits: RecoveryLimits = field(default_factory=RecoveryLimits)

    def __post_init__(self) -> None:
        self._upto = 0  # what the scan under way, or the last one, is about
        self._scanned = -1  # what was scanned to the end; a first incarnation says that up to 0 is redone
        self._left: tuple[int, ...] = ()  # shards that the scan under way has not done
        self._next_s = 0.0
        self._pause_s = 0.0
        self._waits = ""
        self.recovered = 0  # ids given up since the start of the process

    async def run_once(self, now: float) -> RecoveryReport:
        """One look, at ``now`` (monotonic seconds), and a scan where one is due. Raises PublishedDamaged, OSError."""
        report = RecoveryReport()
        redone = read_redone(self.disk, self.slot_state)
        if redone is None or (redone.upto == self._upto and now < self._next_s):
            return report
        report.waits = self._unread(redone)
        if report.waits:
            self._tell_waiting(redone, report.waits)
            return report
        self._waits = ""
        await self._scan(redone, report)
        self._tell(redone, report)
        self._plan(redone, report, now)
        return report

    def _unread(self, redone: Redone) -> str:
        # The place of this very statement must have been read: both are looked at after it.
        return unread(redone, read_slot(self.disk, self.slot_state), read_clearing(self.disk, self.slot_state))

    def _plan(self, redone: Redone, report: RecoveryReport, now: float) -> None:
        limits = self.limits
        self._upto = redone.upto
        if not report.scanned:
            self._next_s = now + limits.retry_s
            return
        quiet = self._scanned == redone.upto and not report.recovered
        self._pause_s = min(limits.again_most_s, 2 * self._pause_s) if quiet else limits.again_first_s
        self._scanned = redone.upto
        self._next_s = now + self._pause_s

    # -- the registry ------------------------------------------------------------------------------------------
    async def _scan(self, redone: Redone, report: RecoveryReport) -> None:
        if redone.upto != self._upto or not self._left:
            self._left = await self.registry.shards(timeout=self.limits.ask_s)
            if not self._left:
                return
        self._left = tuple([shard for shard in self._left if not await self._scan_shard(shard, redone, report)])
        report.scanned = not self._left

    async def _scan_shard(self, shard: int, redone: Redone, report: RecoveryReport) -> bool:
        """Whether it was scanned to its end and every answer was heard."""
        limits = self.limits
        cursor, whole = b"", True
        while True:
            page = await self.registry.scan_owned(
                shard, redone.slot, redone.upto, cursor=cursor, limit=limits.page_ids, timeout=limits.ask_s
            )
            if isinstance(page, Refusal):
                return False
            if page.fenced:
                return True  # the slot is retired: who retires it gives its ids up, and lists them (rule 14)
            whole = await self._give_up(page, redone, report) and whole
            cursor = page.cursor
            await self.pause(limits.rest_s)
            if not cursor:
                return whole

    async def _give_up(self, page: EntryPage, redone: Redone, report: RecoveryReport) -> bool:
        incarnations = (page.tokens >> np.uint64(BATCH_BITS)).astype(np.int64)
        if (incarnations > redone.upto).any():
            raise AssertionError(f"a scan up to incarnation {redone.upto} gave ids of a later one")
        rows = np.flatnonzero(incarnations + INCARNATIONS_SINCE_MAX > redone.upto)
        report.older += len(page) - len(rows)
        if not len(rows):
            return True
        answers = await self.registry.reopen(
            take(page.digests, DIGEST_BYTES, rows),
            page.times[rows],
            page.tokens[rows],
            page.generations[rows],
            timeout=self.limits.ask_s,
        )
        reopened = rows[answers == Answer.REOPENED]
        report.recovered += len(reopened)
        report.unknown += int(np.count_nonzero(answers == Answer.UNKNOWN))
        report.examples += [_example(page, row) for row in reopened[: EXAMPLES_MAX - len(report.examples)].tolist()]
        return not np.any(answers == Answer.UNKNOWN)

    # -- notices -----------------------------------------------------------------------------------------------
    def _tell(self, redone: Redone, report: RecoveryReport) -> None:
        self.recovered += report.recovered
        if report.older:
            log.warning(
                "ids are owned since before the registry was restored; photon spark verify says which have no record",
                slot=redone.slot,
                ids=report.older,
            )
        if report.recovered or report.unknown:
            log.error(
                "ids were registered and never written: given up, to be joined again",
                slot=redone.slot,
                upto=redone.upto,
                ids=report.recovered,
                unknown=report.unknown,
                first=report.examples,
            )

    def _tell_waiting(self, redone: Redone, waits: str) -> None:
        """Lines in trouble need somebody's hand: until then nothing of this slot is recovered."""
        if waits != self._waits and ("refused" in waits or "not published" in waits):
            log.warning("recovery by token waits", slot=redone.slot, upto=redone.upto, why=waits)
        self._waits = waits


def _example(page: EntryPage, row: int) -> str:
    digest = page.digests[DIGEST_BYTES * row : DIGEST_BYTES * (row + 1)].hex()
    return f"{digest} of {int(page.times[row])} under {int(page.tokens[row]):016x}"
