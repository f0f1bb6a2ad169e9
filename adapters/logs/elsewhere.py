"""Logs that are no files of this machine: what is asked of whatever holds them.

A log directory is a ``Path``; of one that stands elsewhere (``s3://BUCKET/PREFIX``) it is a class of its own, and all
that follows, looks up and slices logs comes here for the list of files and for their bytes.
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
    """A file as one scan saw it."""

    path: str  # relative to the log directory, '/' between the parts
    key: tuple[int, int]  # device, inode
    size: int  # bytes on disk
    mtime_ns: int
    links: int = 1  # names of this inode
    rank: int = 0  # 0: its own path; 1: a link to it; 2: it is next to a link's target; 3: its way there


class StoredFile(Protocol):
    """A file's bytes as they are stored, compressed or not. One caller at a time."""

    key: tuple[int, int]  # device, inode

    def read(self, offset: int, length: int) -> bytes:
        """Fewer bytes, or none, only at the end. Raises OSError; BlockingIOError where they are on their way and the
        caller is to come back."""
        ...

    def size(self) -> int: ...

    def unlinked(self) -> bool:
        """The file has no name any more."""
        ...

    def close(self) -> None: ...


class Elsewhere(Protocol):
    """A log directory that is not on this machine."""

    final: bool
    """Its files are whole once they are there, and never renamed: each is a log of its own, known by its path."""

    def files(self) -> Iterator[FoundFile]:
        """All that are known now. Raises OSError; BlockingIOError as ``StoredFile.read``."""
        ...

    def version(self) -> int:
        """Another one: ``files`` may say something else. Raises as ``files``."""
        ...

    def renew(self) -> None:
        """What ``files`` says from now on is no older than this call."""
        ...

    def whole_ns(self) -> int:
        """Wall clock: what was there at this moment is among ``files``."""
        ...

    def check(self) -> None:
        """Raises OSError where there is nothing to be listed."""
        ...


@contextmanager
def hurried() -> Iterator[None]:
    """Whoever reads elsewhere in it waits for a moment in all for what is on its way (BlockingIOError)."""
    patience.until = time.monotonic() + HURRIED_S
    try:
        yield
    finally:
        patience.until = None


def elsewhere(directory: Path) -> Elsewhere | None:
    """None: a directory of this machine. Raises UsageError."""
    return _ObjectLogs(directory) if isinstance(directory, ObjectPath) else None


def is_final(directory: Path | LogPath) -> bool:
    """As ``Elsewhere.final``."""
    return isinstance(directory, ObjectPath)


def open_stored(path: Path | LogPath, *, places: bool = False) -> StoredFile:
    """``places``: it is not read from begin to end. Raises OSError."""
    return open_object(path, places=places) if isinstance(path, ObjectPath) else _LocalFile(path)


def key_of(directory: Path, path: str) -> tuple[int, int]:
    """(device, inode) of a log as it is now, as ``StoredFile.key``. Raises FileNotFoundError, OSError."""
    if isinstance(place := directory / path, ObjectPath):
        return open_object(place).key
    st = stat_log(directory, path)
    return st.st_dev, st.st_ino


def size_and_time(path: Path | LogPath) -> tuple[int, int]:
    """Bytes, and last write (ns), of what stands there now. Raises FileNotFoundError, OSError."""
    if isinstance(path, ObjectPath):
        meta = bucket_of(path).meta(path.key)
        return meta.size, meta.modified_ns
    st = stat_log(path.directory, path.path) if isinstance(path, LogPath) else path.stat()
    return st.st_size, st.st_mtime_ns


def open_for_reading(path: Path | LogPath) -> tuple[int, tuple[int, int]]:
    """(descriptor, (device, inode)) of a file of this machine. Raises LinkOutside, OSError: a ``Path`` is no link."""
    # O_NONBLOCK: what was a file a moment ago may be a pipe now.
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
