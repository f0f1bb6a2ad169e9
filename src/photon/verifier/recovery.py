"""Recovery by token (protocol rule 13; paper, section 3.3.3): gives up ids that a dead joiner owns and never wrote.

A slot's joiner publishes ``redone.json`` once its predecessors, incarnations up to i, have left nothing in its redo
log: each of their batches was dropped, or is in synced output within the lengths in the file (the *place*). If the
redo logs were intact, nothing is left to do. But if part of a log was corrupted, or a directory restored from an
older copy, ids that it had registered would stay owned permanently by a slot that has forgotten them. So once all
output up to the place has been read and every id in it cleared, ids *still* owned by incarnations up to i have no
record, and no process will write one: they are given up (reopened), and the dispatchers of all datacentres read them
again (``dispatcher/replay/reopened.py``).

Why no id is written twice
- The output up to the place is read first, then the registry is scanned. A record of these incarnations is below the
  place, or in a file that was final before: its id was cleared before the scan began, and a scan shows only owned
  ids. A line that cannot be read, or whose token the registry refused, counts as unread: nothing is given up before
  an operator has dealt with it.
- The verifier does not read bytes that are not published yet (not synced, not witnessed): it waits for them.
- Reopening compares the whole token when it is applied: an id that was taken since is left alone, even if the request
  arrives late.
- A registry that was restored from a backup has forgotten later clears and registrations. Its shards are closed, and
  give nothing up, until the outputs are registered again. Incarnations after the restore are far higher, so ids of
  earlier ones are recognised and left to the operator.

Why no id is lost, even if an insert of the dead process is still in flight
- The insert may arrive after the scan, in a shard that does not know of a newer incarnation yet (a shard that does
  answers STALE). If it takes a free id, that id is owned by i or an earlier incarnation, without a record. So one
  scan proves nothing: scans are repeated at growing intervals as long as the verifier runs. Waiting until each shard
  knows the newer incarnation would not be enough: a shard that is split off later learns it only then.
- The insert cannot take an id that was reopened: reopening raises the generation, and an insert carries the
  generation with which it was dispatched.
- After a crash at any point the scan begins again. A reopened id is on the registry's list until it has a new owner.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from photon.config.back_off import BackOff
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
EXAMPLES_MAX = 20  # ids named in a report; the counts are complete

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RecoveryLimits:
    """Sizes in ids, times in seconds."""

    page_ids: int = 2048
    rest_s: float = 0.02  # between two requests: each takes the registry some milliseconds
    ask_s: float = 5.0
    retry_s: float = 5.0  # after a shard did not answer: only that shard is asked again
    again: BackOff = BackOff(first=60.0, most=3600.0)  # interval of scans; it doubles each time nothing was found


@dataclass(slots=True)
class RecoveryReport:
    scanned: bool = False  # the last shard was scanned to its end, and every answer arrived
    recovered: int = 0
    unknown: int = 0  # requests to give up ids that got no answer: the next scan shows the result
    older: int = 0  # owned since before the registry was restored from a backup: left to the operator
    waits: str = ""  # why nothing may be given up yet; empty if nothing prevents it
    examples: list[str] = field(default_factory=list)


def read_redone(disk: Disk, state: Path) -> Redone | None:
    """Reads ``redone.json`` in this state directory; ``None`` if there is none yet.

    Raises PublishedDamaged, OSError.
    """
    return read_versioned(disk, state / REDONE_NAME, Redone, PublishedDamaged)


def unread(redone: Redone, published: SlotOutput, clearing: Clearing) -> str:
    """Returns why the output up to the place is not yet read and cleared; empty if it is."""
    files = {file.name: file for file in published.files}
    for name, length in sorted(redone.files.items()):
        file = files.get(name)
        if file is None:
            return f"{name} is not published any more"
        if file.final:
            if file.length < length:
                return f"{name} has become final with {file.length} bytes, but {length} were synced"
            continue
        if trouble := clearing.trouble.get(name):
            return f"{trouble} lines of {name} cannot be read, or the registry refused them"
        if (done := clearing.files.get(name, 0)) < length:
            return f"{name} is cleared up to byte {done} of {length}"
    return ""


@dataclass(eq=False)
class SlotRecovery:
    """The recovery of one slot. Keeps nothing on disk, as all of its work is idempotent."""

    disk: Disk
    slot_state: Path
    registry: Recovery
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep
    limits: RecoveryLimits = field(default_factory=RecoveryLimits)

    def __post_init__(self) -> None:
        self._upto = 0  # the incarnation of the scan under way, or of the last one
        self._scanned = -1  # the incarnation scanned to the end; a first incarnation says that up to 0 is redone
        self._left: tuple[int, ...] = ()  # remaining shards of the scan under way
        self._next_s = 0.0
        self._quiet = 0
        self._waits = ""
        self.recovered = 0  # ids given up since the process started

    async def run_once(self, now: float) -> RecoveryReport:
        """Looks once, at ``now`` (monotonic seconds); scans if that is due. Raises PublishedDamaged, OSError."""
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
        # The place of this very statement must have been read, so both are read after it.
        return unread(redone, read_slot(self.disk, self.slot_state), read_clearing(self.disk, self.slot_state))

    def _plan(self, redone: Redone, report: RecoveryReport, now: float) -> None:
        limits = self.limits
        self._upto = redone.upto
        if not report.scanned:
            self._next_s = now + limits.retry_s
            return
        quiet = self._scanned == redone.upto and not report.recovered
        self._quiet = self._quiet + 1 if quiet else 1
        self._scanned = redone.upto
        self._next_s = now + limits.again.delay(self._quiet)

    # -- the registry ------------------------------------------------------------------------------------------
    async def _scan(self, redone: Redone, report: RecoveryReport) -> None:
        if redone.upto != self._upto or not self._left:
            self._left = await self.registry.shards(timeout=self.limits.ask_s)
            if not self._left:
                return
        self._left = tuple([shard for shard in self._left if not await self._scan_shard(shard, redone, report)])
        report.scanned = not self._left

    async def _scan_shard(self, shard: int, redone: Redone, report: RecoveryReport) -> bool:
        """Scans a shard. Returns True if it reached the end and every answer arrived."""
        limits = self.limits
        cursor, whole = b"", True
        while True:
            page = await self.registry.scan_owned(
                shard, redone.slot, redone.upto, cursor=cursor, limit=limits.page_ids, timeout=limits.ask_s
            )
            if isinstance(page, Refusal):
                return False
            if page.fenced:
                return True  # the slot is retired: its retirement gives its ids up and lists them (rule 14)
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
                "ids owned before the registry was restored stay owned; photon spark verify says which lack a record",
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
        """Reports damaged lines: until an operator has dealt with them, nothing of this slot is recovered."""
        if waits != self._waits and ("refused" in waits or "not published" in waits):
            log.warning("recovery by token waits", slot=redone.slot, upto=redone.upto, why=waits)
        self._waits = waits


def _example(page: EntryPage, row: int) -> str:
    digest = page.digests[DIGEST_BYTES * row : DIGEST_BYTES * (row + 1)].hex()
    return f"{digest} of {int(page.times[row])} under {int(page.tokens[row]):016x}"
