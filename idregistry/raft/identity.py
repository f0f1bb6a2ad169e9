"""Which replica a directory belongs to, so that a wiped or swapped disk does not rejoin under its old name.

A replica that forgot its log and vote, and votes again, can take acknowledged entries away. So the directory gets an
id drawn at random when it is made; each peer notes it durably when it first hears it, and refuses another one under
the same name ever after.

File ``replica``: magic "PHOTREPL", version u8, crc32 u32 little-endian, msgpack of ``_Record``.
"""

from __future__ import annotations

import struct
import threading
import zlib
from collections.abc import Callable, Collection
from pathlib import Path

import msgspec

from photon.config.disk import Disk
from photon.idregistry.raft.journal import segments_in
from photon.idregistry.raft.options import RaftStopped
from photon.idregistry.raft.transport import Hello, Refused

MAGIC = b"PHOTREPL"
VERSION = 1
DISK_ID_BYTES = 16
_HEADER = struct.Struct("<8sBI")


class _Record(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    name: str
    disk: bytes
    members: list[str]
    epoch: int
    groups: list[int]
    peers: dict[str, bytes]


def group_directory(directory: Path, group: int) -> Path:
    """Where one group's journal and snapshot live."""
    return directory / f"group-{group:05d}"


class Identity:
    """This replica's, and what it knows of its peers'. ``check`` is thread-safe."""

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
        """Reads or makes the directory's identity. Raises RaftStopped when it is not this replica's."""
        self._disk = disk
        self._path = directory / "replica"
        self._lock = threading.Lock()
        disk.make_dir(directory)
        if disk.exists(self._path):
            self._record = self._read()
            self._verify(directory, name, sorted(members), epoch)
        else:
            self._refuse_leftovers(directory, groups)
            self._write(_Record(name, entropy(DISK_ID_BYTES), sorted(members), epoch, [], {}))
        self.hello = Hello(name, self._record.disk, epoch)

    def made(self, groups: Collection[int]) -> None:
        """Notes that the groups' journals exist from now on."""
        with self._lock:
            known = sorted({*self._record.groups, *groups})
            if known != self._record.groups:
                self._write(msgspec.structs.replace(self._record, groups=known))

    def check(self, hello: Hello) -> Refused | None:
        """Whether to listen to a peer; its disk is noted durably the first time."""
        record = self._record
        if record.peers.get(hello.name) == hello.disk and hello.epoch == record.epoch:
            return None
        if hello.name not in record.members or hello.name == record.name:
            return Refused(f"{record.name} knows no peer {hello.name}", fatal=False)
        if hello.epoch != record.epoch:
            return Refused(f"{record.name} is in membership epoch {record.epoch}, not {hello.epoch}", fatal=False)
        with self._lock:
            record = self._record
            known = record.peers.get(hello.name)
            if known is None:
                try:
                    self._write(msgspec.structs.replace(record, peers={**record.peers, hello.name: hello.disk}))
                except OSError as e:  # a full disk, mostly; written whole and anew at the next try
                    return Refused(f"{record.name} cannot note the disk of {hello.name}: {e}", fatal=False)
            elif known != hello.disk:
                return Refused(
                    f"{record.name} knows replica {hello.name} with another disk: this one was wiped or copied, and "
                    f"has forgotten what it acknowledged; restore its disk, or replace it by a replica of a new name",
                    fatal=True,
                )
        return None

    def _verify(self, directory: Path, name: str, members: list[str], epoch: int) -> None:
        record = self._record
        if record.name != name:
            raise RaftStopped(f"{self._path} belongs to replica {record.name}, not {name}")
        if epoch < record.epoch or (epoch == record.epoch and members != record.members):
            raise RaftStopped(
                f"{self._path} is of membership {record.epoch} {record.members}, started with {epoch} {members}: "
                f"members change only together with a higher epoch"
            )
        for group in record.groups:
            if not segments_in(self._disk, group_directory(directory, group)):
                raise RaftStopped(
                    f"{group_directory(directory, group)} has lost its journal: this replica has forgotten what it "
                    f"acknowledged; restore its disk, or replace it by a replica of a new name"
                )
        if epoch > record.epoch:
            peers = {peer: disk for peer, disk in record.peers.items() if peer in members}
            self._write(msgspec.structs.replace(record, epoch=epoch, members=members, peers=peers))

    def _refuse_leftovers(self, directory: Path, groups: Collection[int]) -> None:
        for group in groups:
            if segments_in(self._disk, group_directory(directory, group)):
                raise RaftStopped(f"{self._path} is missing beside journals: restore it, or replace this replica")

    def _read(self) -> _Record:
        data = self._disk.read(self._path)
        try:
            magic, version, crc = _HEADER.unpack_from(data)
            body = data[_HEADER.size :]
            if magic != MAGIC or version != VERSION or crc != zlib.crc32(body):
                raise ValueError("bad header or checksum")
            return msgspec.msgpack.decode(body, type=_Record)
        except (struct.error, ValueError, msgspec.MsgspecError) as e:
            raise RaftStopped(f"{self._path} is damaged ({e}): restore it, or replace this replica") from None

    def _write(self, record: _Record) -> None:
        """Believed only once it is durable."""
        body = msgspec.msgpack.encode(record)
        self._disk.replace(self._path, _HEADER.pack(MAGIC, VERSION, zlib.crc32(body)) + body)
        self._record = record
