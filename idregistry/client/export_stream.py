"""The wire format of a group's exported state: a head with magic and version, chunks of at most 1 MiB, a checksum.

The chunks are those of the group's snapshot (``shard_snapshot``, ``config_machine``). Pure: parts in, parts out.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from photon.config.errors import PhotonError
from photon.config.versioned_file import other_version
from photon.idregistry import registry_pb2 as pb
from photon.idregistry.raft.options import SNAPSHOT_CHUNK_BYTES_MAX

MAGIC = "PHOTEXPT"
VERSION = 1
CHECKSUM_BYTES = 32


class ExportFailed(PhotonError):
    """An export was incomplete, or refused by the replica. The message is one line."""


@dataclass(frozen=True, slots=True)
class ExportFacts:
    """Facts about an export, known once it has been read to its end."""

    chunks: int
    size: int  # bytes
    checksum: bytes
    applied: int  # the state includes all entries up to this one


class Summer:
    def __init__(self) -> None:
        self._hash = blake2b(digest_size=CHECKSUM_BYTES)
        self.chunks = 0
        self.size = 0

    def add(self, chunk: bytes) -> None:
        self._hash.update(len(chunk).to_bytes(4, "little"))
        self._hash.update(chunk)
        self.chunks += 1
        self.size += len(chunk)

    def checksum(self) -> bytes:
        return self._hash.digest()


def head(replica: str, group: int, status: int = pb.STATUS_OK, reason: str = "") -> pb.ExportPart:
    """Returns the first part of an export. Nothing follows a ``status`` other than OK."""
    said: Any = status  # protobuf enums are plain numbers
    return pb.ExportPart(
        head=pb.ExportHead(magic=MAGIC, version=VERSION, replica=replica, group=group, status=said, reason=reason)
    )


def part(chunk: bytes) -> pb.ExportPart:
    return pb.ExportPart(chunk=pb.ExportChunk(data=chunk, crc32=zlib.crc32(chunk)))


def end(summer: Summer, applied: int) -> pb.ExportPart:
    return pb.ExportPart(
        end=pb.ExportEnd(chunks=summer.chunks, bytes=summer.size, checksum=summer.checksum(), applied=applied)
    )


class ExportReader:
    """Reads the chunks of an export from its parts. ``facts`` is set after the last chunk."""

    def __init__(self, parts: Iterable[pb.ExportPart], where: str) -> None:
        self._parts = parts
        self._where = where
        self.facts: ExportFacts | None = None

    def __iter__(self) -> Iterator[bytes]:
        """Yields each chunk after checking it. Raises ExportFailed."""
        summer = Summer()
        began = False
        for each in self._parts:
            kind = each.WhichOneof("part")
            if not began:
                self._check_head(each)
                began = True
            elif kind == "chunk" and self.facts is None:
                data = each.chunk.data
                if len(data) > SNAPSHOT_CHUNK_BYTES_MAX or zlib.crc32(data) != each.chunk.crc32:
                    raise ExportFailed(f"{self._where}: chunk {summer.chunks} is damaged; try again")
                summer.add(data)
                yield data
            elif kind == "end" and self.facts is None:
                self.facts = self._checked_end(each.end, summer)
            else:
                raise ExportFailed(f"{self._where}: the export continues unexpectedly; try again")
        if self.facts is None:
            raise ExportFailed(f"{self._where}: the export was cut short; try again")

    def _check_head(self, first: pb.ExportPart) -> None:
        got = first.head
        if first.WhichOneof("part") != "head" or got.magic != MAGIC:
            raise ExportFailed(f"{self._where}: this is not an export")
        if got.status != pb.STATUS_OK:
            raise ExportFailed(f"{self._where}: {got.reason or 'refused'}")
        if got.version != VERSION:
            raise ExportFailed(f"{self._where}: export: {other_version(got.version, VERSION)}")

    def _checked_end(self, said: pb.ExportEnd, summer: Summer) -> ExportFacts:
        if (said.chunks, said.bytes, said.checksum) != (summer.chunks, summer.size, summer.checksum()):
            raise ExportFailed(f"{self._where}: the checksum of {summer.chunks} chunks is wrong; try again")
        return ExportFacts(said.chunks, said.bytes, said.checksum, said.applied)
