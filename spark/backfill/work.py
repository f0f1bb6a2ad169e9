"""The executors' part of a backfill: rows of the joined DataFrame to batches, and batches to the output."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import Adapter, LogFile, Matching
from photon.adapters.envelope import Envelope
from photon.batch.columns import I64, U32
from photon.batch.events import Events
from photon.batch.records import Records
from photon.config.certificate_files import load
from photon.config.clock import NEVER_NS, Clock, SystemClock
from photon.eventstore.api import EventLookUps, LookUpCode
from photon.idregistry.api import Slot
from photon.idregistry.client.grpc_client import RegistryClient
from photon.joiner.api import WAIT_NS, Outcome
from photon.joiner.rows import Rows
from photon.joiner.verdicts import Judge, envelope_lines, rows_of, settle_mismatched
from photon.objects.disk import UrlDisk
from photon.spark.backfill.attempt import BatchShell
from photon.spark.backfill.batch_names import ATTEMPT_WRITER, BackfillPaths, BatchName
from photon.spark.backfill.core import BatchCore
from photon.spark.backfill.driver import clear_staged
from photon.spark.backfill.parts import UNREGISTERED, PartWriter, encoder
from photon.spark.backfill.staging import Part
from photon.spark.primary_sets import is_too_large
from photon.spark.shipped_adapter import AdapterSpec, made

BATCH_ROWS = 20_000
BATCH_BYTES = 16 << 20  # of records on both sides: the approximate size of a batch, and so of an output file
# Columns of the joined DataFrame. ``primaries``: structs with ``log``, ``offset``, ``header`` and ``record`` of the
# primary events that may join the event, in file order; null means that none has the key.
COLUMNS = (
    "event_id", "digest", "key", "event_time_ns", "log", "offset", "header", "record", "unreadable", "primaries"
)  # fmt: skip


class RegistryPlace(msgspec.Struct, frozen=True):
    """How an executor reaches the registry."""

    addresses: dict[str, str]
    tls_directory: str | None = None  # certificates, on the shared file system
    identity: str = ""

    def client(self, clock: Clock) -> RegistryClient:
        """Call on the event loop. Raises the errors of reading certificates."""
        tls = None
        if self.tls_directory is not None:
            tls = load(Path(self.tls_directory), self.identity, datetime.now(UTC))
        return RegistryClient(self.addresses, clock=clock, tls=tls)


class BackfillTask(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that all tasks of a run share."""

    output: str
    slot: str
    datacentre: str
    incarnation: int
    own_incarnations: list[int]
    registry: RegistryPlace
    adapter: AdapterSpec
    format: str
    unmatched: bool
    registers: bool = True  # False for ids that the registry has forgotten: written without it (``compare``)
    joined_at: bool = True
    batch_rows: int
    batch_bytes: int = BATCH_BYTES
    patience_s: float = 120.0  # how long an attempt keeps asking the registry


class BackfillCounts(msgspec.Struct):
    """Events that a task has seen, by outcome."""

    events: int = 0
    won: int = 0
    own: int = 0
    elsewhere: int = 0
    below_boundary: int = 0
    too_new: int = 0
    without_primary: int = 0  # no primary event has their key; left unregistered
    unreadable: int = 0  # records without id, key or time; not counted as events

    def add(self, other: BackfillCounts) -> None:
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class TaskResult(msgspec.Struct):
    """A task's message to the driver. ``parts``: those without a staged batch."""

    counts: BackfillCounts
    parts: list[Part]


class TaskAttempt:
    """One attempt of one task. Holds one batch in memory."""

    def __init__(self, task: BackfillTask, attempt: int, directory: Path) -> None:
        """``attempt``: Spark's, unique in the application. ``directory``: for the adapter's files."""
        self._task = task
        self._attempt = attempt
        self._adapter: Adapter = made(task.adapter, directory)
        own = type(self._adapter) is ConfiguredAdapter  # its payloads are JSON by construction
        self._judge = Judge(self._adapter, check_payloads=not own)
        self._lines = envelope_lines(
            Envelope(with_joined_at=task.joined_at, with_token=task.registers, adapter=self._adapter)
        )
        self._places = BackfillPaths.at(task.output)
        self._disk = UrlDisk()
        self._clock = SystemClock()
        self._parts = PartWriter(self._disk, self._places, ATTEMPT_WRITER, encoder(task.format), task.format)
        self._number = 0
        self.counts = BackfillCounts()

    def run(self, rows: Iterable[pa.RecordBatch]) -> TaskResult:
        """Processes all rows. Raises AttemptFailed, OSError; staged batches stay for the driver."""
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

    def _decide(self, some: pa.RecordBatch) -> tuple[BatchName, Rows] | None:
        """The rows to register and write; ``None`` means none."""
        task = self._task
        readable = some.filter(pc.is_null(some.column("unreadable")))
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
    """Writes without asking: only for ids that nobody can register any more. Its parts count if Spark accepts it."""

    def run(self, rows: Iterable[pa.RecordBatch]) -> TaskResult:
        """Writes all rows. Raises OSError."""
        parts: list[Part] = []
        for some in batches(rows, self._task.batch_rows, self._task.batch_bytes):
            if (decided := self._decide(some)) is not None:
                batch, would_be = decided
                name = f"{UNREGISTERED}{batch}"
                parts += self._parts.write(name, would_be, np.arange(len(would_be)))
                self.counts.won += len(would_be)
        return TaskResult(self.counts, parts)


