"""Turns the rows of one id into its findings, on an executor. Pure over Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson
import pyarrow as pa

from photon.spark.classes import LOST_REGISTERED, Class
from photon.spark.verify.classify import (
    LATE,
    ClassifiedId,
    Entry,
    JoinedPair,
    KnownLogs,
    KnownOfId,
    Line,
    Record,
    classify,
    sets_of,
    without_copies,
)
from photon.spark.verify.narrow_rows import ENTRY, GIVEN_UP, LINE, RECORD, UNNAMED

# Columns like ``schemas.PROBLEM``; correct ids have rows too
FOUND = (
    "event_id binary, digest binary, event_time_ns bigint, hour bigint, datacentre string, class string, key binary, "
    "log string, offset bigint, output_file string, output_offset bigint, token string, state string, "
    "generation bigint, evidence string"
)
FOUND_SCHEMA = pa.schema(
    [
        (name, {"binary": pa.binary(), "bigint": pa.int64(), "string": pa.string()}[kind])
        for name, kind in (column.split() for column in FOUND.split(", "))
    ]
)
HOUR_NS = 3_600_000_000_000


def findings_of(*, registry: bool, boundary_ns: int | None, logs: KnownLogs | None = None) -> Any:
    """Returns a function for ``mapInArrow``: (digest, rows array<NARROW>, lines, records) -> FOUND."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            found: list[dict[str, Any]] = []
            for group in batch.to_pylist():
                known = known_of(group["rows"], group["lines"], group["records"], registry, boundary_ns, logs)
                found += (_row(group, finding) for finding in classify(known))
            yield pa.RecordBatch.from_pylist(found, schema=FOUND_SCHEMA)

    return run


def known_of(
    rows: list[dict[str, Any]],
    lines: int,
    records: int,
    registry: bool,
    boundary_ns: int | None,
    logs: KnownLogs | None = None,
) -> KnownOfId:
    """Builds a KnownOfId from rows of NARROW. ``lines``, ``records``: how many there are, as ``rows`` may be
    incomplete."""
    times = [row["event_time_ns"] for row in rows if row["event_time_ns"] is not None]
    listed = [_record(row) for row in rows if row["role"] == RECORD]
    told = sets_of(without_copies(listed))
    # A line outside the verified range was not joined: it only shows that the event exists.
    return KnownOfId(
        lines=[_line(row) for row in rows if row["role"] == LINE],
        records=told,
        entries=[_entry(row) for row in rows if row["role"] == ENTRY],
        waiting=any(row["role"] > ENTRY for row in rows),
        collected=boundary_ns is not None and bool(times) and min(times) < boundary_ns,
        registry=registry,
        lines_all=lines,
        records_all=records - _verdicts(listed) + _verdicts(told),
        logs=logs,
    )


def _verdicts(records: list[Record]) -> int:
    return sum(1 for each in records if each.kind != LATE)


def _line(row: dict[str, Any]) -> Line:
    members = row["members"]
    return Line(
        row["datacentre"], row["log"], row["offset"], row["event_time_ns"], row["key"], row["kind"], row["foreign"],
        row["record"], row["primary"], row["primary_log"], row["primary_offset"], bool(row["unread"]),
        not row["judged"], None if members is None else [JoinedPair(**each) for each in members], row["reason"],
    )  # fmt: skip


def _record(row: dict[str, Any]) -> Record:
    return Record(
        row["datacentre"], row["kind"], row["file"], row["file_offset"], row["token"], row["event_time_ns"],
        row["key"], row["foreign"], row["primary"], row["log"], row["offset"], row["primary_log"],
        row["primary_offset"], bool(row["fresh"]), row["state"] == GIVEN_UP, row["pair"], row["pairs"],
        reason=row["reason"], added=bool(row["added"]), unnamed=row["state"] == UNNAMED,
    )  # fmt: skip


def _entry(row: dict[str, Any]) -> Entry:
    return Entry(
        row["token"], row["state"], row["kind"], row["event_time_ns"], row["datacentre"], row["slot"],
        bool(row["retired"]), row["generation"] or 0,
    )  # fmt: skip


def _row(group: dict[str, Any], finding: ClassifiedId) -> dict[str, Any]:
    line, record, entry = finding.line, finding.record, finding.entry
    rows = group["rows"]
    at = line or record
    known_time = at.time_ns if at is not None else entry.time_ns if entry is not None else None
    named = _raw_of(rows, line)
    named_id = next((row["event_id"] for row in rows if row["event_id"] is not None), None)
    unreadable = line is not None and line.key is None and line.time_ns is None
    return {
        "event_id": named_id,
        "digest": None if unreadable or known_time is None else group["digest"],
        "event_time_ns": known_time,
        "hour": None if known_time is None else known_time // HOUR_NS,
        "datacentre": _datacentre(finding),
        "class": str(finding.kind),
        "key": at.key if at is not None else None,
        "log": named["name"] if named is not None else record.log if record is not None else None,
        "offset": line.offset if line is not None else record.log_offset if record is not None else None,
        "output_file": record.file if record is not None else None,
        "output_offset": record.offset if record is not None else None,
        "token": entry.token if entry is not None else None,
        "state": entry.state if entry is not None else None,
        "generation": entry.generation if entry is not None else None,
        "evidence": orjson.dumps(_with_written(finding)).decode(),
    }


def _with_written(finding: ClassifiedId) -> dict[str, object]:
    record = finding.record
    written = {"written_token": record.token} if record is not None and finding.kind is not Class.CORRECT else {}
    return dict(finding.evidence) | written


def _datacentre(finding: ClassifiedId) -> str | None:
    """Returns the datacentre whose output lacks the record; otherwise the datacentre of the record, the line, or the
    entry's owner."""
    if finding.kind in LOST_REGISTERED and finding.entry is not None and finding.entry.datacentre is not None:
        return finding.entry.datacentre
    for each in (finding.record, finding.line, finding.entry):
        if each is not None:
            return each.datacentre
    return None


def _raw_of(rows: list[dict[str, Any]], line: Line | None) -> dict[str, Any] | None:
    if line is None:
        return None
    place = (line.datacentre, line.log, line.offset)
    return next(
        row for row in rows if row["role"] == LINE and (row["datacentre"], row["log"], row["offset"]) == place
    )
