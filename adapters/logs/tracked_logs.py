"""The state of files and logs that the follower keeps between two calls."""

from __future__ import annotations

from dataclasses import dataclass, field

from photon.adapters.contract import LogFile
from photon.adapters.logs.api import Block, LogPosition
from photon.adapters.logs.framing import LongRecord, Piece
from photon.adapters.logs.identity import COMPRESSED_SUFFIXES, HEAD_BYTES, Head

FINISHED = -1  # replaces a file's mtime in ``TrackedLog.done``: its last line without line end was returned too


@dataclass(slots=True)
class TrackedFile:
    """An inode, as last seen."""

    path: str
    key: tuple[int, int]
    size: int = -1
    mtime_ns: int = -1
    head: Head | None = None
    gone: bool = False
    links: int = 1  # names of the inode
    head_length: int = 0  # compressed file with copies: how many of the first HEAD_BYTES it holds, uncompressed
    measured: tuple[int, int] | None = None  # size and mtime when that was measured
    # (key of another file, own size, own mtime) when it was found to be a copy of that one.
    compared: tuple[tuple[int, int], int, int] | None = None
    # Like ``compared``, when only the ends of both were compared.
    glanced: tuple[tuple[int, int], int, int] | None = None
    forward: bool = False  # its stream is derived from its bytes, like that of a compressed file

    @property
    def packed(self) -> bool:
        """True if the file's name has the suffix of a compressed file."""
        return self.path.endswith(COMPRESSED_SUFFIXES)

    def all_of_it(self, of: int) -> bytes:
        """Returns the known bytes of its records; empty if they do not cover the file, or its first ``of`` bytes."""
        head = self.head
        if head is None or self.compressed or head.fingerprint_at + len(head.begin) < min(self.size, of):
            return b""
        return head.begin

    def reach(self) -> tuple[int, bool, int]:
        """Returns a sort key for copies, of which the least is read: the longest known beginning first, then a plain
        file before a compressed one, then the largest.
        """
        head_length = self.head_length if self.packed else min(self.size, HEAD_BYTES)
        return -head_length, self.packed, -self.size

    @property
    def compressed(self) -> bool:
        """True if offsets in its log differ from offsets in the file."""
        return self.forward or self.packed


@dataclass(slots=True)
class TrackedLog:
    """A stream of bytes. ``done``: the state of the file (key, size, mtime) in which all of it had been read."""

    identity: str
    path: str
    next: int
    header: bytes = b""
    in_force: bytes | None = None  # Zeek's logs: the header in force at next; ``None`` if unknown
    resumed: bytes = b""  # the one in force where reading begins; empty if unknown
    data_start: int = 0
    long: LongRecord | None = None
    proof: bytes = b""  # of the bytes before next, as read; empty if unknown
    file: TrackedFile | None = None
    done: tuple[tuple[int, int], int, int] | None = None
    # Path of a copy -> number of scans that saw it unchanged, its size.
    rivals: dict[str, tuple[int, int]] = field(default_factory=dict)
    consumed: int = 0  # bytes on disk, for a compressed file
    unread: int = 0  # unread bytes of a file when it was overwritten; a copy of it may still appear
    cut_scans: int = -1  # scans since a compressed file was found cut short; -1: it is not
    rewritten: bool = False  # read from its start, as another log than was read before
    queued: bool = False  # True while in the follower's queue
    counted: int = 0  # its bytes on disk that are included in the sum over all logs
    # (size on disk, mtime in ns) at each scan that saw it grow beyond the bytes read, oldest first.
    marks: list[tuple[int, int]] = field(default_factory=list)

    def resume_at(self) -> int:
        return self.long.offset if self.long else self.next

    def position(self) -> LogPosition:
        header = self.header if self.in_force is None else self.in_force
        proof = b"" if self.long else self.proof
        return LogPosition(self.identity, self.path, self.resume_at(), header, proof)

    def block(self, piece: Piece, proof: bytes, before: bytes) -> Block:
        """Converts a piece of this log to a block."""
        file = LogFile(self.path, self.header)
        rewritten, self.rewritten = self.rewritten, False
        return Block(
            self.identity,
            file,
            piece.offset,
            piece.data,
            piece.end,
            piece.oversized,
            proof=proof,
            before=before,
            rewritten=rewritten,
        )

    def is_done(self, *, final: bool = False) -> bool:
        """True if all of its file, as last seen, was read; with ``final`` including a last line without line end."""
        if self.file is None:
            return True
        if self.done is None or self.done[:2] != (self.file.key, self.file.size):
            return False
        return self.done[2] == FINISHED or (not final and self.done[2] == self.file.mtime_ns)
