"""The follower's output: blocks of whole records of one log.

A *log* is one stream of bytes under one identity, regardless of its file being renamed, rolled or compressed. Offsets
count uncompressed bytes from the log's first byte.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from photon.adapters.contract import LogFile


@dataclass(frozen=True, slots=True)
class LogPosition:
    """A log's read position, durable in the reader's state."""

    identity: str  # hex
    path: str  # where it was last seen, relative to the log directory
    offset: int  # first byte not read yet
    header: bytes = b""
    proof: bytes = b""  # ``identity.proof_of`` the bytes before the offset; empty if unknown, and then not compared


@dataclass(frozen=True, slots=True)
class OversizedRecord:
    """The position of a record longer than the limit, which is not returned as data."""

    offset: int
    length: int
    head: bytes


@dataclass(frozen=True, slots=True)
class Block:
    r"""Whole records of one log. Each ends with ``\n`` (added to a last line without one)."""

    identity: str
    file: LogFile
    offset: int  # of data[0]
    data: bytes  # without the header record and without a byte order mark
    # Offset of the first byte after this block, where reading resumes. More than offset + len(data) if oversized
    # records follow, one less if the last newline was added.
    end: int
    oversized: tuple[OversizedRecord, ...] = ()
    proof: bytes = b""  # proof of the position ``end``
    before: bytes = b""  # the ``place_ids.CONTEXT_BYTES`` before ``offset``, or fewer at the start of the log
    rewritten: bool = False  # first block of a log whose bytes before the resumed position turned out to be different


class Changes(NamedTuple):
    """Changes noted by a watcher, as relative paths.

    ``deleted``: names removed permanently, not by moving the file.
    """

    paths: set[str]
    deleted: set[str]
