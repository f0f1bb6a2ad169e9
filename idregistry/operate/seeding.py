"""Fills a replica's data directory with states from a backup, or from the replicas of a running deployment.

It is filled in a subdirectory, made durable, and moved up, the file ``replica`` last: without that file no replica
starts there, and the leftovers of an interrupted call are rebuilt. So the directory may be a mount point.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterable
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path

from photon.config.disk import Disk
from photon.config.errors import PhotonError
from photon.idregistry.raft.api import Frozen
from photon.idregistry.raft.identity import BUILDING, REPLICA, Identity, group_directory
from photon.idregistry.raft.journal import Journal
from photon.idregistry.raft.snapshot import SnapshotStore


class SeedRefused(PhotonError):
    """The directory must not be written to. The message is one line."""


@dataclass(frozen=True, slots=True)
class GroupSeed:
    """A group's state after entry ``index`` of ``term``. ``chunks`` can be read only once."""

    group: int
    index: int
    term: int
    chunks: Iterable[bytes]


@dataclass(frozen=True, slots=True)
class Member:
    name: str
    members: Collection[str]  # names; a mapping also gives their addresses
    epoch: int


def check_free(directory: Path) -> None:
    """Raises SeedRefused if the directory holds anything but the remains of an interrupted call."""
    if _left(directory):
        return
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise SeedRefused(f"{directory}: is not empty: name an empty or new directory")


def seed_directory(
    disk: Disk, directory: Path, member: Member, groups: Iterable[GroupSeed], entropy: Callable[[int], bytes]
) -> None:
    """Fills a replica's data directory. Raises SeedRefused, OSError, errors of reading; then leaves no replica."""
    check_free(directory)
    made, building = not directory.exists(), directory / BUILDING
    _clear(directory)
    try:
        disk.make_dir(building)
        identity = Identity(
            disk=disk,
            directory=building,
            name=member.name,
            members=member.members,
            epoch=member.epoch,
            groups=(),
            entropy=entropy,
        )
        numbers = []
        for seed in groups:
            write_group(disk, group_directory(building, seed.group), seed)
            numbers.append(seed.group)
        identity.made(numbers)
        for name in sorted(path.name for path in building.iterdir() if path.name != REPLICA):
            disk.rename(building / name, directory / name)
        disk.sync_dir(directory)
    except BaseException:
        _clear(directory)
        if made and directory.exists():
            directory.rmdir()
        raise
    disk.rename(building / REPLICA, directory / REPLICA)
    disk.sync_dir(directory)
    building.rmdir()
    disk.sync_dir(directory.parent)


def _left(directory: Path) -> bool:
    """True if the directory holds only the remains of an interrupted call, and no file ``replica``."""
    building = directory / BUILDING
    if not building.is_dir() or (directory / REPLICA).exists():
        return False
    return (building / REPLICA).exists() or [*directory.iterdir()] == [building]


def _clear(directory: Path) -> None:
    if _left(directory):
        for path in [path for path in directory.iterdir() if path.name != BUILDING]:
            shutil.rmtree(path)
        shutil.rmtree(directory / BUILDING)


def write_group(disk: Disk, directory: Path, seed: GroupSeed) -> None:
    """Writes the snapshot and journal of one group."""
    disk.make_dir(directory)
    write_snapshot(disk, directory, seed)
    journal = Journal(directory, disk)
    journal.align(seed.index, seed.term)
    journal.setCurrentTerm(seed.term, None)
    journal.sync()
    journal.close()
    disk.sync_dir(directory)


def write_snapshot(disk: Disk, directory: Path, seed: GroupSeed) -> int:
    """Writes the file ``snapshot`` (layout in ``raft/snapshot.py``); returns its size in bytes."""
    with closing(SnapshotStore(directory, disk)) as store:
        store.begin(seed.index, seed.term, Frozen(seed.chunks, nullcontext()))
        while not store.step():
            pass
    assert store.info is not None
    return store.info.size
