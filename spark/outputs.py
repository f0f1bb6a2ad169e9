"""Reads output logs as DataFrames (OUTPUT of ``schemas``): everything published by joiners and dispatchers.

Nothing beyond the published lengths is read, so the lines never change (docs/output.md). Published lines that are not
output records, and missing published files, become rows with ``torn`` set, so that they are reported.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from photon.adapters.logs.identity import log_name
from photon.config.errors import PhotonError
from photon.idregistry.api import Digester
from photon.objects.disk import UrlDisk
from photon.objects.paths import ObjectPath, placed
from photon.outputs.content import OutputMissing
from photon.outputs.cursor import Cursor
from photon.outputs.every_file import CHECKSUM_WRONG, FoundFile, files_below, whole_lines
from photon.outputs.log.format import FINAL_SUFFIX, PLAIN_SUFFIX, DamagedRange, slot_of
from photon.outputs.mirrored import MirroredPlace
from photon.outputs.output_places import KINDS, OutputPlace
from photon.outputs.published import GONE, OutputFile, SlotOutput
from photon.outputs.ranges import FileRange, plan, read_range
from photon.spark import schemas
from photon.spark.output_lines import TORN_BYTES_MAX, OutputColumns, OutputLine, read_output_lines
from photon.spark.sources import EVER, JoinSource, OutputSource, TimeRange
from photon.spark.tasks import frame, packed, partition_bytes

SUFFIX = ".parquet"
ROWS_A_BATCH = 8192


if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


class RangeWork(msgspec.Struct, frozen=True):
    """Some lines of one file, as plain data."""

    datacentre: str
    slot: str
    name: str
    length: int
    closed: bool
    compressed: bool
    path: str
    start: int
    end: int
    first_ns: int | None = None
    last_ns: int | None = None  # Event times of the whole file, where known; then every line has one.
    # False means no manifest names the file; ``path`` is the file itself, ``length`` its bytes on disk
    named: bool = True
    damaged: tuple[DamagedRange, ...] = ()

    def part(self) -> FileRange:
        """Returns the range in the form that ``photon.outputs`` reads."""
        file = OutputFile(
            self.name, self.length, self.closed, False, damaged=self.damaged, compressed=self.compressed
        )
        return FileRange(self.slot, file, placed(Path(), self.path), self.start, self.end)

    def reaches(self, window: TimeRange) -> bool:
        """True if the file may hold records with event times in ``window``, or without one."""
        return self.first_ns is None or self.last_ns is None or window.meets(self.first_ns, self.last_ns)


class _Shared(msgspec.Struct, frozen=True):
    join: str
    key: bytes | None


def outputs(
    spark: SparkSession,
    sources: Sequence[OutputSource],
    join: JoinSource | None = None,
    *,
    kinds: Collection[str] = KINDS,
    partition_size: int | None = None,
    window: TimeRange = EVER,
    only: Collection[tuple[str, str]] | None = None,
) -> DataFrame:
    """Returns OUTPUT: each published line of these kinds. Without ``join`` digests are null. ``only``: restrict to
    these files, as (datacentre, name). ``window``: skip files whose records are all known to have other event times.

    Lengths are read now: lines published later are not included, however often the DataFrame is evaluated. Raises
    PublishedDamaged, OSError.
    """

    def ranges(size: int) -> list[RangeWork]:
        found = [each for source in sources for each in source_ranges(source, kinds, size) if each.reaches(window)]
        return found if only is None else [each for each in found if (each.datacentre, each.name) in only]

    size = partition_bytes(spark, sum(each.end - each.start for each in ranges(1 << 62)), partition_size)
    return lines_of(spark, ranges(size), join, size)


def lines_of(spark: SparkSession, work: Sequence[RangeWork], join: JoinSource | None, size: int) -> DataFrame:
    """Returns OUTPUT for these lines, in partitions of about ``size`` bytes. Without ``join`` digests are null."""
    shared = _Shared("" if join is None else join.join, None if join is None else join.key)
    weighed = [(each, each.end - each.start) for each in work]
    groups = [msgspec.json.encode(group) for group in packed(weighed, size)]
    return frame(spark, _read, msgspec.json.encode(shared), groups, schemas.OUTPUT)


def place_of(source: OutputSource) -> OutputPlace:
    """Returns the place of the output. Raises UsageError if there is none at its URL, OSError."""
    output = placed(Path(), source.output)
    return MirroredPlace.at(output) if isinstance(output, ObjectPath) else OutputPlace(output, Path(source.state))


def source_ranges(
    source: OutputSource,
    kinds: Collection[str],
    split_bytes: int,
    *,
    since: Cursor | None = None,
    until: Cursor | None = None,
) -> list[RangeWork]:
    """Returns all published lines, or the lines published between two cursors, in pieces. Raises PublishedDamaged,
    CursorLost, OSError."""
    place = place_of(source)
    published = place.published(UrlDisk(), kinds)
    parts = plan(published, place.output, kinds=kinds, since=since, until=until, split_bytes=split_bytes)
    return [_work(source.datacentre, part) for part in parts]


def unnamed_ranges(source: OutputSource, kinds: Collection[str]) -> list[RangeWork]:
    """Returns the files in the output directories that no manifest names, each as one range. Raises PublishedDamaged,
    OSError."""
    place = place_of(source)
    if isinstance(place, MirroredPlace):  # below a URL replaced parts stay for a while
        return []
    disk = UrlDisk()
    found = files_below(
        disk, place.output, kinds
    )  # listed first, so that files appearing meanwhile are published or ignored
    return [
        RangeWork(source.datacentre, slot_of(each.name), each.name, each.bytes, True, False, str(each.path), 0,
                  each.bytes, named=False)
        for each in unnamed(found, place.published(disk, kinds))
    ]  # fmt: skip


def unnamed(found: Sequence[FoundFile], published: Sequence[SlotOutput]) -> list[FoundFile]:
    """Returns the files that are neither published nor about to be."""
    retired = {slot.slot for slot in published if slot.retired}  # files of retired slots are no longer read
    names = {file.name for slot in published for file in slot.files}
    newest = {(slot.slot, kind): 0 for slot in published for kind in KINDS}
    for slot in published:
        newest |= {(slot.slot, file.kind): file.number for file in slot.files}
    return [
        each
        for each in found
        if each.name not in names and slot_of(each.name) not in retired and not _is_next(each, newest)
    ]


def _is_next(file: FoundFile, newest: dict[tuple[str, str], int]) -> bool:
    """True if the file is a slot's current one, with no line published yet."""
    number = newest.get((slot_of(file.name), file.kind))
    return number is not None and file.path.name == f"{slot_of(file.name)}-{number + 1:06d}{PLAIN_SUFFIX}"


