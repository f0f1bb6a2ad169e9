"""Finds the records that a line names in the raw logs of both sides, or the reason why they are missing.

A line names its source by file name and offset. If no log of that name has the record, either the line is wrong or
its log was deleted, as all logs are eventually. ``LogMemory``, which watches the logs, tells which.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

import msgspec

from photon.adapters.contract import Adapter, BadRecord, ForeignHeader, Framing, LogFile
from photon.adapters.logs.framings import open_anywhere
from photon.adapters.logs.identity import COMPRESSED_SUFFIXES, log_name
from photon.adapters.logs.links import log_path
from photon.adapters.logs.log_finder import LogFinder, LogFound
from photon.adapters.logs.reader import Source
from photon.config.disk import Disk
from photon.config.versioned_file import read_versioned
from photon.eventstore.file_map import MappedLog
from photon.eventstore.logs_store import LogsEventStore
from photon.eventstore.places_to_read import PlaceToRead
from photon.verifier.comparison import SourceRecord, are_foreign, are_primary
from photon.verifier.published_lines import PublishedLine, RecordPlace
from photon.verifier.verifier import VerifierDamaged

CANDIDATES_MAX = 256  # logs of one name tried for a record
CHUNK_BYTES = 1 << 18  # read at a time for ids by place
PAGES_BYTES = 32 << 20  # inflated pages of compressed logs that stay in memory

ANY_KEY = b"any"  # an empty one would mean that the record has no key
LOG_NAMES_MAX = 65_536  # file names whose log name is remembered

name_of = lru_cache(maxsize=LOG_NAMES_MAX)(log_name)

# (indexes of places, the records there in one log) -> for each whether it is the right record.
Fits = Callable[[Sequence[int], Sequence[SourceRecord]], Sequence[bool]]


@dataclass(frozen=True, slots=True)
class SourceSide:
    directory: Path
    patterns: Sequence[str]
    framing: Framing
    has_header: bool
    record_max: int
    links: Sequence[str] = ()


class _WhatStandsThere(Adapter):
    """Lets LogsEventStore read any place: every record has the requested key."""

    def __init__(self, side: SourceSide) -> None:
        super().__init__({})
        self.primary_framing, self.primary_links = side.framing, side.links

    def primary_key(self, record: bytes, file: LogFile) -> bytes:
        return ANY_KEY

    def primary_payload(self, record: bytes, file: LogFile) -> bytes | None:
        return None

    def foreign_header(self, record: bytes, file: LogFile) -> ForeignHeader:
        raise BadRecord("only places are read here")

    def foreign_payload(self, record: bytes, file: LogFile) -> bytes | None:
        return None


class SourceLogs:
    """The logs of one side. Not thread-safe. Methods may block on a slow disk."""

    def __init__(self, side: SourceSide) -> None:
        self._side = side
        self._finder = LogFinder(
            side.directory, side.patterns, has_header=side.has_header, framing=side.framing, links=side.links
        )
        self._logs: dict[str, LogFound] = {}
        self._named: dict[str, list[str]] = {}
        self._newest: list[str] = []
        self._open: tuple[str, Source] | None = None  # the file that was read last
        self._chunk = (0, b"")  # (offset, bytes) of it
        self._store: LogsEventStore | None = None
        self._by_path: dict[str, str] = {}
        self._numbers: dict[str, int] = {}
        self._looked = False

    def close(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None
        self._close_last()

    def names(self) -> dict[str, list[str]]:
        """Returns log name -> identities of existing logs, as of the last ``look``."""
        return self._named

    def look(self) -> None:
        """Lists the logs again. Open ones stay open. Raises OSError if the directory cannot be listed."""
        self._logs = self._finder.find()
        self._looked = True
        self._numbers = {identity: number for number, identity in enumerate(self._logs)}
        named: dict[str, list[str]] = {}
        newest_first = sorted(self._logs.items(), key=lambda item: -item[1].file.mtime_ns)
        for identity, found in newest_first:
            named.setdefault(name_of(found.file.path), []).append(identity)
        self._named = named
        self._newest = [identity for identity, _ in newest_first[:CANDIDATES_MAX]]
        self._by_path = {_plain(found.file.path): identity for identity, found in self._logs.items()}

    def _opened(self) -> LogsEventStore:
        if self._store is None:
            self._store = LogsEventStore(
                self._side.directory,
                _WhatStandsThere(self._side),
                self._path,
                record_bytes_max=self._side.record_max,
                pages_bytes_max=PAGES_BYTES,
            )
        return self._store

    def _path(self, identity: str) -> str | None:
        found = self._logs.get(identity)
        return None if found is None else found.file.path

    def _bytes(self, path: str, offset: int, length: int) -> bytes:
        """Reads bytes of a log, for ids by place. Calls are roughly in the order of the log. Raises OSError."""
        begin, data = self._chunk
        if self._open is None or self._open[0] != path:
            self._close_last()
            side = self._side
            place = log_path(side.directory, path, side.links)
            self._open = path, open_anywhere(place, side.framing, side.record_max)
        elif begin <= offset and offset + length <= begin + len(data):
            return data[offset - begin : offset - begin + length]
        self._chunk = offset, self._open[1].read(offset, max(length, CHUNK_BYTES))
        return self._chunk[1][:length]

    def _close_last(self) -> None:
        if self._open is not None:
            self._open[1].close()
        self._open, self._chunk = None, (0, b"")

    def find(self, places: Sequence[RecordPlace], fits: Fits) -> list[SourceRecord | None]:
        """Returns the record at each of ``places``; ``None`` if no log of its name has a record there that ``fits``.

        Raises OSError if the log directory cannot be listed.
        """
        if not self._looked:
            self.look()
        out: list[SourceRecord | None] = [None] * len(places)
        left = self._try(places, list(range(len(places))), fits, out)
        if left:  # renamed, rewritten or new since: an open file may be another log by now
            self.close()
            self.look()
            self._try(places, left, fits, out)
        return out

    def _try(
        self, places: Sequence[RecordPlace], rows: list[int], fits: Fits, out: list[SourceRecord | None]
    ) -> list[int]:
        """Tries the candidate logs of each row, one after another. Returns the rows without a match."""
        hopeless: list[int] = []
        by_name: dict[str, list[int]] = {}
        for row in rows:
            by_name.setdefault(places[row].file, []).append(row)
        for name, left in by_name.items():
            tried = set[str]()
            while left:
                if (candidate := self._candidate(name, tried)) is None:
                    hopeless += left
                    break
                tried.add(candidate)
                self._read(candidate, name, places, left, fits, out)
                missed = [row for row in left if out[row] is None]
                if len(missed) < len(left):
                    self._prefer(candidate)
                left = missed
        return hopeless

    def _candidate(self, name: str, tried: set[str]) -> str | None:
        """Returns the next log to try: first the log that the line names, as most logs keep their names; then others
        of that log name; then all others, as a log may have been moved.
        """
        if len(tried) >= CANDIDATES_MAX:
            return None
        same = self._by_path.get(_plain(name))
        if same is not None and same not in tried:
            return same
        named = self._named.get(name_of(name), ())
        return next((identity for identity in (*named, *self._newest) if identity not in tried), None)

    def _prefer(self, identity: str) -> None:
        named = self._named[name_of(self._logs[identity].file.path)]
        if named[0] != identity:
            named.remove(identity)
            named.insert(0, identity)

    def _read(
        self,
        identity: str,
        name: str,
        places: Sequence[RecordPlace],
        rows: list[int],
        fits: Fits,
        out: list[SourceRecord | None],
    ) -> None:
        found = self._logs[identity]
        file = LogFile(found.file.path, found.head.header)
        log = MappedLog(self._numbers[identity], identity, file, max(places[row].offset for row in rows))
        read, _ = self._opened().read([PlaceToRead(ANY_KEY, log, places[row].offset, 0, 0) for row in rows]).told()
        records, own = read.records, partial(self._bytes, found.file.path)
        named = [LogFile(name, file.header) for file in records.files]  # its header may change within a log
        each = zip(read.rows.tolist(), records.records, records.file_index.tolist(), strict=True)
        held = [(rows[at], record, named[of]) for at, record, of in each if record]
        there = [row for row, _, _ in held]
        sources = [SourceRecord(record, file, places[row].offset, own) for row, record, file in held]
        for row, source, right in zip(there, sources, fits(there, sources), strict=True):
            if right:
                out[row] = source


def _plain(path: str) -> str:
    return path.removesuffix(next(filter(path.endswith, COMPRESSED_SUFFIXES), ""))


NAMES_MAX = 65_536  # remembered log names, and logs of one name
UNWATCHED_NS = 600 * 10**9  # a log that comes and goes while the verifier is absent for this time is not considered
NAME = "logs.json"
# The longest time between reading a primary record and making its line: it may have waited in the cache.
PRIMARY_BEFORE_NS = 86_400 * 10**9

SAVE_NS = 60 * 10**9  # interval of saving an unchanged state: its time shows how long nobody watched


class LogMemory(msgspec.Struct, forbid_unknown_fields=True):
    """What is known of one side's logs over time; ``logs.json`` has one for each side."""

    since_ns: int = 0  # the start of watching
    looked_ns: int = 0  # the last look
    present: dict[str, list[str]] = {}  # log name -> identities
    gone_ns: dict[str, int] = {}  # log name -> when a log of this name was last missed

    def looked(self, named: Mapping[str, Sequence[str]], now_ns: int) -> bool:
        """Notes the logs that exist now. Returns True if the memory has changed, and must be saved."""
        changed = False
        if not self.since_ns or now_ns - self.looked_ns > UNWATCHED_NS:
            self.since_ns, changed = now_ns, True
        for name, identities in self.present.items():
            if not set(identities) <= set(named.get(name, ())):
                self.gone_ns[name] = now_ns
        present = {name: sorted(each)[:NAMES_MAX] for name, each in sorted(named.items())[:NAMES_MAX]}
        changed = changed or present != self.present
        self.present, self.looked_ns = present, now_ns
        while len(self.gone_ns) > NAMES_MAX:
            oldest = min(self.gone_ns, key=lambda name: self.gone_ns[name])
            del self.gone_ns[oldest]
        return changed

    def may_be_gone(self, name: str, written_ns: int | None, before_ns: int | None) -> bool:
        """True if the log that a line was made from may have been deleted.

        ``name``: the log's name. ``written_ns``: when the line was made, if it says so. ``before_ns``: how much
        earlier its record was read at most; ``None`` means unknown.
        """
        if name not in self.present:
            return True
        gone = self.gone_ns.get(name)
        if written_ns is None:
            return gone is not None
        if written_ns < self.since_ns:
            return True
        return gone is not None and (before_ns is None or gone > written_ns - before_ns)


