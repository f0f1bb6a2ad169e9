"""How far each single log has been read, for whoever shows or publishes it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from photon.adapters.logs.lag import lag_of, read_of
from photon.adapters.logs.tracked import TrackedLog


@dataclass(frozen=True, slots=True)
class LogReading:
    """One log at one moment."""

    identity: str
    path: str
    offset: int  # first byte not handed out yet, uncompressed
    bytes_read: int  # of bytes_known
    bytes_known: int  # on disk, as the last scan saw it; 0 without a file
    present: bool  # it has a file
    since_ns: int | None
    """The oldest byte that was not read was written then or before; None: all is read that the last scan saw."""


def reading_of(log: TrackedLog) -> LogReading:
    file = log.file
    if file is None or file.gone:
        return LogReading(log.identity, log.path, log.resume_at(), 0, 0, False, None)
    lag = None if log.is_done() else lag_of(log)
    size = max(file.size, 0)
    since_ns = None if lag is None else lag.since_ns
    return LogReading(log.identity, log.path, log.resume_at(), min(read_of(log), size), size, True, since_ns)


def readings_of(logs: Iterable[TrackedLog]) -> list[LogReading]:
    """Of all of them, by path."""
    return sorted(map(reading_of, logs), key=lambda each: (each.path, each.identity))
