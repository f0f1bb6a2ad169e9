"""A verification from its sources to its report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from photon.adapters.contract import Adapter
from photon.config.disk import RealDisk
from photon.outputs.output_places import KINDS
from photon.spark import logs, outputs
from photon.spark.classes import Class
from photon.spark.ledger_check import compare, counted
from photon.spark.schemas import PROBLEM
from photon.spark.shipped_adapter import AdapterSpec, made
from photon.spark.tasks import task_directory
from photon.spark.verify import verdict as report
from photon.spark.verify.days import EVENT_SIDES, Days, Piece, as_counts, counts_by_piece, pieces_of, span_of
from photon.spark.verify.figures import (
    HOURS_A_DAY,
    ClassCount,
    ExampleFinding,
    Figures,
    InputTotal,
    hour_text,
)
from photon.spark.verify.job import Verification, VerifyQuestion, verify
from photon.spark.verify.page import page
from photon.spark.verify.reading import (
    VerifyTask,
    absent_hours,
    backfilled,
    hours_of_files,
    hours_of_rows,
    inputs,
    prints_of_rows,
    registry_prints,
)
from photon.spark.verify.verdict import InputFile, Verdict

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES_MAX = 5
"""Examples of each class."""
EVIDENCE_CHARS_MAX = 600


@dataclass(frozen=True, slots=True)
class VerifyOutcome:
    verdict: Verdict
    figures: Figures


def run(spark: SparkSession, task: VerifyTask, directory: Path, say: Callable[[str], None]) -> VerifyOutcome:
    """Verifies and writes the report. Raises ReportRefused, OSError, what reading the sources raises, and what Spark
    raises."""
    outcome: list[VerifyOutcome] = []

    def build(building: Path) -> None:
        outcome.append(_build(spark, task, directory, building, say))

    report.write_report(RealDisk(), directory, build)
    return outcome[0]


def _build(
    spark: SparkSession, task: VerifyTask, before: Path, building: Path, say: Callable[[str], None]
) -> VerifyOutcome:
    disk = RealDisk()
    files = _input_files(task, task.notes.append)
    figures = _figures(task, files)
    days = Days.since(before, task.deployment, files)
    pieces = pieces_of(task.from_hour, task.to_hour)
    good = _good(spark, task, days, pieces)
    hours = span_of([at for at in pieces if at not in {(each.begin, each.end) for each in good}])
    if hours is not None:  # it is verified as a whole
        good = [each for each in good if not hours[0] <= each.begin < hours[1]]
    days.keep(good)
    figures.reused = [_piece_text(piece.begin, piece.end) for piece in good]
    figures.counts = [count for piece in good for count in as_counts(piece)]
    problems = building / report.PROBLEMS
    if hours is None:
        say("nothing has changed since the last report")
        problems.mkdir()
    else:
        say(f"verifying {_piece_text(*hours)}")
        found = verify(inputs(spark, task, files, hours), _question(task, *hours))
        try:
            _collect(task, found, problems, figures, days, [at for at in pieces if hours[0] <= at[0] < hours[1]])
        finally:
            found.close()
    _write_summary(figures.counts, building)
    days.write(disk, building)
    report.write_inputs(disk, building / report.INPUTS_NAME, files)
    disk.replace(building / report.PAGE_NAME, page(figures).encode())
    said = report.verdict_of(figures, task.deployment, task.exported_ns)
    report.write_json(disk, building / report.VERDICT_NAME, said)
    return VerifyOutcome(said, figures)


def _good(spark: SparkSession, task: VerifyTask, days: Days, pieces: Sequence[tuple[int, int]]) -> list[Piece]:
    """Pieces that need not be verified again."""
    if not any(at in days.pieces for at in pieces):
        return []
    registry = registry_prints(spark, task, pieces)
    changed = [each for each in days.changed() if each.what in EVENT_SIDES]
    return days.good(pieces, registry, hours_of_files(spark, task.sources, changed) if changed else {})


def _collect(
    task: VerifyTask,
    found: Verification,
    problems: Path,
    figures: Figures,
    days: Days,
    todo: Sequence[tuple[int, int]],
) -> None:
    """Verifies the pieces ``todo`` and collects the results."""
    _write_problems(found, problems)
    new = _counts(found)
    figures.counts += new
    figures.examples = _examples(found)
    figures.differences = compare(task.ledger, counted(found.rows), new)
    odd = {each.hour for each in figures.unexplained()}
    days.ranges = hours_of_rows(found.rows, days.files)
    registry, absent = prints_of_rows(found.rows, todo), absent_hours(found.rows)
    for at, counts in counts_by_piece(todo, new).items():
        if any(hour in odd for hour in range(*at)):
            continue  # it is looked at again
        has_absent = any(hour in absent for hour in range(*at))
        days.keep([Piece(begin=at[0], end=at[1], absent=has_absent, registry=registry[at], counts=counts)])


def _piece_text(begin: int, end: int) -> str:
    if begin % HOURS_A_DAY == 0 and end - begin == HOURS_A_DAY:
        return hour_text(begin)[:10]
    return f"{hour_text(begin)} to {hour_text(end)}"


def _figures(task: VerifyTask, files: Sequence[InputFile]) -> Figures:
    by_side: dict[tuple[str, str], list[InputFile]] = {}
    for each in files:
        by_side.setdefault((each.what, each.datacentre), []).append(each)
    totals = [
        InputTotal(
            what, datacentre, len(own), sum(f.bytes for f in own), max((f.mtime_ns or 0 for f in own), default=0)
        )
        for (what, datacentre), own in by_side.items()
    ]
    names = [source.datacentre for source in task.sources.outputs]
    return Figures(task.sources.join.join, task.from_hour, task.to_hour, names, task.made_at, task.exported_at, [],
                   inputs=totals, ledger=task.ledger, notes=task.notes)  # fmt: skip


def _question(task: VerifyTask, from_hour: int, to_hour: int) -> VerifyQuestion:
    names = tuple(source.datacentre for source in task.sources.outputs)
    adapter = partial(_adapter, task.sources.join.adapter)
    return VerifyQuestion(from_hour, to_hour, names, adapter, task.exported_at, task.boundary_ns)


def _adapter(spec: AdapterSpec) -> Adapter:
    return made(spec, task_directory())


# -- inputs ------------------------------------------------------------------------------------------------------
def _input_files(task: VerifyTask, note: Callable[[str], None]) -> list[InputFile]:
    """Every file that is read, as it is now."""
    sources = task.sources
    adapter = _adapter(sources.join.adapter)
    found = []
    for what, logs_of in (("foreign", sources.foreign), ("primary", sources.primary)):
        is_foreign = what == "foreign"
        for number, log in logs.list_logs(adapter, logs_of, note, is_foreign=is_foreign):
            datacentre = logs_of[number].datacentre
            found.append(InputFile(what=what, datacentre=datacentre, path=log.path, bytes=log.size,
                                   mtime_ns=log.mtime_ns))  # fmt: skip
    for source in sources.outputs:
        found += (_output_file(work) for work in outputs.source_ranges(source, KINDS, 1 << 62))
    for directory in task.backfills:
        found += (_output_file(work) for work in backfilled(directory, sources.join.join))
    if task.registry is not None:
        root = Path(task.registry.directory)
        found += (
            InputFile(what="registry", datacentre="", path=str(path.relative_to(root)), bytes=path.stat().st_size,
                      mtime_ns=path.stat().st_mtime_ns)
            for path in sorted(root.rglob("*")) if path.is_file()
        )  # fmt: skip
    return found


def _output_file(work: outputs.RangeWork) -> InputFile:
    plain = Path(work.path)
    path = next((each for each in (plain, plain.with_name(plain.name + ".gz")) if each.exists()), None)
    return InputFile(what="output", datacentre=work.datacentre, path=work.name, bytes=work.end - work.start,
                     mtime_ns=None if path is None else path.stat().st_mtime_ns)  # fmt: skip


# -- what came out -----------------------------------------------------------------------------------------------
def _write_problems(found: Verification, directory: Path) -> None:
    from pyspark.sql import functions as sql

    columns = [column.split(" ")[0] for column in PROBLEM.split(", ")]
    day = sql.coalesce(sql.date_format(sql.timestamp_seconds(sql.col("hour") * 3600), "yyyy-MM-dd"), sql.lit("none"))
    rows = found.problems().select(*columns).withColumn("day", day)
    rows.write.partitionBy("day").parquet(directory.absolute().as_uri())


def _counts(found: Verification) -> list[ClassCount]:
    """A row for each hour, datacentre and class: of the range's size, not of the input's."""
    return [
        ClassCount(row["hour"], row["datacentre"], Class(row["class"]), row["count"])
        for row in found.counts.groupBy("hour", "datacentre", "class")
        .sum("count")
        .toDF(*found.counts.columns)
        .collect()
    ]


def _examples(found: Verification) -> list[ExampleFinding]:
    from pyspark.sql import Window
    from pyspark.sql import functions as sql

    order = Window.partitionBy("class").orderBy("hour", "datacentre", "digest")
    few = found.problems().withColumn("place", sql.row_number().over(order)).where(f"place <= {EXAMPLES_MAX}")
    return [_example(row.asDict()) for row in few.orderBy("class", "place").collect()]


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
    directory = building / report.SUMMARY
    directory.mkdir()
    pq.write_table(table, directory / "summary.parquet", compression="zstd")
    report.write_json(
        RealDisk(), building / report.SUMMARY_NAME, {"version": report.VERSION, "rows": table.to_pylist()}
    )
