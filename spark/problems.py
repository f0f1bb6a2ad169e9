"""Reads the findings of a report from Parquet, without Spark, to show or acknowledge them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from photon.config.decoding import DECODE_ERRORS
from photon.config.disk import Disk, RealDisk
from photon.config.versioned_file import decoded
from photon.objects.paths import ObjectPath
from photon.objects.transfer import fetched
from photon.spark.recover.journal import ReportRefused
from photon.spark.schemas import PROBLEM

V = TypeVar("V", bound=msgspec.Struct)
VERDICT_NAME = "verdict.json"
PROBLEMS = "problems"  # directory of the Parquet files, below the report
VERSION = 1  # version of the verdict
ROWS = 4_096
COLUMNS = tuple(column.split()[0] for column in PROBLEM.split(", "))


class _Verdict(msgspec.Struct, frozen=True, tag_field="version", tag=VERSION):
    join: str = ""


@dataclass(frozen=True, slots=True)
class ReadReport:
    """A report. ``join``: the name of its join; ``problems``: the directory of Parquet files, on this machine."""

    join: str
    problems: Path


@dataclass(frozen=True, slots=True)
class ProblemFilter:
    """Chooses findings. Empty members match everything. ``file``: name, or end of the path, of a raw log or output
    file."""

    classes: Collection[str] = ()
    file: str = ""
    event: bytes | None = None

    def takes(self, row: dict[str, Any]) -> bool:
        return (
            (not self.classes or row["class"] in self.classes)
            and (self.event is None or row["event_id"] == self.event)
            and (not self.file or self._in_file(row))
        )

    def _in_file(self, row: dict[str, Any]) -> bool:
        """True if a finding or its evidence names ``file``. Only the evidence names the places of all records."""
        name = self.file.removesuffix(".gz")
        own = (row["output_file"], row["log"])
        return any(each == name or (each or "").endswith(f"/{name}") for each in own) or f"{name}:" in row["evidence"]


@contextmanager
def opened(directory: Path) -> Iterator[ReadReport]:
    """Opens a report in a directory or below a URL. Raises ReportRefused, ObjectsUnavailable, OSError."""
    if not isinstance(directory, ObjectPath):
        yield _read(directory, directory)
        return
    with fetched(directory, VERDICT_NAME) as local:
        yield _read(directory, local)


def _read(named: Path, local: Path) -> ReadReport:
    _, verdict = read_verdict(RealDisk(), local, _Verdict, named)
    return ReadReport(verdict.join, local / PROBLEMS)


def read_verdict(disk: Disk, report: Path, kind: type[V], named: Path | None = None) -> tuple[bytes, V]:
    """Reads the verdict of a report. Returns it raw and decoded. ``named``: the report's name in errors, if not
    ``report``. Raises ReportRefused."""
    path = (named or report) / VERDICT_NAME
    try:
        data = disk.read(report / VERDICT_NAME)
        return data, decoded(data, kind)
    except OSError as error:
        raise ReportRefused(f"{path}: cannot be read ({error.strerror}); name the directory of a report") from None
    except DECODE_ERRORS as error:
        raise ReportRefused(f"{path}: is not a verdict ({error}); verify again") from None


def rows(report: ReadReport, wanted: ProblemFilter) -> Iterator[dict[str, Any]]:
    """Yields rows with the columns of PROBLEM, in the order of the files. Raises ReportRefused."""
    for batch in record_batches(report.problems, ROWS, COLUMNS):
        yield from filter(wanted.takes, batch.to_pylist())


def record_batches(root: Path, rows: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yields batches of all Parquet files below ``root`` that Spark would read, in order of their names. Raises
    ReportRefused."""
    paths = sorted(path for path in root.rglob("*.parquet") if not _hidden(path.relative_to(root)))
    for path in paths:
        try:
            with pq.ParquetFile(path) as file:
                yield from file.iter_batches(batch_size=rows, columns=list(columns), use_threads=False)
        except (pa.ArrowException, OSError) as error:
            said = " ".join(str(error).split())
            raise ReportRefused(f"{path}: cannot be read ({said}); verify again") from None


def _hidden(path: Path) -> bool:
    """True if Spark would skip the file."""
    return any(part.startswith(("_", ".")) for part in path.parts)


def event_text(event_id: bytes | None) -> str:
    return "-" if event_id is None else event_id.decode("utf-8", "backslashreplace")


def place_text(file: str | None, offset: int | None) -> str:
    return "-" if file is None else f"{file}:{offset}"