def _work(datacentre: str, part: FileRange) -> RangeWork:
    file = part.file
    return RangeWork(
        datacentre, part.slot, file.name, file.length, file.closed, file.compressed, str(part.path), part.start,
        part.end, file.first_ns, file.last_ns, damaged=file.damaged,
    )  # fmt: skip


# -- on the executors ----------------------------------------------------------------------------------------------
def _read(shared: bytes, group: bytes) -> Iterator[pa.RecordBatch]:
    common = msgspec.json.decode(shared, type=_Shared)
    digester = None if common.key is None else Digester(common.key, common.join)
    for work in msgspec.json.decode(group, type=list[RangeWork]):
        for columns in read_work(work):
            yield output_rows(work, columns, digester)


def read_work(work: RangeWork) -> Iterator[OutputColumns]:
    """Yields the complete lines of a range, even if a checksum is wrong. For a file that is gone, damaged or shorter
    than published, it adds one torn row without a line, at the offset where reading ended."""
    kind = work.name.partition("/")[0]
    at = work.start
    try:
        if work.name.endswith(SUFFIX):
            for columns in read_parquet_lines(Path(work.path), work.length):
                at = columns.offsets[-1] + 1
                yield columns
            return
        disk, plain = UrlDisk(), placed(Path(), work.path)
        if not work.named:
            yield from _read_whole(work, at, plain, kind)
            return
        try:
            for lines in read_range(disk, work.part()):
                at = lines.offset + len(lines.data)
                yield read_output_lines(lines.data, lines.offset, kind)
        except OutputMissing as error:
            if disk.exists(plain):
                yield _trouble(at, error.why)
            else:
                yield from _read_whole(work, at, plain, kind)
    except (PhotonError, OSError) as error:
        yield _trouble(at, str(error))


def _read_whole(work: RangeWork, start: int, plain: Path, kind: str) -> Iterator[OutputColumns]:
    """Yields the readable lines, from ``start``, of a file that no longer grows."""
    path = plain.with_name(plain.name.removesuffix(PLAIN_SUFFIX) + FINAL_SUFFIX) if work.named else plain
    found = whole_lines(UrlDisk(), path)
    stop = work.end if work.named else 1 << 62
    for lines in found:
        begin, end = (_line_begin(lines.data, at - lines.offset) for at in (start, stop))
        if begin < end:
            yield read_output_lines(lines.data[begin:end], lines.offset + begin, kind)
    whole = not work.named or found.end >= work.length
    if (found.trouble and (not work.named or work.end == work.length)) or (not whole and found.end < work.end):
        at = min(max(found.end, start), stop)
        yield _trouble(at, _said(found.trouble, found.lines, found.end, work.length, whole=whole))


def _line_begin(data: bytes, at: int) -> int:
    """Returns the offset in ``data`` of the first line that begins at ``at`` or later."""
    if at <= 0:
        return 0
    return data.find(b"\n", at - 1) + 1 if at < len(data) else len(data)


def _said(trouble: str | None, lines: int, end: int, length: int, *, whole: bool) -> str:
    if trouble == GONE:
        return f"was published, but {GONE}"
    if trouble == CHECKSUM_WRONG and whole:
        return f"{CHECKSUM_WRONG}, but all {lines:,} lines are complete"
    if trouble is None:
        return f"has {end:,} bytes, but {length:,} were published"
    return f"{trouble} after line {lines:,}"


