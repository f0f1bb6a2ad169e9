"""Makes joined output and registry exports a Spark data source: ``spark.read.format("photon")`` and ``readStream``.

Users need not know Photon's files; they get exactly the published lines (docs/output.md). The columns are in
``ENVELOPE``; ``photon.spark.register`` makes the format known to a session. Readers accept no filters from Spark: see
``OutputReader``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from photon.adapters.join_adapters import join_named
from photon.config.disk import RealDisk
from photon.config.errors import PhotonError, UsageError
from photon.config.loader import load
from photon.config.units import moment_ns
from photon.objects.disk import UrlDisk
from photon.objects.paths import ObjectPath, placed
from photon.outputs.cursor import Cursor
from photon.outputs.output_places import KINDS, OutputPlace
from photon.spark import schemas
from photon.spark.data_source_options import (
    PayloadColumn,
    TimeRange,
    bounded,
    counted,
    decoded,
    encoded,
    furthest,
    mark_of,
    parse_columns,
    parsed,
)
from photon.spark.exports import export_rows, plan_export
from photon.spark.output_lines import OutputColumns, OutputLine
from photon.spark.outputs import RangeWork, place_of, read_work, source_ranges
from photon.spark.sources import OutputSource, RegistrySource, output_source
from photon.spark.stream_watermarks import KIND, UNKNOWN, WHICH, Mark, SourceWatermarks
from photon.spark.tasks import fair_bytes, packed

if TYPE_CHECKING:
    import pyarrow as pa

NAME = "photon"
LOCAL = "local"  # the datacentre of an output of ``photon join``
# Columns of output lines; ``{bytes}``: string, or binary with the option ``binary``.
ENVELOPE = (
    "datacentre string, slot string, kind string, event_id {bytes}, key {bytes}, event_time timestamp, "
    "event_time_ns bigint, hour bigint, foreign {bytes}, primary {bytes}, record {bytes}, reason string, "
    "source_file string, source_offset bigint, primary_file string, primary_offset bigint, written_at string, "
    "token string, file string, offset bigint, pair bigint, pairs bigint"
)
# Columns of a stream that carries its watermark: see ``stream_watermarks``.
CARRIED = "watermark timestamp, waiting bigint"
OPTIONS = frozenset(
    {"path", "datacentre", "join", "kind", "from", "to", "columns", "binary", "export", "partitionbytes",
     "maxbytespertrigger", "maxrecordspertrigger", "startingoffsets", "watermark"}
)  # fmt: skip
CORES = 8  # minimum number of readers if the number of cores is unknown
TRUE, FALSE = ("true", "1", "yes"), ("false", "0", "no")


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The checked options of a read."""

    sources: tuple[OutputSource, ...]
    export: RegistrySource | None
    kinds: tuple[str, ...]
    times: TimeRange
    pulled: tuple[PayloadColumn, ...]
    binary: bool
    partition_bytes: int | None
    trigger_bytes: int | None
    trigger_records: int | None
    from_latest: bool
    watermark: str | None  # one of WHICH; None means none is carried

    @property
    def schema(self) -> str:
        if self.export is not None:
            return schemas.REGISTRY
        envelope = ENVELOPE.format(bytes="binary" if self.binary else "string")
        carried = [] if self.watermark is None else [CARRIED]
        return ", ".join([envelope, *carried, *(f"{each.name} {each.kind}" for each in self.pulled)])


def read_options(given: Mapping[str, str]) -> SourceOptions:
    """Checks the options of a read. Raises UsageError."""
    options = {name.lower(): value for name, value in given.items()}
    unknown = sorted(set(options) - OPTIONS)
    if unknown:
        raise UsageError(f"option {unknown[0]!r}: unknown; there are: {', '.join(sorted(OPTIONS))}")
    if ("path" in options) == ("export" in options):
        raise UsageError('name either "path" (an output of photon join, or a deployment file) or "export" (a backup)')
    kinds = tuple(_listed(options.get("kind", "joined")))
    for kind in kinds:
        if kind not in KINDS:
            raise UsageError(f"kind {kind!r}: is not known; there are: {', '.join(KINDS)}")
    watermark = options.get("watermark")
    if watermark not in (None, *WHICH):
        raise UsageError(f"watermark {watermark!r}: must be {' or '.join(WHICH)}")
    taken = ENVELOPE if watermark is None else f"{ENVELOPE}, {CARRIED}"
    names = {column.split(" ")[0]: "" for column in taken.split(", ")}
    starting = options.get("startingoffsets", "earliest")
    if starting not in ("earliest", "latest"):
        raise UsageError(f"startingOffsets {starting!r}: must be earliest or latest")
    pulled = tuple(parse_columns(options.get("columns", ""), names))
    export = options.get("export")
    sources = () if export is not None else tuple(_sources(options))
    if watermark is not None and (urls := [each.output for each in sources if not each.state]):
        raise UsageError(f"watermark: {urls[0]} has no watermark; read the original output")
    return SourceOptions(
        sources,
        None if export is None else RegistrySource(directory=str(Path(export).absolute())),
        kinds,
        TimeRange(_time("from", options.get("from")), _time("to", options.get("to"))),
        pulled,
        _flag("binary", options.get("binary", "false")),
        _number("partitionBytes", options.get("partitionbytes")),
        _number("maxBytesPerTrigger", options.get("maxbytespertrigger")),
        _number("maxRecordsPerTrigger", options.get("maxrecordspertrigger"), "records"),
        starting == "latest",
        watermark,
    )


