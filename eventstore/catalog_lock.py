"""Who is at work in a catalogue's database, and what becomes of SQLite's failures: a full disk is no defect."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from types import TracebackType

from photon.eventstore.file_map import FileMapError

NO_ROOM = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)


class CatalogLock:
    """One thread at a time. Whatever SQLite cannot do within it raises FileMapError."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()
        if isinstance(error, sqlite3.DatabaseError):
            raise unusable(self._path, error) from None


def unusable(path: Path, error: sqlite3.DatabaseError) -> FileMapError:
    """One line: what, where, what to do."""
    if getattr(error, "sqlite_errorcode", 0) & 0xFF in NO_ROOM:
        return FileMapError(f"{path}: cannot be written ({error}); make room on the disk, then start again")
    return FileMapError(f"{path}: cannot be read ({error})")
