"""Raw records at the places that published lines name, though their logs have been rotated or compressed since.

A line names the file as it was called when it was read. What is called so today may be a younger log, so all logs of
that name are candidates (the name without its rotation suffix), and the caller says which record is the right one.
Reading itself is the event store's (``LogsEventStore``): open files, compressed ones, headers, quoted records.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from photon.adapters.contract import Adapter, BadRecord, ForeignHeader, Framing, LogFile
from photon.adapters.logs.identity import log_name
from photon.adapters.logs.log_finder import LogFinder, LogFound
from photon.eventstore.file_map import MappedLog
from photon.eventstore.logs_store import LogsEventStore
from photon.eventstore.places_to_read import PlaceToRead
from photon.verifier.comparison import SourceRecord
from photon.verifier.published_lines import RecordPlace

CANDIDATES_MAX = 256
"""Logs of one name that are tried for a record."""
PAGES_BYTES = 32 << 20
"""Inflated pages of compressed logs that stay in memory."""

NAMES_MAX = 65_536
"""File names whose log name is remembered."""

name_of = lru_cache(maxsize=NAMES_MAX)(log_name)

Fits = Callable[[int, SourceRecord], bool]
"""(index of the place, what stands there in some log) -> whether this is the record that is meant."""


@dataclass(frozen=True, slots=True)
class SourceSide:
    directory: Path
    patterns: Sequence[str]
    framing: Framing
    has_header: bool
    record_max: int


class _WhatStandsThere(Adapter):
    """Lets LogsEventStore read any place: every record has the key that is asked for."""

    def __init__(self, framing: Framing) -> None:
        super().__init__({})
        self.primary_framing = framing

    def primary_key(self, record: bytes, file: LogFile) -> bytes:
        return b""

    def primary_payload(self, record: bytes, file: LogFile) -> bytes | None:
        return None

    def foreign_header(self, record: bytes, file: LogFile) -> ForeignHeader:
        raise BadRecord("only places are read here")

    def foreign_payload(self, record: bytes, file: LogFile) -> bytes | None:
        return None


class SourceLogs:
    """Of one side. Not thread-safe; may block for as long as a disk takes."""

    def __init__(self, side: SourceSide) -> None:
        self._side = side
        self._finder = LogFinder(side.directory, side.patterns, has_header=side.has_header, framing=side.framing)
        self._logs: dict[str, LogFound] = {}
        self._named: dict[str, list[str]] = {}
        self._store: LogsEventStore | None = None
        self._by_path: dict[str, str] = {}
        self._numbers: dict[str, int] = {}
        self._looked = False

    def close(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None

    def names(self) -> dict[str, list[str]]:
        """Log name -> identities of the logs that are there, by the last look."""
        return self._named

    def look(self) -> None:
        """Finds the logs again; what is open stays open. Raises OSError when the directory cannot be listed."""
        self._logs = self._finder.find()
        self._looked = True
        self._numbers = {identity: number for number, identity in enumerate(self._logs)}
        named: dict[str, list[str]] = {}
        newest_first = sorted(self._logs.items(), key=lambda item: -item[1].file.mtime_ns)
        for identity, found in newest_first:
            named.setdefault(name_of(found.file.path), []).append(identity)
        self._named = named
        self._by_path = {_plain(found.file.path): identity for identity, found in self._logs.items()}

    def _opened(self) -> LogsEventStore:
        if self._store is None:
            self._store = LogsEventStore(
                self._side.directory,
                _WhatStandsThere(self._side.framing),
                self._path,
                record_bytes_max=self._side.record_max,
                pages_bytes_max=PAGES_BYTES,
            )
        return self._store

    def _path(self, identity: str) -> str | None:
        found = self._logs.get(identity)
        return None if found is None else found.file.path

    def find(self, places: Sequence[RecordPlace], fits: Fits) -> list[SourceRecord | None]:
        """Aligned with ``places``; None: no log of that name has a record there that fits.

        Raises OSError, when the log directory cannot be listed.
        """
        if not self._looked:
            self.look()
        out: list[SourceRecord | None] = [None] * len(places)
        left = self._try(places, list(range(len(places))), fits, out)
        if left:  # renamed, rewritten or new since: what is open may be another log by now
            self.close()
            self.look()
            self._try(places, left, fits, out)
        return out

    def _try(
        self, places: Sequence[RecordPlace], rows: list[int], fits: Fits, out: list[SourceRecord | None]
    ) -> list[int]:
        """Reads each row in one candidate after the other. The rows that fit nowhere."""
        hopeless: list[int] = []
        tried: dict[int, set[str]] = {row: set() for row in rows}
        while rows:
            by_log: dict[str, list[int]] = {}
            for row in rows:
                candidate = self._candidate(places[row], tried[row])
                if candidate is None:
                    hopeless.append(row)
                else:
                    tried[row].add(candidate)
                    by_log.setdefault(candidate, []).append(row)
            rows = []
            for identity, group in by_log.items():
                self._read(identity, places, group, fits, out)
                left = [row for row in group if out[row] is None]
                if len(left) < len(group):
                    self._prefer(identity)
                rows += left
        return hopeless

    def _candidate(self, place: RecordPlace, tried: set[str]) -> str | None:
        """First what has the name that the line gives, as most logs keep theirs; then all of that log name."""
        if len(tried) >= CANDIDATES_MAX:
            return None
        same = self._by_path.get(_plain(place.file))
        if same is not None and same not in tried:
            return same
        named = self._named.get(name_of(place.file), ())
        return next((identity for identity in named if identity not in tried), None)

    def _prefer(self, identity: str) -> None:
        """What is looked for next probably stands there too."""
        named = self._named[name_of(self._logs[identity].file.path)]
        if named[0] != identity:
            named.remove(identity)
            named.insert(0, identity)

    def _read(
        self,
        identity: str,
        places: Sequence[RecordPlace],
        rows: list[int],
        fits: Fits,
        out: list[SourceRecord | None],
    ) -> None:
        found = self._logs[identity]
        file = LogFile(found.file.path, found.head.header)
        log = MappedLog(self._numbers[identity], identity, file, max(places[row].offset for row in rows))
        read, _ = self._opened().read([PlaceToRead(b"", log, places[row].offset, 0, 0) for row in rows]).told()
        for at, (record, file, _) in zip(read.rows.tolist(), read.records.rows(), strict=True):
            row = rows[at]
            source = SourceRecord(record, LogFile(places[row].file, file.header), places[row].offset, identity)
            if record and fits(row, source):
                out[row] = source


def _plain(path: str) -> str:
    """The path without the suffix that compressing adds."""
    return path.removesuffix(".gz").removesuffix(".zst")
