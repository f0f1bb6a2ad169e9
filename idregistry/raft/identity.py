"""Identifies the replica that owns a directory, so that a wiped or swapped disk cannot rejoin under its old name.

A replica that lost its log and vote, and votes again, can destroy acknowledged entries. So a new directory gets a
random id; each peer records it durably when first hearing it, and then refuses another id under the same name.

The file also lists the groups that this replica has: a missing journal is noticed at the next start, groups added at
run time are found again (``known_groups``), and a removed group is never opened again under its number.

The membership is stored there, too: the deployment file only gives the membership of a new directory. ``follow``
records the next one, and the next start adopts it.

File ``replica``: magic "PHOTREPL", version u8, crc32 u32 little-endian, msgpack of ``_Record``.
"""

from __future__ import annotations

import struct
import threading
import zlib
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from photon.config.disk import Disk
from photon.config.versioned_file import other_version
from photon.idregistry.raft.journal import segments_in
from photon.idregistry.raft.options import RaftStopped
from photon.idregistry.raft.transport import Hello, Refused

MAGIC = b"PHOTREPL"
VERSION = 3
DISK_ID_BYTES = 16
_HEADER = struct.Struct("<8sBI")
_GROUP_PREFIX = "group-"
REPLICA = "replica"  # the file's name
BUILDING = "seed.new"  # subdirectory that is filled before the file ``replica`` is moved into its place


