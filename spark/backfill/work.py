"""What a backfill's tasks do on the executors: rows of the joined DataFrame to batches, and those to the output."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from photon.adapters.contract import Adapter, LogFile, Matching
from photon.adapters.envelope import Envelope
from photon.batch.events import Events, ForeignEvent
from photon.batch.records import PrimaryRecord, Records
from photon.config.certificate_files import load
from photon.config.clock import NEVER_NS, Clock, SystemClock
from photon.config.disk import RealDisk
from photon.eventstore.api import EventLookUps, LookUpCode
from photon.idregistry.api import Slot
from photon.idregistry.client.grpc_client import RegistryClient
from photon.joiner.api import WAIT_NS, Outcome
from photon.joiner.rows import Rows
from photon.joiner.verdicts import Judge, envelope_lines, rows_of, settle_mismatched
from photon.spark.backfill.attempt import BatchShell
from photon.spark.backfill.batch_names import ATTEMPT_WRITER, BackfillPaths, BatchName
from photon.spark.backfill.core import BatchCore
from photon.spark.backfill.driver import clear_staged
from photon.spark.backfill.parts import UNREGISTERED, PartWriter, encoder
from photon.spark.backfill.staging import Part
from photon.spark.primary_sets import is_too_large
from photon.spark.shipped_adapter import AdapterSpec, made

BATCH_ROWS = 20_000
BATCH_BYTES = 16 << 20
"""Of records on both sides: a batch, and so an output file, is about as large."""
COLUMNS = (
    "event_id", "digest", "key", "event_time_ns", "log", "offset", "header", "record", "unreadable", "primaries"
)  # fmt: skip
"""Of the joined DataFrame, in this order. ``primaries``: structs with ``log``, ``offset``, ``header`` and ``record``
of the primary events that the event may be joined with, in file order; null: none has the key."""


class RegistryPlace(msgspec.Struct, frozen=True):
    """How an executor reaches the registry."""

    addresses: dict[str, str]
    tls_directory: str | None = None
    """Certificates, on the shared file system."""
    identity: str = ""

    def client(self, clock: Clock) -> RegistryClient:
        """Call on the event loop. Raises what reading certificates does."""
        tls = None
        if self.tls_directory is not None:
            tls = load(Path(self.tls_directory), self.identity, datetime.now(UTC))
        return RegistryClient(self.addresses, clock=clock, tls=tls)


class BackfillTask(msgspec.Struct, frozen=True, kw_only=True):
    """What all tasks of a run share."""

    output: str
    slot: str
    datacentre: str
    incarnation: int
    own_incarnations: list[int]
    registry: RegistryPlace
    adapter: AdapterSpec
    format: str
    unmatched: bool
    registers: bool = True
    """False: what the registry has forgotten is written without it (``compare``)."""
    joined_at: bool = True
    batch_rows: int
    batch_bytes: int = BATCH_BYTES
    patience_s: float = 120.0
    """How long an attempt insists on an answer of the registry."""


class BackfillCounts(msgspec.Struct):
    """Events that a task has seen, by what became of them."""

    events: int = 0
    won: int = 0
    own: int = 0
    elsewhere: int = 0
    below_boundary: int = 0
    too_new: int = 0
    without_primary: int = 0
    """No primary event has their key; left unregistered."""
    unreadable: int = 0
    """Records without id, key or time; not among the events."""

    def add(self, other: BackfillCounts) -> None:
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class TaskResult(msgspec.Struct):
    """What a task tells the driver. ``parts``: those that no staged batch stands behind."""

    counts: BackfillCounts
    parts: list[Part]


Row = tuple[Any, ...]


class TaskAttempt:
    """One attempt of one task. Holds one batch in memory."""

    def __init__(self, task: BackfillTask, attempt: int, directory: Path) -> None:
        """``attempt``: Spark's, unique in the application. ``directory``: for the adapter's files."""
        self._task = task
        self._attempt = attempt
        self._adapter: Adapter = made(task.adapter, directory)
        self._judge = Judge(self._adapter, check_payloads=True)
        self._lines = envelope_lines(
            Envelope(with_joined_at=task.joined_at, with_token=task.registers, adapter=self._adapter)
        )
        self._places = BackfillPaths(Path(task.output))
        self._disk = RealDisk()
        self._clock = SystemClock()
        self._parts = PartWriter(self._disk, self._places, ATTEMPT_WRITER, encoder(task.format), task.format)
        self._number = 0
        self.counts = BackfillCounts()

    def run(self, rows: Iterable[Row]) -> TaskResult:
        """All rows. Raises AttemptFailed, OSError; what is staged stays for the driver."""
        task = self._task
        with asyncio.Runner() as runner:
            registry = runner.run(self._open())
            try:
                for some in batches(rows, task.batch_rows, task.batch_bytes):
                    if (rows_of_batch := self._decide(some)) is not None:
                        runner.run(self._register(registry, *rows_of_batch))
            finally:
                runner.run(registry.close())
        return TaskResult(self.counts, [])

    async def _open(self) -> RegistryClient:
        task = self._task
        registry = task.registry.client(self._clock)
        registry.announce(Slot(task.slot, task.datacentre), [task.incarnation])
        return registry

    def _decide(self, some: list[Row]) -> tuple[BatchName, Rows] | None:
        """What is to be registered and written; None: nothing."""
        task = self._task
        readable = [row for row in some if row[8] is None]
        self.counts.unreadable += len(some) - len(readable)
        self.counts.events += len(readable)
        events, found = columns_of(readable, self._adapter.matching, unmatched=task.unmatched)
        decided = self._judge.decide(events, found, frozenset())
        settle_mismatched(events, decided, NEVER_NS)
        self._judge.inline(events, decided)
        self.counts.without_primary += decided.outcomes.count(Outcome.NOT_YET)
        self.counts.own += len(decided.repeats)
        if not any(decided.kinds):
            return None
        batch = BatchName(task.incarnation, self._attempt, self._number)
        self._number += 1
        token = batch.token
        lines = self._lines(events, decided, token, self._clock.now_ns())
        return batch, rows_of(events, decided, lines, token)

    async def _register(self, registry: RegistryClient, batch: BatchName, rows: Rows) -> None:
        task = self._task
        shell = BatchShell(
            self._disk, self._places, registry, self._clock, self._parts, writer=ATTEMPT_WRITER, pause=asyncio.sleep
        )
        core = BatchCore(rows, frozenset(task.own_incarnations), self._clock.monotonic() + task.patience_s)
        await shell.run(batch, core, rows)
        for name in ("won", "own", "elsewhere", "below_boundary", "too_new"):
            setattr(self.counts, name, getattr(self.counts, name) + getattr(core.counts, name))


class UnregisteredAttempt(TaskAttempt):
    """Writes without asking: only for ids that nobody can register any more. Its parts count if Spark takes it."""

    def run(self, rows: Iterable[Row]) -> TaskResult:
        """Writes all rows. Raises OSError."""
        parts: list[Part] = []
        for some in batches(rows, self._task.batch_rows, self._task.batch_bytes):
            if (decided := self._decide(some)) is not None:
                batch, would_be = decided
                name = f"{UNREGISTERED}{batch}"
                parts += self._parts.write(name, would_be, np.arange(len(would_be)))
                self.counts.won += len(would_be)
        return TaskResult(self.counts, parts)


def batches(rows: Iterable[Row], rows_max: int, bytes_max: int) -> Iterator[list[Row]]:
    some: list[Row] = []
    size = 0
    for row in rows:
        some.append(row)
        size += len(row[7] or b"") + sum(len(each["record"]) for each in row[9] or ())
        if len(some) >= rows_max or size >= bytes_max:
            yield some
            some, size = [], 0
    if some:
        yield some


def columns_of(rows: list[Row], matching: Matching, *, unmatched: bool) -> tuple[Events, EventLookUps]:
    """As a joiner's batch and its event store's answers. All that there is has been read: a set is final, and so is a
    miss, where the operator said that it may be."""
    events, answers, records, counts = list[ForeignEvent](), bytearray(), list[PrimaryRecord](), list[int]()
    for row in rows:
        primaries = row[9] or ()
        final = unmatched or (matching.whole_sets and primaries)
        file = LogFile(row[4], row[6] or b"")
        events.append(
            ForeignEvent(row[0], row[1], row[3], row[2], row[7], file, row[5], NEVER_NS if final else WAIT_NS)
        )
        if matching.whole_sets and is_too_large([each["record"] for each in primaries]):
            answers.append(LookUpCode.TOO_MANY)
            continue
        answers.append(LookUpCode.FOUND if primaries else LookUpCode.ABSENT)
        records += (
            PrimaryRecord(each["record"], LogFile(each["log"], each["header"] or b""), each["offset"])
            for each in primaries
        )
        if primaries:
            counts.append(len(primaries))
    return Events.of(events), EventLookUps(bytes(answers), Records.of(records), {}, np.array(counts, np.uint32))


def clear_group(task: BackfillTask, batches_of_group: list[str]) -> int:
    """Clears the tokens of some published batches; ids cleared."""
    return asyncio.run(_clear(task, batches_of_group))


async def _clear(task: BackfillTask, names: list[str]) -> int:
    clock = SystemClock()
    registry = task.registry.client(clock)
    try:
        deadline = clock.monotonic() + task.patience_s
        return await clear_staged(RealDisk(), BackfillPaths(Path(task.output)), registry, names, deadline, clock)
    finally:
        await registry.close()
