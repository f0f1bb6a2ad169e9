"""A cursor kept in a file, for one reader at a time."""

from __future__ import annotations

import os
from pathlib import Path

from photon.config.disk import Disk
from photon.config.errors import UsageError
from photon.config.file_lock import lock_file
from photon.outputs.cursor import Cursor

LOCK_SUFFIX = ".lock"


class CursorFile:
    """``FILE``, one line of JSON, replaced durably; ``FILE.lock`` beside it is locked while it is used."""

    def __init__(self, disk: Disk, path: Path) -> None:
        """Locks it. Raises UsageError where another process has it, or its directory cannot be written."""
        self._disk = disk
        self._path = path
        if path.is_dir():
            raise UsageError(f"{path}: is a directory; name a file for the cursor")
        try:
            held = lock_file(path.with_name(path.name + LOCK_SUFFIX))
        except OSError as error:
            raise UsageError(f"{path}: no cursor can be kept there ({error.strerror})") from None
        if held is None:
            raise UsageError(f"{path}: another process reads with this cursor; stop it, or name another file")
        self._lock = held

    def load(self) -> Cursor | None:
        """None: there is none yet. Raises CursorUnreadable, OSError."""
        if not self._disk.exists(self._path):
            return None
        return Cursor.decode(self._disk.read(self._path), str(self._path))

    def save(self, cursor: Cursor) -> None:
        self._disk.replace(self._path, cursor.encode() + b"\n")

    def close(self) -> None:
        """Another process may use it."""
        os.close(self._lock)
