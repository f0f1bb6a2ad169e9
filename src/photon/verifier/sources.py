"""The raw logs of both sides: a line's records, or why there are none; and the memory of logs that have gone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from photon.adapters.contract import Adapter
from photon.adapters.logs.identity import log_name
from photon.config.disk import Disk
from photon.verifier.comparison import SourceRecord, is_foreign, is_primary
from photon.verifier.log_memory import VERSION, LogMemory
from photon.verifier.published_lines import Place, PublishedLine
from photon.verifier.source_logs import Side, SourceLogs
from photon.verifier.verifier import read_versioned

NAME = "logs.json"
PRIMARY_BEFORE_NS = 86_400 * 10**9
"""A primary record is read at most so long before its line is made: it may have waited in the cache."""

SAVE_NS = 60 * 10**9
"""That nothing has changed is noted so often: it shows how long nobody watched."""


class _File(msgspec.Struct, forbid_unknown_fields=True):
    """``logs.json``."""

    version: int
    foreign: LogMemory
    primary: LogMemory


@dataclass(frozen=True, slots=True)
class Gone:
    """No log holds the record, and the one that did may have been deleted. ``file``: as the line calls it."""

    file: str


@dataclass(frozen=True, slots=True)
class Missing:
    """No log holds the record, and none of that name has been deleted."""

    place: Place
    side: str


Looked = SourceRecord | Gone | Missing


class Sources:
    """Of one pipeline. For one thread at a time; blocks."""

    def __init__(
        self,
        disk: Disk,
        directory: Path,
        adapter: Adapter,
        foreign: Side,
        primary: Side,
        *,
        patience_ns: int | None,
    ) -> None:
        """``directory`` is there already; ``logs.json`` lies in it. ``patience_ns``: how long after its first read
        an event's line is made at most; None: any time.

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
        """Sees which logs are there. To be called every now and then, whether anything is checked or not.

        Raises OSError.
        """
        for logs in self._logs:
            logs.look()
        self._remember(now_ns)

    def find(self, lines: Sequence[PublishedLine], now_ns: int) -> list[tuple[Looked, Looked | None]]:
        """(foreign, primary) for each line; the latter None where the line names none. Raises OSError."""
        adapter = self.adapter
        foreign = self._logs[0].find(
            [line.source for line in lines], lambda row, found: is_foreign(adapter, found, lines[row])
        )
        with_primary = [(row, line.primary) for row, line in enumerate(lines) if line.primary is not None]
        primary = self._logs[1].find(
            [place for _, place in with_primary],
            lambda at, found: is_primary(adapter, found, lines[with_primary[at][0]]),
        )
        if None in foreign or None in primary:
            self._remember(now_ns)
        primaries: list[Looked | None] = [None] * len(lines)
        for (row, place), found in zip(with_primary, primary, strict=True):
            primaries[row] = found or self._why(1, lines[row], place)
        return [
            (found or self._why(0, line, line.source), primaries[row])
            for row, (line, found) in enumerate(zip(lines, foreign, strict=True))
        ]

    def _why(self, side: int, line: PublishedLine, place: Place) -> Gone | Missing:
        memory = (self._memory.foreign, self._memory.primary)[side]
        if memory.may_be_gone(log_name(place.file), line.written_ns, self._before_ns[side]):
            return Gone(place.file)
        return Missing(place, ("foreign", "primary")[side])

    def _remember(self, now_ns: int) -> None:
        memories = (self._memory.foreign, self._memory.primary)
        changed = [memory.looked(logs.names(), now_ns) for memory, logs in zip(memories, self._logs, strict=True)]
        if any(changed) or now_ns - self._saved_ns > SAVE_NS:
            self._disk.replace(self._path, msgspec.json.encode(self._memory))
            self._saved_ns = now_ns

    def _load(self) -> _File:
        known = read_versioned(self._disk, self._path, _File, VERSION)
        return known or _File(VERSION, LogMemory(), LogMemory())