def batches(rows: Iterable[pa.RecordBatch], rows_max: int, bytes_max: int) -> Iterator[pa.RecordBatch]:
    """The same rows, ``rows_max`` at a time, or fewer once they reach ``bytes_max`` of records."""
    some: list[pa.RecordBatch] = []
    count = size = 0
    for batch in rows:
        ends, begin = np.cumsum(_sizes(batch)), 0
        while begin < len(batch):
            before = int(ends[begin - 1]) if begin else 0
            full = int(np.searchsorted(ends, before + bytes_max - size)) + 1
            end = min(full, begin + rows_max - count, len(batch))
            some.append(batch.slice(begin, end - begin))
            count, size = count + end - begin, size + int(ends[end - 1]) - before
            begin = end
            if count >= rows_max or size >= bytes_max:
                yield pa.concat_batches(some)
                some, count, size = [], 0, 0
    if some:
        yield pa.concat_batches(some)


def _sizes(batch: pa.RecordBatch) -> I64:
    """Bytes of the records of each row, on both sides."""
    primaries = batch.column("primaries")
    counts, ends = _counts(primaries), np.zeros(1, np.int64)
    ends = np.append(ends, np.cumsum(_lengths(primaries.flatten().field("record"))))
    last = np.cumsum(counts)
    sizes: I64 = _lengths(batch.column("record")) + ends[last] - ends[last - counts]
    return sizes


def _lengths(values: pa.Array) -> I64:
    return np.asarray(pc.fill_null(pc.binary_length(values), 0), np.int64)


def _counts(primaries: pa.Array) -> I64:
    return np.asarray(pc.fill_null(pc.list_value_length(primaries), 0), np.int64)


def columns_of(batch: pa.RecordBatch, matching: Matching, *, unmatched: bool) -> tuple[Events, EventLookUps]:
    """The events as a joiner's batch with its event store's answers. All logs have been read: a set is final, and so
    is a miss, if the operator said that it may be."""
    counts, primaries = _counts(batch.column("primaries")), batch.column("primaries").flatten()
    records = primaries.field("record").to_pylist()
    final = np.full(len(counts), unmatched) | (matching.whole_sets & (counts > 0))
    codes = np.where(counts > 0, np.uint8(LookUpCode.FOUND), np.uint8(LookUpCode.ABSENT))
    files, file_index = _files(batch.column("log"), batch.column("header"))
    events = Events(
        files=files,
        file_index=file_index,
        offsets=batch.column("offset").to_numpy(),
        times=batch.column("event_time_ns").to_numpy(),
        digests=b"".join(batch.column("digest").to_pylist()),
        keys=batch.column("key").to_pylist(),
        ids=batch.column("event_id").to_pylist(),
        records=batch.column("record").to_pylist(),
        as_of=np.where(final, NEVER_NS, WAIT_NS),
        generations=np.zeros(len(counts), np.uint32),
    )
    files, file_index = _files(primaries.field("log"), primaries.field("header"))
    found = Records(files, file_index, primaries.field("offset").to_numpy(), records)
    if matching.whole_sets:
        sets = zip((np.cumsum(counts) - counts).tolist(), np.cumsum(counts).tolist(), strict=True)
        small = np.array([not is_too_large(records[begin:end]) for begin, end in sets], np.bool_)
        codes[~small] = LookUpCode.TOO_MANY
        found, counts = found.take(np.flatnonzero(np.repeat(small, counts))), counts[small]
    return events, EventLookUps(codes.tobytes(), found, {}, counts[counts > 0].astype(np.uint32))


def _files(logs: pa.Array, headers: pa.Array) -> tuple[list[LogFile], U32]:
    """The distinct files, and each row's index into them."""
    made: dict[tuple[str, bytes | None], int] = {}
    rows = zip(logs.to_pylist(), headers.to_pylist(), strict=True)
    index = np.array([made.setdefault(each, len(made)) for each in rows], np.uint32)
    return [LogFile(log, header or b"") for log, header in made], index


def clear_group(task: BackfillTask, batches_of_group: list[str]) -> int:
    """Clears the tokens of some published batches; returns the number of ids cleared."""
    return asyncio.run(_clear(task, batches_of_group))


async def _clear(task: BackfillTask, names: list[str]) -> int:
    clock = SystemClock()
    registry = task.registry.client(clock)
    try:
        deadline = clock.monotonic() + task.patience_s
        return await clear_staged(UrlDisk(), BackfillPaths.at(task.output), registry, names, deadline, clock)
    finally:
        await registry.close()
