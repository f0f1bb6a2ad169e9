"""Keeps a state as of one log entry, so that all replicas can be compared at that entry."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass

MARK_BYTES_MAX = 16


@dataclass(frozen=True, slots=True)
class Marked:
    """A state as of log entry ``applied``. ``chunks`` can be read only once."""

    mark: bytes
    applied: int
    chunks: Iterable[bytes]


class Marks:
    """Keeps the last marked state of one state machine. Thread-safe.

    Not part of the machine's own state: it is not in snapshots, and the server drops it if nobody fetches it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: Marked | None = None

    def keep(self, marked: Marked) -> None:
        with self._lock:
            self._kept = marked

    def take(self, mark: bytes) -> Marked | None:
        """Returns the state with this mark and forgets it; ``None`` if there is none."""
        with self._lock:
            kept = self._kept
            if kept is None or kept.mark != mark:
                return None
            self._kept = None
            return kept

    @property
    def mark(self) -> bytes:
        with self._lock:
            return self._kept.mark if self._kept is not None else b""
