"""Lists the current foreign logs of a datacentre, under the follower's identities.

A file is known by its first record. Logs with the same first record are numbered from the oldest, and deleting the
oldest would renumber the others. So each known log has a proof of the bytes before its position, which tells it from
the others and is checked before reading (``reading``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from photon.adapters.logs.elsewhere import elsewhere, is_final
from photon.adapters.logs.identity import (
    ALIKE_MARK,
    COMPRESSED_SUFFIXES,
    HEAD_BYTES,
    PROOF_BYTES,
    numbered,
    proof_of,
    read_head,
    record_of,
)
from photon.adapters.logs.log_finder import LogFinder, LogFound
from photon.adapters.logs.problems import Problem
from photon.adapters.logs.reader import Source
from photon.adapters.logs.slices import LogUnreadable, Reading, StandingLog, open_log
from photon.spark.pipeline.journal import LogAt


class Listing(NamedTuple):
    """All logs at one moment."""

    logs: Sequence[StandingLog]
    seen_ns: int  # includes all logs and bytes that existed at this time
    doubt: str = ""  # why there may be more; empty if there are none


NO_LISTING = Listing((), 0)


_Look = tuple[str, tuple[int, int], int, int, str, int]  # a file as last seen, and a log's position


def holds(source: Source, log: LogAt, directory: Path, path: str, reading: Reading) -> bool:
    """True if an open file is this log. Compares the bytes before the log's position, or at position 0 the first
    record.

    Raises OSError.
    """
    if is_final(directory):  # there, a path is always the same log
        return True
    if log.offset > log.data_start:
        return proof_at(source, log) == log.proof
    data = source.read(0, HEAD_BYTES)
    head = read_head(path, data, has_header=reading.has_header, framing=reading.framing, final=True)
    return head is not None and record_of(head.identity) == record_of(log.identity)


def proof_at(source: Source, log: LogAt) -> bytes:
    """Returns a proof of the bytes before the log's position. Raises OSError."""
    begin = max(log.data_start, log.offset - PROOF_BYTES)
    return proof_of(source.read(begin, log.offset - begin)) if log.offset > begin else b""


class LogLister:
    """Lists logs repeatedly. A file whose size and modification time are unchanged is not opened again."""

    def __init__(
        self, directory: Path, reading: Reading, tell: Callable[[Problem], None], now_ns: Callable[[], int]
    ) -> None:
        self._directory, self._reading, self._tell, self._now_ns = directory, reading, tell, now_ns
        self._there = elsewhere(directory)
        self._looked: dict[_Look, bool] = {}
        self._finder = LogFinder(
            directory,
            reading.patterns,
            has_header=reading.has_header,
            framing=reading.framing,
            links=reading.links,
        )

    def __call__(self, known: Mapping[str, LogAt]) -> Listing:
        """Returns all logs that have a record, by path. ``known``: logs that were read before. Raises OSError."""
        seen_ns = self._now_ns() if self._there is None else self._there.whole_ns()
        found = self._finder.find()
        for problem in self._finder.unread:
            self._tell(problem)
        of_record: dict[str, list[LogAt]] = {}
        for log in sorted(known.values(), key=lambda each: -each.offset):
            of_record.setdefault(record_of(log.identity), []).append(log)
        taken, looked, logs = set(known), dict[_Look, bool](), list[StandingLog]()
        for name, file in found.items():
            before = of_record.get(record_of(name), [])
            same = next((log for log in before if self._holds(file, log, looked)), None)
            if same is not None:
                before.remove(same)
                name = same.identity
            else:
                name = self._new(name, taken)
            logs.append(self._standing(file, name))
        self._looked = looked
        doubt = str(self._finder.unread[0]) if self._finder.unread else ""
        return Listing(sorted(logs, key=lambda log: log.path), seen_ns, doubt)

    def _new(self, name: str, taken: set[str]) -> str:
        """Returns an identity that no log has had."""
        first, number = name.partition(ALIKE_MARK)[0], 0
        while (new := numbered(first, number)) in taken:
            number += 1
        taken.add(new)
        return new

    def _holds(self, found: LogFound, log: LogAt, looked: dict[_Look, bool]) -> bool:
        file = found.file
        mark = (file.path, file.key, file.size, file.mtime_ns, log.identity, log.offset)
        if (known := self._looked.get(mark)) is None:
            try:
                with closing(open_log(self._directory, file.path, self._reading)) as source:
                    known = holds(source, log, self._directory, file.path, self._reading)
            except (LogUnreadable, OSError):
                known = False
        looked[mark] = known
        return known

    def _standing(self, found: LogFound, identity: str) -> StandingLog:
        file, head = found.file, found.head
        plain = self._reading.framing.splittable and not file.path.endswith(COMPRESSED_SUFFIXES)
        return StandingLog(file.path, identity, head.header, head.data_start, file.size, file.mtime_ns, plain)
