"""The lag of reading logs: unread bytes on disk, and the age of the oldest of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import nlargest
from typing import Protocol

from photon.adapters.logs.tracked_logs import TrackedLog

MARKS_MAX = 16  # moments of growth remembered for a log that is behind
WORST = 10


@dataclass(frozen=True, slots=True)
class LogLag:
    """One log with bytes that have not been returned. A last line without line end does not count."""

    path: str
    bytes: int  # on disk
    since_ns: int  # wall clock: the oldest of these bytes were written then or before, as far as scans saw (mtimes)


@dataclass(frozen=True, slots=True)
class Lag:
    """The lag of all logs together; ``worst``: a few of them, oldest first."""

    logs: int  # known
    behind: int  # not read to the end
    bytes: int
    oldest_ns: int | None
    worst: tuple[LogLag, ...] = ()


NO_LAG = Lag(0, 0, 0, None)


def read_of(log: TrackedLog) -> int:
    """Returns how many of the log's bytes on disk have been read."""
    assert log.file is not None
    size = max(log.file.size, 0)
    if log.done is not None and log.done[0] == log.file.key and log.done[1] == size:
        return size
    return min(log.consumed if log.file.compressed else log.next, size)


def mark(log: TrackedLog) -> None:
    """Notes that a scan saw unread bytes."""
    file = log.file
    assert file is not None
    marks = log.marks
    if not marks or marks[-1][0] != file.size:
        if marks and (len(marks) >= MARKS_MAX or file.size < marks[-1][0]):
            marks[-1] = (file.size, marks[-1][1])  # prefer too old to too young
        else:
            marks.append((file.size, file.mtime_ns))


def lag_of(log: TrackedLog) -> LogLag | None:
    """Returns a log's lag; ``None`` if no bytes are known to be unread."""
    file = log.file
    if file is None or file.size < 0:
        return None
    read = read_of(log)
    while len(log.marks) > 1 and log.marks[0][0] <= read:
        del log.marks[0]
    left = file.size - read
    if left <= 0:
        return None
    return LogLag(log.path, left, log.marks[0][1] if log.marks else file.mtime_ns)


def lag_of_all(known: int, behind: Iterable[TrackedLog], worst: int = WORST) -> Lag:
    """Sums the lags of ``behind``, the logs that may have unread bytes."""
    lags = [lag for log in behind if (lag := lag_of(log)) is not None]
    oldest = min((lag.since_ns for lag in lags), default=None)
    shown = nlargest(worst, lags, key=lambda lag: (-lag.since_ns, lag.bytes, lag.path))
    return Lag(known, len(lags), sum(lag.bytes for lag in lags), oldest, tuple(shown))


@dataclass(frozen=True, slots=True)
class Unread:
    """Bytes that a scan saw and that had not been returned then (``Follower.unread_now``)."""

    logs: tuple[tuple[TrackedLog, tuple[int, int], int], ...]  # each with its file and the file's size on disk
    doubt: str = ""  # why there may be bytes that the scan did not see; empty if there are none

    def next(self) -> str:
        """Returns the path of a log that has not been fully returned; empty if all were, or are gone."""
        return next((log.path for log, key, size in self.logs if not _reaches(log, key, size)), "")


def unread_of(behind: Iterable[TrackedLog], doubt: str = "") -> Unread:
    """Returns the logs of ``behind`` with unread bytes, as of now."""
    logs = [(log, log.file) for log in behind if not log.is_done()]
    return Unread(tuple((log, file.key, file.size) for log, file in logs if file is not None), doubt)


class _Logs(Protocol):
    def unread_now(self) -> Unread: ...


class ReadTo:
    """The moment up to which all lines of the logs have been returned by their follower."""

    def __init__(self, logs: _Logs, read_ns: int | None = None) -> None:
        """``read_ns``: the moment known from an earlier process."""
        self.read_ns, self.why = read_ns, ""  # ``why``: shown: the reason that it does not move
        self._logs = logs
        self._mark: tuple[int, Unread] | None = None

    def scanned(self, at_ns: int) -> None:
        """Notes that the scan that began at ``at_ns`` has ended."""
        self.look()
        if self._mark is None:
            unread = self._logs.unread_now()
            self.why = unread.doubt
            if not unread.doubt:
                self._mark = (at_ns, unread)

    def look(self) -> bool:
        """Advances the moment if everything that the noted scan saw has been returned. Returns True if so."""
        if self._mark is None:
            return False
        at_ns, unread = self._mark
        behind = unread.next()
        self.why = behind and f"{behind} is not read to its end"
        if behind:
            return False
        self._mark = None
        self.read_ns = at_ns if self.read_ns is None else max(self.read_ns, at_ns)
        return True


def _reaches(log: TrackedLog, key: tuple[int, int], size: int) -> bool:
    if log.is_done():
        return True
    return log.file is not None and log.file.key == key and read_of(log) >= size


@dataclass(frozen=True, slots=True)
class LogReading:
    identity: str
    path: str
    offset: int  # first byte not returned yet, uncompressed
    bytes_read: int  # of bytes_known
    bytes_known: int  # on disk, as the last scan saw it; 0 without a file
    present: bool  # a file exists
    # The oldest unread byte was written then or before; ``None``: all bytes the last scan saw are read.
    since_ns: int | None


def reading_of(log: TrackedLog) -> LogReading:
    file = log.file
    if file is None or file.gone:
        return LogReading(log.identity, log.path, log.resume_at(), 0, 0, False, None)
    lag = None if log.is_done() else lag_of(log)
    size = max(file.size, 0)
    since_ns = None if lag is None else lag.since_ns
    return LogReading(log.identity, log.path, log.resume_at(), min(read_of(log), size), size, True, since_ns)


def readings_of(logs: Iterable[TrackedLog]) -> list[LogReading]:
    """Returns the readings of all logs, by path."""
    return sorted(map(reading_of, logs), key=lambda each: (each.path, each.identity))
