"""Reads a verification's report for its repair: the verdict, and the findings in batches.

The findings are streamed from Parquet in the order of the files' names, so that batch n is always the same; at most
one batch is in memory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from photon.config.decoding import DECODE_ERRORS
from photon.config.disk import Disk
from photon.idregistry.api import DIGEST_BYTES
from photon.objects.paths import ObjectPath
from photon.objects.transfer import fetched
from photon.spark.classes import Class
from photon.spark.problems import PROBLEMS, VERDICT_NAME, VERSION, read_verdict, record_batches
from photon.spark.recover.journal import ReportRefused
from photon.spark.recover.planning import ReportedProblem
from photon.spark.sources import TimeRange

BATCH_ROWS = 4_096
_COLUMNS = (
    "event_id", "digest", "event_time_ns", "datacentre", "class", "log", "offset", "output_file", "output_offset",
    "token", "state", "generation", "evidence",
)  # fmt: skip


class ReportVerdict(msgspec.Struct, frozen=True, tag_field="version", tag=VERSION):
    """The parts of the verdict that a repair needs."""

    deployment: str  # fingerprint of the verified deployment
    exported_ns: int  # wall clock before the registry's export began
    join: str = ""
    begin: str = ""
    end: str = ""  # with ``begin`` the range of event times, in whole hours: ``2026-11-21 09:00``, UTC

    @property
    def window(self) -> TimeRange:
        begin, end = (
            int(datetime.strptime(text, "%Y-%m-%d %H:%M").replace(tzinfo=UTC).timestamp()) * 10**9
            for text in (self.begin, self.end)
        )
        return TimeRange(begin_ns=begin, end_ns=end)


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """An opened report. ``name``: 32 hex digits, unique to the verdict."""

    directory: Path
    name: str
    verdict: ReportVerdict
    problems: Path  # the Parquet files, on this machine


@dataclass(frozen=True, slots=True)
class Damage:
    """An unreadable place in an output file: a single record, or everything from there on."""

    datacentre: str | None
    file: str | None
    offset: int | None


class _Evidence(msgspec.Struct, frozen=True):
    slot: str | None = None
    written_token: str | None = None
    records: Any = None


_EVIDENCE = msgspec.json.Decoder(_Evidence)


@contextmanager
def opened(disk: Disk, directory: Path, deployment: str) -> Iterator[VerifyReport]:
    """Like ``open_report``, but can also fetch a report from a URL. Also raises ObjectsUnavailable."""
    report = open_report(disk, directory, deployment)
    if not isinstance(directory, ObjectPath):
        yield report
        return
    with fetched(directory, VERDICT_NAME) as local:
        yield replace(report, problems=local / PROBLEMS)


def open_report(disk: Disk, directory: Path, deployment: str) -> VerifyReport:
    """Opens a report.

    Raises ReportRefused if the report is missing, or belongs to a deployment with another fingerprint.
    """
    path = directory / VERDICT_NAME
    data, verdict = read_verdict(disk, directory, ReportVerdict)
    if verdict.deployment != deployment:
        raise ReportRefused(
            f"{path}: the deployment has changed since this report, or is another one; verify again, then recover"
        )
    if not verdict.exported_ns:
        raise ReportRefused(
            f"{path}: was made without a registry export, so nothing can be compared; verify with one"
        )
    return VerifyReport(directory, blake2b(data, digest_size=16).hexdigest(), verdict, directory / PROBLEMS)


def findings(
    report: VerifyReport, classes: Collection[Class], rows: int = BATCH_ROWS
) -> Iterator[list[ReportedProblem]]:
    """Yields all findings of these classes in batches of ``rows``; the last one may be shorter. Raises
    ReportRefused."""
    waiting: list[ReportedProblem] = []
    for batch in record_batches(report.problems, rows, _COLUMNS):
        waiting += _of(batch, classes)
        while len(waiting) >= rows:
            yield waiting[:rows]
            del waiting[:rows]
    if waiting:
        yield waiting


def event_ids(report: VerifyReport, classes: Collection[Class]) -> Iterator[bytes]:
    """Yields the event ids in all findings of these classes that name an event. Raises ReportRefused."""
    for batch in record_batches(report.problems, BATCH_ROWS, _COLUMNS):
        wanted = pc.is_in(batch["class"], pa.array([str(each) for each in classes], pa.string()))
        yield from batch.filter(wanted)["event_id"].drop_null().to_pylist()


def damages(report: VerifyReport, rows: int = BATCH_ROWS) -> Iterator[list[Damage]]:
    """Yields the damaged places in batches of ``rows``: lines that are not records, and files whose rest is lost.
    Raises ReportRefused."""
    waiting: list[Damage] = []
    for batch in record_batches(report.problems, rows, _COLUMNS):
        torn = batch.filter(pc.is_in(batch["class"], pa.array([str(Class.TORN)]))).to_pylist()
        waiting += (Damage(row["datacentre"], row["output_file"], row["output_offset"]) for row in torn)
        while len(waiting) >= rows:
            yield waiting[:rows]
            del waiting[:rows]
    if waiting:
        yield waiting


def _of(batch: pa.RecordBatch, classes: Collection[Class]) -> Iterator[ReportedProblem]:
    wanted = pc.is_in(batch["class"], pa.array([str(each) for each in classes]))
    for row in batch.filter(wanted).to_pylist():
        if row["digest"] is None or len(row["digest"]) != DIGEST_BYTES or row["event_time_ns"] is None:
            raise ReportRefused(f"a finding of class {row['class']} has no id or no time; verify again")
        token, evidence = row["token"], _evidence(row["evidence"])
        yield ReportedProblem(
            Class(row["class"]),
            row["digest"],
            row["event_id"] or b"",
            row["event_time_ns"],
            None if token is None else int(token, 16),
            row["state"],
            row["generation"] or 0,
            row["datacentre"],
            row["log"],
            row["output_file"],
            row["output_offset"],
            evidence.slot,
            None if evidence.written_token is None else int(evidence.written_token, 16),
            evidence.records == 1,
        )


def _evidence(text: str | None) -> _Evidence:
    try:
        return _EVIDENCE.decode(text or "{}")
    except DECODE_ERRORS:
        return _Evidence()
