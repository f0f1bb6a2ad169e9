"""What the reader's thread publishes of the primary logs: where each one is, and how far it has been read.

The follower belongs to that thread; everybody else reads what is published here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Protocol

from photon.adapters.logs.lag import LogReading
from photon.eventstore.api import SourceProgress
from photon.eventstore.unavailable import UnavailableLogs

PATHS_SECONDS = 0.5
"""Which logs are there is looked at so often for those that look-ups have missed."""
READINGS_SECONDS = 0.5
"""Progress of each source is made at most so often, and only while somebody asks for it."""


class FollowedLogs(Protocol):
    """What this needs of a follower (photon.adapters.logs.follower.Follower)."""

    @property
    def moves(self) -> int: ...

    def caught_up(self) -> bool: ...

    def present(self) -> dict[str, str]: ...

    def readings(self) -> list[LogReading]: ...


class PublishedSources:
    """``note`` and ``look`` from the reader's thread, the rest from any."""

    def __init__(
        self,
        follower: FollowedLogs,
        unavailable: UnavailableLogs,
        monotonic: Callable[[], float],
        scanned_ns: Callable[[], int],
    ) -> None:
        """``scanned_ns``: the time before the last scan."""
        self._follower = follower
        self._unavailable = unavailable
        self._monotonic = monotonic
        self._scanned_ns = scanned_ns
        self._paths: Mapping[str, str] = {}
        self._moves = -1
        self._looked_at = self._read_at = float("-inf")
        self._wanted = threading.Event()
        self._made = threading.Event()
        self._readings: tuple[SourceProgress, ...] = ()

    # -- the reader's thread -----------------------------------------------------------------------------------------
    def note(self) -> None:
        """Publishes what has changed; call it after each step."""
        follower = self._follower
        moved = follower.moves != self._moves
        if moved:
            self._moves = follower.moves
            self._paths = follower.present()
        now = self._monotonic()
        # Before the reader has caught up a log may stand in a file that was not looked at yet.
        if follower.caught_up() and (moved or now - self._looked_at >= PATHS_SECONDS):
            self._looked_at = now
            self._unavailable.scanned(self._paths)
        if self._wanted.is_set() and now - self._read_at >= READINGS_SECONDS:
            self._read_at = now
            self._publish_readings()

    def look(self) -> None:
        """As ``note``, once the reader has ended: what a scan finds now stays unread."""
        if self._unavailable.any:
            self._paths = self._follower.present()
            self._unavailable.scanned(self._paths)
        self._publish_readings()

    def _publish_readings(self) -> None:
        if self._wanted.is_set():
            self._wanted.clear()
            self._readings = tuple(self._progress(each) for each in self._follower.readings())
            self._made.set()

    def _progress(self, each: LogReading) -> SourceProgress:
        read_past_ns = self._scanned_ns() if each.since_ns is None else each.since_ns
        return SourceProgress(each.path, each.identity, each.offset, each.bytes_read, each.bytes_known, read_past_ns)

    # -- everybody ---------------------------------------------------------------------------------------------------
    def path_of(self, identity: str) -> str | None:
        """The log's present path relative to the log directory."""
        return self._paths.get(identity)

    def progress(self, timeout: float) -> tuple[SourceProgress, ...]:
        """Progress of each log, by path. Waits ``timeout`` seconds at most for the reader's thread; then the last
        known one."""
        self._made.clear()
        self._wanted.set()
        self._made.wait(timeout)
        return self._readings
