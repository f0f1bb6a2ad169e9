"""Which logs a directory holds now, by identity: for those who read at places and follow nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from photon.adapters.contract import LINES, Framing
from photon.adapters.logs.discovery import compile_patterns, discover
from photon.adapters.logs.elsewhere import FoundFile, is_final
from photon.adapters.logs.framings import open_anywhere
from photon.adapters.logs.identity import HEAD_BYTES, Head, copies, head_by_path, numbered, read_head
from photon.adapters.logs.links import log_path
from photon.adapters.logs.problems import ProblemReporter

COMPRESSED = (".gz", ".zst")
HEADS_MAX = 1 << 16
"""Files whose heads are remembered."""


@dataclass(frozen=True, slots=True)
class LogFound:
    file: FoundFile
    head: Head


class LogFinder:
    """Finds again and again. A file whose size and time have not changed is not opened a second time."""

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

    def find(self) -> dict[str, LogFound]:
        """The file of each log by identity, as the follower chooses it: plain before compressed, then by
        name; but first one that has more.

        Logs that begin alike are numbered from the oldest on; a follower that met them one by one may have numbered
        them otherwise.

        Raises OSError when the directory cannot be listed; a file that cannot be read is left out.
        """
        silent = ProblemReporter(lambda problem: None)
        claims: dict[str, list[LogFound]] = {}
        heads: dict[tuple[str, tuple[int, int], int, int], Head | None] = {}
        found = discover(self._directory, self._patterns, silent, links=self._links)
        for each in sorted(found, key=lambda file: (file.path.endswith(COMPRESSED), file.path)):
            mark = (each.path, each.key, each.size, each.mtime_ns)
            head = self._heads[mark] if mark in self._heads else self._head(each.path)
            if len(heads) < HEADS_MAX:
                heads[mark] = head
            if head is not None:
                claims.setdefault(head.identity, []).append(LogFound(each, head))
        self._heads = heads
        logs: dict[str, LogFound] = {}
        for identity, files in claims.items():
            oldest_first = sorted(files, key=lambda log: (log.file.path.endswith(COMPRESSED), log.file.mtime_ns))
            for number, same in enumerate(copies(oldest_first, self._first_bytes)):
                known = {log.file.path: length for length, log in same}
                logs[numbered(identity, number)] = max(
                    (log for log in files if log.file.path in known), key=lambda log: known[log.file.path]
                )
        return logs

    def _first_bytes(self, log: LogFound) -> bytes:
        try:
            source = open_anywhere(log_path(self._directory, log.file.path, self._links), self._framing)
            try:
                return source.read(0, HEAD_BYTES)
            finally:
                source.close()
        except OSError:
            return b""

    def _head(self, path: str) -> Head | None:
        framing, by_path = self._framing, is_final(self._directory)
        if by_path and not self._has_header:
            return head_by_path(path)
        try:
            source = open_anywhere(log_path(self._directory, path, self._links), framing)
            try:
                data = source.read(0, HEAD_BYTES)
                return read_head(
                    path, data, has_header=self._has_header, final=True, framing=framing, by_path=by_path
                )
            finally:
                source.close()
        except OSError:
            return None


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
