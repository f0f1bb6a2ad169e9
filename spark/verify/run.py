"""Runs a verification, from its sources to its report."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql.functions import col
from xxhash import xxh3_128_hexdigest

from photon.adapters.contract import Adapter
from photon.adapters.logs.elsewhere import is_final, open_stored
from photon.adapters.logs.identity import COMPRESSED_SUFFIXES, log_name
from photon.adapters.logs.links import LogPath, log_path
from photon.config.disk import RealDisk, naming
from photon.objects.disk import UrlDisk
from photon.objects.paths import placed
from photon.outputs.output_places import KINDS
from photon.spark import logs, outputs
from photon.spark import problems as problem_files
from photon.spark.classes import Class
from photon.spark.key_index import stale
from photon.spark.ledger_check import compare
from photon.spark.notes_accumulator import ReadNotes
from photon.spark.outputs import RangeWork
from photon.spark.problems import VERDICT_NAME, VERSION
from photon.spark.read_notes import ReadNote, hours_of_logs
from photon.spark.schemas import PROBLEM
from photon.spark.shipped_adapter import AdapterSpec, made
from photon.spark.tasks import task_directory
from photon.spark.verify import coverage
from photon.spark.verify import verdict as report
from photon.spark.verify.acknowledged import MARK, Acknowledged, kept_below, marked, read_acknowledged
from photon.spark.verify.advice import PROBLEMS
from photon.spark.verify.causes import (
    Attributed,
    Evidence,
    FileTrouble,
    LogTrouble,
    UnnamedFile,
    UnnamedLines,
    causes_of,
)
from photon.spark.verify.days import (
    Days,
    Hours,
    Name,
    Piece,
    as_counts,
    counts_by_piece,
    merged,
    name_of,
    pieces_of,
)
from photon.spark.verify.figures import ClassCount, ExampleFinding, Figures, InputTotal, hour_text, piece_text
from photon.spark.verify.job import Verification, VerifyQuestion, verify, with_causes, within
from photon.spark.verify.nights import Nights, files_by_side
from photon.spark.verify.page import page
from photon.spark.verify.reading import (
    HOUR_NS,
    FoundHours,
    VerifyTask,
    absent_keys,
    hours_read,
    inputs,
    is_old,
    logs_known,
    look_for_primaries,
    look_into,
    prints,
    registry_prints,
    window_of,
)
from photon.spark.verify.verdict import InputFile, Verdict

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EXAMPLES_MAX = 5  # examples of each class
EVIDENCE_CHARS_MAX = 600


@dataclass(frozen=True, slots=True)
class VerifyOutcome:
    verdict: Verdict
    figures: Figures


def run(
    spark: SparkSession,
    task: VerifyTask,
    directory: Path,
    say: Callable[[str], None],
    publish: Callable[[Path], None] = lambda report: None,
) -> VerifyOutcome:
    """Verifies and writes the report. ``publish`` copies the report elsewhere before any of its days is closed.

    State for the next run is kept in the task's ``kept``, or else next to the report's directory, for all reports
    there. Raises ReportRefused, OSError, and errors from ``publish``, from reading the sources and from Spark.
    """
    outcome: list[VerifyOutcome] = []
    kept = task.kept = task.kept or kept_below(directory.parent, task.sources.join.join)
    found = _input_files(task, task.notes.append)
    days = Days.known(kept, task.deployment, found.files)
    days.note_growth(lambda file, end: _tail(found.places[name_of(file)], end))
    known = read_acknowledged(RealDisk(), kept)
    night = _Night(spark, task, days, Nights.known(kept), found.works, known, say)

    def build(building: Path) -> None:
        outcome.append(night.build(building))

    report.write_report(RealDisk(), directory, build)
    publish(directory)
    night.days.write(RealDisk(), kept, night.verified)
    night.nights.write(RealDisk(), kept)
    _tidy(kept, task, night.days)
    return outcome[0]


def _tidy(kept: Path, task: VerifyTask, days: Days) -> None:
    """Removes key indexes of logs that are gone or are now read differently. After a full run, removes all, as an
    adapter may have changed unnoticed."""
    for directory in kept.glob("keys-*"):
        if directory != task.keys:
            shutil.rmtree(directory, ignore_errors=True)
    if task.keys is None:
        return
    for path in stale(task.keys, {(each.datacentre, each.identity) for each in days.files if each.what == "primary"}):
        path.unlink(missing_ok=True)


class _Night:
    """One run of the verification, over new data and some hours of old data."""

    def __init__(
        self,
        spark: SparkSession,
        task: VerifyTask,
        days: Days,
        nights: Nights,
        works: Mapping[tuple[str, str], RangeWork],
        known: Sequence[Acknowledged],
        say: Callable[[str], None],
    ) -> None:
        self._spark = spark
        self._task = task
        self._acknowledged = known
        self._say = say
        self._notes = ReadNotes(spark)
        self._read: dict[Name, InputFile] = {}
        self._figures = _figures(task, days.files)
        self._works = works
        self._evidence = Evidence(slots=_slots_of(task, works))
        self._unnamed = {name for name, work in works.items() if not work.named}
        self._lines: dict[tuple[int | None, str], int] = {}  # of foreign logs that were read, by hour and datacentre
        self.days = days
        self.nights = nights
        self.verified: list[Hours] = []  # hours verified as a whole

    def build(self, building: Path) -> VerifyOutcome:
        """Fills a report's directory."""
        disk, figures, problems = RealDisk(), self._figures, building / problem_files.PROBLEMS
        pieces = pieces_of(self._task.from_hour, self._task.to_hour)
        good = self._good(pieces)
        while self.verified and (again := self._verify(good, problems)):
            # Reading showed further changes: verify everything at once.
            good = [each for each in good if each.hours not in again]
            self.verified = [at for at in pieces if at not in {each.hours for each in good}]
        if not self.verified:
            self._say("nothing has changed since the last report")
            problems.mkdir()
            self.days.keep(good)
            self._tell_causes()
        figures.reused = [piece_text(*piece.hours) for piece in good]
        figures.counts += [count for piece in good for count in as_counts(piece)]
        figures.inputs = _totals(self.days.files, self._bytes_read())
        self._cover(pieces, good)
        _write_summary(figures.counts, building)
        report.write_inputs(disk, building / report.INPUTS_NAME, self.days.files)
        disk.replace(building / report.PAGE_NAME, page(figures).encode())
        said = report.verdict_of(figures, self._task.deployment, self._task.exported_ns)
        report.write_json(disk, building / VERDICT_NAME, said)
        return VerifyOutcome(said, figures)

    def _cover(self, pieces: Sequence[Hours], good: Sequence[Piece]) -> None:
        """Computes the coverage, and which days it closes."""
        task, figures, names = self._task, self._figures, self._figures.datacentres
        events = coverage.events_of(pieces, self._lines, names)
        for piece in good:
            before = self.nights.at(piece.hours)
            own = Counter[tuple[int | None, str]]()
            for hour, name, _, count in piece.counts:
                own[hour, name or ""] += count
            known = coverage.events_of([piece.hours], own, names)
            events |= known if before is None else {piece.hours: before.events}
        files = files_by_side(((each.what, each.datacentre) for each in self.days.files), names)
        looked = coverage.Looked(
            pieces, figures.counts, events, files, task.ledger, task.places_of, _overdue(task, self.days.files),
            task.allow_empty,
        )  # fmt: skip
        open_, gone = coverage.empty(looked, self.nights), coverage.missing(looked, self.nights)
        figures.coverage = coverage.coverage(looked, self.nights)
        figures.unjudged = [*coverage.too_pending(looked), *gone, *(said for each in open_.values() for said in each)]
        figures.unlooked = coverage.unlooked(looked, registry=task.registry is not None)
        figures.notes += coverage.pointed_at(looked, self.nights)
        wrong = {}
        if figures.problems():
            wrong = coverage.with_problems(looked, (each.hour for each in figures.unexplained()))
        open_days = {**open_, **wrong}
        self.nights.add(coverage.judged_nights(looked, self.nights, self.verified, open_days, blind=bool(gone)))

    def _good(self, pieces: Sequence[Hours]) -> list[Piece]:
        """Returns the pieces that are known to need no verification."""
        spark, task, days = self._spark, self._task, self.days
        good: list[Piece] = []
        registry: Mapping[Hours, tuple[int, int]] = {}
        if not task.full and any(at in days.pieces for at in pieces):
            registry = registry_prints(spark, task, pieces)
            good = days.good(pieces, registry)
        self._registry = registry
        todo = [at for at in pieces if at not in {each.hours for each in good}]
        ahead = days.unknown() if days.pieces else []
        if todo:  # most new data is read anyway
            ahead = [each for each in ahead if is_old(each, window_of(task, todo))]
        if ahead:
            self._learn(look_into(spark, task, days, ahead, self._notes), ahead)
        if not todo and days.absent() and days.changed("primary"):
            look_for_primaries(spark, task, days, self._notes)
            self._learn(FoundHours({}, {}), days.changed("primary"))
        good = days.good((each.hours for each in good), registry)
        self.verified = [at for at in pieces if at not in {each.hours for each in good}]
        return good

    def _learn(self, found: FoundHours, read: Iterable[InputFile]) -> None:
        days, noted = self.days, self._notes.all()
        files = {name_of(each): each for each in read}
        self._read |= files
        days.spans |= found.spans
        days.fresh |= found.fresh
        days.met.update(at for note in noted for at in note.met)
        days.asked.update(files)
        days.read.update(name for name, (_, _, whole) in hours_of_logs(noted).items() if whole)

    def _verify(self, good: Sequence[Piece], problems: Path) -> set[Hours]:
        """Verifies, and writes the findings. If pieces in ``good`` turn out to need verification, returns them
        instead."""
        task, days, figures, todo = self._task, self.days, self._figures, self.verified
        sampled = min(good, key=lambda each: (each.looked_ns, each.begin), default=None)
        sample = [] if sampled is None else [sampled.sample()]
        parts = merged([*todo, *sample])
        self._say(f"verifying {', '.join(piece_text(*at) for at in merged(todo))}")
        given, read = inputs(self._spark, task, days, todo, sample, self._notes, self._unnamed)
        found = verify(given, _question(task, parts))
        try:
            counts = found.counts
            self._learn(hours_read(found.totals, days, read, self._notes), read)
            still = {each.hours for each in days.good((each.hours for each in good), self._registry)}
            again = {each.hours for each in good} - still
            new = [each for each in counts if each.hour is None or _lies_in(each.hour, todo)]
            if sampled is not None:
                looked = [each for each in counts if each.hour is not None and _lies_in(each.hour, sample)]
                after = sampled.after_sample(looked, time.time_ns())
                again |= {sampled.hours} if after is None else set()
                good = [after if each is sampled and after is not None else each for each in good]
                figures.notes[:] = [*task.notes, f"a sample was verified again: {piece_text(*sampled.sample())}"]
            if again:
                return again
            days.keep(good)
            figures.counts += new
            self._collect(found, new, problems)
        finally:
            found.close()
        return set()

    def _collect(self, found: Verification, new: list[ClassCount], problems: Path) -> None:
        from pyspark.sql import functions as sql

        figures, days, todo = self._figures, self.days, self.verified
        self._lines = {at: own.lines for at, own in found.totals.cells.items()}
        wanted = within(todo) | col("hour").isNull()
        kinds = {each.kind for each in new}
        evidence = self._evidence
        if Class.TORN in kinds:
            evidence.files = [self._trouble(*each) for each in found.broken()]
        if kinds.intersection((Class.LOST_CLEARED, Class.LOST_OWNED)):
            evidence.lost = found.lost(wanted)
        if Class.LOG_GONE in kinds:
            evidence.logs, evidence.known = found.logs_gone(wanted), logs_known(self._task, days)
        counted = found.unnamed(wanted) if self._unnamed else {}
        attributed = self._tell_causes(counted)
        if kinds.intersection(PROBLEMS):
            listed = marked(with_causes(found.problems().where(wanted), attributed), self._acknowledged)
            _write_problems(listed, problems)
            if self._acknowledged:
                accepted = listed.where(MARK).groupBy("class").count().collect()
                figures.acknowledged = {Class(kind): count for kind, count in accepted}
            figures.examples = _examples(listed.where(~sql.col(MARK)))
        else:
            problems.mkdir()
        cells = {cell: own for cell, own in found.totals.cells.items() if cell[0] is None or _lies_in(cell[0], todo)}
        figures.differences = compare(self._task.ledger, cells, new)
        odd = {each.hour for each in figures.unexplained()}
        # A file with a cause is examined each night until the cause is gone.
        again = {("output", each.datacentre, each.file.removesuffix(".gz")) for each in evidence.files}
        again |= {("output", *name) for name in self._unnamed}
        spans = [days.spans[name] for name in again if name in days.spans]
        registry = prints(found.totals.entries, todo)
        absent = absent_keys(found.rows, found.totals.unmatched, todo)
        for at, counts in counts_by_piece(todo, new).items():
            if any(hour in odd for hour in range(*at)) or any(span.touches(at) for span in spans):
                continue  # the next run examines it again
            piece = Piece(begin=at[0], end=at[1], absent=absent[at], registry=registry[at], counts=counts,
                          looked_ns=time.time_ns())  # fmt: skip
            days.keep([piece])

    def _trouble(self, datacentre: str, name: str, why: str) -> FileTrouble:
        work = self._works[datacentre, name]
        more = ".gz" if work.compressed else ""
        first, last = (None if each is None else each // HOUR_NS for each in (work.first_ns, work.last_ns))
        return FileTrouble(datacentre, work.slot, name + more, work.path + more, why, first, last)

    def _path_of(self, note: ReadNote) -> str:
        sources = self._task.sources
        logs_of = sources.foreign if note.what == "foreign" else sources.primary
        (directory,) = (each.directory for each in logs_of if each.datacentre == note.datacentre)
        return f"{directory}/{note.log}"

    def _tell_causes(self, unnamed: Mapping[tuple[str, str], UnnamedLines] | None = None) -> Attributed:
        """Reports causes. ``unnamed``: the result of ``Verification.unnamed`` for the files read; ``None`` if nothing
        was verified."""
        evidence, read = self._evidence, {(each.datacentre, each.path) for each in self._read.values()}
        evidence.unnamed = [
            UnnamedFile(*name, self._works[name].path, (unnamed or {}).get(name, UnnamedLines()),
                        read=unnamed is not None and name in read)
            for name in sorted(self._unnamed)
        ]  # fmt: skip
        evidence.damaged = [
            LogTrouble(note.datacentre, note.what, log_name(note.log), self._path_of(note), note.at, note.why)
            for note in self._notes.all()
            if note.why
        ]
        self._figures.causes, attributed = causes_of(evidence, self._task.commands)
        return attributed

    def _bytes_read(self) -> Counter[tuple[str, str]]:
        """Returns bytes read by side and datacentre; for output and the registry's export, the bytes planned to be
        read."""
        found: Counter[tuple[str, str]] = Counter()
        for note in self._notes.all():
            found[note.what, note.datacentre] += note.bytes
        for each in self._read.values():
            if each.what == "output":
                found[each.what, each.datacentre] += each.bytes
        found["registry", ""] += self._task.export_bytes
        return found


def _slots_of(task: VerifyTask, works: Mapping[tuple[str, str], RangeWork]) -> dict[str, Counter[str]]:
    """Returns the number of files by datacentre and readable slot."""
    found = {source.datacentre: Counter[str]() for source in task.outputs}
    for source in task.outputs:
        states = outputs.place_of(source).states(UrlDisk())
        found[source.datacentre].update(dict.fromkeys((state.name for state in states), 0))
    for (datacentre, _), work in works.items():
        if work.named:
            found[datacentre][work.slot] += 1
    return found


def _lies_in(hour: int, parts: Iterable[Hours]) -> bool:
    return any(begin <= hour < end for begin, end in parts)


def _figures(task: VerifyTask, files: Sequence[InputFile]) -> Figures:
    names = [source.datacentre for source in task.sources.outputs]
    return Figures(task.sources.join.join, task.from_hour, task.to_hour, names, task.made_at, task.exported_at, [],
                   ledger=task.ledger, notes=list(task.notes), commands=task.commands)  # fmt: skip


def _overdue(task: VerifyTask, files: Sequence[InputFile]) -> list[str]:
    """Reports events in retry stores, and unread ends of logs without recent writes, that have waited longer than the
    join's patience. For a compressed log, it is only known whether its dispatcher has begun it."""
    if task.waited_before_ns is None:
        return []
    since = hour_text(task.waited_before_ns // HOUR_NS)
    found = [f"{name}: {count:,} events of the range wait in the retry store since before {since}"
             for name, count in sorted(task.waited.items()) if count]  # fmt: skip
    read = {(name, identity): offset for name, identity, offset, _ in task.places}
    for name in task.places_of:
        left = [
            each
            for each in files
            if (each.what, each.datacentre) == ("foreign", name)
            and (each.mtime_ns or 0) < task.waited_before_ns
            and (at := read.get((name, each.identity), 0)) < each.bytes
            and not (at and each.path.endswith(COMPRESSED_SUFFIXES))
        ]
        if left:
            others = f" and {len(left) - 1:,} more" if len(left) > 1 else ""
            found.append(f"{name}: {left[0].path}{others}: not read to the end, last written before {since}")
    return found


def _totals(files: Sequence[InputFile], read: Mapping[tuple[str, str], int]) -> list[InputTotal]:
    by_side: dict[tuple[str, str], list[InputFile]] = {}
    for each in files:
        by_side.setdefault((each.what, each.datacentre), []).append(each)
    return [
        InputTotal(
            what, datacentre, len(own), sum(f.bytes for f in own), max((f.mtime_ns or 0 for f in own), default=0),
            read.get((what, datacentre), 0),
        )
        for (what, datacentre), own in by_side.items()
    ]  # fmt: skip


def _question(task: VerifyTask, parts: Sequence[Hours]) -> VerifyQuestion:
    names = tuple(source.datacentre for source in task.sources.outputs)
    adapter = partial(_adapter, task.sources.join.adapter)
    begin, end = parts[0][0], parts[-1][1]
    return VerifyQuestion(begin, end, names, adapter, task.exported_at, task.boundary_ns, tuple(parts))


def _adapter(spec: AdapterSpec) -> Adapter:
    return made(spec, task_directory())


# -- inputs ------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class _Inputs:
    files: list[InputFile]  # every existing file in its current state
    places: dict[Name, Path | LogPath]  # paths of the files whose growth is examined
    works: dict[tuple[str, str], RangeWork]  # (datacentre, name) -> an output file, listed in a manifest or not


def _input_files(task: VerifyTask, note: Callable[[str], None]) -> _Inputs:
    sources = task.sources
    adapter = _adapter(sources.join.adapter)
    found: list[InputFile] = []
    places: dict[Name, Path | LogPath] = {}
    works: dict[tuple[str, str], RangeWork] = {}

    def add(file: InputFile, place: Path | LogPath) -> None:
        found.append(msgspec.structs.replace(file, tail=_tail(place, file.bytes)))
        places[name_of(file)] = place

    for what, logs_of in (("foreign", sources.foreign), ("primary", sources.primary)):
        is_foreign = what == "foreign"
        for number, log in logs.list_logs(adapter, logs_of, note, is_foreign=is_foreign):
            datacentre = logs_of[number].datacentre
            file = InputFile(what=what, datacentre=datacentre, path=log.path, bytes=log.size, mtime_ns=log.mtime_ns,
                             identity=log.identity)  # fmt: skip
            place = log_path(placed(Path(), logs_of[number].directory), log.path, adapter.foreign_links)
            add(file, place) if is_foreign else found.append(file)
    for source in task.outputs:
        ranges = outputs.source_ranges(source, KINDS, 1 << 62)
        for work in [*ranges, *outputs.unnamed_ranges(source, KINDS)]:
            add(_output_file(work), Path(work.path))
            works[work.datacentre, work.name] = work
    if task.registry is not None:
        root = Path(task.registry.directory)
        found += (
            InputFile(what="registry", datacentre="", path=str(path.relative_to(root)), bytes=path.stat().st_size,
                      mtime_ns=path.stat().st_mtime_ns)
            for path in sorted(root.rglob("*")) if path.is_file()
        )  # fmt: skip
    return _Inputs(found, places, works)


def _tail(path: Path | LogPath, end: int) -> str:
    """Returns the digest of the bytes before ``end``; empty if the file no longer has these bytes."""
    if path.name.endswith(COMPRESSED_SUFFIXES) or is_final(path):
        return ""
    try:
        with closing(open_stored(path)) as file:
            return xxh3_128_hexdigest(file.read(max(end - report.TAIL_BYTES, 0), min(end, report.TAIL_BYTES)))
    except OSError:
        return ""


def _output_file(work: outputs.RangeWork) -> InputFile:
    plain = Path(work.path)
    path = next((each for each in (plain, plain.with_name(plain.name + ".gz")) if each.exists()), None)
    first, last = (None if each is None else each // HOUR_NS for each in (work.first_ns, work.last_ns))
    return InputFile(what="output", datacentre=work.datacentre, path=work.name, bytes=work.end - work.start,
                     mtime_ns=None if path is None else path.stat().st_mtime_ns, first=first, last=last)  # fmt: skip


# -- results ------------------------------------------------------------------------------------------------------
def _write_problems(problems: DataFrame, directory: Path) -> None:
    from pyspark.sql import functions as sql

    columns = [column.split(" ")[0] for column in PROBLEM.split(", ")]
    day = sql.coalesce(sql.date_format(sql.timestamp_seconds(sql.col("hour") * 3600), "yyyy-MM-dd"), sql.lit("none"))
    rows = problems.select(*columns).withColumn("day", day)
    rows.write.partitionBy("day").parquet(directory.absolute().as_uri())


def _examples(problems: DataFrame) -> list[ExampleFinding]:
    from pyspark.sql import Window
    from pyspark.sql import functions as sql

    order = Window.partitionBy("class").orderBy("hour", "datacentre", "digest")
    few = problems.withColumn("place", sql.row_number().over(order)).where(f"place <= {EXAMPLES_MAX}")
    rows = sorted(few.collect(), key=lambda row: (row["class"], row["place"]))  # too few to need Spark
    return [_example(row.asDict()) for row in rows]


def _example(row: dict[str, Any]) -> ExampleFinding:
    event = bytes(row["event_id"]).decode("utf-8", "backslashreplace") if row["event_id"] is not None else "-"
    place = f"{row['log']}:{row['offset']}" if row["log"] is not None else "-"
    output = f"{row['output_file']}:{row['output_offset']}" if row["output_file"] is not None else "-"
    evidence = str(row["evidence"])[:EVIDENCE_CHARS_MAX]
    return ExampleFinding(Class(row["class"]), event, row["hour"], row["datacentre"] or "-", place, output, evidence)


def _write_summary(counts: Sequence[ClassCount], building: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = sorted(counts, key=lambda each: (each.hour is None, each.hour or 0, each.datacentre or "", each.kind))
    table = pa.table(
        {
            "hour": pa.array([each.hour for each in rows], pa.int64()),
            "datacentre": pa.array([each.datacentre for each in rows], pa.string()),
            "class": pa.array([str(each.kind) for each in rows], pa.string()),
            "count": pa.array([each.count for each in rows], pa.int64()),
        }
    )
    path = building / report.SUMMARY / "summary.parquet"
    path.parent.mkdir()
    with naming(path):
        pq.write_table(table, path, compression="zstd")
    report.write_json(RealDisk(), building / report.SUMMARY_NAME, {"version": VERSION, "rows": table.to_pylist()})
