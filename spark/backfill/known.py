"""Which backfills a deployment has had: noted beside its file, so that verification and later backfills read them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from photon.config.disk import Disk
from photon.spark.backfill.manifest import BackfillDamaged, Job
from photon.spark.backfill.names import Places

DIRECTORY = "backfills"
"""Beside the deployment file."""
VERSION = 1


class Known(msgspec.Struct, frozen=True):
    """A backfill and where its output is."""

    version: int
    output: str
    job: Job

    @property
    def path(self) -> Path:
        return Path(self.output)


def remember(disk: Disk, base: Path, output: Path, job: Job) -> None:
    """Durable before the backfill registers anything."""
    disk.make_dir(base / DIRECTORY)
    known = Known(VERSION, str(output), job)
    disk.replace(base / DIRECTORY / f"{job.slot}.json", msgspec.json.encode(known) + b"\n")


def known_backfills(disk: Disk, base: Path, join: str, from_ns: int, to_ns: int) -> Iterator[Known]:
    """Those of a join that reach into a range and whose output is still there. Raises BackfillDamaged."""
    for name in disk.names(base / DIRECTORY):
        if not name.endswith(".json"):
            continue
        path = base / DIRECTORY / name
        try:
            known = msgspec.json.decode(disk.read(path), type=Known)
        except msgspec.MsgspecError as bad:
            raise BackfillDamaged(f"{path}: unreadable ({bad}); restore it, or remove it with its output") from None
        if known.version != VERSION:
            raise BackfillDamaged(f"{path}: version {known.version}; this release reads version {VERSION}")
        job = known.job
        overlaps = job.from_ns < to_ns and from_ns < job.to_ns
        if job.join == join and overlaps and disk.exists(Places(known.path).job):
            yield known
