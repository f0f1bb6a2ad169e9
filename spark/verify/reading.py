"""Reads the verification's inputs as DataFrames."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np
from pyspark.sql import functions as sql
from pyspark.sql.functions import col

import photon
from photon.adapters.logs.identity import COMPRESSED_SUFFIXES, log_name
from photon.outputs.output_places import KINDS
from photon.spark import exports, logs, outputs
from photon.spark.key_filter import HASH_BITS, assembled, part_bits
from photon.spark.read_notes import ReadNote, hours_of_logs
from photon.spark.sources import EVER, JoinSource, OutputSource, PipelineSources, RegistrySource, TimeRange
from photon.spark.tasks import partition_bytes
from photon.spark.verify.causes import CommandLine, LogEvidence
from photon.spark.verify.classify import KnownLogs, LogName
from photon.spark.verify.days import ABSENT_MAX, EVENT_SIDES, LOGS, Days, Hours, Name, Span, merged, name_of
from photon.spark.verify.figures import HOURS_A_DAY, LedgerLine
from photon.spark.verify.job import VerifyInputs, within
from photon.spark.verify.narrow_rows import LINE
from photon.spark.verify.row_totals import (
    FileEnds,
    IdsOfHour,
    RowTotals,
    ends_of,
    print_of_id,
    with_since,
)
from photon.spark.verify.verdict import InputFile

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from photon.spark.notes_accumulator import ReadNotes

HOUR_NS = 3_600_000_000_000
PLACES = "datacentre string, output_file string, output_offset bigint"
# Largest error in hours of a time with which a record, line or entry is still grouped with its event
MARGIN_HOURS = 1
FULL_MARGIN_HOURS = HOURS_A_DAY


@dataclass(slots=True)
class VerifyTask:
    """The range to verify, and the data gathered before outputs are read (rule 15)."""

    sources: PipelineSources
    deployment: str  # the deployment's fingerprint
    from_hour: int
    to_hour: int
    made_at: str
    registry: RegistrySource | None = None
    exported_ns: int = 0
    exported_at: str | None = None
    boundary_ns: int | None = None
    # (datacentre, identity of a log, read up to, path) of each log of the dispatchers whose state is known
    places: Sequence[tuple[str, str, int, str]] = ()
    places_of: tuple[str, ...] = ()
    waiting: Path | None = None  # directory of Parquet files with the digests (``digest``) that wait in retry stores
    others: tuple[str, ...] = ()  # datacentres of other joins of the deployment: their ids are in the same registry
    backfills: Sequence[OutputSource] = ()  # outputs of backfills of the range
    given_up: pa.Table | None = None
    ledger: list[LedgerLine] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    full: bool = False  # verify every day of the range, regardless of earlier runs
    kept: Path | None = None  # the directory with the state of earlier runs; executors see it
    commands: CommandLine = field(default_factory=CommandLine)
    # Events read, or readable, before this have waited longer than the join's patience. `None` means unlimited
    # patience.
    waited_before_ns: int | None = None
    # Datacentre -> events of the range that have been in its retry store since before that time
    waited: Mapping[str, int] = field(default_factory=dict)
    allow_empty: bool = False  # days without events are accepted, regardless of earlier days
    export_bytes: int = 0  # bytes read of the registry's export

    def export_read(self, size: int) -> None:
        """Adds to the number of bytes read from the export."""
        self.export_bytes += size

    @property
    def outputs(self) -> list[OutputSource]:
        """Returns the outputs of pipelines and backfills."""
        return [*self.sources.outputs, *self.backfills]

    @property
    def keys(self) -> Path | None:
        """The directory of key indexes for primary logs, as this version reads them with these settings."""
        if self.full or self.kept is None:
            return None
        read = [photon.__version__, self.sources.join.adapter, self.sources.primary]
        said = msgspec.msgpack.encode(read, order="deterministic")
        return self.kept / f"keys-{blake2b(said, digest_size=8).hexdigest()}"

    @property
    def margin(self) -> int:
        """The number of hours searched before and after the range, for records with another event time."""
        return FULL_MARGIN_HOURS if self.full else MARGIN_HOURS


def inputs(
    spark: SparkSession,
    task: VerifyTask,
    days: Days,
    parts: Sequence[Hours],
    sample: Sequence[Hours],
    notes: ReadNotes,
    unnamed: Set[tuple[str, str]],
) -> tuple[VerifyInputs, list[InputFile]]:
    """Reads the hours ``parts`` with a margin around them, and ``sample``. Also returns the files of logs and outputs
    that are read. ``unnamed``: (datacentre, name) of output files that no manifest names."""
    sources = task.sources
    wide = merged([*((begin - task.margin, end + task.margin) for begin, end in parts), *sample])
    window = _window(wide[0][0], wide[-1][1])
    read = [each for each in days.files if _is_read(each, days, wide, window)]
    foreign = [msgspec.structs.replace(source, window=window) for source in sources.foreign]
    changed = [(each.datacentre, each.path) for each in days.changed("primary")]
    events = logs.foreign(spark, sources.join, foreign, only=_named(read, "foreign"), notes=notes,
                          since=days.since("foreign"))  # fmt: skip
    registry = registry_of_join(spark, task, window)
    found = VerifyInputs(
        foreign=events.where(within(wide) | col("hour").isNull()),
        primary=partial(
            logs.primary,
            spark,
            sources.join,
            sources.primary,
            notes=notes,
            absent=days.absent(),
            new=changed,
            index=task.keys,
        ),
        output=written_output(spark, task.outputs, sources.join, _named(read, "output")),
        registry=None if registry is None else registry.where(within(wide) | (col("generation") > 0)),
        waiting=_waiting(spark, task.waiting),
        given_up=_places(spark, task.given_up),
        places=_read_to(spark, task),
        places_of=task.places_of,
        opened=_opened(spark, days.files, read),
        unnamed=unnamed & _named(read, "output"),
        logs=lambda: known_logs(task, days, notes.all()),
        since=days.since("output"),
    )
    return found, read


def known_logs(task: VerifyTask, days: Days, notes: Iterable[ReadNote]) -> KnownLogs:
    """Returns the raw logs that exist or existed. ``notes``: the notes of all logs that were read."""
    gone: dict[LogName, int] = {}
    for name, to, _ in _logs_gone(task, days):
        gone[name] = max(gone.get(name, 0), to)
    damaged = {(note.what, note.datacentre, log_name(note.log)): note.at for note in notes if note.damaged}
    standing = frozenset((each.what, each.datacentre, log_name(each.path)) for each in days.files)
    return KnownLogs(standing, gone, damaged)


def _logs_gone(task: VerifyTask, days: Days) -> Iterator[tuple[LogName, int, LogEvidence]]:
    """Yields missing logs that a dispatcher or an earlier night has read, with the byte reached."""
    standing = {(each.datacentre, each.identity) for each in days.files}
    for datacentre, identity, to, path in task.places:
        if to and (datacentre, identity) not in standing:
            yield ("foreign", datacentre, log_name(path)), to, LogEvidence.DISPATCHER
    for seen in days.gone(*LOGS):
        size = 1 << 62 if seen.path.endswith(COMPRESSED_SUFFIXES) else seen.bytes
        yield (seen.what, seen.datacentre, log_name(seen.path)), size, LogEvidence.EARLIER


def logs_known(task: VerifyTask, days: Days) -> dict[LogName, LogEvidence]:
    """Returns, for each missing log, how it is known that it existed."""
    found: dict[LogName, LogEvidence] = {}
    for name, _, how in _logs_gone(task, days):
        found.setdefault(name, how)
    return found


def window_of(task: VerifyTask, parts: Sequence[Hours]) -> TimeRange:
    """Returns the range of event times to examine."""
    return _window(min(parts)[0] - task.margin, max(parts)[1] + task.margin)


def _is_read(file: InputFile, days: Days, hours: Sequence[Hours], window: TimeRange) -> bool:
    return file.what not in EVENT_SIDES or (days.reads(file, hours) and not is_old(file, window))


def is_old(file: InputFile, window: TimeRange) -> bool:
    """True if the file is a raw foreign log that was last written before the window, and need not be opened."""
    assert window.begin_ns is not None
    return file.what == "foreign" and (file.mtime_ns or 0) < window.begin_ns - int(window.slack_s * 1e9)


def _named(files: Iterable[InputFile], what: str) -> set[logs.LogPath]:
    return {(each.datacentre, each.path) for each in files if each.what == what}


def written_output(
    spark: SparkSession,
    sources: Sequence[OutputSource],
    join: JoinSource,
    only: Collection[tuple[str, str]] | None = None,
    window: TimeRange = EVER,
    kinds: Collection[str] = KINDS,
) -> DataFrame:
    """Returns OUTPUT of all publishers, including unlisted files. ``only``: restrict to these files, as (datacentre,
    name); ``window``: skip files that are known to have only other times."""
    written = outputs.outputs(spark, sources, join, kinds=kinds, window=window, only=only)
    work = [each for source in sources for each in outputs.unnamed_ranges(source, kinds)]
    work = [each for each in work if only is None or (each.datacentre, each.name) in only]
    if not work:
        return written
    size = partition_bytes(spark, sum(each.end for each in work))
    return written.union(outputs.lines_of(spark, work, join, size))


def _window(from_hour: int, to_hour: int) -> TimeRange:
    return TimeRange(begin_ns=from_hour * HOUR_NS, end_ns=to_hour * HOUR_NS)


def registry_of_join(spark: SparkSession, task: VerifyTask, window: TimeRange) -> DataFrame | None:
    """Returns the ids in the window that belong to this join, or to no known join."""
    if task.registry is None:
        return None
    entries = exports.registry(spark, task.registry, window=window, planned=task.export_read)
    if not task.others:
        return entries
    others = ", ".join(f"'{name}'" for name in task.others)  # valid names need no quoting
    return entries.where(f"datacentre IS NULL OR datacentre NOT IN ({others})")


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
    places = [place[:3] for place in task.places]
    return spark.createDataFrame(places, "datacentre string, identity string, read_to bigint")


def _opened(spark: SparkSession, files: Sequence[InputFile], read: Collection[InputFile]) -> DataFrame:
    """Returns the names of foreign logs of which every file is read; the others prove nothing."""
    named = _named(read, "foreign")
    left = {(datacentre, log_name(path)) for datacentre, path in _named(files, "foreign") - named}
    opened = {(datacentre, log_name(path)) for datacentre, path in named} - left
    return spark.createDataFrame(sorted(opened), "datacentre string, log string")


# -- hours of files -----------------------------------------------------------------------------------------------
class FoundHours(NamedTuple):
    """The hours of files, and of the new parts of files that have grown."""

    spans: dict[Name, Span]
    fresh: dict[Name, Span]


def look_into(
    spark: SparkSession, task: VerifyTask, days: Days, files: Sequence[InputFile], notes: ReadNotes
) -> FoundHours:
    """Reads files only to find the hours of their events."""
    sources = task.sources
    foreign, written = _named(files, "foreign"), _named(files, "output")
    if foreign:
        rows = logs.foreign(spark, sources.join, sources.foreign, with_records=False, only=foreign, notes=notes,
                            since=days.since("foreign"))  # fmt: skip
        rows.select("hour").count()
    if not written:
        return _found(notes, [], days, [])
    lines = written_output(spark, task.outputs, sources.join, written)
    files_of = with_since(lines.select("datacentre", "file", "hour", "offset"), days.since("output"))
    ends = files_of.groupBy("datacentre", "file").agg(*ends_of("offset")).collect()
    return _found(notes, (FileEnds(*each) for each in ends), days, files)


def hours_read(totals: RowTotals, days: Days, read: Sequence[InputFile], notes: ReadNotes) -> FoundHours:
    """Returns the hours of files that were read for a verification."""
    return _found(notes, totals.ends, days, read)


def _found(notes: ReadNotes, ends: Iterable[FileEnds], days: Days, read: Iterable[InputFile]) -> FoundHours:
    """Returns the hours of files that were read; a file without lines has no events."""
    noted = notes.all()
    spans = {name: Span(*span) for name, span in hours_of_logs(noted).items()}
    fresh = {name: Span(*span) for name, span in hours_of_logs(noted, fresh=True).items() if name in days.grown}
    names = [name_of(each) for each in read if each.what == "output"]
    spans |= {name: Span(None, None, True) for name in names}
    fresh |= {name: Span(None, None, True) for name in names if name in days.grown}
    for each in ends:
        name = ("output", each.datacentre, each.file)
        spans[name] = Span(each.first, each.last, each.whole)
        if name in days.grown:
            fresh[name] = Span(each.fresh_first, each.fresh_last, each.whole)
    return FoundHours(spans, fresh)


def look_for_primaries(spark: SparkSession, task: VerifyTask, days: Days, notes: ReadNotes) -> None:
    """Searches new primary logs for primary events that were missing on verified days."""
    new = _named(days.changed("primary"), "primary")
    nothing = assembled((), part_bits(0))
    sources = task.sources
    logs.primary(
        spark, sources.join, sources.primary, nothing, with_records=False, only=new, notes=notes,
        absent=days.absent(), new=new, index=task.keys,
    ).count()  # fmt: skip


# -- verified data ------------------------------------------------------------------------------------------------
def registry_prints(spark: SparkSession, task: VerifyTask, pieces: Sequence[Hours]) -> dict[Hours, tuple[int, int]]:
    """Returns the number and hash of each piece's ids in the export."""
    entries = registry_of_join(spark, task, _window(min(pieces)[0], max(pieces)[1]))
    if entries is None:
        return dict.fromkeys(pieces, (0, 0))
    rows = entries.groupBy("hour").agg(sql.count("*"), sql.bit_xor(print_of_id())).collect()
    return prints((IdsOfHour(*row) for row in rows), pieces)