def _trouble(at: int, why: str) -> OutputColumns:
    return OutputColumns([at], [None], [why], [None])


def output_rows(work: RangeWork, columns: OutputColumns, digester: Digester | None) -> pa.RecordBatch:
    """Converts lines to rows of OUTPUT."""
    import pyarrow as pa

    from photon.spark.arrow_columns import batch, bigints, binary, hours, same, strings

    lines, count = columns.lines, len(columns.lines)
    times = pa.array([None if line is None else line.registered_ns for line in lines], pa.int64())
    filled = hours(times.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64))
    ids = [None if line is None else line.event_id for line in lines]
    torn = [
        line[:TORN_BYTES_MAX] if why is not None and line is not None else None
        for line, why in zip(columns.raw, columns.torn, strict=True)
    ]
    rows = {
        "datacentre": same(work.datacentre, count),
        "slot": same(work.slot, count),
        "kind": same(work.name.partition("/")[0], count),
        "file": same(work.name, count),
        "offset": bigints(columns.offsets),
        "event_id": binary(ids),
        "digest": _digests(ids, digester),
        "key": binary([None if line is None else line.key for line in lines]),
        "event_time_ns": times,
        "hour": pa.array(filled, pa.int64(), mask=times.is_null().to_numpy(zero_copy_only=False)),
        "token": strings([None if line is None else line.token for line in lines]),
        "foreign": binary([None if line is None else line.foreign for line in lines]),
        "primary": binary([None if line is None else line.primary for line in lines]),
        "record": binary([None if line is None else line.record for line in lines]),
        "reason": strings([None if line is None else line.reason for line in lines]),
        "pair": bigints([None if line is None else line.pair for line in lines]),
        "pairs": bigints([None if line is None else line.pairs for line in lines]),
        "written_at": strings([None if line is None else line.written_at for line in lines]),
        "added": pa.array([None if line is None else line.added for line in lines], pa.bool_()),
        "line": binary(torn),
        "torn": strings(columns.torn),
    } | _places(lines)
    return batch(rows, [each.split(" ")[0] for each in schemas.OUTPUT.split(", ")])


def _places(lines: Sequence[OutputLine | None]) -> dict[str, pa.Array]:
    from photon.spark.arrow_columns import bigints, mapped, strings

    sources = [None if line is None else line.source for line in lines]
    primaries = [None if line is None else line.primary_source for line in lines]
    files, primary_files = (
        strings([None if place is None else place[0] for place in places]) for places in (sources, primaries)
    )
    return {
        "source_file": files,
        "source_offset": bigints([None if place is None else place[1] for place in sources]),
        "primary_file": primary_files,
        "primary_offset": bigints([None if place is None else place[1] for place in primaries]),
        "log": mapped(files, log_name),
        "primary_log": mapped(primary_files, log_name),
    }


def _digests(ids: Sequence[bytes | None], digester: Digester | None) -> pa.Array:
    import pyarrow as pa

    from photon.spark.arrow_columns import binary, digests_column

    if digester is None:
        return pa.nulls(len(ids), pa.binary())
    if None not in ids:
        return digests_column(digester.digests([each for each in ids if each is not None]))
    return binary([None if each is None else digester.digest(each) for each in ids])


class ParquetDamaged(PhotonError):
    """A published Parquet file of a backfill differs from the one that was written."""


def read_parquet_lines(path: Path, size: int) -> Iterator[OutputColumns]:
    """Yields the records of a backfill's Parquet file as output lines; a row's number is its offset. ``size``: bytes
    published. Raises ParquetDamaged, OSError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if (found := path.stat().st_size) != size:
        raise ParquetDamaged(f"{path}: has {found} bytes, but {size} were published; restore it from a backup")
    at = 0
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(ROWS_A_BATCH):
                lines: list[OutputLine | None] = [_line(row) for row in batch.to_pylist()]
                count = len(lines)
                yield OutputColumns(list(range(at, at + count)), lines, [None] * count, [b""] * count)
                at += count
    except (pa.ArrowException, KeyError) as error:
        raise ParquetDamaged(f"{path}: cannot be read after row {at} ({error}); restore it from a backup") from None


def _line(row: dict[str, Any]) -> OutputLine:
    primary = None if row["primary_file"] is None else (row["primary_file"], row["primary_offset"])
    return OutputLine(
        event_id=row["event_id"],
        key=row["key"],
        event_time_ns=row["event_time_ns"],
        registered_ns=row["event_time_ns"],
        foreign=row["foreign"],
        primary=row["primary"],
        record=row["record"],
        reason=row["reason"],
        source=(row["source_file"], row["source_offset"]),
        primary_source=primary,
        written_at=row["written_at"],
        token=row["token"],
        pair=row.get("pair"),  # older backfills lack it
        pairs=row.get("pairs"),
    )


__all__ = [
    "RangeWork",
    "lines_of",
    "output_rows",
    "outputs",
    "place_of",
    "read_work",
    "source_ranges",
    "unnamed_ranges",
]
