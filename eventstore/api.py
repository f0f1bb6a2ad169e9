"""The interface between joiner and EventStore, implemented by the gRPC client and the embedded store."""

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
from photon.config.errors import PhotonError

# A ``read_past_ns`` for --once: everything has been read, except last lines that may be half written. A primary event
# may be in one of those, so no key becomes ABSENT in this run.
ALL_BUT_ENDS_NS = NEVER_NS - 1

SET_MAX = 1000  # records of one key that an event may be joined with
SET_BYTES_MAX = 16 << 20  # total bytes of such a set: the limit of a store's answer


class EventStoreFailed(PhotonError):
    """The store cannot continue. One line: what, where, what to do."""


class LookUpCode(enum.IntEnum):
    UNAVAILABLE = 0  # unknown now (a log is missing, a map is down): try again
    FOUND = 1
    NOT_YET = 2  # not found, but the reader has not passed the requested point
    ABSENT = 3  # not found, and everything written up to the requested time has been read
    TOO_MANY = 4  # more records have the key than one event may be joined with (``whole_sets``)
    GONE = 5  # like UNAVAILABLE, but the log's file is gone: an early retry does not help


class PrimaryPlace(NamedTuple):
    file: LogFile
    offset: int


@dataclass(frozen=True, slots=True, eq=False)
class EventLookUps:
    """The answers of one look-up, aligned with its keys."""

    codes: bytes  # n x LookUpCode
    found: Records  # of the FOUND rows, in order
    # Row -> place of another primary record with its key but other bytes.
    ambiguous: Mapping[int, PrimaryPlace] = field(default_factory=dict)
    # For each FOUND row its number of records; ``None`` means one each. With ``Matching.whole_sets`` these are all
    # records of its key, in file order.
    counts: U32 | None = None

    def __len__(self) -> int:
        return len(self.codes)

    @staticmethod
    def of(
        answers: Sequence[LookUpCode],
        records: Sequence[PrimaryRecord | None],
        ambiguous: Mapping[int, PrimaryPlace] = MappingProxyType({}),
    ) -> EventLookUps:
        """Packs the answers. ``records[row]`` is set exactly if ``answers[row]`` is FOUND."""
        return EventLookUps(bytes(answers), Records.of([each for each in records if each is not None]), ambiguous)

    @staticmethod
    def unavailable(n: int) -> EventLookUps:
        return EventLookUps(bytes(n), Records.of(()))

    @staticmethod
    def concat(parts: Sequence[EventLookUps]) -> EventLookUps:
        """Merges several look-ups into one, in order."""
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
        """``counts``, or ones if that is ``None``."""
        return np.ones(len(self.found), np.uint32) if self.counts is None else self.counts

    def rows(self) -> RowIndexes:
        return np.flatnonzero(np.frombuffer(self.codes, np.uint8) == LookUpCode.FOUND)

    @property
    def answers(self) -> list[LookUpCode]:
        """``codes`` as enumeration members: slow, for few keys."""
        return [LookUpCode(code) for code in self.codes]

    @property
    def records(self) -> list[PrimaryRecord | None]:
        found = iter(self.found.rows())
        return [next(found) if code == LookUpCode.FOUND else None for code in self.codes]


