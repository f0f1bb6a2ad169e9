"""What the verification reads of its sources, as DataFrames."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from photon.adapters.logs.forward import COMPRESSED_SUFFIXES
from photon.adapters.logs.identity import log_name
from photon.config.disk import RealDisk
from photon.config.errors import UsageError
from photon.outputs.output_places import KINDS
from photon.spark import exports, logs, outputs
from photon.spark.backfill.batch_names import BackfillPaths
from photon.spark.backfill.manifest import read_job, read_manifest
from photon.spark.sources import JoinSource, LogSource, OutputSource, PipelineSources, RegistrySource, TimeRange
from photon.spark.tasks import partition_bytes
from photon.spark.verify.figures import HOURS_A_DAY, LedgerLine
from photon.spark.verify.job import VerifyInputs
from photon.spark.verify.narrow_rows import ENTRY, LINE, RECORD
from photon.spark.verify.verdict import InputFile

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

HOUR_NS = 3_600_000_000_000
PLACES = "datacentre string, output_file string, output_offset bigint"
ALL_HOURS = (-(1 << 40), 1 << 40)
Name = tuple[str, str, str]


@dataclass(slots=True)
class VerifyTask:
    """What is to be verified, and all that was gathered for it before outputs are read (rule 15)."""

    sources: PipelineSources
    deployment: str
    """The deployment's fingerprint."""
    from_hour: int
    to_hour: int
    made_at: str
    registry: RegistrySource | None = None
    exported_ns: int = 0
    exported_at: str | None = None
    boundary_ns: int | None = None
    places: Sequence[tuple[str, str, int]] = ()
    """(datacentre, identity of a log, read up to) of each log of the dispatchers whose state is known."""
    places_of: tuple[str, ...] = ()
    waiting: Path | None = None
    """Directory of Parquet files with the digests (``digest``) that wait in retry stores."""
    others: tuple[str, ...] = ()
    """Datacentres of other joins of the deployment: their ids stand in the same registry."""
    backfills: Sequence[Path] = ()
    """Output directories of backfills of the range."""
    given_up: pa.Table | None = None
    noted: pa.Table | None = None
    ledger: list[LedgerLine] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def inputs(spark: SparkSession, task: VerifyTask, files: Sequence[InputFile], hours: tuple[int, int]) -> VerifyInputs:
    """Reads some hours, and a day before and after them, so that a record with a wrong time meets its event."""
    sources = task.sources
    window = _window(hours[0] - HOURS_A_DAY, hours[1] + HOURS_A_DAY)
    foreign = [msgspec.structs.replace(source, window=window) for source in sources.foreign]
    return VerifyInputs(
        foreign=logs.foreign(spark, sources.join, foreign),
        primary=logs.primary(spark, sources.join, sources.primary),
        output=written_output(spark, sources.outputs, task.backfills, sources.join, window),
        registry=registry_of_join(spark, task, window),
        waiting=_waiting(spark, task.waiting),
        given_up=_places(spark, task.given_up),
        noted=_places(spark, task.noted),
        places=_read_to(spark, task),
        places_of=task.places_of,
        opened=_opened(spark, files, window),
    )


def written_output(
    spark: SparkSession,
    sources: Sequence[OutputSource],
    backfills: Sequence[Path],
    join: JoinSource,
    window: TimeRange,
    kinds: Collection[str] = KINDS,
) -> DataFrame:
    """OUTPUT of joiners, dispatchers and backfills; not of files that are known to be of other times."""
    written = outputs.outputs(spark, sources, join, kinds=kinds, window=window)
    work = [each for directory in backfills for each in backfilled(directory, join.join) if each.reaches(window)]
    if not work:
        return written
    size = partition_bytes(spark, sum(each.end for each in work))
    return written.union(outputs.lines_of(spark, work, join, size))


def _window(from_hour: int, to_hour: int) -> TimeRange:
    return TimeRange(begin_ns=from_hour * HOUR_NS, end_ns=to_hour * HOUR_NS)


def registry_of_join(spark: SparkSession, task: VerifyTask, window: TimeRange) -> DataFrame | None:
    """The ids of this join, and those of which nobody knows whose they are, of these times."""
    if task.registry is None:
        return None
    entries = exports.registry(spark, task.registry, window=window)
    if not task.others:
        return entries
    others = ", ".join(f"'{name}'" for name in task.others)  # names as the settings allow them
    return entries.where(f"datacentre IS NULL OR datacentre NOT IN ({others})")


def backfilled(directory: Path, join: str) -> list[outputs.RangeWork]:
    """The files that a backfill shows. Raises BackfillDamaged, UsageError for what is no backfill of this join."""
    places, disk = BackfillPaths(directory.absolute()), RealDisk()
    job = read_job(disk, places.job)
    if job is None or job.join != join:
        raise UsageError(f"--backfill {directory}: holds no backfill of join {join}; name its output directory")
    manifest = read_manifest(disk, places.manifest)
    return [
        outputs.RangeWork(job.datacentre, job.slot, file.name, file.bytes, True, False,
                          str(places.output / file.name), 0, file.bytes,
                          file.hour * HOUR_NS, (file.hour + 1) * HOUR_NS - 1)
        for file in (manifest.files if manifest is not None else ())
    ]  # fmt: skip


def _waiting(spark: SparkSession, directory: Path | None) -> DataFrame | None:
    return None if directory is None else spark.read.schema("digest binary").parquet(directory.absolute().as_uri())


