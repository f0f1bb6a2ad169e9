"""Tries an adapter on the first records of a file of each side: which it reads, and why it rejects others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.containment import Fault
from photon.adapters.contract import Adapter, BadRecord, ForeignHeader, Skipped, Unpaired
from photon.adapters.formats.base import Stop
from photon.adapters.formats.json_values import parse_line
from photon.adapters.testkit import Report, Sample, Samples, examine
from photon.adapters.testkit.answers import asked, methods
from photon.adapters.testkit.samples import read_samples
from photon.adapters.times import rfc3339_us

RECORDS = 20
SKIPPED_MAX = 2000  # one kind of event may be rare in its log


@dataclass(frozen=True, slots=True)
class Tried:
    """The trial of one record. ``reason``: why it is rejected; empty if it is read."""

    line: int  # of the uncompressed file, from 1; in a binary log the number of the message
    offset: int
    record: bytes
    reason: str = ""
    key: bytes = b""
    event_id: bytes | None = None
    time_ns: int | None = None
    payload: bytes | None = None
    stop: Stop | None = None


@dataclass(slots=True)
class Trial:
    """The trial of one file. ``fault``: why nothing after the records can be read; empty if all is well."""

    path: str
    records: list[Tried] = field(default_factory=list)
    fault: str = ""
    samples: list[Sample] = field(default_factory=list)  # of these records
    skipped: int = 0  # records before and among them that are not events
    begin: bytes = b""  # first bytes of the file, if the framing is the adapter's own

    @property
    def rejected(self) -> list[Tried]:
        return [each for each in self.records if each.reason]

    @property
    def read(self) -> list[Tried]:
        return [each for each in self.records if not each.reason]


def try_file(adapter: Adapter, side: str, path: Path, limit: int = RECORDS) -> Trial:
    """Reads the first records of a ``primary`` or ``foreign`` file that are not skipped.

    Raises AdapterError if there is no such file.
    """
    found = read_samples(adapter, side, path, limit + SKIPPED_MAX)
    trial = Trial(found.path, fault=found.fault, begin=found.begin)
    for each in found.samples:
        tried = _tried(adapter, side, each)
        if tried is None:
            trial.skipped += 1
            continue
        trial.records.append(tried)
        trial.samples.append(each)
        if len(trial.records) == limit:
            break
    return trial


def _tried(adapter: Adapter, side: str, sample: Sample) -> Tried | None:
    """Tries one record; returns ``None`` if the adapter skips it."""
    record, file = sample.record, sample.file
    key, event_id, time_ns = b"", None, None
    naming, reading = methods(adapter, side)
    header = asked(adapter, partial(naming.ask, record, file))
    if isinstance(header, Skipped):
        return None
    fault = _refusal(header) or naming.fault(header) or ""
    if isinstance(header, ForeignHeader):
        key, time_ns, event_id = header
    elif isinstance(header, bytes):
        key = header
    payload = None
    if not fault:
        payload = asked(adapter, partial(reading.ask, record, file))
        fault = _refusal(payload) or reading.fault(payload) or ""
    if fault or not isinstance(payload, bytes | None):
        stop = adapter.stops_at(side, record) if isinstance(adapter, ConfiguredAdapter) else None
        return Tried(sample.line, sample.offset, record, fault, stop=stop)
    return Tried(sample.line, sample.offset, record, "", key, event_id, time_ns, payload)


def _refusal(answer: object) -> str:
    return (str(answer.reason) or "bad record") if isinstance(answer, BadRecord | Fault) else ""


def examined(adapter: Adapter, trials: Mapping[str, Trial]) -> Report:
    """Runs the contract's checks over those records of the trials that can be read."""
    sides = {}
    for side, trial in trials.items():
        good = {each.offset for each in trial.read}
        sides[side] = [each for each in trial.samples if each.offset in good]
    begins = [(side, trial.path, trial.begin) for side, trial in trials.items() if trial.begin]
    given = Samples(sides.get("primary", []), sides.get("foreign", []), begins)
    return examine(adapter, given, without=("readable",))


def report_json(report: Report | None) -> dict[str, Any]:
    """Returns the report for ``-o json``; empty if there is no report."""
    if report is None:
        return {}
    return {"checks": report.findings, "speed": {each.method: round(each.per_s) for each in report.speeds}}


def matches(primary: Trial, foreign: Trial) -> int:
    """Counts the foreign records that name one of the primary records."""
    keys = {each.key for each in primary.read}
    return sum(each.key in keys for each in foreign.read)


def unpaired(adapter: Adapter, primary: Trial, foreign: Trial) -> list[tuple[Tried, str]]:
    """Returns the foreign records that cannot be joined with the first primary record of their key, and why."""
    files = {each.offset: each.file for each in foreign.samples}
    first = {each.key: each for each in reversed(primary.read)}
    records = {each.offset: each for each in primary.samples}
    found = []
    for each in foreign.read:
        if (named := first.get(each.key)) is not None:
            sample = records[named.offset]
            result = asked(
                adapter, partial(adapter.join, each.record, files[each.offset], sample.record, sample.file)
            )
            if isinstance(result, Unpaired):
                found.append((each, result.reason))
    return found


def ambiguous(primary: Trial) -> list[tuple[Tried, Tried]]:
    """Returns, for each key that several primary records have, the first two that differ, in file order."""
    first: dict[bytes, Tried] = {}
    found: dict[bytes, tuple[Tried, Tried]] = {}
    for each in primary.read:
        if (known := first.setdefault(each.key, each)).record != each.record:
            found.setdefault(each.key, (known, each))
    return list(found.values())


def as_json(trial: Trial) -> dict[str, Any]:
    """Returns the trial for ``-o json``."""
    return {
        "file": trial.path,
        "fault": trial.fault or None,
        "skipped": trial.skipped,
        "read": [_as_json(each) for each in trial.read],
        "rejected": [
            {"line": each.line, "offset": each.offset, "reason": each.reason, **_text("record", each.record)}
            | ({} if each.stop is None else {"fits_until": each.stop.at, "wanted": each.stop.wanted})
            for each in trial.rejected
        ],
    }


def _as_json(each: Tried) -> dict[str, Any]:
    out: dict[str, Any] = {"line": each.line, "offset": each.offset, **_text("key", each.key)}
    if each.time_ns is not None:
        out |= {"event_time_ns": each.time_ns, "event_time": rfc3339_us(each.time_ns)}
        out |= {"event_id": None} if each.event_id is None else _text("event_id", each.event_id)
    if each.payload is not None:
        out["fields"] = parse_line(each.payload)
    else:
        out |= _text("record", each.record)
    return out


def _text(name: str, data: bytes) -> dict[str, Any]:
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        from base64 import b64encode

        return {f"{name}_raw_base64": b64encode(data).decode()}
