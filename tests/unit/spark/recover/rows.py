"""Findings and reports, made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from photon.spark.classes import Class
from photon.spark.recover.planning import ReportedProblem

HOUR_NS = 3_600_000_000_000
DEPLOYMENT = "d" * 32
PROBLEM = pa.schema(
    [
        ("event_id", pa.binary()),
        ("digest", pa.binary()),
        ("event_time_ns", pa.int64()),
        ("hour", pa.int64()),
        ("datacentre", pa.string()),
        ("class", pa.string()),
        ("key", pa.binary()),
        ("log", pa.string()),
        ("offset", pa.int64()),
        ("output_file", pa.string()),
        ("output_offset", pa.int64()),
        ("token", pa.string()),
        ("state", pa.string()),
        ("generation", pa.int64()),
        ("evidence", pa.string()),
        ("acknowledged", pa.bool_()),
    ]
)
SAME = (
    "event_id",
    "digest",
    "event_time_ns",
    "datacentre",
    "log",
    "output_file",
    "output_offset",
    "state",
    "generation",
)


def digest(number: int) -> bytes:
    return blake2b(b"%d" % number, digest_size=16).digest()


def lost(
    number: int, kind: Class = Class.LOST_CLEARED, state: str | None = "cleared", **other: object
) -> ReportedProblem:
    """Event ``number`` at second ``number`` of 1970's first hours, under token 100 + number."""
    token = None if state is None else 100 + number
    finding = ReportedProblem(
        kind,
        digest(number),
        b"e%d" % number,
        number * 10**9,
        token,
        state,
        0,
        "east",
        "c.log",
        None,
        None,
        None,
        token,
        True,
    )
    return replace(finding, **other)  # type: ignore[arg-type]


def write_report(
    directory: Path,
    rows: Sequence[ReportedProblem],
    *,
    deployment: str = DEPLOYMENT,
    exported_ns: int = 10**18,
    files: int = 1,
) -> Path:
    """As written by ``photon spark verify``."""
    (directory / "problems").mkdir(parents=True)
    for file in range(files):
        some = rows[file::files]
        table = pa.Table.from_pylist([_row(each) for each in some], schema=PROBLEM)
        pq.write_table(table, directory / "problems" / f"part-{file:05}.parquet")
    verdict = {"version": 1, "deployment": deployment, "exported_ns": exported_ns, "join": "clicks"}
    verdict |= {"begin": "1970-01-01 00:00", "end": "2100-01-01 00:00"}
    (directory / "verdict.json").write_bytes(msgspec.json.encode(verdict))
    return directory


def _row(each: ReportedProblem) -> dict[str, object]:
    token = None if each.token is None else f"{each.token:016x}"
    own = {"class": str(each.kind), "hour": each.event_time_ns // HOUR_NS, "offset": 0, "token": token}
    return {name: getattr(each, name) for name in SAME} | own | {"evidence": _evidence(each)}


def _evidence(each: ReportedProblem) -> str:
    said: dict[str, object] = {} if each.slot is None else {"slot": each.slot}
    if each.written_token is not None:
        said["written_token"] = f"{each.written_token:016x}"
    return msgspec.json.encode(said | ({"records": 1} if each.only_record else {})).decode()
