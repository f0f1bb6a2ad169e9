"""From a backup to the data directories of a new deployment, whose shards begin closed (``restored``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from photon.config.disk import Disk
from photon.idregistry.core.shard_snapshot import SnapshotError, held_head
from photon.idregistry.operate.backup import BackupDamaged, Manifest, chunks_of, config_of
from photon.idregistry.operate.seeding import GroupSeed, Member, seed_directory

INCARNATIONS_SINCE_MAX = 1 << 16
"""So many incarnations may have been given out after the backup: the restored deployment gives none of them again."""


def restore_replica(
    disk: Disk, backup: Path, manifest: Manifest, directory: Path, member: Member, entropy: Callable[[int], bytes]
) -> None:
    """Writes one replica's data directory. Every replica of the deployment needs its own, of the same backup.

    Raises SeedRefused, BackupDamaged, OSError; then nothing is there.
    """
    seed_directory(disk, directory, member, _seeds(disk, backup, manifest), entropy)


def _seeds(disk: Disk, backup: Path, manifest: Manifest) -> Iterator[GroupSeed]:
    for entry in manifest.groups:
        if entry.group == 0:
            machine = config_of(disk, backup, manifest)
            try:
                machine.begin_restored(INCARNATIONS_SINCE_MAX)
            except SnapshotError as error:
                raise BackupDamaged(f"{backup}: {error}") from None
            yield GroupSeed(0, entry.index, entry.term, machine.snapshot())
        else:
            yield GroupSeed(entry.group, entry.index, entry.term, _held(chunks_of(disk, backup, entry)))


def _held(chunks: Iterator[bytes]) -> Iterator[bytes]:
    yield held_head(next(chunks))
    yield from chunks
