"""The executors' side of a backfill: finds the primary records of parts, and joins the parts."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from itertools import groupby, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import Adapter
from photon.adapters.envelope import Envelope
from photon.config.clock import SystemClock
from photon.config.disk import Disk
from photon.idregistry.api import Digester, Slot
from photon.joiner.matching import question
from photon.joiner.verdicts import Judge, envelope_lines
from photon.objects.disk import UrlDisk
from photon.objects.paths import placed
from photon.spark.backfill.deciding import ComparedIds, FinalDecider, FoundPrimaries, RangeReader
from photon.spark.pipeline.journal import Journal, Plan
from photon.spark.pipeline.part import Done, InsertsIds, Worker
from photon.spark.pipeline.reading import LogReader
from photon.spark.pipeline.tasks import NAME_BYTES, RegistryPlace, run_parts, told
from photon.spark.shipped_adapter import made
from photon.spark.sources import JoinSource, LogSource, reading_of
from photon.spark.tasks import frame, task_directory

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

FOUND = "found"  # the directory, next to those of the journal
KEYS = "part int, key binary, event_time_ns bigint"
IDS = "part int, digest binary, event_time_ns bigint"

Found = dict[int, str]  # part -> a file in ``found``


class BackfillPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a task needs besides the plan. Paths are the same on all machines."""

    join: JoinSource
    foreign: LogSource  # its window is the backfill's range
    registry: RegistryPlace
    journal: str
    slot: str
    datacentre: str
    unmatched: bool
    boundary_ns: int
    joined_at: bool = True

    @property
    def is_compared(self) -> bool:
        """True if part of the range is before the registry's boundary."""
        return self.foreign.window.begin_ns is not None and self.boundary_ns > self.foreign.window.begin_ns

    def found(self, name: str) -> Path:
        """Returns the path of a file in the directory ``found``."""
        return placed(Path(), self.journal) / FOUND / name


