"""The open files of a directory, limited in number: the least recently read file is closed first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path

from photon.adapters.contract import LINES, Framing
from photon.adapters.logs.framings import as_lines
from photon.adapters.logs.links import LinkOutside, log_path
from photon.adapters.logs.problems import ProblemKind, ProblemReporter
from photon.adapters.logs.reader import Source, open_source
from photon.adapters.logs.tracked_logs import TrackedFile, TrackedLog

OPEN_FILES_MAX = 256
IDLE_NS = 600 * 10**9  # age, relative to the newest, at which a file read to its end counts as rolled and is closed


class OpenFiles:
    """Open sources, by the identity of the log that is read from each."""

    def __init__(
        self, directory: Path, problems: ProblemReporter, framing: Framing = LINES, links: Sequence[str] = ()
    ) -> None:
        self._directory = directory
        self._framing = framing
        self._links = links
        self._problems = problems
        self._sources: OrderedDict[str, Source] = OrderedDict()
        # Paths that held another file or log, or none, when they were opened after the scan.
        self.missed: set[str] = set()
        self._missed_before: set[str] = set()

    def scanned(self) -> None:
        """Begins a scan: missed paths are tried once more."""
        self._missed_before, self.missed = self.missed, set()

    def look_elsewhere(self, path: str) -> bool:
        """Notes that ``path`` holds another log than expected. True if a scan must first find the expected log."""
        if path in self._missed_before:
            return False
        self.missed.add(path)
        return True

    def get(self, identity: str) -> Source | None:
        """Returns a log's open source; ``None`` if it is not open."""
        source = self._sources.get(identity)
        if source is not None:
            self._sources.move_to_end(identity)
        return source

    def keep(self, identity: str, file: TrackedFile) -> Source | None:
        """Opens a log's file and keeps it open; ``None`` if it cannot be opened now."""
        source = self.open(file)
        if source is None:
            return None
        self._problems.solved(ProblemKind.UNREADABLE, file.path)
        self._sources[identity] = source
        while len(self._sources) > OPEN_FILES_MAX:
            self._sources.popitem(last=False)[1].close()
        return source

    def open(self, file: TrackedFile) -> Source | None:
        """Opens a file that the caller closes.

        ``None`` if it cannot be opened now. It may have been renamed, deleted or replaced; the next scan will show.
        """
        why = "is a different file each time it is opened"
        try:
            source = as_lines(open_source(log_path(self._directory, file.path, self._links)), self._framing)
            if source.key == file.key:
                return source
            source.close()
            missed = True
        except LinkOutside as err:
            missed, why = True, str(err)
        except OSError as err:
            missed, why = isinstance(err, FileNotFoundError), f"cannot be opened ({err.strerror})"
        if missed and file.path not in self._missed_before:
            self.missed.add(file.path)
        else:
            self._problems.tell(ProblemKind.UNREADABLE, file.path, why)
        return None

    def close(self, identity: str) -> None:
        source = self._sources.pop(identity, None)
        if source is not None:
            source.close()

    def close_idle(self, logs: Mapping[str, TrackedLog]) -> None:
        """Closes files that have been read to their ends and have not been written to for a long time.

        Idle time counts up to the last write of the newest open file, so in a directory without activity files stay
        open. So does an unlinked file, until it is abandoned: it could not be opened again.
        """
        known = [log for identity in self._sources if (log := logs.get(identity)) is not None]
        newest = max((log.file.mtime_ns for log in known if log.file is not None), default=0)
        for log in known:
            file = log.file
            if file is not None and not file.gone and log.is_done() and file.mtime_ns < newest - IDLE_NS:
                self.close(log.identity)

    def close_all(self) -> None:
        for source in self._sources.values():
            source.close()
        self._sources.clear()