def _listed(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]


def _flag(name: str, text: str) -> bool:
    if text.lower() not in TRUE + FALSE:
        raise UsageError(f"{name} {text!r}: must be true or false")
    return text.lower() in TRUE


def _number(name: str, text: str | None, what: str = "bytes") -> int | None:
    if text is None:
        return None
    if not text.isdecimal() or not int(text):
        raise UsageError(f"{name} {text!r}: must be a number of {what}, at least 1")
    return int(text)


def _time(name: str, text: str | None) -> int | None:
    try:
        return None if text is None else moment_ns(text, time.time_ns())
    except ValueError as error:
        raise UsageError(f"{name} {text!r}: {error}") from None


def _sources(options: Mapping[str, str]) -> Iterator[OutputSource]:
    path = placed(Path(), options["path"]).absolute()
    if isinstance(path, ObjectPath):
        yield OutputSource(datacentre=options.get("datacentre", LOCAL), output=str(path))
        return
    if path.suffix != ".toml":
        place = OutputPlace.of_join(path)
        yield OutputSource(datacentre=LOCAL, output=str(place.output), state=str(place.state))
        return
    settings = load(path, environment={})
    join = join_named(settings, options.get("join"))
    there = {name: each for name, each in sorted(settings.datacentre.items()) if each.join == join}
    wanted = _listed(options["datacentre"]) if "datacentre" in options else list(there)
    for name in wanted:
        if name not in there:
            raise UsageError(f"datacentre {name!r}: has no pipeline of join {join}; there are: {', '.join(there)}")
        yield output_source(path.parent, name, there[name])


# -- the source ----------------------------------------------------------------------------------------------------
class PhotonSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return read_options(self.options).schema

    def reader(self, schema: StructType) -> DataSourceReader:
        options = read_options(self.options)
        if options.watermark is not None:
            raise UsageError("watermark: needs a stream; for a batch use photon watermark")
        _check_schema(schema, options)
        return ExportReader(options) if options.export is not None else OutputReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 Spark's name
        options = read_options(self.options)
        if options.export is not None:
            raise UsageError("export: can only be read as a batch")
        _check_schema(schema, options)
        return OutputStream(options, schema)


def _check_schema(schema: StructType, options: SourceOptions) -> None:
    ours = {each.split(" ")[0]: each.split(" ")[1] for each in options.schema.split(", ")}
    for field in schema.fields:
        if ours.get(field.name) != field.dataType.simpleString():
            there = ours.get(field.name)
            todo = f"it is {there}" if there else "add it with the option columns, or leave out the schema"
            raise UsageError(f"schema: {field.name} {field.dataType.simpleString()} is not supported; {todo}")


class RangePartition(InputPartition):
    """Ranges of output files that one task reads. With ``moves``, there are no ranges, only a row for the
    watermark."""

    def __init__(self, works: Sequence[RangeWork], mark: Mark = UNKNOWN, *, moves: bool = False) -> None:
        super().__init__(msgspec.json.encode((list(works), mark, moves)))

    def parts(self) -> tuple[list[RangeWork], Mark, bool]:
        return msgspec.json.decode(self.value, type=tuple[list[RangeWork], Mark, bool])


def partitions_of(works: Sequence[RangeWork], size: int, mark: Mark = UNKNOWN) -> list[RangePartition]:
    """Groups ranges into partitions of about ``size`` bytes. Returns at least one, because for an empty list Spark
    passes ``None`` to the reader."""
    groups = packed([(work, work.end - work.start) for work in works], size)
    return [RangePartition(group, mark) for group in groups or [[]]]


