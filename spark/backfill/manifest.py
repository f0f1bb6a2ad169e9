"""A backfill's visible output (its manifest), the definition of a directory (its job), and the list of runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from photon.config.decoding import DECODE_ERRORS
from photon.config.disk import Disk
from photon.config.errors import PhotonError, UsageError
from photon.config.versioned_file import decoded, read_versioned
from photon.objects.paths import ObjectPath, placed
from photon.outputs.log.format import FINAL_SUFFIX, PLAIN_SUFFIX
from photon.spark.backfill.batch_names import BackfillPaths

FILES_MAX = 5_000_000  # output files of one backfill
DIRECTORY = "backfills"  # next to the deployment file


class BackfillFile(msgspec.Struct, frozen=True):
    """A published output file. An empty ``batch`` means written without a registration (below the boundary)."""

    name: str
    kind: str
    hour: int
    records: int
    bytes: int
    crc32: int
    batch: str
    uncompressed_bytes: int = 0  # of a compressed one

    @property
    def lines_bytes(self) -> int:
        return self.uncompressed_bytes or self.bytes

    @property
    def plain(self) -> str:
        """``OutputFile.name`` of a compressed one."""
        name = self.name.removesuffix(FINAL_SUFFIX)
        return self.name if name == self.name else name + PLAIN_SUFFIX


class Manifest(msgspec.Struct, frozen=True, tag_field="version", tag=1):
    """``manifest.json``: only what it names is visible. Replaced as a whole."""

    slot: str
    revision: int  # the incarnation that wrote it: grows with each
    files: list[BackfillFile]
    counts: dict[str, int]  # events by what became of them

    def records(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for file in self.files:
            found[file.kind] = found.get(file.kind, 0) + file.records
        return found


class BackfillJob(msgspec.Struct, frozen=True, kw_only=True, tag_field="version", tag=1):
    """``job.json``: what this directory was begun for. Another job needs another directory."""

    slot: str
    datacentre: str
    join: str
    from_ns: int
    to_ns: int
    format: str
    unmatched: bool


class BackfillRuns(msgspec.Struct, frozen=True, tag_field="version", tag=1):
    """``runs.json``: incarnations of all runs, oldest first; written before anything is done under one."""

    incarnations: list[int]
    # Below a URL, of the run that is about to publish: no later one wins anything, it only publishes.
    counts: dict[str, int] | None = None


class BackfillDamaged(PhotonError):
    """A file of a backfill cannot be read."""


def read_manifest(disk: Disk, path: Path) -> Manifest | None:
    """None: nothing is visible yet. Raises BackfillDamaged."""
    return read_versioned(disk, path, Manifest, _damaged)


def read_job(disk: Disk, path: Path) -> BackfillJob | None:
    """None: a fresh directory. Raises BackfillDamaged."""
    return read_versioned(disk, path, BackfillJob, _damaged)


def read_runs(disk: Disk, path: Path) -> BackfillRuns:
    """Raises BackfillDamaged."""
    return read_versioned(disk, path, BackfillRuns, _damaged) or BackfillRuns([])


def write(disk: Disk, path: Path, value: Manifest | BackfillJob | BackfillRuns) -> None:
    """Atomically and durably."""
    disk.replace(path, msgspec.json.encode(value) + b"\n")


def begun(disk: Disk, path: Path, wanted: BackfillJob) -> BackfillJob:
    """The job of this directory: the one it was begun for, or ``wanted``, which is then kept. Raises UsageError."""
    known = read_job(disk, path)
    if known is None:
        if isinstance(path, ObjectPath) and disk.names(path.parent.parent):
            raise UsageError(f"{path.parent.parent}: holds other objects already; name another prefix")
        disk.make_dir(path.parent)
        write(disk, path, wanted)
        return wanted
    for field in ("datacentre", "join", "from_ns", "to_ns", "format", "unmatched"):
        if getattr(known, field) != getattr(wanted, field):
            raise UsageError(
                f"{path.parent.parent}: was begun with {field} = {getattr(known, field)}, not "
                f"{getattr(wanted, field)}; repeat the command it was begun with, or name another --output"
            )
    return known


def _damaged(path: Path, why: str) -> BackfillDamaged:
    return BackfillDamaged(f"{path}: unreadable ({why}); restore it from the file system's backup")


class KnownBackfill(msgspec.Struct, frozen=True, tag_field="version", tag=1):
    """A backfill and where its output is."""

    output: str
    job: BackfillJob

    @property
    def path(self) -> Path:
        return placed(Path(), self.output)


def remember(disk: Disk, base: Path, output: Path, job: BackfillJob) -> None:
    """Durable before the backfill registers anything."""
    disk.make_dir(base / DIRECTORY)
    known = KnownBackfill(str(output), job)
    disk.replace(base / DIRECTORY / f"{job.slot}.json", msgspec.json.encode(known) + b"\n")


def known_backfills(disk: Disk, base: Path, join: str, from_ns: int, to_ns: int) -> Iterator[KnownBackfill]:
    """Backfills of a join that overlap a range and whose output still exists. Raises BackfillDamaged."""
    for name in disk.names(base / DIRECTORY):
        if not name.endswith(".json"):
            continue
        path = base / DIRECTORY / name
        try:
            known = decoded(disk.read(path), KnownBackfill)
        except DECODE_ERRORS as bad:
            raise BackfillDamaged(f"{path}: unreadable ({bad}); restore it, or remove it with its output") from None
        job = known.job
        overlaps = job.from_ns < to_ns and from_ns < job.to_ns
        if job.join == join and overlaps and disk.exists(BackfillPaths(known.path).job):
            yield known
