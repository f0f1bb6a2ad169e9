"""Records a backfill's job, and its output's location for the deployment's verification. A backfill's output has the
layout of a ``photon join`` output: the files of its slot, and the state in ``.photon``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from photon.config.decoding import DECODE_ERRORS
from photon.config.disk import Disk
from photon.config.errors import PhotonError, UsageError
from photon.config.versioned_file import decoded, read_versioned
from photon.objects.paths import ObjectPath, placed
from photon.outputs.output_places import EMBEDDED_STATE, EXPORTS_DIRECTORY, SLOTS_DIRECTORY
from photon.spark.sources import OutputSource

DIRECTORY = "backfills"  # next to the deployment file
SLOT_PREFIX = "backfill-"  # of the names of backfills' slots


class BackfillJob(msgspec.Struct, frozen=True, kw_only=True, tag_field="version", tag=1):
    """``backfill.json``: the job that this output belongs to. Another job needs another output."""

    slot: str
    datacentre: str
    join: str
    from_ns: int
    to_ns: int
    unmatched: bool
    # Events before this are below the registry's boundary, and compared with all output
    boundary_ns: int


class BackfillDamaged(PhotonError):
    """A file of a backfill cannot be read."""


class BackfillPaths(NamedTuple):
    """Paths of a backfill's files."""

    output: Path

    @property
    def state(self) -> Path:
        return self.output / EMBEDDED_STATE

    @property
    def exports(self) -> Path:
        return self.state / EXPORTS_DIRECTORY

    @property
    def job(self) -> Path:
        return self.state / "backfill.json"

    def slot(self, job: BackfillJob) -> Path:
        """The state directory of the job's slot."""
        return self.state / SLOTS_DIRECTORY / job.slot


def read_job(disk: Disk, path: Path) -> BackfillJob | None:
    """Reads the job; ``None`` if the output is new. Raises BackfillDamaged."""
    return read_versioned(disk, path, BackfillJob, _damaged)


def _damaged(path: Path, why: str) -> BackfillDamaged:
    return BackfillDamaged(f"{path}: unreadable ({why}); restore it from the file system's backup")


def begun(disk: Disk, paths: BackfillPaths, wanted: BackfillJob) -> BackfillJob:
    """Returns this output's recorded job. If there is none, records ``wanted``. Raises UsageError if they differ."""
    known = read_job(disk, paths.job)
    if known is None:
        if disk.names(paths.output) if isinstance(paths.output, ObjectPath) else disk.names(paths.state / "slots"):
            raise UsageError(f"{paths.output}: is not empty; name another --output")
        disk.make_dir(paths.state)
        if disk.create(paths.job, msgspec.json.encode(wanted) + b"\n"):
            return wanted
        known = read_job(disk, paths.job)  # another command may have begun it meanwhile
        assert known is not None, "it was written now"
    for field in ("datacentre", "join", "from_ns", "to_ns", "unmatched"):
        if getattr(known, field) != getattr(wanted, field):
            raise UsageError(
                f"{paths.output}: was begun with {field} = {getattr(known, field)}, not {getattr(wanted, field)}; "
                "repeat the original command, or name another --output"
            )
    return known


class KnownBackfill(msgspec.Struct, frozen=True, tag_field="version", tag=1):
    """A backfill and the location of its output."""

    output: str
    job: BackfillJob

    @property
    def path(self) -> Path:
        return placed(Path(), self.output)


def remember(disk: Disk, base: Path, output: Path, job: BackfillJob) -> None:
    """Records the backfill durably. Call it before the backfill registers anything."""
    disk.make_dir(base / DIRECTORY)
    known = KnownBackfill(str(output), job)
    disk.replace(base / DIRECTORY / f"{job.slot}.json", msgspec.json.encode(known) + b"\n")


def known_backfills(disk: Disk, base: Path, join: str, from_ns: int, to_ns: int) -> Iterator[Path]:
    """Yields the existing outputs of a join's backfills that overlap a range. Raises BackfillDamaged."""
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
            yield known.path.absolute()


def source_of(disk: Disk, output: Path, join: str) -> OutputSource:
    """Returns the output as a source of lines. Raises BackfillDamaged, UsageError if it has no backfill of this
    join."""
    paths = BackfillPaths(output.absolute())
    job = read_job(disk, paths.job)
    if job is None or job.join != join:
        raise UsageError(f"--backfill {output}: holds no backfill of join {join}; name a backfill's output directory")
    state = "" if isinstance(paths.output, ObjectPath) else str(paths.state)
    return OutputSource(datacentre=job.datacentre, output=str(paths.output), state=state)
