"""What a joiner may ask of the EventStore; the gRPC client and the embedded store both offer it."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple, Protocol

import numpy as np

from photon.batch.columns import U32, RowIndexes
from photon.batch.files import LogFile
from photon.batch.records import PrimaryRecord as PrimaryRecord
from photon.batch.records import Records
from photon.config.clock import NEVER_NS

ALL_BUT_ENDS_NS = NEVER_NS - 1
"""As ``read_past_ns``: with --once all there is has been read, but last lines that may be half written. A primary
event may stand there, so nothing is ABSENT for ever in this run."""

SET_MAX = 1000  # records of one key that an event may be joined with
SET_BYTES_MAX = 16 << 20  # bytes of theirs: what one answer of a store can carry


class LookUpCode(enum.IntEnum):
    UNAVAILABLE = 0  # it cannot say now (a log is missing, a map is down): try again
    FOUND = 1
    NOT_YET = 2  # not seen, but the reader has not passed the point that was asked about
    ABSENT = 3  # not there, and everything written up to the time that was asked about has been read
    TOO_MANY = 4  # more records have the key than one event may be joined with (``whole_sets``)
    GONE = 5  # as UNAVAILABLE, and the log's file is gone: trying again soon does not help


class PrimaryPlace(NamedTuple):
    file: LogFile
    offset: int


@dataclass(frozen=True, slots=True, eq=False)
class EventLookUps:
    """The answers of one look-up, aligned with its keys."""

    codes: bytes  # n x LookUpCode
    found: Records  # of the rows that are FOUND, in their order
    ambiguous: Mapping[int, PrimaryPlace] = field(default_factory=dict)
    """Row -> where another primary record of its key stands, with other bytes."""
    counts: U32 | None = None
    """Of each row that is FOUND, how many of the records are its; None: one. Where ``Matching.whole_sets``, all that
    its key has, in file order."""

    def __len__(self) -> int:
        return len(self.codes)

    @staticmethod
    def of(
        answers: Sequence[LookUpCode],
        records: Sequence[PrimaryRecord | None],
        ambiguous: Mapping[int, PrimaryPlace] = MappingProxyType({}),
    ) -> EventLookUps:
        """``records[row]`` is set exactly where ``answers[row]`` is FOUND."""
        return EventLookUps(bytes(answers), Records.of([each for each in records if each is not None]), ambiguous)

    @staticmethod
    def unavailable(n: int) -> EventLookUps:
        return EventLookUps(bytes(n), Records.of(()))

    @staticmethod
    def concat(parts: Sequence[EventLookUps]) -> EventLookUps:
        """One look-up out of several, in their order."""
        if len(parts) == 1:
            return parts[0]
        ambiguous: dict[int, PrimaryPlace] = {}
        base = 0
        for part in parts:
            ambiguous.update((base + row, other) for row, other in part.ambiguous.items())
            base += len(part)
        found = Records.concat([part.found for part in parts])
        counts = None
        if any(part.counts is not None for part in parts):
            counts = np.concatenate([part.per_row() for part in parts])
        return EventLookUps(b"".join([part.codes for part in parts]), found, ambiguous, counts)

    def per_row(self) -> U32:
        """``counts``, written out."""
        return np.ones(len(self.found), np.uint32) if self.counts is None else self.counts

    def rows(self) -> RowIndexes:
        return np.flatnonzero(np.frombuffer(self.codes, np.uint8) == LookUpCode.FOUND)

    @property
    def answers(self) -> list[LookUpCode]:
        """``codes`` as names: slow, for few keys."""
        return [LookUpCode(code) for code in self.codes]

    @property
    def records(self) -> list[PrimaryRecord | None]:
        found = iter(self.found.rows())
        return [next(found) if code == LookUpCode.FOUND else None for code in self.codes]


class KeyArrivals(NamedTuple):
    """Keys that look-ups have missed and that are in the map now."""

    epoch: int  # of this start of the store; numbers mean nothing in another one
    next: int  # the number to ask on from
    keys: list[bytes]
    lost: bool = False
    """Arrivals before ``next`` are not known: the client has to ``seek`` all keys that it waits for."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the primary logs of a join have been read."""

    read_past_ns: int
    """All bytes written before this time have been read; NEVER_NS: all there will ever be (--once),
    ALL_BUT_ENDS_NS: but for last lines that wait for their ends."""
    read_past_age_ns: int = 0  # how long ago that time was as the answer was given, by a clock that nothing sets
    events: int = 0
    bytes_read: int = 0
    bytes_known: int = 0
    duplicates: int = 0
    bad_records: int = 0
    cache_hits: int = 0
    cache_misses: int = 0
    files: int = 0
    missing_logs: int = 0  # logs that look-ups led to and that cannot be read, without those given up
    missing_keys: int = 0  # keys asked for that stand in them, at least
    log_reads: int = 0  # places looked at in primary logs since the start
    log_bytes: int = 0  # bytes read for them, uncompressed
    cache_bytes: int = 0  # what the cache holds, in this process and in cache nodes as last heard
    cache_evictions: int = 0  # segments that had to go since the start of the process that held them
    now_ns: int = 0  # what the store's clock showed as the answer was given; 0: it was not reached yet
    ambiguous: int = 0  # keys that look-ups have found several different primary events for, since the start
    ambiguous_example: str = ""  # the first of them: a line for a person
    unended: str = ""  # which last lines wait for their ends, and what to do; empty: none
    sought_keys: int = 0  # keys that were asked for in vain, and are remembered
    sought_dropped: int = 0  # of such keys, those forgotten for want of room
    sought_came: int = 0  # of such keys, those that came


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """How far one primary log has been read."""

    path: str  # relative to the log directory
    identity: str
    offset: int  # uncompressed bytes read
    bytes_read: int  # of bytes_known, on disk
    bytes_known: int  # size of its file as last seen; 0 when it is gone
    read_past_ns: int  # all that was written to it before then has been read