def prints(entries: Iterable[IdsOfHour], pieces: Sequence[Hours]) -> dict[Hours, tuple[int, int]]:
    """Like ``registry_prints``, but from ids that are already counted by hour."""
    found = dict.fromkeys(pieces, (0, 0))
    starts = {hour: piece for piece in pieces for hour in range(*piece)}
    for hour, count, print_ in entries:
        if hour in starts:
            before = found[starts[hour]]
            found[starts[hour]] = (before[0] + count, before[1] ^ print_)
    return found


def absent_keys(rows: DataFrame, lines: int, pieces: Sequence[Hours]) -> dict[Hours, bytes | None]:
    """Returns for each piece the hashes of keys without a primary event; ``None`` means too many. ``lines``: at most
    this many lines have such keys."""
    if not lines:
        return dict.fromkeys(pieces, b"")
    kept = rows.where(f"role = {LINE} AND judged AND kind = 'unmatched' AND key IS NOT NULL").where(within(pieces))
    keys = kept.select("hour", sql.shiftrightunsigned(sql.xxhash64("key"), 64 - HASH_BITS).alias("hash"))
    if lines > ABSENT_MAX:
        keys = keys.distinct().limit(ABSENT_MAX + 1)
    found = keys.toArrow()
    if len(found) > ABSENT_MAX:
        return dict.fromkeys(pieces)
    hours, hashes = found["hour"].to_numpy(), found["hash"].to_numpy().astype(np.uint64)
    return {at: np.unique(hashes[(hours >= at[0]) & (hours < at[1])]).tobytes() for at in pieces}
