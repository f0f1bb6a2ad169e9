"""The table of logs: how far each has been read, and the file it is read from now.

Only logs that changed are examined: a change of one file costs nothing for thousands of others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from photon.adapters.logs.api import LogPosition
from photon.adapters.logs.files import Files, ends_in_middle
from photon.adapters.logs.identity import Head, head_by_path, log_name, proof_of_whole, record_of
from photon.adapters.logs.open_files import OpenFiles
from photon.adapters.logs.problems import ProblemKind, ProblemReporter
from photon.adapters.logs.tracked_logs import FINISHED, TrackedFile, TrackedLog

# Scans after which two files of one identity, or a compressed file cut short, are reported: a copy or a compression
# may be in progress.
GRACE_SCANS = 3


class Logs:
    """All known logs by identity."""

    def __init__(
        self,
        positions: Iterable[LogPosition],
        touched: set[str],
        sources: OpenFiles,
        problems: ProblemReporter,
    ) -> None:
        """``touched``: identities that the next ``match`` examines; ``Files`` adds to it too."""
        self._sources = sources
        self._problems = problems
        self._touched = touched
        self._orphans: set[str] = set()  # logs whose file is gone but still open
        self._cut: set[str] = set()  # logs whose compressed file is cut short
        self._contested: set[str] = set()  # logs with rivals that have not been reported
        self.all: dict[str, TrackedLog] = {}
        self._of_record: dict[str, dict[str, None]] = {}  # record_of(identity) -> identities of all logs
        for p in positions:
            self._add(TrackedLog(p.identity, p.path, p.offset, p.header, resumed=p.header, proof=p.proof))
        self.known_bytes = 0  # bytes on disk of the files that logs are read from
        self.lost_bytes = 0  # bytes on disk that existed and were never read (vanished files)
        self.moves = 0  # incremented whenever a log is read from another file, or path, than before

    def get(self, identity: str, path: str) -> TrackedLog:
        """Returns the log, creating it if it is unknown."""
        log = self.all.get(identity)
        if log is None:
            log = self._add(TrackedLog(identity, path, 0))
        return log

    def _add(self, log: TrackedLog) -> TrackedLog:
        self.all[log.identity] = log
        self._of_record.setdefault(record_of(log.identity), {})[log.identity] = None
        return log

    def of_record(self, record: str) -> Iterator[str]:
        """Yields identities of known logs that begin with this record (``record_of``), newest first."""
        return reversed(self._of_record.get(record, {}))

    def read_whole(self, file: TrackedFile) -> Head | None:
        """Returns the head of a final file that an earlier process read to its end; otherwise ``None``."""
        head = head_by_path(file.path)
        log = self.all.get(head.identity)
        if log is None or log.proof != proof_of_whole(file.key):
            return None
        log.done = (file.key, file.size, FINISHED)
        return replace(head, header=log.header)

    @property
    def restless(self) -> bool:
        """True if the next scan has something to examine even if no file changes."""
        return bool(self._contested or self._cut)

    # -- a scan's end ----------------------------------------------------------------------------------------------
    def match(self, files: Files) -> list[TrackedLog]:
        """Assigns each touched log the file it is read from now. Returns these logs."""
        touched = self._touched | self._orphans | self._contested
        self._touched.clear()
        claims = [(files.claims(identity), identity) for identity in sorted(touched)]
        for holders, identity in claims:
            if not holders and (log := self.all.get(identity)) is not None:
                self._unclaimed(log)
        for holders, identity in sorted((each for each in claims if each[0]), key=lambda c: c[0][0].path):
            self._orphans.discard(identity)
            log = self.get(identity, holders[0].path)
            log.unread = 0
            self.assign(log, holders)
        return [log for identity in sorted(touched) if (log := self.all.get(identity)) is not None]

    def _unclaimed(self, log: TrackedLog) -> None:
        self._contested.discard(log.identity)
        if log.file is not None:
            self._orphaned(log)
        elif log.unread:
            self._tell_lost(log, log.unread)
        self.count(log)

    def assign(self, log: TrackedLog, files: list[TrackedFile]) -> None:
        """Notes that ``files`` hold the log."""
        best = min(files, key=lambda f: (*f.reach(), f is not log.file, len(f.path), f.path))
        head = best.head
        assert head is not None
        if log.file is not best and log.file is not None:
            self._sources.close(log.identity)
        if log.file is not best or log.path != best.path:
            self.moves += 1
        log.file, log.path, log.header, log.data_start = best, best.path, head.header, head.data_start
        log.next = max(log.next, log.data_start)
        self._tell_rivals(log, best, [f for f in files if f is not best])
        self.count(log)

    def count(self, log: TrackedLog) -> None:
        now = 0 if log.file is None or log.file.gone else max(log.file.size, 0)
        self.known_bytes += now - log.counted
        log.counted = now

    # -- rivals ----------------------------------------------------------------------------------------------------
    def _tell_rivals(self, log: TrackedLog, best: TrackedFile, others: list[TrackedFile]) -> None:
        self._contested.discard(log.identity)
        if not others and not log.rivals:
            return
        rivals = {f.path: (f.size, f.packed) for f in others}
        for path in [p for p in log.rivals if p not in rivals]:
            del log.rivals[path]
            self._problems.solved(ProblemKind.COPY, path)
        for path, (size, packed) in sorted(rivals.items()):
            scans, size_before = log.rivals.get(path, (0, size))
            log.rivals[path] = (scans + 1 if size == size_before else 1, size)
            # A log and its compressed copy may exist at the same time during a rotation.
            if packed != best.packed and log_name(path) == log_name(best.path):
                continue
            if log.rivals[path][0] >= GRACE_SCANS:
                self._tell_rival(log, path)
            else:
                self._contested.add(log.identity)

    def _tell_rival(self, log: TrackedLog, path: str) -> None:
        what = f"is a copy of the beginning of {log.path}: it is left out until they differ"
        self._problems.tell(ProblemKind.COPY, path, what)

    def tell_all_rivals(self) -> None:
        """Reports all copies of other logs now, as no later scan can explain them."""
        for log in self.all.values():
            for path in log.rivals:
                self._tell_rival(log, path)

    # -- files that are gone -----------------------------------------------------------------------------------------
    def _orphaned(self, log: TrackedLog) -> None:
        """Handles a log whose files are gone. A file that is still open is read to its end, unless overwritten."""
        file = log.file
        assert file is not None
        source = self._sources.get(log.identity)
        if not file.gone or source is None:  # overwritten in place, or gone and not open
            self.lose(log, file)
            return
        self._orphans.add(log.identity)
        file.size = source.size()
        if log.done is not None and log.done[:2] == (file.key, file.size):
            self.leave(log)

    def leave(self, log: TrackedLog) -> None:
        """Notes that the log's file is gone or belongs to another log."""
        self._sources.close(log.identity)
        self._orphans.discard(log.identity)
        log.file = None
        self.moves += 1
        self.count(log)

    def lose(self, log: TrackedLog, file: TrackedFile) -> None:
        """Forgets the file of a log that cannot be read any further."""
        known = log.done[1] if log.done is not None and log.done[0] == file.key else None
        if file.compressed:
            left = 0 if known is not None else max(file.size - log.consumed, 0)
        else:
            left = max((file.size if file.gone else known or 0) - log.next, 0)
        if left:
            self._tell_lost(log, left)
        log.done = None
        self.leave(log)

    def _tell_lost(self, log: TrackedLog, left: int) -> None:
        log.unread = 0
        self.lost_bytes += left
        self._problems.tell(
            ProblemKind.VANISHED,
            log.path,
            f"{left} bytes at its end were gone before they were read; keep rolled files longer",
            again=True,
        )

    # -- compressed files cut short --------------------------------------------------------------------------------
    def cut(self, log: TrackedLog, cut_short: bool) -> None:
        """Notes that a compressed file was read to its end. ``cut_short``: it ends in the middle of a stream."""
        if log.cut_scans >= 0 and not cut_short:  # it was continued
            self._problems.solved(ProblemKind.DAMAGED, log.path)
        log.cut_scans = 0 if cut_short else -1
        (self._cut.add if cut_short else self._cut.discard)(log.identity)

    def tell_cut_short(self) -> None:
        """Reports compressed files that stay cut short. Call it once per scan."""
        for identity in sorted(self._cut):
            log = self.all[identity]
            if log.cut_scans < 0 or log.file is None:
                self._cut.discard(identity)
            elif log.is_done():
                log.cut_scans += 1
                if log.cut_scans == GRACE_SCANS:
                    self._cut.discard(identity)
                    where = f"read up to byte {log.next}"
                    self._problems.tell(ProblemKind.DAMAGED, log.path, f"{ends_in_middle(log.path)}; {where}")


__all__ = ["GRACE_SCANS", "Logs"]
