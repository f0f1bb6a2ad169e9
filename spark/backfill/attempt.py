"""Executes the instructions of a batch's state machine on a disk and a registry. No Spark here, so simulations run
it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from photon.batch.ids import Ids
from photon.batch.verdicts import Verdicts
from photon.config.clock import Clock
from photon.config.disk import Disk
from photon.config.errors import PhotonError
from photon.joiner.rows import Rows
from photon.spark.backfill.batch_names import BackfillPaths, BatchName
from photon.spark.backfill.core import BatchCore, Finish, Insert, Instruction, Stage, Write
from photon.spark.backfill.parts import PartWriter
from photon.spark.backfill.staging import Part, result_of, stage, write_result

INSERT_S = 10.0  # for one request
PAUSE_FIRST_S = 0.1
PAUSE_MAX_S = 2.0


class InsertsIds(Protocol):
    async def insert(self, inserts: Ids, *, timeout: float) -> Verdicts: ...


@dataclass(slots=True, eq=False)
class AttemptFailed(PhotonError):
    """The attempt ends and leaves its staged data; the driver repeats its batches under their tokens."""

    batch: str
    reason: str

    def __str__(self) -> str:
        return f"backfill batch {self.batch}: {self.reason}; run the same command again to go on"


class BatchShell:
    """Runs batches of one writer, one after the other."""

    def __init__(
        self,
        disk: Disk,
        places: BackfillPaths,
        registry: InsertsIds,
        clock: Clock,
        parts: PartWriter,
        *,
        writer: str,
        pause: Callable[[float], Awaitable[None]],
    ) -> None:
        self._disk = disk
        self._places = places
        self._registry = registry
        self._clock = clock
        self._parts = parts
        self._writer = writer
        self._pause = pause

    async def run(self, batch: BatchName, core: BatchCore, rows: Rows) -> None:
        """Runs until the batch has a durable result. Raises AttemptFailed, OSError."""
        step: Instruction = core.begin()
        parts: list[Part] = []
        wait = 0.0
        while not isinstance(step, Finish):
            await self._pause(wait)
            if isinstance(step, Stage):
                stage(self._disk, self._places.staged(batch), rows, batch.token)
                step = core.staged()
            elif isinstance(step, Insert):
                answers = await self._registry.insert(rows.inserts(step.index), timeout=INSERT_S)
                step = core.answered(answers, self._clock.monotonic())
                wait = min(PAUSE_MAX_S, 2 * wait or PAUSE_FIRST_S) if isinstance(step, Insert) else 0.0
            elif isinstance(step, Write):
                parts = self._parts.write(str(batch), rows, step.winners)
                step = core.written()
            else:
                raise AttemptFailed(str(batch), step.reason)
        await self._pause(0.0)
        write_result(self._disk, self._places, result_of(batch, len(rows), step.winners, parts), self._writer)
