"""What a joiner may ask of the EventStore; the gRPC client and the embedded store both offer it."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from photon.adapters.contract import LogFile


class Found(enum.IntEnum):
    """The store's answer for one key."""

    UNAVAILABLE = 0
    """It cannot say now (a log is missing, a map is down): try again."""
    FOUND = 1
    NOT_YET = 2
    """Not seen, but the reader has not passed the point that was asked about."""
    ABSENT = 3
    """Not there, and everything written up to the time that was asked about has been read."""


class PrimaryRecord(NamedTuple):
    """A primary event as it stands in its log."""

    record: bytes  # without its line end
    file: LogFile
    offset: int  # uncompressed bytes


@dataclass(frozen=True, slots=True)
class EventLookUps:
    """Aligned with the keys asked for; ``records[i]`` is set exactly where ``answers[i]`` is FOUND."""

    answers: list[Found]
    records: list[PrimaryRecord | None]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the primary logs of a join have been read."""

    read_past_ns: int
    """All bytes written before this time have been read; NEVER_NS: all there will ever be (--once)."""
    events: int = 0
    bytes_read: int = 0
    bytes_known: int = 0
    duplicates: int = 0
    bad_records: int = 0
    cache_hits: int = 0
    cache_misses: int = 0
    files: int = 0


class EventStore(Protocol):
    """Answers key -> primary event. The first record in (file, offset) order wins when a key occurs twice."""

    async def look_up(self, keys: Sequence[bytes], as_of: Sequence[int]) -> EventLookUps:
        """``as_of[i]`` (ns): the time up to which all primary bytes must have been read for a miss to be ABSENT."""
        ...

    async def progress(self) -> Progress: ...

    async def close(self) -> None: ...