class PartsToDo(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of one batch."""

    place: BackfillPlace
    plan: Plan
    paths: dict[str, str]  # logs that are elsewhere now -> where
    incarnation: int = 0
    own_incarnations: list[int] = []
    primaries: Found = {}
    free: Found = {}  # digests before the boundary that no output has

    def reader(self, adapter: Adapter, disk: Disk) -> RangeReader:
        foreign, join = self.place.foreign, self.place.join
        journal = Journal(disk, placed(Path(), self.place.journal))
        reading = reading_of(foreign, adapter, foreign=True)
        digester = Digester(join.key, join.join)
        directory = placed(Path(), foreign.directory)
        read = LogReader(directory, reading, adapter, digester, journal, self.paths.get)
        return RangeReader(read, foreign.window)


def do_on_spark(spark: SparkSession, work: PartsToDo) -> list[Done]:
    """Runs a task for each part. Raises Fenced, and Spark's errors."""
    said = f"photon backfill {work.place.datacentre} · batch {work.plan.number} · {len(work.plan.parts)} parts"
    return run_parts(spark, _task, msgspec.msgpack.encode(work), len(work.plan.parts), said)


def _work(shared: bytes) -> PartsToDo:
    return msgspec.msgpack.decode(shared, type=PartsToDo)


def _task(shared: bytes, group: bytes) -> Iterator[pa.RecordBatch]:
    yield told(_do(_work(shared), int(group)))


async def _do(work: PartsToDo, number: int) -> Done:
    place, disk, clock = work.place, UrlDisk(), SystemClock()
    registry = place.registry.client(clock)
    registry.announce(Slot(place.slot, place.datacentre), work.own_incarnations)
    adapter = made(place.join.adapter, task_directory())
    inserts: InsertsIds = registry
    if place.is_compared:
        free = work.free.get(number)
        digests = [] if free is None else read_table(disk, place.found(free)).column("digest").to_pylist()
        inserts = ComparedIds(registry, place.boundary_ns, frozenset(digests))
    try:
        do = Worker(
            journal=Journal(disk, placed(Path(), place.journal)),
            incarnation=work.incarnation,
            own_incarnations=work.own_incarnations,
            registry=inserts,
            clock=clock,
            read=work.reader(adapter, disk),
            decide=_decider(work, number, adapter, disk),
            envelope=None,
            pause=asyncio.sleep,
            random_name=lambda: os.urandom(NAME_BYTES).hex(),
        )
        return await do(work.plan, number)
    finally:
        await registry.close()


def _decider(work: PartsToDo, number: int, adapter: Adapter, disk: Disk) -> FinalDecider:
    place = work.place
    found = work.primaries.get(number)  # missing if the part is decided, or has no events
    own = type(adapter) is ConfiguredAdapter  # its payloads are JSON by construction

    def envelope(*, with_token: bool) -> Envelope:
        return Envelope(with_joined_at=place.joined_at, with_token=with_token, adapter=adapter)

    return FinalDecider(
        store=FoundPrimaries(None if found is None else read_table(disk, place.found(found))),
        judge=Judge(adapter, check_payloads=not own),
        whole_sets=adapter.matching.whole_sets,
        lines=envelope_lines(envelope(with_token=True)),
        unmarked=envelope_lines(envelope(with_token=False)),
        boundary_ns=place.boundary_ns,
        unmatched=place.unmatched,
        clock=SystemClock(),
    )


# -- what parts read ---------------------------------------------------------------------------------------------
def keys_of(spark: SparkSession, work: PartsToDo, parts: Sequence[int]) -> DataFrame:
    """Returns KEYS: the distinct keys of each part's events, without times; for ``match = "latest"``, each key and
    time."""
    return frame(spark, _keys, msgspec.msgpack.encode(work), [b"%d" % part for part in parts], KEYS)


def ids_below(spark: SparkSession, work: PartsToDo) -> DataFrame:
    """Returns IDS: the ids of the events before the boundary."""
    return frame(spark, _ids, msgspec.msgpack.encode(work), [b"%d" % n for n in range(len(work.plan.parts))], IDS)


def _read(shared: bytes, group: bytes) -> Any:
    work = _work(shared)
    adapter = made(work.place.join.adapter, task_directory())
    return work, work.reader(adapter, UrlDisk())(work.plan, work.plan.parts[int(group)]).events


def _keys(shared: bytes, group: bytes) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    work, events = _read(shared, group)
    wanted = question(made(work.place.join.adapter, task_directory()), events)
    asked = dict.fromkeys(zip(wanted.keys, wanted.times or repeat(None), strict=False))
    keys, times = pa.array([key for key, _ in asked], pa.binary()), pa.array([time for _, time in asked], pa.int64())
    part = pa.repeat(pa.scalar(int(group), pa.int32()), len(keys))
    yield pa.RecordBatch.from_arrays([part, keys, times], ["part", "key", "event_time_ns"])


def _ids(shared: bytes, group: bytes) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    from photon.spark.arrow_columns import bigints, digests_column

    work, events = _read(shared, group)
    events = events.take(np.flatnonzero(events.times < work.place.boundary_ns))
    columns = [pa.repeat(pa.scalar(int(group), pa.int32()), len(events)), digests_column(events.digests)]
    yield pa.RecordBatch.from_arrays([*columns, bigints(events.times)], ["part", "digest", "event_time_ns"])


# -- files of parts ----------------------------------------------------------------------------------------------
def written(rows: DataFrame, place: BackfillPlace, batch: int, parts: int) -> Found:
    """Writes the rows of each ``part`` to one file. A part without rows gets no file."""
    spark = rows.sparkSession
    shared = spark.sparkContext.broadcast(msgspec.msgpack.encode((place, batch)))

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        where, number = msgspec.msgpack.decode(shared.value, type=tuple[BackfillPlace, int])
        yield from _write(where, number, batches)

    each = rows.repartition(parts, "part").sortWithinPartitions("part")
    return dict(map(tuple, each.mapInArrow(write, "part int, name string").collect()))


def _write(place: BackfillPlace, batch: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    disk = UrlDisk()
    disk.make_dir(place.found(""))
    pieces = (piece for each in batches for piece in _by_part(each))
    for part, rows in groupby(pieces, key=lambda piece: piece[0]):
        sink, writer = pa.BufferOutputStream(), None
        for _, piece in rows:
            writer = writer or pa.ipc.new_stream(sink, piece.schema)
            writer.write_batch(piece)
        assert writer is not None, "a group has at least one piece"
        writer.close()
        name = f"{batch}-{part}.{os.urandom(NAME_BYTES).hex()}"  # unique to this attempt
        disk.replace(place.found(name), sink.getvalue().to_pybytes())
        columns = [pa.array([part], pa.int32()), pa.array([name], pa.string())]
        yield pa.RecordBatch.from_arrays(columns, names=["part", "name"])


def _by_part(rows: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Splits rows, sorted by part, into one batch per part."""
    parts = rows.column(0).to_numpy()
    starts = np.flatnonzero(np.diff(parts, prepend=-1)).tolist()
    for begin, end in zip(starts, [*starts, len(parts)][1:], strict=True):
        yield int(parts[begin]), rows.slice(begin, end - begin)


def read_table(disk: Disk, path: Path) -> pa.Table:
    """Reads a file that ``written`` wrote."""
    import pyarrow as pa

    with pa.ipc.open_stream(pa.py_buffer(disk.read(path))) as reader:
        return reader.read_all()
