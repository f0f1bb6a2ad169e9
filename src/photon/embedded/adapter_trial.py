"""What an adapter reads from the first records of a file of each side, and why it rejects what it rejects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from photon.adapters.contract import Adapter, BadRecord, ForeignHeader, LogFile
from photon.adapters.formats.delimited import LINE_END_MARK
from photon.adapters.logs.framed import headed_pieces, open_anywhere
from photon.adapters.logs.identity import HEAD_BYTES, read_head
from photon.adapters.times import rfc3339_us
from photon.config.errors import UsageError
from photon.joiner.verdicts import describe

RECORDS = 20
RECORDS_MAX = 10_000
SAMPLE_BYTES = 64 << 20
"""Of a file no more than this is read."""
_INT64 = 2**63


@dataclass(frozen=True, slots=True)
class Tried:
    """One record. ``reason``: why it is rejected; empty when it is read."""

    line: int  # of the uncompressed file, from 1; of a binary log the number of the message
    offset: int
    record: bytes
    reason: str = ""
    key: bytes = b""
    event_id: bytes | None = None
    time_ns: int | None = None
    payload: bytes | None = None


@dataclass(slots=True)
class Trial:
    """One file. ``fault``: why nothing behind the records can be read; empty when all is well."""

    path: str
    records: list[Tried] = field(default_factory=list)
    fault: str = ""

    @property
    def rejected(self) -> list[Tried]:
        """Records that cannot be read."""
        return [each for each in self.records if each.reason]

    @property
    def read(self) -> list[Tried]:
        """The others."""
        return [each for each in self.records if not each.reason]


def try_file(adapter: Adapter, side: str, path: Path, limit: int = RECORDS) -> Trial:
    """The first records of a ``primary`` or ``foreign`` file. Raises UsageError where there is no such file."""
    framing = adapter.primary_framing if side == "primary" else adapter.foreign_framing
    has_header = adapter.primary_has_header if side == "primary" else adapter.foreign_has_header
    if not path.is_file():
        raise UsageError(f"{path}: no such file; name one file of the {side} logs")
    trial = Trial(str(path))
    source = open_anywhere(path, framing)
    try:
        data = b""
        while len(data) < SAMPLE_BYTES and data.count(b"\n") <= limit * 4 + 1000:
            more = source.read(len(data), 1 << 20)
            if not more:
                break
            data += more
        trial.fault = source.damage() or ("the file ends in the middle of a record" if source.cut_short() else "")
        head = read_head(path.name, data[:HEAD_BYTES], has_header=has_header, final=True, framing=framing)
        if head is None:
            trial.fault = trial.fault or "holds no record"
            return trial
        whole = data if data.endswith(b"\n") else data + b"\n"
        pieces = headed_pieces(source, [(head.data_start, whole[head.data_start :])], framing, head.header)
    finally:
        source.close()
    name = path.name
    for piece, header in pieces:
        _try_piece(adapter, side, LogFile(name, header), piece.offset, piece.data, data, trial, limit)
    return trial


def _try_piece(
    adapter: Adapter, side: str, file: LogFile, offset: int, lines: bytes, data: bytes, trial: Trial, limit: int
) -> None:
    number = 1 + _line_ends(data[:offset])
    for line in lines.split(b"\n")[:-1]:
        record = line.removesuffix(b"\r")
        if len(trial.records) >= limit:
            return
        if record:
            trial.records.append(_tried(adapter, side, file, number, offset, record))
        number += 1 + line.count(LINE_END_MARK)
        offset += len(line) + 1


def _line_ends(data: bytes) -> int:
    return data.count(b"\n") + data.count(LINE_END_MARK)


def _tried(adapter: Adapter, side: str, file: LogFile, number: int, offset: int, record: bytes) -> Tried:
    try:
        if side == "primary":
            key, event_id, time_ns = adapter.primary_key(record, file), None, None
            payload = adapter.primary_payload(record, file)
        else:
            header = adapter.foreign_header(record, file)
            if not isinstance(header, ForeignHeader):
                raise BadRecord(f"the adapter's foreign_header gave a {type(header).__name__}, not a ForeignHeader")
            key, time_ns, event_id = header.key, header.event_time_ns, header.event_id
            payload = adapter.foreign_payload(record, file)
        _check(key, event_id, time_ns, payload)
    except BadRecord as bad:
        return Tried(number, offset, record, str(bad.reason) or "bad record")
    except (Exception, SystemExit) as error:  # whatever the user's code raises
        return Tried(number, offset, record, describe(error))
    return Tried(number, offset, record, "", key, event_id, time_ns, payload)


def _check(key: object, event_id: object, time_ns: object, payload: object) -> None:
    """What a running join would refuse. Raises BadRecord."""
    if type(key) is not bytes or not key:
        raise BadRecord(f"the adapter's key is {'empty' if key == b'' else type(key).__name__}; it must be bytes")
    if event_id is not None and (type(event_id) is not bytes or not event_id):
        raise BadRecord("the adapter's event_id is not bytes, or empty")
    if time_ns is not None and (type(time_ns) is not int or not -_INT64 <= time_ns < _INT64):
        raise BadRecord("the event time is no int64 of nanoseconds")
    if payload is not None:
        if type(payload) is not bytes or b"\n" in payload:
            raise BadRecord("the adapter's payload is not bytes on one line")
        try:
            orjson.loads(payload)
        except orjson.JSONDecodeError as error:
            raise BadRecord(f"the adapter's payload is not JSON ({error})") from None


def matches(primary: Trial, foreign: Trial) -> int:
    """How many of the foreign records name one of the primary records."""
    keys = {each.key for each in primary.read}
    return sum(each.key in keys for each in foreign.read)


def as_json(trial: Trial) -> dict[str, Any]:
    """For ``-o json``."""
    return {
        "file": trial.path,
        "fault": trial.fault or None,
        "read": [_as_json(each) for each in trial.read],
        "rejected": [
            {"line": each.line, "offset": each.offset, "reason": each.reason, **_text("record", each.record)}
            for each in trial.rejected
        ],
    }


def _as_json(each: Tried) -> dict[str, Any]:
    out: dict[str, Any] = {"line": each.line, "offset": each.offset, **_text("key", each.key)}
    if each.time_ns is not None:
        out |= {"event_time_ns": each.time_ns, "event_time": rfc3339_us(each.time_ns)}
        out |= {"event_id": None} if each.event_id is None else _text("event_id", each.event_id)
    if each.payload is not None:
        out["fields"] = orjson.loads(each.payload)
    else:
        out |= _text("record", each.record)
    return out


def _text(name: str, data: bytes) -> dict[str, Any]:
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        from base64 import b64encode

        return {f"{name}_raw_base64": b64encode(data).decode()}


def first_reasons(trial: Trial, most: int = 5) -> Sequence[str]:
    """``line N: why`` of the first records that are rejected."""
    lines = [f"line {each.line}: {each.reason}" for each in trial.rejected[:most]]
    left = len(trial.rejected) - most
    return [*lines, f"… and {left} more"] if left > 0 else lines