class _Record(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    name: str
    disk: bytes
    members: list[str]
    epoch: int
    groups: list[int]
    peers: dict[str, bytes]
    removed: list[int]
    addresses: dict[str, str]  # of the members, at the last start
    following: tuple[int, dict[str, str]] | None = None  # the next membership: epoch, members with their addresses


@dataclass(frozen=True, slots=True)
class Membership:
    epoch: int
    members: Mapping[str, str]  # name -> host:port


@dataclass(frozen=True, slots=True)
class KnownGroups:
    """A replica's groups according to its directory, ascending."""

    present: tuple[int, ...]  # groups whose journals exist, to open at the next start
    removed: tuple[int, ...]  # groups removed here; their numbers are never used again


def known_groups(disk: Disk, directory: Path) -> KnownGroups:
    """Returns a directory's groups. Call it before making a ``RaftHost`` there. Raises RaftStopped, OSError."""
    path = directory / REPLICA
    if not disk.exists(path):
        return KnownGroups((), ())
    record = _read(disk, path)
    return KnownGroups(tuple(record.groups), tuple(record.removed))


def membership(disk: Disk, directory: Path, configured: Membership) -> Membership:
    """Returns the membership in which a replica starts.

    That is ``configured`` for a new directory, or if its epoch is higher; otherwise the directory's, with configured
    addresses, if any. Raises RaftStopped, OSError.
    """
    path = directory / REPLICA
    if not disk.exists(path):
        return configured
    record = _read(disk, path)
    epoch, known = record.following or (record.epoch, dict.fromkeys(record.members, "") | record.addresses)
    if configured.epoch > epoch:
        return configured
    members = {name: configured.members.get(name) or address for name, address in known.items()}
    missing = [name for name, address in members.items() if not address]
    if missing:
        raise RaftStopped(f"{path} has the members {sorted(known)}: give the address of {', '.join(missing)}")
    return Membership(epoch, members)


def group_directory(directory: Path, group: int) -> Path:
    return directory / f"{_GROUP_PREFIX}{group:05d}"


def delete_group(disk: Disk, directory: Path, group: int) -> None:
    """Deletes a group's files; its empty directory stays. Call it only after ``Identity.unmade``."""
    here = group_directory(directory, group)
    names = disk.names(here)
    for name in names:
        disk.remove(here / name)
    if names:
        disk.sync_dir(here)


class Identity:
    """This replica's identity, and its peers' identities as far as known. ``check`` is thread-safe."""

    def __init__(
        self,
        *,
        disk: Disk,
        directory: Path,
        name: str,
        members: Collection[str],
        epoch: int,
        groups: Collection[int],
        entropy: Callable[[int], bytes],
    ) -> None:
        """Reads or creates the directory's identity. ``members``: names; a mapping also gives their addresses.

        Raises RaftStopped if the identity is not this replica's.
        """
        self._addresses = dict(members) if isinstance(members, Mapping) else {}
        self._disk = disk
        self._path = directory / REPLICA
        self._lock = threading.Lock()
        disk.make_dir(directory)
        if disk.exists(self._path):
            self._record = _read(disk, self._path)
            self._verify(directory, name, sorted(members), epoch, groups)
        else:
            self._refuse_leftovers(directory, groups)
            self._write(_Record(name, entropy(DISK_ID_BYTES), sorted(members), epoch, [], {}, [], self._addresses))
        self.hello = Hello(name, self._record.disk, epoch)

    def made(self, groups: Collection[int]) -> None:
        """Records durably that the groups' journals exist."""
        with self._lock:
            known = sorted({*self._record.groups, *groups})
            if known != self._record.groups:
                self._write(msgspec.structs.replace(self._record, groups=known))

    def unmade(self, group: int) -> None:
        """Records durably that a group is removed: its files may be deleted, and its number is never reused."""
        with self._lock:
            record = self._record
            left = [each for each in record.groups if each != group]
            self._write(msgspec.structs.replace(record, groups=left, removed=sorted({*record.removed, group})))

    def follow(self, epoch: int, members: Mapping[str, str]) -> str:
        """Records the next membership durably; the next start adopts it.

        Never records another one for the same epoch, so no two memberships can each have a majority. From now on
        ignores replicas outside it. Returns the reason for a refusal, or an empty string. Raises OSError.
        """
        with self._lock:
            record = self._record
            if epoch != record.epoch + 1:
                return f"{record.name} is in membership epoch {record.epoch}: {epoch} is not the next one"
            if record.name not in members:
                return f"{record.name} is not among {', '.join(sorted(members))}"
            if record.following is not None and sorted(record.following[1]) != sorted(members):
                agreed = ", ".join(sorted(record.following[1]))
                return (
                    f"{record.name} has agreed to {agreed} as the members of epoch {epoch}: finish that change first"
                )
            self._write(msgspec.structs.replace(record, following=(epoch, dict(members))))
        return ""

    @property
    def groups(self) -> tuple[int, ...]:
        return tuple(self._record.groups)

    @property
    def removed(self) -> tuple[int, ...]:
        return tuple(self._record.removed)

    def check(self, hello: Hello) -> Refused | None:
        """Decides whether to accept a peer; ``None`` means yes. Durably records its disk the first time."""
        record = self._record
        if record.following is not None and hello.name not in record.following[1]:
            return Refused(f"{record.name} has agreed to members without {hello.name}: it was replaced", fatal=False)
        if record.peers.get(hello.name) == hello.disk and hello.epoch == record.epoch:
            return None
        if hello.name not in record.members or hello.name == record.name:
            return Refused(f"{record.name} knows no peer {hello.name}", fatal=False)
        with self._lock:
            record = self._record
            known = record.peers.get(hello.name, hello.disk)
            if known != hello.disk:
                # In any epoch: wiped replicas restart in the first one, and could form a majority.
                return Refused(
                    f"{record.name} knows replica {hello.name} with another disk: this one was wiped or copied, and "
                    "has lost entries that it acknowledged; restore its disk, or replace it by a replica of a new "
                    "name",
                    fatal=True,
                )
            if hello.epoch != record.epoch:
                return Refused(f"{record.name} is in membership epoch {record.epoch}, not {hello.epoch}", fatal=False)
            if hello.name not in record.peers:
                try:
                    self._write(msgspec.structs.replace(record, peers={**record.peers, hello.name: hello.disk}))
                except OSError as e:  # usually a full disk; written again as a whole at the next try
                    return Refused(f"{record.name} cannot record the disk of {hello.name}: {e}", fatal=False)
        return None

    def _verify(self, directory: Path, name: str, members: list[str], epoch: int, groups: Collection[int]) -> None:
        record = self._record
        if record.name != name:
            raise RaftStopped(f"{self._path} belongs to replica {record.name}, not {name}")
        if epoch < record.epoch or (epoch == record.epoch and members != record.members):
            raise RaftStopped(
                f"{self._path} is of membership {record.epoch} {record.members}, but started with {epoch} {members}: "
                f"members change only together with a higher epoch"
            )
        for group in record.groups:
            if not segments_in(self._disk, group_directory(directory, group)):
                raise RaftStopped(
                    f"{group_directory(directory, group)} has lost its journal: this replica has lost entries "
                    f"that it acknowledged; restore its disk, or replace it by a replica of a new name"
                )
        again = sorted({*groups} & {*record.removed})
        if again:
            raise RaftStopped(f"{self._path}: groups {again} were removed, and their numbers are not used again")
        if epoch > record.epoch:
            peers = {peer: disk for peer, disk in record.peers.items() if peer in members}
            record = msgspec.structs.replace(record, epoch=epoch, members=members, peers=peers, following=None)
            self._write(msgspec.structs.replace(record, addresses=self._addresses))
        elif self._addresses and self._addresses != record.addresses:
            with suppress(OSError):  # a full disk: a later start notes them
                self._write(msgspec.structs.replace(record, addresses=self._addresses))

    def _refuse_leftovers(self, directory: Path, groups: Collection[int]) -> None:
        here = {group_directory(directory, group).name for group in groups}
        here |= {name for name in self._disk.names(directory) if name.startswith(_GROUP_PREFIX)}
        if any(segments_in(self._disk, directory / name) for name in here):
            raise RaftStopped(f"{self._path} is missing next to its journals: restore it, or replace this replica")
        if BUILDING in self._disk.names(directory):
            raise RaftStopped(f"{directory} was not filled completely: repeat the interrupted command")

    def _write(self, record: _Record) -> None:
        """Writes the record durably, and only then uses it."""
        body = msgspec.msgpack.encode(record)
        self._disk.replace(self._path, _HEADER.pack(MAGIC, VERSION, zlib.crc32(body)) + body)
        self._record = record


def _read(disk: Disk, path: Path) -> _Record:
    data = disk.read(path)
    try:
        magic, version, crc = _HEADER.unpack_from(data)
        body = data[_HEADER.size :]
        if magic != MAGIC or crc != zlib.crc32(body):
            raise ValueError("bad header or checksum")
        if version != VERSION:
            raise RaftStopped(f"{path}: {other_version(version, VERSION)}")
        return msgspec.msgpack.decode(body, type=_Record)
    except (struct.error, ValueError, msgspec.MsgspecError) as e:
        raise RaftStopped(f"{path} is damaged ({e}): restore it, or replace this replica") from None