class KeyArrivals(NamedTuple):
    """Keys that look-ups missed and that are now in the map."""

    epoch: int  # identifies this start of the store; numbers are meaningless in another one
    next: int  # the number to continue from
    keys: list[bytes]
    # Arrivals before ``next`` are not known: the client has to ``seek`` all keys that it waits for.
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Progress:
    """The reading progress of a join's primary logs."""

    # All bytes written before this time have been read. NEVER_NS: the logs are complete (--once); ALL_BUT_ENDS_NS:
    # everything except unfinished last lines.
    read_past_ns: int
    read_past_age_ns: int = 0  # the age of that time when the answer was given, by a monotonic clock
    events: int = 0
    bytes_read: int = 0
    bytes_known: int = 0
    duplicates: int = 0
    bad_records: int = 0
    cache_hits: int = 0
    cache_misses: int = 0
    files: int = 0
    missing_logs: int = 0  # unreadable logs that look-ups led to, except those given up
    missing_keys: int = 0  # requested keys that are in them, at least
    log_reads: int = 0  # places read in primary logs since the start
    log_bytes: int = 0  # bytes read for them, uncompressed
    cache_bytes: int = 0  # size of the cache, in this process and in cache nodes when last heard
    cache_evictions: int = 0  # segments evicted since the start of the process that held them
    now_ns: int = 0  # the store's clock when the answer was given; 0 if the store was not reached yet
    ambiguous: int = 0  # keys for which look-ups have found several different primary events since the start
    ambiguous_example: str = ""  # the first of them: a line for people
    unended: str = ""  # the unfinished last lines, and what to do about them; empty if there are none
    sought_keys: int = 0  # remembered keys that were not found
    sought_dropped: int = 0  # such keys that were forgotten for lack of room
    sought_came: int = 0  # such keys that arrived


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """The reading progress of one primary log."""

    path: str  # relative to the log directory
    identity: str
    offset: int  # uncompressed bytes read
    bytes_read: int  # of bytes_known, on disk
    bytes_known: int  # size of its file when last seen; 0 if it is gone
    read_past_ns: int  # everything written to it before this time has been read


@dataclass(frozen=True, slots=True)
class UnavailableLog:
    path: str  # where it was last seen
    identity: str
    why: str  # one line
    keys: int  # requested keys that are in it, at least
    since_ns: int  # when a look-up first found it unavailable
    present: bool = False  # a file of this identity exists
    forgotten: bool = False  # given up: its keys count as absent


@dataclass(frozen=True, slots=True)
class Details:
    """Figures for operators, in addition to ``Progress``."""

    progress: Progress
    sources: tuple[SourceProgress, ...] = ()  # by path
    unavailable: tuple[UnavailableLog, ...] = ()  # by path, including those given up


@dataclass(frozen=True, slots=True)
class Forgotten:
    """Logs that were given up, or would be with ``apply``."""

    logs: tuple[UnavailableLog, ...] = ()
    refused: tuple[str, ...] = ()  # one line each: requested logs that are not given up, and why


class EventStore(Protocol):
    """Finds primary events by key. If several have a key, ``Adapter.primary_duplicates`` decides."""

    async def look_up(
        self, keys: Sequence[bytes], as_of: Sequence[int], times: Sequence[int] | None = None
    ) -> EventLookUps:
        """Looks up each key.

        ``as_of[i]`` (ns): the time up to which all primary bytes must have been read before a miss is ABSENT.

        ``times[i]`` (ns), for ``match = "latest"``: returns only the records that matter at that time
        (``FileMap.versions``).
        """

    async def progress(self) -> Progress: ...

    async def close(self) -> None: ...


class ArrivalNotices(Protocol):
    """Reports the arrival of primary events to clients that wait for them (``awaited_keys``)."""

    async def arrived(self, epoch: int, number: int, wait_s: float) -> KeyArrivals | None:
        """Returns arrivals after ``number`` of ``epoch`` (0 if none is known), waiting at most ``wait_s`` seconds for
        one. ``None`` means that the store cannot answer now, or does not report arrivals.
        """

    async def seek(self, keys: Sequence[bytes]) -> list[int] | None:
        """Returns the indices of keys that may be in the map; ``arrived`` will report the others. ``None`` means that
        the store cannot answer now.
        """


class OperatedStore(EventStore, ArrivalNotices, Protocol):
    """An event store that reads primary logs, as seen by its operator."""

    async def details(self) -> Details: ...

    async def forget(self, logs: Sequence[str], *, apply: bool) -> Forgotten:
        """Gives up logs (paths or identities) whose files are gone: their records count as absent until a file
        returns.

        Without ``apply`` it only reports what would be given up.
        """
