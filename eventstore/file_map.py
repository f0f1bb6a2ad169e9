"""The file map: the places in the primary logs where a key may be (paper, section 3.4.2). The interface of its
backends, and their common code.

A *dense* map has hash -> (log, offset) for every key, and suits unordered keys. A *sparse* map has one entry per W
seconds or M bytes of a process, and suits canonical ids, which rise within their process. It also has dense entries
for other keys (not a canonical id, or not above the last one of its process in this log), so that every record can be
reached.

The map also holds each log's read position. ``commit`` makes entries and positions durable in one step: after a crash
the reader continues at positions before which every record is in the map. A backend that may lose committed rows (see
hbase.md) must move its positions back when it does.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from photon.adapters.contract import LogFile
from photon.adapters.logs.api import LogPosition
from photon.config.disk import Disk
from photon.config.errors import PhotonError
from photon.config.file_lock import lock_file
from photon.eventstore.index import I64, U64

SPARSE_MICROS = 10_000_000  # W: ids of a process that are further apart get an entry each
SPARSE_BYTES = 1 << 20  # M: a record this many bytes after its process's last entry gets one
OFFSET_BITS = 40
LOG_BYTES_MAX = 1 << OFFSET_BITS  # longest log that can be mapped: 1 TiB of uncompressed bytes
LOGS_MAX = 1 << 24
# Limit of places read for one key, the first ones in file order (with MapSettings.last the last ones).
PLACES_PER_KEY_MAX = 16
_OFFSET_MASK = np.uint64(LOG_BYTES_MAX - 1)
_LOG_SHIFT = np.uint64(OFFSET_BITS)


UNKNOWN_TIME_NS = -(1 << 63)  # a version's time if its record does not tell it


class Version(NamedTuple):
    """A record of a key with its event time. Versions sort by time, then by the order of places in a map."""

    time_ns: int
    log: int
    offset: int


class MapKind(enum.StrEnum):
    DENSE = "dense"
    SPARSE = "sparse"


@dataclass(frozen=True, slots=True)
class MapSettings:
    """The settings that entries depend on. A map made with other settings cannot be used."""

    rule: bytes  # derives keys from records (Adapter.rule) and identifies the logs
    kind: MapKind = MapKind.DENSE
    window_micros: int = SPARSE_MICROS
    window_bytes: int = SPARSE_BYTES
    # If a key has more places than are returned, return the last ones in file order. Entries do not depend on it.
    last: bool = False
    places_max: int = PLACES_PER_KEY_MAX  # places returned for one key; a map in HBase returns PLACES_PER_KEY_MAX
    # Entries are by key and event time, and ``FileMap.versions`` finds them. ``kind`` then has no meaning.
    timed: bool = False

    def stored(self) -> dict[str, bytes]:
        return {
            "timed": b"%d" % self.timed,
            "rule": self.rule,
            "kind": self.kind.encode(),
            "window": f"{self.window_micros} {self.window_bytes}".encode(),
        }


@dataclass(frozen=True, slots=True)
class MappedLog:
    """The map's record of a log. ``number`` is valid only in this map."""

    number: int
    identity: str
    file: LogFile  # as last seen
    end: int  # the first unread byte
    rewritten: bool = False  # some of it was read again with different bytes, so places may be stale
    proof: bytes = b""  # of a position at ``end``; see LogPosition

    def position(self) -> LogPosition:
        return LogPosition(self.identity, self.file.path, self.end, self.file.header, self.proof)

    def order(self, log_name: Callable[[str], str]) -> tuple[str, str]:
        """Returns the log's sort key, (name without its rotation suffix, identity): the order of logs decides between
        records with the same key.

        The order is the same in every datacentre, and rotation does not change it.
        """
        return log_name(self.file.path), self.identity


@dataclass(frozen=True, slots=True)
class MappedBlock:
    """The reader's result for one block: n records with a key. Sorted once, for the map and the cache."""

    identity: str
    file: LogFile
    begin: int  # offset of the block
    end: int  # the position to resume from
    keys: Sequence[bytes]  # n, in log order; empty if nobody needs them (MapKind.DENSE)
    starts: I64  # n, in log order: offsets in the log
    hashes: U64  # n, ascending
    order: I64  # n: hashes[i] is of keys[order[i]]
    bad: int = 0  # number of records without a key
    proof: bytes = b""  # of a position at ``end``
    times: I64 | None = None  # n, in log order: event times or UNKNOWN_TIME_NS (MapSettings.timed)


