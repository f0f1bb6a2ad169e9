"""The executors' side: processes one part of a batch from plain data. The driver runs small batches with the same
worker."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from socket import gethostname
from typing import TYPE_CHECKING, Any

import msgspec

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.envelope import Envelope
from photon.config.certificate_files import load
from photon.config.clock import Clock, SystemClock
from photon.config.disk import Disk, RealDisk
from photon.config.roles import Role, identity
from photon.config.tls import Tls, towards
from photon.dispatcher.retry import Patience
from photon.eventstore.client import EventStoreClient
from photon.idregistry.api import Digester, Slot
from photon.idregistry.client.grpc_client import RegistryClient
from photon.idregistry.client.routing import RoutedRegistry
from photon.joiner.slot.identity import SPARK_NAME
from photon.joiner.verdicts import Judge, envelope_lines
from photon.objects.paths import placed
from photon.spark.pipeline.deciding import Decider, EventStoreSilent
from photon.spark.pipeline.journal import Journal, Plan
from photon.spark.pipeline.part import Done, Fenced, RegistrySilent, Worker
from photon.spark.pipeline.reading import LogReader
from photon.spark.shipped_adapter import made
from photon.spark.sources import JoinSource, LogSource, reading_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from photon.spark.tasks import Run

NAME_BYTES = 6
SCHEMA = "done binary"
ENDS = {kind.__name__: kind for kind in (Fenced, RegistrySilent, EventStoreSilent)}


class RegistryPlace(msgspec.Struct, frozen=True):
    """How an executor connects to the registry."""

    addresses: dict[str, str]
    tls_directory: str | None = None  # certificates, on the shared file system
    identity: str = ""

    def client(self, clock: Clock) -> RegistryClient:
        """Makes a client. Call it on the event loop. Raises the errors of reading certificates."""
        tls = None
        if self.tls_directory is not None:
            tls = load(Path(self.tls_directory), self.identity, datetime.now(UTC))
        return RegistryClient(self.addresses, clock=clock, tls=tls)


class JoinPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a task needs besides the plan. Paths are the same on all machines."""

    join: JoinSource
    foreign: LogSource
    registry: RegistryPlace
    eventstore: str  # host:port
    state: str  # ``STATE/slots/SLOT``
    slot: str
    datacentre: str
    patience: Patience
    joined_at: bool = True

    @property
    def journal_directory(self) -> Path:
        return Path(self.state) / SPARK_NAME


class _Work(msgspec.Struct, frozen=True, kw_only=True):
    place: JoinPlace
    incarnation: int
    own_incarnations: list[int]
    plan: Plan
    paths: dict[str, str]  # logs that are elsewhere now -> where


class _Told(msgspec.Struct, frozen=True, array_like=True):
    """A task's answer. It carries errors in ``ENDS`` as data, because Spark would pointlessly retry a failed task."""

    done: Done | None
    why: str = ""
    said: str = ""


@asynccontextmanager
async def worker(
    place: JoinPlace,
    incarnation: int,
    own_incarnations: list[int],
    directory: Path,
    disk: Disk,
    clients: tuple[RoutedRegistry, EventStoreClient] | None = None,
    paths: dict[str, str] | None = None,
) -> AsyncIterator[Worker]:
    """Makes a task's worker. ``directory``: for the adapter's files; ``clients``: the driver's clients (default: new
    ones).

    Raises the errors of reading certificates.
    """
    clock = SystemClock()
    registry, store = clients or (place.registry.client(clock), event_store(place))
    registry.announce(Slot(place.slot, place.datacentre), own_incarnations)
    adapter = made(place.join.adapter, directory)
    envelope = Envelope(with_joined_at=place.joined_at, adapter=adapter)
    own = type(adapter) is ConfiguredAdapter  # its payloads are JSON by construction
    judge = Judge(adapter, check_payloads=not own)
    journal = Journal(disk, place.journal_directory)
    moved = {} if paths is None else paths
    reader = LogReader(
        placed(Path(), place.foreign.directory),
        reading_of(place.foreign, adapter, foreign=True),
        adapter,
        Digester(place.join.key, place.join.join),
        journal,
        moved.get,
        clock.now_ns,
        place.patience.slack_ns,
    )
    try:
        yield Worker(
            journal=journal,
            incarnation=incarnation,
            own_incarnations=own_incarnations,
            registry=registry,
            clock=clock,
            read=reader,
            decide=Decider(store, judge, envelope_lines(envelope), place.patience, clock),
            envelope=envelope,
            pause=asyncio.sleep,
            random_name=lambda: os.urandom(NAME_BYTES).hex(),
        )
    finally:
        if clients is None:
            await registry.close()
            await store.close()


def event_store(place: JoinPlace) -> EventStoreClient:
    """Makes a client. Call it on the event loop. Raises the errors of reading certificates."""
    tls: Tls | None = None
    if place.registry.tls_directory is not None:
        tls = load(Path(place.registry.tls_directory), place.registry.identity, datetime.now(UTC))
    to = towards(tls, identity(Role.DATACENTRE, place.datacentre))
    return EventStoreClient(place.eventstore, place.join.join, to=to)


def do_on_spark(
    spark: SparkSession,
    place: JoinPlace,
    incarnation: int,
    own_incarnations: list[int],
    plan: Plan,
    paths: dict[str, str],
) -> list[Done]:
    """Runs a task for each part. Raises like ``run_parts``."""
    work = _Work(place=place, incarnation=incarnation, own_incarnations=own_incarnations, plan=plan, paths=paths)
    events = sum(len(rest.rows) for part in plan.parts for rest in part.waiting)
    what = f"photon join {place.datacentre} · batch {plan.number}"
    said = f"{what} · {len(plan.parts)} parts, {events:,} waiting events"
    return run_parts(spark, _task, msgspec.msgpack.encode(work), len(plan.parts), said)


def run_parts(spark: SparkSession, task: Run, work: bytes, parts: int, said: str) -> list[Done]:
    """Runs a task for each part; the task returns the row made by ``told``. ``said``: a description for Spark's web
    page. Raises Fenced, RegistrySilent, EventStoreSilent, Spark's errors."""
    from photon.spark.tasks import frame

    spark.sparkContext.setJobDescription(said)
    rows = frame(spark, task, work, [b"%d" % number for number in range(parts)], SCHEMA).collect()
    found = [msgspec.msgpack.decode(bytes(row[0]), type=_Told) for row in rows]
    for why, kind in ENDS.items():
        for each in found:
            if each.why == why:
                raise kind(each.said)
    return [each.done for each in found if each.done is not None]


def told(doing: Coroutine[Any, Any, Done]) -> pa.RecordBatch:
    """Runs a part, and returns the task's row."""
    import pyarrow as pa

    try:
        answer = _Told(asyncio.run(doing))
    except tuple(ENDS.values()) as why:
        answer = _Told(None, type(why).__name__, f"on {gethostname()}: {why}")
    return pa.RecordBatch.from_arrays([pa.array([msgspec.msgpack.encode(answer)], pa.binary())], names=["done"])


def _task(shared: bytes, group: bytes) -> Iterator[pa.RecordBatch]:
    yield told(_do(msgspec.msgpack.decode(shared, type=_Work), int(group)))


async def _do(work: _Work, number: int) -> Done:
    from photon.spark.tasks import task_directory

    place, own = work.place, work.own_incarnations
    async with worker(place, work.incarnation, own, task_directory(), RealDisk(), paths=work.paths) as do:
        return await do(work.plan, number)
