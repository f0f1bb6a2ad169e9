"""The driver of a backfill: the join's driver, with all primary logs already read. It does not use Spark, so
simulations run it unchanged.

Batches are planned, done, committed and shown as in ``spark.pipeline.driver``: one batch, or more if a compressed log
is too large for one, or was renamed before it was read. Their staged rows stay until everything is shown, since at a
URL any later driver rebuilds the log from them. Then, in this order:

finished   created if absent; after this nothing is joined and no slot is opened
clear      clears the tokens of all winners, whose lines readers can see by now (rule 8)
tidy       deletes the staged files
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec
import numpy as np

from photon.adapters.logs.slices import StandingLog
from photon.batch.columns import RowIndexes, take_digests
from photon.config.clock import NEVER_NS, Clock
from photon.config.versioned_file import read_versioned
from photon.eventstore.api import Progress
from photon.idregistry.api import I64, U8, U64, Answer
from photon.spark.backfill.deciding import BackfillFailed
from photon.spark.backfill.known import BackfillDamaged
from photon.spark.pipeline.driver import REGISTRY_S, Driver
from photon.spark.pipeline.journal import Journal, LogAt
from photon.spark.pipeline.part import Fenced
from photon.spark.pipeline.staging import StagedIds, read_ids, winners_in

CLEAR_S = 10.0
CLEAR_IDS = 16_384


class ClearsTokens(Protocol):
    async def clear(self, digests: bytes, times: I64, tokens: U64, *, timeout: float) -> U8: ...


class Finished(msgspec.Struct, frozen=True, kw_only=True, tag_field="version", tag=1):
    """The file ``finished``, next to the journal's directories."""

    counts: dict[str, int]  # events by verdict
    files: int
    bytes: int


class AllRead:
    """Stands in for an event store whose primary logs have all been read."""

    async def progress(self) -> Progress:
        return Progress(NEVER_NS)


class BackfillDriver(Driver):
    """The driver of one backfill. Call ``begin``, then ``step`` until it returns ``None``."""

    def _tidy(self, newest: int) -> None:
        """Does nothing; ``end`` tidies."""

    def _look(self) -> None:
        """Does nothing: a backfill has no watermark."""

    def _check_state(self) -> None:
        try:
            super()._check_state()
        except FileNotFoundError:  # below a URL: it was replaced after this driver had seen it
            raise Fenced(f"slot {self.slot.name}: a newer driver has taken over; let it finish") from None

    def end(self) -> None:
        """Closes all files permanently. Call it after the last ``step``. Raises BackfillFailed, OSError."""
        listed = {log.identity for log in self.listing.logs}
        for log in self.logs.values():
            if not log.ended and log.identity not in listed:
                raise BackfillFailed(
                    f"{log.path}: was removed before it was read; restore it and run the same command again"
                )
        self._log.publish(now=None)


def to_read(logs: Iterable[StandingLog], known: Mapping[str, LogAt], oldest_ns: int | None) -> list[StandingLog]:
    """Returns the logs for the next batch: new ones, and those with unread bytes. ``oldest_ns``: new logs last
    written before this time are skipped, as they hold no events of the range."""
    found = []
    for log in logs:
        at = known.get(log.identity)
        is_old = oldest_ns is not None and log.mtime_ns < oldest_ns
        if not at.ended if at is not None else not is_old:
            found.append(log)
    return found


def _damaged(path: Path, why: str) -> BackfillDamaged:
    return BackfillDamaged(f"{path}: unreadable ({why}); restore it from the file system's backup")


@dataclass(frozen=True, slots=True)
class Completion:
    """Runs a backfill's last steps in order. If the process is killed, the next run repeats them."""

    journal: Journal
    registry: ClearsTokens
    boundary_ns: int  # ids of earlier times were not registered
    clock: Clock
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep

    def finished(self) -> Finished | None:
        """Reads the file ``finished``. Raises BackfillDamaged."""
        return read_versioned(self.journal.disk, self._mark, Finished, _damaged)

    async def __call__(self, join: Callable[[], Awaitable[Finished]]) -> tuple[Finished, int]:
        """Runs the steps. Returns the content of ``finished`` and the number of ids cleared. ``join``: runs all
        batches, and returns once readers see everything. Raises BackfillFailed, BackfillDamaged, JournalDamaged,
        StagingDamaged, OSError."""
        if (result := self.finished()) is None:
            result = await join()
            await self.pause(0.0)
            self.journal.disk.create(self._mark, msgspec.json.encode(result))
        cleared = await self.clear()
        await self.pause(0.0)
        self.tidy()
        return result, cleared

    @property
    def _mark(self) -> Path:
        return self.journal.directory / "finished"

    def tidy(self) -> None:
        self.journal.tidy_parts(max(self.journal.parts(), default=-1))

    async def clear(self) -> int:
        """Clears the ids of all winners, and returns their number. A part whose rows are gone was cleared before."""
        journal, cleared = self.journal, 0
        for batch, names in journal.parts().items():
            for name in names:
                part, _, what = name.partition("-")[2].partition(".")
                if what != "decided" or name.startswith("."):
                    continue
                decision, result = journal.decision(batch, int(part)), journal.result(batch, int(part))
                if decision is not None and result is not None and decision.staged in names:
                    ids = read_ids(journal.disk, journal.part_path(decision.staged))
                    winners = winners_in(result.won, result.rows)
                    winners = winners[ids.times[winners] >= self.boundary_ns]
                    await self._clear(ids, winners)
                    cleared += len(winners)
        return cleared

    async def _clear(self, ids: StagedIds, left: RowIndexes) -> None:
        deadline = self.clock.monotonic() + REGISTRY_S
        while len(left):
            some = left[:CLEAR_IDS]
            tokens = np.full(len(some), ids.token, np.uint64)
            digests = take_digests(ids.digests, some)
            answers = await self.registry.clear(digests, ids.times[some], tokens, timeout=CLEAR_S)
            if refused := int((answers == Answer.REFUSED).sum()):
                raise BackfillFailed(
                    f"{self.journal.directory}: {refused} published ids are not registered to this backfill; "
                    "keep the output and run photon spark verify over the range"
                )
            unknown = some[answers == Answer.UNKNOWN]
            left = np.concatenate([unknown, left[CLEAR_IDS:]])
            if len(unknown):
                if self.clock.monotonic() >= deadline:
                    raise BackfillFailed("the registry does not answer; run the same command again once it does")
                await self.pause(0.1)