class _LogsFile(msgspec.Struct, forbid_unknown_fields=True, tag_field="version", tag=1):
    foreign: LogMemory
    primary: LogMemory


@dataclass(frozen=True, slots=True)
class SourceGone:
    """No log has the record, and the log that had it may have been deleted. ``file``: as named by the line."""

    file: str


@dataclass(frozen=True, slots=True)
class SourceMissing:
    """No log has the record, and no log of its name has been deleted."""

    place: RecordPlace
    side: str


FoundSource = SourceRecord | SourceGone | SourceMissing


class SourceFinder:
    """Finds the source records of one pipeline's lines. Not thread-safe. Its methods block."""

    def __init__(
        self,
        disk: Disk,
        directory: Path,
        adapter: Adapter,
        foreign: SourceSide,
        primary: SourceSide,
        *,
        patience_ns: int | None,
    ) -> None:
        """``directory`` must exist; ``logs.json`` is in it. ``patience_ns``: the longest time between an event's
        first read and its line; ``None`` means any.

        Raises VerifierDamaged.
        """
        self._disk = disk
        self._path = directory / NAME
        self.adapter = adapter
        self._logs = (SourceLogs(foreign), SourceLogs(primary))
        self._before_ns = (patience_ns, PRIMARY_BEFORE_NS)
        self._saved_ns = 0
        self._memory = self._load()

    def close(self) -> None:
        for each in self._logs:
            each.close()

    def look(self, now_ns: int) -> None:
        """Notes which logs exist. Call it regularly, even if nothing is checked. Raises OSError."""
        for logs in self._logs:
            logs.look()
        self._remember(now_ns)

    def find(self, lines: Sequence[PublishedLine], now_ns: int) -> list[tuple[FoundSource, FoundSource | None]]:
        """Finds each line's (foreign, primary) records; primary is ``None`` if it names none. Raises OSError."""
        adapter = self.adapter
        foreign = self._logs[0].find(
            [line.source for line in lines],
            lambda rows, found: are_foreign(adapter, found, [lines[row] for row in rows]),
        )
        with_primary = [(row, line.primary) for row, line in enumerate(lines) if line.primary is not None]
        primary = self._logs[1].find(
            [place for _, place in with_primary],
            lambda some, found: are_primary(adapter, found, [lines[with_primary[at][0]] for at in some]),
        )
        if None in foreign or None in primary:
            self._remember(now_ns)
        primaries: list[FoundSource | None] = [None] * len(lines)
        for (row, place), found in zip(with_primary, primary, strict=True):
            primaries[row] = found or self._why(1, lines[row], place)
        return [
            (found or self._why(0, line, line.source), primaries[row])
            for row, (line, found) in enumerate(zip(lines, foreign, strict=True))
        ]

    def _why(self, side: int, line: PublishedLine, place: RecordPlace) -> SourceGone | SourceMissing:
        memory = (self._memory.foreign, self._memory.primary)[side]
        if memory.may_be_gone(log_name(place.file), line.written_ns, self._before_ns[side]):
            return SourceGone(place.file)
        return SourceMissing(place, ("foreign", "primary")[side])

    def _remember(self, now_ns: int) -> None:
        memories = (self._memory.foreign, self._memory.primary)
        changed = [memory.looked(logs.names(), now_ns) for memory, logs in zip(memories, self._logs, strict=True)]
        if any(changed) or now_ns - self._saved_ns > SAVE_NS:
            self._disk.replace(self._path, msgspec.json.encode(self._memory))
            self._saved_ns = now_ns

    def _load(self) -> _LogsFile:
        known = read_versioned(self._disk, self._path, _LogsFile, VerifierDamaged)
        return known or _LogsFile(LogMemory(), LogMemory())