def _places(spark: SparkSession, table: pa.Table | None) -> DataFrame | None:
    if table is None or not len(table):
        return None
    rows = table.select(["datacentre", "output_file", "output_offset"]).to_pylist()
    return spark.createDataFrame([tuple(row.values()) for row in rows], PLACES)


def _read_to(spark: SparkSession, task: VerifyTask) -> DataFrame | None:
    if not task.places_of:
        return None
    return spark.createDataFrame(list(task.places), "datacentre string, identity string, read_to bigint")


def _opened(spark: SparkSession, files: Sequence[InputFile], window: TimeRange) -> DataFrame:
    """Foreign logs that are read: of what cannot be read in others nothing can be said."""
    assert window.begin_ns is not None
    oldest = window.begin_ns - int(window.slack_s * 1e9)
    opened = {
        (each.datacentre, log_name(each.path))
        for each in files
        if each.what == "foreign" and (each.mtime_ns or 0) >= oldest
    }
    return spark.createDataFrame(sorted(opened), "datacentre string, log string")


# -- for the days that need no new look --------------------------------------------------------------------------
def hours_of_files(
    spark: SparkSession, sources: PipelineSources, changed: Collection[InputFile]
) -> dict[Name, tuple[int, int]]:
    """First and last hour of the events of changed files; those alone are read."""
    frames = []
    foreign = [_only(source, changed) for source in sources.foreign]
    if some := [source for source in foreign if source.patterns]:
        rows = logs.foreign(spark, sources.join, some, with_records=False)
        frames.append((rows.select("datacentre", "log", "hour"), "foreign"))
    written = {(each.datacentre, each.path) for each in changed if each.what == "output"}
    if written:
        lines = outputs.outputs(spark, sources.outputs, sources.join, only=written)
        frames.append((lines.selectExpr("datacentre", "file AS log", "hour"), "output"))
    # Files of backfills are not read for this: they may be of any hour.
    found: dict[Name, tuple[int, int]] = {
        (each.what, each.datacentre, each.path): ALL_HOURS for each in changed if "/hour=" in each.path
    }
    for frame, what in frames:
        found |= _spans(frame, what, changed)
    return found


def hours_of_rows(rows: DataFrame, files: Collection[InputFile]) -> dict[Name, tuple[int, int]]:
    """The same of all files, from the rows that were verified."""
    lines = rows.where(f"role = {LINE}").selectExpr("datacentre", "name AS log", "hour")
    records = rows.where(f"role = {RECORD}").selectExpr("datacentre", "file AS log", "hour")
    return _spans(lines, "foreign", files) | _spans(records, "output", files)


def _spans(rows: DataFrame, what: str, files: Collection[InputFile]) -> dict[Name, tuple[int, int]]:
    from pyspark.sql import functions as sql

    names: dict[tuple[str, str], list[InputFile]] = {}
    for each in files:
        if each.what == what:
            names.setdefault((each.datacentre, _plain(each.path)), []).append(each)
    ends = rows.where("hour IS NOT NULL").groupBy("datacentre", "log")
    return {
        (what, each.datacentre, each.path): (first, last)
        for datacentre, log, first, last in ends.agg(sql.min("hour"), sql.max("hour")).collect()
        for each in names.get((datacentre, log), ())
    }


def _plain(path: str) -> str:
    for suffix in COMPRESSED_SUFFIXES:
        path = path.removesuffix(suffix)
    return path


def _only(source: LogSource, changed: Collection[InputFile]) -> LogSource:
    paths = [each.path for each in changed if (each.what, each.datacentre) == ("foreign", source.datacentre)]
    return msgspec.structs.replace(source, patterns=[escape(path) for path in paths], window=TimeRange())


def registry_prints(
    spark: SparkSession, task: VerifyTask, pieces: Sequence[tuple[int, int]]
) -> dict[tuple[int, int], tuple[int, int]]:
    """Number and hash of the ids of each piece, in an export."""
    entries = registry_of_join(spark, task, _window(min(pieces)[0], max(pieces)[1]))
    return dict.fromkeys(pieces, (0, 0)) if entries is None else _prints(entries, pieces)


def prints_of_rows(rows: DataFrame, pieces: Sequence[tuple[int, int]]) -> dict[tuple[int, int], tuple[int, int]]:
    """The same, from the rows that were verified."""
    return _prints(rows.where(f"role = {ENTRY}"), pieces)


def _prints(entries: DataFrame, pieces: Sequence[tuple[int, int]]) -> dict[tuple[int, int], tuple[int, int]]:
    """That an id was cleared since changes nothing; that it was given up does."""
    from pyspark.sql import functions as sql

    reopened = (sql.col("state") == "reopened").cast("int")
    each = sql.bit_xor(sql.xxhash64("digest", "token", "kind", "event_time_ns", reopened))
    rows = entries.groupBy("hour").agg(sql.count("*"), each).collect()
    found = dict.fromkeys(pieces, (0, 0))
    starts = {hour: piece for piece in pieces for hour in range(*piece)}
    for hour, count, print_ in rows:
        if hour in starts:
            before = found[starts[hour]]
            found[starts[hour]] = (before[0] + count, before[1] ^ print_)
    return found


def absent_hours(rows: DataFrame) -> set[int]:
    """Hours with events that have no primary event."""
    kept = rows.where(f"role = {LINE} AND judged AND kind = 'unmatched' AND hour IS NOT NULL")
    return {row[0] for row in kept.select("hour").distinct().collect()}
