"""Writes the report's directory. It is built under another name and renamed, so that a report directory is always
complete.

verdict.json        the result, for programs (Verdict)
summary.json        counts by hour, datacentre and class; summary/ has them as Parquet
problems/           Parquet, one row per problem (``schemas.PROBLEM``), in directories by day
inputs.jsonl        every existing file: what, datacentre, path, bytes, mtime_ns, identity, first and last hour
report.html         the report as a page

At a URL, a report exists once its verdict does: the verdict is written last, and removed first when a report is
replaced.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec

from photon.config.disk import Disk
from photon.config.errors import PhotonError
from photon.config.settings import Settings
from photon.idregistry.api import Digester
from photon.objects.directory import bucket_of
from photon.objects.paths import ObjectPath
from photon.objects.transfer import below, told, upload
from photon.spark.problems import PROBLEMS, VERDICT_NAME, VERSION
from photon.spark.verify.causes import Cause
from photon.spark.verify.figures import EXITS, Figures, hour_text

SUMMARY_NAME, INPUTS_NAME, PAGE_NAME = "summary.json", "inputs.jsonl", "report.html"
SUMMARY = "summary"
TAIL_BYTES = 4096
# Prefixes of all names in a report, including its repair's journals
OWN = (VERDICT_NAME, SUMMARY_NAME, INPUTS_NAME, PAGE_NAME, PROBLEMS, SUMMARY, "recover-")
PARTIAL, BEFORE = ".partial", ".before"


class ReportRefused(PhotonError):
    """The report cannot be written to its directory or URL."""


class InputFile(msgspec.Struct, frozen=True, kw_only=True):
    what: str  # foreign, primary, output or registry
    datacentre: str
    path: str
    bytes: int
    mtime_ns: int | None = None
    identity: str = ""  # of a raw log: identifies it after a rename
    first: int | None = None
    last: int | None = None  # first and last hour of its events, if known without reading it
    # Digest of its last bytes (TAIL_BYTES), which identifies it after it has grown; only for plain files
    tail: str = ""


class Verdict(msgspec.Struct, frozen=True, kw_only=True, tag_field="version", tag=VERSION):
    """The content of ``verdict.json``."""

    deployment: str  # fingerprint of the verified deployment
    join: str
    exported_ns: int  # wall clock before the registry's export began; 0: there was none
    made_at: str
    begin: str
    end: str
    verdict: str  # right, problems or not-judged
    exit: int
    problems: int
    counts: dict[str, int]  # all findings by class, acknowledged ones too
    acknowledged: dict[str, int]  # accepted findings among them, which are not problems
    # Unexplained differences between the dispatchers' ledgers and the counts; included in problems
    ledger_unexplained: int
    inputs: list[dict[str, Any]]  # totals of the inputs; every file is in inputs.jsonl
    reused: list[str]
    notes: list[str]
    # Events, judged, pending and files of each datacentre, next to the usual number of events
    coverage: list[dict[str, Any]]
    unjudged: list[str]  # why it is not judged; empty if it is
    unlooked: list[str]
    causes: list[Cause] = []


def verdict_of(figures: Figures, deployment: str, exported_ns: int) -> Verdict:
    verdict = figures.verdict()
    return Verdict(
        deployment=deployment,
        join=figures.join,
        exported_ns=exported_ns,
        made_at=figures.made_at,
        begin=hour_text(figures.from_hour),
        end=hour_text(figures.to_hour),
        verdict=verdict,
        exit=EXITS[verdict],
        problems=figures.problems(),
        counts={str(kind): count for kind, count in figures.totals().items()},
        acknowledged={str(kind): count for kind, count in figures.acknowledged.items()},
        ledger_unexplained=len(figures.unexplained()),
        inputs=[
            {"what": each.what, "datacentre": each.datacentre, "files": each.files, "bytes": each.bytes,
             "read": each.read, "newest_mtime_ns": each.newest_ns}
            for each in figures.inputs
        ],
        reused=list(figures.reused),
        notes=list(figures.notes),
        coverage=[msgspec.to_builtins(each) for each in figures.coverage],
        unjudged=list(figures.unjudged),
        unlooked=list(figures.unlooked),
        causes=list(figures.causes),
    )  # fmt: skip


def write_report(disk: Disk, directory: Path, build: Callable[[Path], None]) -> None:
    """Writes a report. ``build`` receives the directory to fill. An existing report is replaced once the new one is
    complete. Raises ReportRefused, OSError, and errors from ``build``."""
    building = directory.with_name(directory.name + PARTIAL)
    before = directory.with_name(directory.name + BEFORE)
    if not directory.exists() and before.exists():  # interrupted between the two renames
        disk.rename(before, directory)
    if directory.exists() and not (directory / VERDICT_NAME).exists() and any(directory.iterdir()):
        raise ReportRefused(f"{directory}: contains something that is not a report; name another directory")
    for leftover in (building, before):
        if leftover.exists():
            shutil.rmtree(leftover)
    building.mkdir(parents=True)
    try:
        build(building)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise
    if directory.exists():
        disk.rename(directory, before)
    disk.rename(building, directory)
    disk.sync_dir(directory.parent)
    shutil.rmtree(before, ignore_errors=True)


def check_below(to: ObjectPath) -> list[str]:
    """Returns the keys of the existing report, complete or not, its verdict first. Raises ReportRefused,
    ObjectsUnavailable."""
    with told(to):
        found = below(to)
    for name in found:
        if not name.startswith(OWN):
            raise ReportRefused(f"{to}: holds {name}, which does not belong to a report; name another prefix")
    return [found[name].key for name in sorted(found, key=lambda name: name != VERDICT_NAME)]


def put_below(directory: Path, to: ObjectPath) -> None:
    """Replaces the existing report with the one in ``directory``. Raises ReportRefused, ObjectsUnavailable,
    OSError."""
    old = check_below(to)
    with told(to):
        for key in old:
            bucket_of(to).objects.delete(key)
        upload(directory, to, VERDICT_NAME)


def write_inputs(disk: Disk, path: Path, files: Iterable[InputFile]) -> None:
    """Writes one line per file."""
    disk.replace(path, b"".join(msgspec.json.encode(each) + b"\n" for each in files))


def write_json(disk: Disk, path: Path, value: object) -> None:
    """Writes a value as indented JSON."""
    disk.replace(path, msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n")


def fingerprint(settings: Settings, key: bytes) -> str:
    """Hashes the joins, the key, and the places where datacentres read and write, to 32 hex digits. Reports become
    invalid if these change; changed processes or resharding do not matter.
    """
    joins = {name: msgspec.to_builtins(join, enc_hook=float) for name, join in sorted(settings.join.items())}
    places = {
        name: [pipeline.join, pipeline.primary, pipeline.foreign, pipeline.output, pipeline.state]
        for name, pipeline in sorted(settings.datacentre.items())
    }
    keys = {name: Digester(key, name).fingerprint().hex() for name in joins}
    data = msgspec.json.encode([joins, places, keys], order="deterministic")
    return blake2b(data, digest_size=16).hexdigest()