@dataclass(frozen=True, slots=True)
class UnavailableLog:
    path: str  # where it was last seen
    identity: str
    why: str  # one line
    keys: int  # keys asked for that stand in it, at least
    since_ns: int  # when a look-up first met it so
    present: bool = False  # there is a file of this identity
    forgotten: bool = False  # given up: its keys count as absent


@dataclass(frozen=True, slots=True)
class Details:
    """What an operator sees in addition to ``Progress``."""

    progress: Progress
    sources: tuple[SourceProgress, ...] = ()  # by path
    unavailable: tuple[UnavailableLog, ...] = ()  # by path, given up ones included


@dataclass(frozen=True, slots=True)
class Forgotten:
    """Logs that were given up, or would be."""

    logs: tuple[UnavailableLog, ...] = ()
    refused: tuple[str, ...] = ()  # one line each: which of the asked logs are not given up, and why


class EventStore(Protocol):
    """Answers key -> primary event. Where a key occurs twice ``Adapter.primary_duplicates`` says who wins."""

    async def look_up(self, keys: Sequence[bytes], as_of: Sequence[int]) -> EventLookUps:
        """``as_of[i]`` (ns): the time up to which all primary bytes must have been read for a miss to be ABSENT."""

    async def progress(self) -> Progress: ...

    async def close(self) -> None: ...


class ArrivalNotices(Protocol):
    """Tells clients that wait for primary events when these arrive (``awaited_keys``)."""

    async def arrived(self, epoch: int, number: int, wait_s: float) -> KeyArrivals | None:
        """Arrivals after ``number`` of ``epoch`` (0: none is known), or the first ones within ``wait_s``
        seconds. None: unknown just now, or this store does not tell."""

    async def seek(self, keys: Sequence[bytes]) -> list[int] | None:
        """Rows of the keys that may be there; ``arrived`` reports the others when they come. None: unknown
        just now."""


class OperatedStore(EventStore, ArrivalNotices, Protocol):
    """An event store that reads primary logs, as its operator sees it."""

    async def details(self) -> Details: ...

    async def forget(self, logs: Sequence[str], *, apply: bool) -> Forgotten:
        """Gives up logs (paths or identities) whose files are gone: what stands in them counts as absent until they
        are back. Without ``apply`` it is only said what would be given up."""
