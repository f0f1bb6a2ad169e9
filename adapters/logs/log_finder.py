"""Finds a directory's current logs by identity, for callers that read at known offsets and do not follow logs."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from photon.adapters.contract import LINES, Framing
from photon.adapters.logs.discovery import compile_patterns, discover
from photon.adapters.logs.elsewhere import FoundFile, is_final
from photon.adapters.logs.files import ends_in_middle
from photon.adapters.logs.framings import open_anywhere
from photon.adapters.logs.identity import (
    COMPRESSED_SUFFIXES,
    HEAD_BYTES,
    Head,
    are_copies,
    copies,
    head_by_path,
    preference,
    read_head,
    record_of,
    takes,
)
from photon.adapters.logs.links import log_path
from photon.adapters.logs.problems import Problem, ProblemKind, ProblemReporter
from photon.adapters.logs.reader import Source

HEADS_MAX = 1 << 16  # files whose heads are remembered


@dataclass(frozen=True, slots=True)
class LogFound:
    file: FoundFile
    head: Head


Opened = Callable[[str], Source]  # opens a file by its path in the log directory; raises OSError


def logs_of(
    files: Sequence[LogFound], opened: Opened, same: Callable[[LogFound, LogFound], bool]
) -> dict[str, list[LogFound]]:
    """Returns the logs in these files by identity, each with the file to read (``preference``) and then its copies.

    ``same`` tells if one of two files is a copy of the other.
    """
    oldest_first = sorted(files, key=lambda log: (log.file.path.endswith(COMPRESSED_SUFFIXES), log.file.mtime_ns))
    logs = copies(oldest_first, lambda log: log.head, same)
    return {identity: found if len(found) == 1 else _by_preference(found, opened) for identity, found in logs.items()}


def _by_preference(files: Sequence[LogFound], opened: Opened) -> list[LogFound]:
    lengths = {log.file.path: len(_first_bytes(log, opened)) for log in files}
    return sorted(files, key=lambda log: preference(log.file.path, lengths[log.file.path], log.file.size))


def _first_bytes(log: LogFound, opened: Opened) -> bytes:
    try:
        with closing(opened(log.file.path)) as source:
            return source.read(0, HEAD_BYTES)
    except OSError:
        return b""


def hold_the_same(one: LogFound, other: LogFound, opened: Opened) -> bool | None:
    """True if one is a complete or partial copy of the other; ``None`` if one of them cannot be read."""
    taken = takes((one.file.path, one.file.size), (other.file.path, other.file.size))
    try:
        with closing(opened(one.file.path)) as source, closing(opened(other.file.path)) as other_source:
            return are_copies(source.read, other_source.read, taken)
    except OSError:
        return None


class LogFinder:
    """Finds logs repeatedly. A file whose size and time have not changed is not opened again."""

    def __init__(
        self,
        directory: Path,
        patterns: Sequence[str],
        *,
        has_header: bool,
        framing: Framing = LINES,
        links: Sequence[str] = (),
    ) -> None:
        self._directory = directory
        self._links = links
        self._patterns = compile_patterns(patterns)
        self._has_header = has_header
        self._framing = framing
        self._heads: dict[tuple[str, tuple[int, int], int, int], Head | None] = {}
        self._copies: dict[tuple[object, ...], bool] = {}
        self.unread: list[Problem] = []  # files and directories that the last ``find`` could not read

    def find(self) -> dict[str, LogFound]:
        """Returns the file of each log by identity, as the follower chooses it (``identity.preference``).

        Logs that begin alike are numbered from the oldest; a follower that met them one by one may have numbered them
        differently.

        Raises OSError if the directory cannot be listed; files that cannot be read are listed in ``unread``.
        """
        problems = ProblemReporter(None)
        logs: list[LogFound] = []
        heads: dict[tuple[str, tuple[int, int], int, int], Head | None] = {}
        found = discover(self._directory, self._patterns, problems, links=self._links)
        for each in found:
            mark = (each.path, each.key, each.size, each.mtime_ns)
            try:
                head = self._heads[mark] if mark in self._heads else self._head(each.path)
            except FileNotFoundError:
                continue
            except OSError as err:  # not remembered: chmod leaves size and time unchanged
                problems.tell(ProblemKind.UNREADABLE, each.path, f"cannot be read ({err.strerror})")
                continue
            if len(heads) < HEADS_MAX:
                heads[mark] = head
            if head is not None:
                logs.append(LogFound(each, head))
        self._heads = heads
        self.unread = problems.unsolved((ProblemKind.UNREADABLE,))
        return {identity: files[0] for identity, files in logs_of(logs, self._opened, self._are_copies).items()}

    def _are_copies(self, one: LogFound, other: LogFound) -> bool:
        """True if one is a copy of the other. Remembers the result until the smaller of the two changes."""
        smaller = min(one.file, other.file, key=lambda file: file.size)
        pair = (one.file.path, one.file.key, other.file.path, other.file.key, smaller.size, smaller.mtime_ns)
        if (known := self._copies.get(pair)) is not None:
            return known
        same = hold_the_same(one, other, self._opened)
        if same is None:
            return False
        if len(self._copies) >= HEADS_MAX:
            self._copies.clear()
        self._copies[pair] = same
        return same

    def _opened(self, path: str) -> Source:
        return open_anywhere(log_path(self._directory, path, self._links), self._framing)

    def _head(self, path: str) -> Head | None:
        """Reads a file's head; ``None`` if it has no record yet. Raises OSError, also for damage before the first."""
        framing, by_path = self._framing, is_final(self._directory)
        if by_path and not (self._has_header or framing.first_line):
            return head_by_path(path)
        source = self._opened(path)
        try:
            data = source.read(0, HEAD_BYTES)
            head = read_head(path, data, has_header=self._has_header, final=True, framing=framing, by_path=by_path)
            if head is None and (source.damage() or source.cut_short()):
                raise OSError(errno.EIO, source.damage() or ends_in_middle(path))
            return head
        finally:
            source.close()


def find_logs(
    directory: Path,
    patterns: Sequence[str],
    *,
    has_header: bool,
    framing: Framing = LINES,
    links: Sequence[str] = (),
) -> dict[str, LogFound]:
    """Finds logs once; see LogFinder.find."""
    return LogFinder(directory, patterns, has_header=has_header, framing=framing, links=links).find()


def holding(logs: Mapping[str, LogFound], identity: str) -> list[LogFound]:
    """Returns the files that may hold this log: first its own, then those of logs with the same first record."""
    same = logs.get(identity)
    relatives = [log for each, log in logs.items() if each != identity and record_of(each) == record_of(identity)]
    return relatives if same is None else [same, *relatives]
