"""What the follower hands to its reader: blocks of whole records of one log.

A *log* is one stream of bytes under one identity, however its file is renamed, rolled or compressed meanwhile.
Offsets count uncompressed bytes from the log's first byte.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from photon.adapters.contract import LogFile


@dataclass(frozen=True, slots=True)
class LogPosition:
    """How far a log has been read, durable in the reader's state."""

    identity: str  # hex
    path: str  # where it was last seen, relative to the log directory
    offset: int  # first byte not read yet
    header: bytes = b""
    proof: bytes = b""
    """``identity.proof_of`` the bytes before the offset; empty: not known, and so not compared."""


class LogPart(NamedTuple):
    """A part of a huge log, from one record's begin to another's, read separately from the rest of it."""

    unit: str
    """Its name; no log's identity."""
    identity: str
    begin: int
    end: int
    offset: int  # first byte not read yet
    proof: bytes = b""  # as in LogPosition


@dataclass(frozen=True, slots=True)
class OversizedRecord:
    """A record longer than the limit: not handed out as data, reported with its place."""

    offset: int
    length: int
    head: bytes


@dataclass(frozen=True, slots=True)
class Block:
    """Whole records of one log. Each ends with ``\\n`` (one is added to a last line that lacks it)."""

    identity: str
    file: LogFile
    offset: int  # of data[0]
    data: bytes  # without the header record and without a byte order mark
    end: int
    """Offset of the first byte after this block (what to resume from); more than offset + len(data) when
    oversized records follow, less by one when the last newline was added."""
    oversized: tuple[OversizedRecord, ...] = ()
    part: str = ""
    """The unit of the ``LogPart`` that was read; empty where the log was read on."""
    proof: bytes = b""
    """Proof of the position ``end``."""
    before: bytes = b""
    """``place_ids.CONTEXT_BYTES`` in front of ``offset``, or all where there are fewer."""
    anew: bool = False
    """The first of a log that was read on somewhere, and turned out to hold other bytes before that place."""

    @property
    def unit(self) -> str:
        """What is read on after this block."""
        return self.part or self.identity


class Changes(NamedTuple):
    """What a watcher has noted, as relative paths. ``deleted``: a name was taken away there for good, not by moving
    the file."""

    paths: set[str]
    deleted: set[str]