@dataclass(frozen=True, slots=True)
class MappedPlaces:
    """m places, as aligned columns.

    The record of the requested key ``rows[i]`` may begin at ``offsets[i]`` of log ``logs[i]`` (``spans[i]`` = 0), or
    be in the ``spans[i]`` bytes from there. ``anchors[i]``: with a span, the microseconds of the canonical id whose
    record begins at ``offsets[i]``; a reader that finds another id there has the wrong file. Without a span, -1.
    """

    rows: I64
    logs: I64
    offsets: I64
    spans: I64
    anchors: I64
    complete: bool = True  # false while the map lacks lost entries, so that a miss is not *absent*
    times: I64 | None = None  # of the records, as far as the map knows (``FileMap.versions``)

    @staticmethod
    def of_versions(found: Sequence[tuple[int, Version]], complete: bool = True) -> MappedPlaces:
        """Builds places from ``found``: versions, each with the row of the request it answers."""
        columns = np.array([(row, *version) for row, version in found], np.int64).reshape(-1, 4).T
        rows, times, logs, offsets = columns
        none = np.zeros(len(rows), np.int64)
        return MappedPlaces(rows, logs, offsets, none, none - 1, complete, times)

    @staticmethod
    def of(exact: tuple[I64, I64, I64], sparse: I64, span: int, complete: bool = True) -> MappedPlaces:
        """Builds places from entries.

        ``exact``: rows, logs and offsets; ``sparse``: n x (row, log, offset, anchor), with spans of ``span`` bytes.
        """
        rows, logs, offsets = exact
        none = np.zeros(len(rows), dtype=np.int64)
        return MappedPlaces(
            np.concatenate((rows, sparse[:, 0])),
            np.concatenate((logs, sparse[:, 1])),
            np.concatenate((offsets, sparse[:, 2])),
            np.concatenate((none, np.full(len(sparse), span))),
            np.concatenate((none - 1, sparse[:, 3])),
            complete,
        )


def newest(versions: Iterable[Version], times_max: int, most: int) -> list[Version]:
    """Returns the versions of the newest ``times_max`` times, at most ``most``. ``versions`` come newest first."""
    found: list[Version] = []
    seen = 0
    for each in versions:
        seen += not found or each.time_ns != found[-1].time_ns
        if seen > times_max or len(found) >= most:
            break
        found.append(each)
    return found


class MappedLogs:
    """The logs of a map by number, and those that moved since the last commit."""

    def __init__(self, logs: list[MappedLog]) -> None:
        self.all = logs
        self.moved: set[int] = set()
        self._numbers = {log.identity: log.number for log in logs}

    @property
    def times_max(self) -> int:
        """The number of distinct times that ``FileMap.versions`` returns for a key."""
        return PLACES_PER_KEY_MAX if any(log.rewritten for log in self.all) else 1

    def move(self, block: MappedBlock) -> tuple[MappedLog, bool]:
        """Notes that a block was read. Returns (the log's new state, whether a part was read again).

        Raises FileMapError.
        """
        if block.end > LOG_BYTES_MAX:
            raise FileMapError(
                f"{block.file.path}: longer than {LOG_BYTES_MAX} bytes, the most that can be mapped; split it"
            )
        number = self._numbers.get(block.identity)
        again = False
        if number is None:
            number = len(self.all)
            if number >= LOGS_MAX:
                raise FileMapError(f"more than {LOGS_MAX} logs; start with an empty map directory")
            self._numbers[block.identity] = number
            self.all.append(MappedLog(number, block.identity, block.file, block.end, proof=block.proof))
        else:
            old = self.all[number]
            again = block.begin < old.end
            rewritten = old.rewritten or again
            self.all[number] = replace(old, file=block.file, end=block.end, rewritten=rewritten, proof=block.proof)
        self.moved.add(number)
        return self.all[number], again


@dataclass(frozen=True, slots=True)
class MapTotals:
    """Durable counts since the map was made, each record counted once."""

    events: int = 0
    bad_records: int = 0
    bytes_read: int = 0
    duplicates: int = 0
    logs: int = 0


class FileMap(Protocol):
    """The places in the primary logs where each key may be.

    Only the reader's thread may call ``tend``, ``add`` and ``commit``; any thread may look up.

    Only a remote backend raises FileMapUnavailable. Only a backend that may lose acknowledged rows raises RowsLost,
    from ``tend``, ``add`` and ``commit``.
    """

    def tend(self) -> None:
        """Does a backend's periodic work; the reader's thread calls it repeatedly."""

    def all_read(self) -> None:
        """Notes that the reader has added everything in the logs since the map was opened or raised RowsLost."""

    def positions(self) -> list[LogPosition]:
        """Returns where to resume each log: at the last commit when opened, then at the last ``add``."""

    def add(self, block: MappedBlock) -> None:
        """Adds a block. ``places`` sees it at once; the next ``commit`` makes it durable."""

    def commit(self) -> None:
        """Makes everything added durable: positions never before their entries.

        If it raises FileMapUnavailable, nothing was committed, and it may be called again.
        """

    def places(self, keys: Sequence[bytes], hashes: U64) -> MappedPlaces:
        """Returns the places where the keys may be, at most ``MapSettings.places_max`` per key, unordered."""

    def versions(self, hashes: U64, times: I64, without: Collection[int] = ()) -> MappedPlaces:
        """Returns, for each key, the places of the newest record not after its time, and of records of unknown time.

        All records with the same time are returned. If a key has only newer records, one of those is returned: a key
        without places has no record. The cost does not grow with a key's number of records. ``without``: numbers of
        logs to ignore. If a log was rewritten, its places may be stale, so PLACES_PER_KEY_MAX times are returned.
        """

    def logs(self) -> Sequence[MappedLog]:
        """Returns all logs; index = number."""

    def totals(self, *, exact: bool = False) -> MapTotals:
        """Returns the totals. ``exact``: counts all duplicates, not only those found by merges and order checks."""

    def interrupt(self) -> None:
        """From now on, calls that would wait for a remote backend raise FileMapUnavailable. Thread-safe."""

    def close(self) -> None: ...


