"""Advisory locks: so that two observers' threads or processes do not work on one row. Nothing that is right depends
on them, so they need no lease and no state that lasts."""

from __future__ import annotations

import fcntl
import os
import threading
import zlib
from pathlib import Path


class ThreadLocks:
    """Among the threads of this process."""

    def __init__(self) -> None:
        self._held: set[str] = set()
        self._lock = threading.Lock()

    def acquire(self, name: str) -> bool:
        with self._lock:
            if name in self._held:
                return False
            self._held.add(name)
            return True

    def release(self, name: str) -> None:
        with self._lock:
            self._held.discard(name)


class FileLocks:
    """Among the processes of one machine too: a name is a byte of a file that is locked. The system frees what a
    process held that is gone. Two names may be one byte, which costs a visit later."""

    def __init__(self, path: Path | str) -> None:
        """Raises OSError."""
        self._threads = ThreadLocks()
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def acquire(self, name: str) -> bool:
        if not self._threads.acquire(name):
            return False
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _byte(name))
        except OSError:
            self._threads.release(name)
            return False
        return True

    def release(self, name: str) -> None:
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1, _byte(name))
        self._threads.release(name)


def _byte(name: str) -> int:
    return zlib.crc32(name.encode())
