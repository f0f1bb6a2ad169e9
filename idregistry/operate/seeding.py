"""A replica's data directory made of given states: of a restored deployment, or of one that replaces another.

All of it is built beside its place, made durable, and renamed: a directory that is there is whole.
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
from photon.idregistry.raft.identity import Identity, group_directory
from photon.idregistry.raft.journal import Journal
from photon.idregistry.raft.snapshot import SnapshotStore

SUFFIX = ".new"


class SeedRefused(PhotonError):
    """A directory that may not be written to. One line."""


@dataclass(frozen=True, slots=True)
class GroupSeed:
    """The state after entry ``index`` of ``term``. ``chunks`` can be read once."""

    group: int
    index: int
    term: int
    chunks: Iterable[bytes]


@dataclass(frozen=True, slots=True)
class Member:
    name: str
    members: Collection[str]
    epoch: int


def check_free(directory: Path) -> None:
    """Raises SeedRefused when something is there already."""
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise SeedRefused(
            f"{directory}: is not empty: name an empty or new directory, a replica's files stay as they are"
        )


def seed_directory(
    disk: Disk, directory: Path, member: Member, groups: Iterable[GroupSeed], entropy: Callable[[int], bytes]
) -> None:
    """Raises SeedRefused, OSError, and what reading the chunks raises; then nothing is there."""
    check_free(directory)
    building = directory.with_name(directory.name + SUFFIX)
    if building.exists():  # of a call that was cut short
        shutil.rmtree(building)
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
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise
    if directory.exists():
        directory.rmdir()
    disk.rename(building, directory)
    disk.sync_dir(directory.parent)


def write_group(disk: Disk, directory: Path, seed: GroupSeed) -> None:
    """Snapshot and journal of one group."""
    disk.make_dir(directory)
    write_snapshot(disk, directory, seed)
    journal = Journal(directory, disk)
    journal.align(seed.index, seed.term)
    journal.setCurrentTerm(seed.term, None)
    journal.sync()
    journal.close()
    disk.sync_dir(directory)


def write_snapshot(disk: Disk, directory: Path, seed: GroupSeed) -> int:
    """File ``snapshot`` (layout in ``raft/snapshot.py``); its bytes."""
    with closing(SnapshotStore(directory, disk)) as store:
        store.begin(seed.index, seed.term, Frozen(seed.chunks, nullcontext()))
        while not store.step():
            pass
    assert store.info is not None
    return store.info.size