class FileMapError(PhotonError):
    """The map cannot be used. One line: what, where, what to do."""


class FileMapBusy(FileMapError):
    """Another process has the map open."""


class FileMapUnavailable(FileMapError):
    """The map cannot be read or written now: try again."""


class RowsLost(FileMapError):
    """The backend lost committed entries.

    ``positions`` has moved back to places before which every record is in the map; the logs must be read again from
    there. Uncommitted additions are dropped.
    """


def pack(log: int, offsets: I64) -> U64:
    return offsets.astype(np.uint64) | np.uint64(log << OFFSET_BITS)


def unpack(locations: U64) -> tuple[I64, I64]:
    """Splits locations into (log numbers, offsets)."""
    return (locations >> _LOG_SHIFT).astype(np.int64), (locations & _OFFSET_MASK).astype(np.int64)


def first_places(
    rows: I64,
    logs: I64,
    offsets: I64,
    known: Sequence[MappedLog],
    log_name: Callable[[str], str],
    *,
    last: bool = False,
    most: int = PLACES_PER_KEY_MAX,
) -> tuple[I64, I64, I64]:
    """Returns at most ``most`` places for each row: the first ones in file order, or the last ones with ``last``.

    ``rows`` ascend; ``known``: all logs by number.
    """
    if len(rows) <= most:
        return rows, logs, offsets
    starts = np.searchsorted(rows, rows, side="left")
    if int((np.arange(len(rows)) - starts).max()) < most:
        return rows, logs, offsets
    ranked = sorted(known[:], key=lambda log: log.order(log_name))
    ranks = np.empty(len(ranked), dtype=np.int64)
    ranks[[log.number for log in ranked]] = np.arange(len(ranked))
    order = np.lexsort((offsets, ranks[logs], rows))
    at = np.arange(len(rows))
    rank = np.searchsorted(rows, rows, side="right") - 1 - at if last else at - starts
    order = order[rank < most]
    return rows[order], logs[order], offsets[order]


def predecessors(
    asked: Sequence[tuple[int, int]], entries: Sequence[tuple[int, int, int]], window: int
) -> list[tuple[int, int, int, int]]:
    """Finds for each requested (microseconds, row), ascending, the last entry not after it in each log.

    Entries (microseconds, log, offset) must ascend; entries older than ``window`` are ignored. Returns (row, log,
    offset, microseconds of the entry).
    """
    out = []
    latest: dict[int, tuple[int, int]] = {}  # log -> microseconds, offset
    at = 0
    for micros, row in asked:
        while at < len(entries) and entries[at][0] <= micros:
            entry_micros, log, offset = entries[at]
            latest[log] = (entry_micros, offset)
            at += 1
        for log, (entry_micros, offset) in latest.items():
            if micros - entry_micros <= window:
                out.append((row, log, offset, entry_micros))
    return out


def lock_map(directory: Path) -> int:
    """Takes ``map.lock``; closing the returned descriptor releases it. Raises FileMapBusy."""
    descriptor = lock_file(directory / "map.lock")
    if descriptor is None:
        raise FileMapBusy(f"{directory}: another event store has this map open; stop it first")
    return descriptor


_M = TypeVar("_M", bound=FileMap)


def opened_or_rebuilt(
    opened: Callable[[], _M], directory: Path, names: tuple[str, ...], disk: Disk
) -> tuple[_M, str]:
    """Opens the map; also returns why it had to be rebuilt (empty if not). Raises FileMapBusy, OSError.

    The map is derived from the logs, so a damaged one or one with other settings is deleted with its positions (files
    whose names begin with one of ``names``). The logs are then read again from the beginning; until that is done a
    miss is NOT_YET, never ABSENT.
    """
    try:
        return opened(), ""
    except FileMapBusy:
        raise
    except FileMapError as err:
        why = str(err)
    fd = lock_map(directory)
    try:
        for name in disk.names(directory):
            if name.startswith(names):
                disk.remove(directory / name)
        disk.sync_dir(directory)
    finally:
        os.close(fd)
    return opened(), why


@dataclass(frozen=True, slots=True)
class HBaseTable:
    thrift: str  # host:port of the Thrift server
    table: str
