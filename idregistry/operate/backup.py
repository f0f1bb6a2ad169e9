"""A backup: a directory with one snapshot per group, and a manifest with their checksums.

    manifest.json           the groups, with checksums; written last
    group-00000/snapshot    the config group (layout in ``raft/snapshot.py``: magic, version, a CRC per frame)
    group-00001/snapshot    shard 1; and so on

It is built in ``DIR.partial`` and then renamed, so ``DIR`` is always complete. The config group is exported last:
it must know every slot and incarnation that a shard knows.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import msgspec

from photon.config.disk import Disk
from photon.config.errors import PhotonError
from photon.config.versioned_file import decoded
from photon.idregistry.client.export_stream import ExportFacts, Summer
from photon.idregistry.core.commands import Range
from photon.idregistry.core.config_machine import ConfigMachine
from photon.idregistry.core.shard_snapshot import NO_BOUNDARY, SnapshotError, held_head, read_shard
from photon.idregistry.core.sharding import shards_in
from photon.idregistry.operate.seeding import GroupSeed, Member, seed_directory, write_snapshot
from photon.idregistry.raft.identity import group_directory
from photon.idregistry.raft.options import RaftStopped
from photon.idregistry.raft.snapshot import SnapshotStore

MAGIC = "photon registry backup"
MANIFEST = "manifest.json"
MANIFEST_BYTES_MAX = 4 << 20
PARTIAL = ".partial"


class BackupDamaged(PhotonError):
    """A backup is damaged or incomplete. The message is one line with the file and the fault."""


class BackupRefused(PhotonError):
    """No backup can be made here or now. The message is one line."""


class GroupEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    group: int
    file: str
    bytes: int
    index: int  # the state includes all entries up to this one
    term: int
    chunks: int
    checksum: str  # BLAKE2b-256 of the chunks, hex


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="version", tag=1):
    magic: str
    photon: str
    made_at: str  # UTC, ISO 8601: the start of the backup. Entries acknowledged before it are included.
    members: list[str]
    groups: list[GroupEntry]
    checksum: str = ""  # BLAKE2b-256 of all the rest as JSON, hex


@dataclass(frozen=True, slots=True)
class Source:
    """A stream of a group's state. ``facts`` returns the stream's own facts, once all chunks have been read."""

    seed: GroupSeed
    facts: Callable[[], ExportFacts | None]


def write_backup(disk: Disk, directory: Path, sources: Iterator[Source], *, photon: str, made_at: str,
                 members: Sequence[str]) -> list[GroupContent]:  # fmt: skip
    """Writes a backup to a new directory and returns its content, read back.

    Raises BackupRefused, OSError, and the errors of reading a source.
    """
    if directory.exists():
        raise BackupRefused(f"{directory}: already exists: name a new directory for each backup")
    building = directory.with_name(directory.name + PARTIAL)
    if building.exists():  # left by an interrupted call
        shutil.rmtree(building)
    try:
        disk.make_dir(building)
        groups = sorted((_write_group(disk, building, source) for source in sources), key=lambda each: each.group)
        manifest = _sealed(
            Manifest(magic=MAGIC, photon=photon, made_at=made_at, members=sorted(members), groups=groups)
        )
        disk.replace(building / MANIFEST, msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n")
        found = check_backup(disk, building)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise
    disk.rename(building, directory)
    disk.sync_dir(directory.parent)
    return found


def _write_group(disk: Disk, building: Path, source: Source) -> GroupEntry:
    seed = source.seed
    directory = group_directory(building, seed.group)
    disk.make_dir(directory)
    size = write_snapshot(disk, directory, seed)
    disk.sync_dir(directory)
    facts = source.facts()
    if facts is None or facts.applied != seed.index:
        raise BackupRefused(f"group {seed.group}: the export is not of entry {seed.index}; try again")
    return GroupEntry(
        group=seed.group,
        file=f"{directory.name}/snapshot",
        bytes=size,
        index=seed.index,
        term=seed.term,
        chunks=facts.chunks,
        checksum=facts.checksum.hex(),
    )


def _sealed(manifest: Manifest) -> Manifest:
    body = msgspec.json.encode(msgspec.structs.replace(manifest, checksum=""))
    return msgspec.structs.replace(manifest, checksum=blake2b(body, digest_size=32).hexdigest())


# -- reading --------------------------------------------------------------------------------------------------------
def read_manifest(disk: Disk, directory: Path) -> Manifest:
    """Reads a backup's manifest. Raises BackupDamaged."""
    path = directory / MANIFEST
    if not disk.exists(path):
        raise BackupDamaged(f"{directory}: has no {MANIFEST}: not a backup, or an incomplete one")
    if disk.size(path) > MANIFEST_BYTES_MAX:
        raise BackupDamaged(f"{path}: is larger than {MANIFEST_BYTES_MAX} bytes")
    try:
        manifest = decoded(disk.read(path), Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BackupDamaged(f"{path}: {error}") from None
    if manifest.magic != MAGIC:
        raise BackupDamaged(f"{path}: not a backup")
    if manifest != _sealed(manifest):
        raise BackupDamaged(f"{path}: its checksum is wrong: it was changed or corrupted")
    return manifest


@contextmanager
def damage_in(path: Path) -> Iterator[None]:
    """Converts errors about damaged files and states to BackupDamaged."""
    try:
        yield
    except SnapshotError as error:
        raise BackupDamaged(f"{path}: {error}") from None
    except RaftStopped as error:
        raise BackupDamaged(str(error).partition("; do not delete")[0]) from None


def chunks_of(disk: Disk, directory: Path, entry: GroupEntry) -> Iterator[bytes]:
    """Yields the chunks of a group's state, checked against the manifest. Raises BackupDamaged."""
    place = group_directory(directory, entry.group)
    if not disk.exists(place / "snapshot"):
        raise BackupDamaged(f"{place}/snapshot: is missing")
    summer = Summer()
    with damage_in(place / "snapshot"):
        store = SnapshotStore(place, disk)
        info = store.info
        if info is None or (info.index, info.term, info.size) != (entry.index, entry.term, entry.bytes):
            raise BackupDamaged(f"{place}/snapshot: is not the file named by the manifest")
        for chunk in store.chunks():
            summer.add(chunk)
            yield chunk
    if (summer.chunks, summer.checksum().hex()) != (entry.chunks, entry.checksum):
        raise BackupDamaged(f"{place}/snapshot: its checksum is wrong")


@dataclass(frozen=True, slots=True)
class GroupContent:
    group: int
    index: int
    bytes: int
    ids: int
    slots: int
    boundary_ns: int | None


def check_backup(disk: Disk, directory: Path) -> list[GroupContent]:
    """Reads and decodes every byte of a backup. Raises BackupDamaged."""
    manifest = read_manifest(disk, directory)
    config = config_of(disk, directory, manifest)
    found = [_content(disk, directory, entry, config.ranges) for entry in manifest.groups]
    numbers = {each.group for each in found}
    missing = sorted(shards_in(config.ranges) - numbers)
    if missing:
        raise BackupDamaged(
            f"{directory}: shards {missing} are missing: they were added while the backup was made; make a new one"
        )
    return found


def config_of(disk: Disk, directory: Path, manifest: Manifest) -> ConfigMachine:
    """Reads the config group's state from a backup. Raises BackupDamaged."""
    machine = ConfigMachine()
    entry = next((each for each in manifest.groups if each.group == 0), None)
    if entry is None:
        raise BackupDamaged(f"{directory}: has no config group")
    with damage_in(directory / entry.file):
        machine.restore(chunks_of(disk, directory, entry))
    if not machine.ranges:
        raise BackupDamaged(f"{directory}/{entry.file}: the deployment was not set up yet when the backup was made")
    return machine


def _content(disk: Disk, directory: Path, entry: GroupEntry, ranges: tuple[Range, ...]) -> GroupContent:
    if entry.group == 0:
        return GroupContent(0, entry.index, entry.bytes, 0, 0, None)
    with damage_in(directory / entry.file):
        image = read_shard(chunks_of(disk, directory, entry))
    if image.state.sharding.number not in (0, entry.group):
        raise BackupDamaged(f"{directory}/{entry.file}: belongs to shard {image.state.sharding.number}")
    sharding = image.state.sharding
    if sharding.standing.prepared is not None or (sharding.ranges != ranges and not sharding.standing.closed):
        raise BackupDamaged(
            f"{directory}: the shards were being changed while the backup was made (shard {entry.group} has another "
            "config): make a new one when photon status shards shows no change in progress"
        )
    boundary = None if image.state.boundary == NO_BOUNDARY else image.state.boundary
    return GroupContent(entry.group, entry.index, entry.bytes, len(image.table), len(image.state.slots), boundary)


# -- restoring: data directories of a new deployment, whose shards begin closed (``restored_shard``) -----------------
# The restored deployment skips this many incarnations, as they may have been given out after the backup.
INCARNATIONS_SINCE_MAX = 1 << 16


def restore_replica(
    disk: Disk, backup: Path, manifest: Manifest, directory: Path, member: Member, entropy: Callable[[int], bytes]
) -> None:
    """Writes one replica's data directory. Every replica of the deployment needs its own, from the same backup.

    Raises SeedRefused, BackupDamaged, OSError; after an error no directory is left.
    """
    seed_directory(disk, directory, member, _seeds(disk, backup, manifest), entropy)


def _seeds(disk: Disk, backup: Path, manifest: Manifest) -> Iterator[GroupSeed]:
    for entry in manifest.groups:
        if entry.group == 0:
            machine = config_of(disk, backup, manifest)
            with damage_in(backup):
                machine.begin_restored(INCARNATIONS_SINCE_MAX)
            yield GroupSeed(0, entry.index, entry.term, machine.snapshot())
        else:
            yield GroupSeed(entry.group, entry.index, entry.term, _held(chunks_of(disk, backup, entry)))


def _held(chunks: Iterator[bytes]) -> Iterator[bytes]:
    yield held_head(next(chunks))
    yield from chunks
