"""Reads published records as messages to computations, and the watermarks of each batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from photon.adapters.formats.json_values import parse_line
from photon.computing.errors import ComputingError
from photon.computing.model import Record
from photon.computing.wire import ENDED_NS
from photon.config.clock import Clock, SystemClock
from photon.config.disk import RealDisk
from photon.config.errors import PhotonError
from photon.outputs.cursor import Cursor
from photon.outputs.ranges import read_range
from photon.spark.computing.operator import stages_of
from photon.spark.computing.plan import (
    KEY_PREFIX,
    MARKER,
    SCHEMA,
    Item,
    Marker,
    Plan,
    Reads,
    consumers,
    decoded,
    pack,
    topology_of,
    watermark_ns,
)
from photon.spark.data_source_options import counted, encoded, furthest, mark_of
from photon.spark.data_source_options import decoded as cursors_of
from photon.spark.outputs import RangeWork, source_ranges
from photon.spark.stream_watermarks import NS_PER_MS, UNKNOWN, Mark, SourceWatermarks, lowest
from photon.spark.tasks import fair_bytes, packed

if TYPE_CHECKING:
    import pyarrow as pa

NAME = "photon-compute"
SPLIT_BYTES = 16 << 20
# Without records, watermarks are sent at intervals of this share of the time since the last record, at most IDLE_S:
# each costs two batches with their files.
IDLE_SHARE, IDLE_S = 0.1, 10.0


class ComputeSource(DataSource):
    """The Spark data source that computations read. Its option ``plan`` is a Plan."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 Spark's name
        return ComputeStream(decoded(self.options["plan"].encode()), SystemClock())


class _Part(msgspec.Struct, frozen=True):
    works: list[RangeWork]
    marker: Marker | None
    column_us: int


class ComputeStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, plan: Plan, clock: Clock) -> None:
        self._plan, self._clock = plan, clock
        # When the last record arrived, and when the watermark last moved.
        self._came_s = self._moved_s = clock.monotonic()
        self._target: Mapping[str, Cursor] | None = None
        # True if this run reached the end of time. A run that starts there moves Spark's watermark once, so that keys
        # set aside are tried again.
        self._ended = False
        which = "exact" if plan.exact else "percentile"
        streams: dict[str, list[Reads]] = {}
        for each in plan.reads:
            streams.setdefault(each.stream, []).append(each)
        self._watermarks = [
            SourceWatermarks(RealDisk(), {each.name: Path(each.state) for each in reads}, reads[0].kinds, which)
            for reads in streams.values()
        ]

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 Spark's name
        return _offset({each.name: Cursor() for each in self._plan.reads}, UNKNOWN, UNKNOWN)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 Spark's name
        return ReadMaxRows(self._plan.records)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 Spark's name
        for each in self._watermarks:
            each.freeze()
        self._target = self._ends()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 Spark's name
        begun, mark = cursors_of(start), mark_of(start)
        if mark.time_ns is not None and mark.time_ns >= ENDED_NS:
            moved = mark if self._ended else _ended(mark.time_ns + NS_PER_MS)
            self._ended = True
            return _offset(begun, moved, mark)
        ends = self._ends() if self._target is None else self._target
        share = max(self._plan.records // len(self._plan.reads), 1)
        found = dict(begun)  # a place that is temporarily missing is not read from its beginning later
        for each in self._plan.reads:
            at = begun.get(each.name, Cursor())
            end = furthest(at, ends.get(each.name, Cursor()))
            if end != at:
                works = source_ranges(each.source, each.kinds, 1 << 62, since=at, until=end)
                end = counted(at, end, works, share, RealDisk())
            found[each.name] = end
        if self._plan.once and found == begun:
            self._ended = True
            return _offset(found, _ended(ENDED_NS), mark)
        now_s = self._clock.monotonic()
        if found != begun:
            self._came_s = now_s
        elif now_s - self._moved_s < min(IDLE_SHARE * (now_s - self._came_s), IDLE_S):
            return _offset(found, mark, mark)
        if (moved := mark.later(self._mark(found))) != mark:
            self._moved_s = now_s
        return _offset(found, moved, mark)

    def _mark(self, cursors: Mapping[str, Cursor]) -> Mark:
        """Returns the lowest watermark of all streams."""
        marks = [each.at(cursors) for each in self._watermarks]
        waiting = sum(each.waiting for each in marks)
        return Mark(lowest(each.time_ns for each in marks), waiting, lowest(each.exact_ns for each in marks))

    def _ends(self) -> Mapping[str, Cursor]:
        """Cursors at the current end of the published records."""
        disk = RealDisk()
        return {each.name: each.output_place.end(disk, each.kinds) for each in self._plan.reads}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        begun, ended, now = cursors_of(start), cursors_of(end), mark_of(end)
        works: list[RangeWork] = []
        for each in self._plan.reads:
            since, until = (at.get(each.name, Cursor()) for at in (begun, ended))
            if since != until:
                works += source_ranges(each.source, each.kinds, SPLIT_BYTES, since=since, until=until)
        mark = mark_of(end, "before")  # Spark's watermark in this batch is the one that the previous batch carried
        marker = Marker(watermark_ns(mark.time_ns), mark.waiting, mark.ms)
        size = fair_bytes(sum(work.end - work.start for work in works), len(self._plan.markers))
        groups = packed([(work, work.end - work.start) for work in works], size)
        parts = [_Part([], marker, now.column_us), *(_Part(group, None, now.column_us) for group in groups)]
        return [InputPartition(msgspec.json.encode(each)) for each in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        part = msgspec.json.decode(partition.value, type=_Part)
        if part.marker is not None:
            said = pack(part.marker)
            yield _batch([(MARKER, key, said) for key in self._plan.markers], part.column_us)
        topology = topology_of(self._plan.file, self._plan.text)
        stages = stages_of(topology)
        for work in part.works:
            stream = work.datacentre.partition("/")[0]
            asked = [(number, stages[number]) for number in consumers(topology, stream)]
            for lines in read_range(RealDisk(), work.part()):
                records, raw = _records(work, lines.offset, lines.data, stream)
                messages: dict[tuple[int, str], list[Item]] = {}
                for number, stage in asked:
                    keys = stage.keys_of(stage.part.inputs[stream], records)
                    if stage.faults:
                        raise ComputingError(
                            f"computation {stage.name}: {stage.faults[0].reason}; fix it and run again"
                        )
                    for key, record, line in zip(keys, records, raw, strict=True):
                        messages.setdefault((number, key), []).append(Item(record.time_ns, stream, line))
                yield _batch(
                    [(to, KEY_PREFIX + key, pack(items)) for (to, key), items in messages.items()], part.column_us
                )


def _ended(time_ns: int) -> Mark:
    """Returns the mark of streams that have ended."""
    return Mark(time_ns, exact_ns=time_ns)


def _offset(cursors: Mapping[str, Cursor], mark: Mark, before: Mark) -> dict[str, Any]:
    return {**encoded(cursors, mark), "before": asdict(before)}


def _records(work: RangeWork, at: int, data: bytes, stream: str) -> tuple[list[Record], list[bytes]]:
    """Decodes the lines of a range. Raises PhotonError for a line that is not an output record."""
    raw = data.splitlines()
    records = []
    for line in raw:
        try:
            value = parse_line(line)
            records.append(Record(value, value["event_time_ns"], stream))
        except (ValueError, TypeError, KeyError):
            raise PhotonError(
                f"{work.path}: the line at byte {at} is not an output record with an event time; see photon "
                "status verifier"
            ) from None
        at += len(line) + 1
    return records, raw


def _batch(rows: Sequence[tuple[int, str, bytes]], column_us: int) -> pa.RecordBatch:
    import pyarrow as pa

    to, keys, items = zip(*rows, strict=True) if rows else ((), (), ())
    columns = {
        "to": pa.array(to, pa.int32()),
        "key": pa.array(keys, pa.string()),
        "items": pa.array(items, pa.binary()),
        "watermark": pa.array([column_us] * len(rows), pa.timestamp("us", "UTC")),
    }
    return pa.RecordBatch.from_pydict(columns)
