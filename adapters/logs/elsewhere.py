"""The interface to storage of logs that are not files of this machine.

A log directory is a ``Path``; one elsewhere (``s3://BUCKET/PREFIX``) is a class of its own. Code that follows, looks
up or slices logs gets the list of files and their bytes through this module.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

from photon.adapters.logs.links import LogPath, stat_log
from photon.objects.directory import bucket_of, directory_of, file_key, open_object
from photon.objects.paths import ObjectPath
from photon.objects.ranges import HURRIED_S, patience


class FoundFile(NamedTuple):
    """A file as seen by one scan."""

    path: str  # relative to the log directory, '/' between the parts
    key: tuple[int, int]  # device, inode
    size: int  # bytes on disk
    mtime_ns: int
    links: int = 1  # names of this inode
    rank: int = 0  # 0: its own path; 1: a link to it; 2: next to a link's target; 3: a link to that place


class StoredFile(Protocol):
    """A file's bytes as stored, compressed or not. One caller at a time."""

    key: tuple[int, int]  # device, inode

    def read(self, offset: int, length: int) -> bytes:
        """Reads ``length`` bytes at ``offset``; fewer, or none, only at the end.

        Raises OSError; BlockingIOError if the bytes are still being fetched: try again later.
        """
        ...

    def size(self) -> int: ...

    def unlinked(self) -> bool:
        """True if the file has been unlinked."""
        ...

    def close(self) -> None: ...


class Elsewhere(Protocol):
    """A log directory that is not on this machine."""

    # Files are complete once they exist, and are never renamed: each is a log of its own, known by its path.
    final: bool

    def files(self) -> Iterator[FoundFile]:
        """Yields all files known now. Raises OSError, and BlockingIOError as ``StoredFile.read`` does."""
        ...

    def version(self) -> int:
        """Returns a number that changes if ``files`` may have changed. Raises the same errors as ``files``."""
        ...

    def renew(self) -> None:
        """Makes ``files`` return a list that is no older than this call."""
        ...

    def whole_ns(self) -> int:
        """Returns the wall clock time up to which ``files`` is complete: it has every file that existed then."""
        ...

    def check(self) -> None:
        """Raises OSError if the directory cannot be listed."""
        ...


@contextmanager
def hurried() -> Iterator[None]:
    """Within this context, reads of remote bytes raise BlockingIOError instead of waiting for long."""
    patience.until = time.monotonic() + HURRIED_S
    try:
        yield
    finally:
        patience.until = None


def elsewhere(directory: Path) -> Elsewhere | None:
    """Returns the storage of a log directory; ``None`` for one on this machine. Raises UsageError."""
    return _ObjectLogs(directory) if isinstance(directory, ObjectPath) else None


def is_final(directory: Path | LogPath) -> bool:
    """True if the files of the directory never change (``Elsewhere.final``)."""
    return isinstance(directory, ObjectPath)


def open_stored(path: Path | LogPath, *, places: bool = False) -> StoredFile:
    """Opens a stored file. ``places``: for random access, not sequential reading. Raises OSError."""
    return open_object(path, places=places) if isinstance(path, ObjectPath) else _LocalFile(path)


def key_of(directory: Path, path: str) -> tuple[int, int]:
    """Returns the (device, inode) of the file now at ``path``, as in ``StoredFile.key``. Raises OSError."""
    if isinstance(place := directory / path, ObjectPath):
        return open_object(place).key
    st = stat_log(directory, path)
    return st.st_dev, st.st_ino


def size_and_time(path: Path | LogPath) -> tuple[int, int]:
    """Returns a file's current size and time of last write (ns). Raises OSError, such as FileNotFoundError."""
    if isinstance(path, ObjectPath):
        meta = bucket_of(path).meta(path.key)
        return meta.size, meta.modified_ns
    st = stat_log(path.directory, path.path) if isinstance(path, LogPath) else path.stat()
    return st.st_size, st.st_mtime_ns


def open_for_reading(path: Path | LogPath) -> tuple[int, tuple[int, int]]:
    """Returns (descriptor, (device, inode)) of a file of this machine, not a link. Raises LinkOutside, OSError."""
    # O_NONBLOCK: a file may have been replaced by a pipe a moment ago.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
    fd = path.open(flags) if isinstance(path, LogPath) else os.open(path, flags | os.O_NOFOLLOW)
    st = os.fstat(fd)
    return fd, (st.st_dev, st.st_ino)


class _LocalFile:
    def __init__(self, path: Path | LogPath) -> None:
        self._fd, self.key = open_for_reading(path)

    def read(self, offset: int, length: int) -> bytes:
        return os.pread(self._fd, length, offset)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def unlinked(self) -> bool:
        return os.fstat(self._fd).st_nlink == 0

    def close(self) -> None:
        os.close(self._fd)


class _ObjectLogs:
    final = True

    def __init__(self, path: ObjectPath) -> None:
        self._path = path
        self._directory = directory_of(path)

    def files(self) -> Iterator[FoundFile]:
        cut = len(self._directory.prefix)
        for meta in self._directory.listed():
            if name := meta.key[cut:]:
                yield FoundFile(name, file_key(self._path, meta), meta.size, meta.modified_ns)

    def version(self) -> int:
        return self._directory.version()

    def renew(self) -> None:
        self._directory.renew()

    def whole_ns(self) -> int:
        return self._directory.whole_ns

    def check(self) -> None:
        next(iter(self._directory.bucket.objects.list(self._directory.prefix, "")), None)