class OutputReader(DataSourceReader):
    """Reads as a batch everything that is published when the batch is planned.

    It accepts no filters from Spark, because Spark 4.3 reuses one query's filters in the next query on the same
    frame, and rows would silently be missing. To read a range of event times, set it as an option (``TimeRange``).
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._rows = RowMaker(options, schema)

    def partitions(self) -> Sequence[InputPartition]:
        works = self._works(1 << 62)
        size = self._options.partition_bytes or fair_bytes(sum(work.end - work.start for work in works), CORES)
        return partitions_of(self._works(size), size)

    def _works(self, split_bytes: int) -> list[RangeWork]:
        return [
            work
            for source in self._options.sources
            for work in source_ranges(source, self._options.kinds, split_bytes)
            if self._options.times.keeps_file(work)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RangePartition)
        works, mark, _ = partition.parts()
        return self._rows.read(works, mark)


class ExportReader(DataSourceReader):
    def __init__(self, options: SourceOptions) -> None:
        assert options.export is not None
        # Planned here, as changes that ``partitions`` makes to this object do not reach ``read``.
        self._shared, self._parts = plan_export(options.export, CORES, options.partition_bytes)

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(part) for part in self._parts] or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return iter(()) if partition.value is None else export_rows(self._shared, partition.value)


class OutputStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads output as it grows. An offset is a cursor for each datacentre, so lines before a checkpoint are not read
    again. In a stream with a watermark, the offset carries the watermark too, so a repeated batch has the same
    one."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._rows = RowMaker(options, schema)
        self._target: dict[str, Cursor] | None = None  # the end, with an available-now trigger
        states = {each.datacentre: Path(each.state) for each in options.sources}
        which = options.watermark
        self._watermarks = which and SourceWatermarks(RealDisk(), states, options.kinds, which)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 Spark's name
        start = (
            self._ends()
            if self._options.from_latest
            else {each.datacentre: Cursor() for each in self._options.sources}
        )
        return encoded(start, UNKNOWN if self._watermarks else None)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 Spark's name
        size, records = self._options.trigger_bytes, self._options.trigger_records
        if records is not None:
            return ReadMaxRows(records)
        return ReadAllAvailable() if size is None else ReadMaxBytes(size)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 Spark's name
        if self._watermarks:  # before the end of the data: it covers no more than that
            self._watermarks.freeze()
        self._target = self._ends()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 Spark's name
        begun = decoded(start)
        ends = self._ends() if self._target is None else self._target
        found = dict(begun)  # so a datacentre that is temporarily left out is not reread from its beginning
        for source in self._options.sources:
            at = begun.get(source.datacentre, Cursor())
            end = furthest(at, ends.get(source.datacentre, Cursor()))
            found[source.datacentre] = self._bounded(source, at, end, limit)
        return encoded(found, mark_of(start).later(self._watermarks.at(found)) if self._watermarks else None)

    def _bounded(self, source: OutputSource, at: Cursor, end: Cursor, limit: ReadLimit) -> Cursor:
        """Returns where a batch ends; each datacentre gets the same share of ``limit``."""
        if isinstance(limit, ReadAllAvailable):
            return end
        shares, kinds = len(self._options.sources), self._options.kinds
        size = limit.max_bytes if isinstance(limit, ReadMaxBytes) else self._options.trigger_bytes
        if size is not None:
            works = source_ranges(source, kinds, 1 << 62, since=at, until=end)
            end = bounded(at, end, works, max(size // shares, 1))
        records = limit.max_rows if isinstance(limit, ReadMaxRows) else self._options.trigger_records
        if records is not None:
            works = source_ranges(source, kinds, 1 << 62, since=at, until=end)
            end = counted(at, end, works, max(records // shares, 1), UrlDisk())
        return end

    def _ends(self) -> dict[str, Cursor]:
        """Returns the cursors at the current end of the published lines."""
        disk, kinds = UrlDisk(), self._options.kinds
        return {each.datacentre: place_of(each).end(disk, kinds) for each in self._options.sources}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        begun, ended = decoded(start), decoded(end)
        works: list[RangeWork] = []
        for source in self._options.sources:
            since, until = (each.get(source.datacentre, Cursor()) for each in (begun, ended))
            works += source_ranges(source, self._options.kinds, 64 << 20, since=since, until=until)
        size = self._options.partition_bytes or fair_bytes(sum(work.end - work.start for work in works), CORES)
        mark = mark_of(end)
        moved = mark != mark_of(start)
        return [*partitions_of(works, size, mark), *([RangePartition([], mark, moves=True)] if moved else [])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RangePartition)
        works, mark, moves = partition.parts()
        return self._rows.only(mark) if moves else self._rows.read(works, mark)


# -- rows ----------------------------------------------------------------------------------------------------------
class TornLine(PhotonError):
    """A published line is not an output record. The message is one line."""


class RowMaker:
    """Converts output lines to rows with the columns of a schema."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._binary, self._times = options.binary, options.times
        self._pulled = {each.name: each for each in options.pulled}
        self._schema = schema

    def only(self, mark: Mark) -> Iterator[pa.RecordBatch]:
        """Yields a row that has only the watermark."""
        import pyarrow as pa
        from pyspark.sql.pandas.types import to_arrow_schema

        schema = to_arrow_schema(self._schema, timezone="UTC")
        said = {"kind": KIND, "watermark": mark.column_us, "waiting": mark.waiting}
        yield pa.RecordBatch.from_arrays([pa.array([said.get(f.name)], f.type) for f in schema], schema=schema)

    def read(self, works: Iterable[RangeWork], mark: Mark = UNKNOWN) -> Iterator[pa.RecordBatch]:
        """Yields rows. Raises TornLine, as someone who bills from these rows must not miss a line unnoticed."""
        from pyspark.sql.pandas.types import to_arrow_schema

        schema = to_arrow_schema(self._schema, timezone="UTC")
        for work in works:
            for columns in read_work(work):
                bad = next((row for row, why in enumerate(columns.torn) if why is not None), None)
                if bad is not None:
                    place = f"{work.path}: at byte {columns.offsets[bad]}: {columns.torn[bad]}"
                    raise TornLine(f"{place}; run photon spark verify to find the cause")
                yield self._batch(work, columns, schema, mark)

    def _batch(self, work: RangeWork, columns: OutputColumns, schema: pa.Schema, mark: Mark) -> pa.RecordBatch:
        import pyarrow as pa

        from photon.spark.arrow_columns import HOUR_NS

        lines = [line for line in columns.lines if line is not None]
        times = [line.event_time_ns for line in lines]
        hours = [None if time is None else time // HOUR_NS for time in times]
        kept = self._times.rows(times)
        chosen = [lines[row] for row in kept]
        made: dict[str, Callable[[], Sequence[Any]]] = {
            "datacentre": lambda: [work.datacentre] * len(kept),
            "slot": lambda: [work.slot] * len(kept),
            "kind": lambda: [work.name.partition("/")[0]] * len(kept),
            "file": lambda: [work.name] * len(kept),
            "offset": lambda: [columns.offsets[row] for row in kept],
            "hour": lambda: [hours[row] for row in kept],
            "event_time": lambda: [line.event_time_ns and line.event_time_ns // 1000 for line in chosen],
            "source_file": lambda: [line.source and line.source[0] for line in chosen],
            "source_offset": lambda: [line.source and line.source[1] for line in chosen],
            "primary_file": lambda: [line.primary_source and line.primary_source[0] for line in chosen],
            "primary_offset": lambda: [line.primary_source and line.primary_source[1] for line in chosen],
            "watermark": lambda: [mark.column_us] * len(kept),
            "waiting": lambda: [mark.waiting] * len(kept),
        }
        values: dict[str, Sequence[Any]] = {
            name: made[name]() if name in made else [getattr(line, name) for line in chosen]
            for name in self._schema.names
            if name not in self._pulled
        }
        values |= self._fields(chosen)
        if not self._binary:
            values |= {name: [_text(value) for value in values[name]] for name in _BYTES if name in values}
        return pa.RecordBatch.from_arrays([pa.array(values[each.name], each.type) for each in schema], schema=schema)

    def _fields(self, lines: Sequence[OutputLine]) -> dict[str, list[Any]]:
        wanted: Collection[PayloadColumn] = [
            self._pulled[each] for each in self._schema.names if each in self._pulled
        ]
        sides = {each.side for each in wanted}
        payloads = {side: [parsed(getattr(line, side)) for line in lines] for side in sides}
        return {each.name: [each.value(payload) for payload in payloads[each.side]] for each in wanted}


_BYTES = ("event_id", "key", "foreign", "primary", "record")


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "backslashreplace")


__all__ = ["NAME", "PhotonSource", "read_options"]
