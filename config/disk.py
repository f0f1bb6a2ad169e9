"""The interface to files through which durable formats (Raft journal, redo log, output) are written.

The real disk is implemented here; the simulator has one that loses unsynced bytes at a power cut.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Protocol


class AppendFile(Protocol):
    @property
    def size(self) -> int:
        """Returns the number of bytes written so far, durable or not."""
        ...

    def write(self, *chunks: bytes) -> None:
        """Appends all chunks completely. Raises OSError; the file's tail is then unspecified."""
        ...

    def sync(self) -> None:
        """Makes all writes durable. A failure must end the process (protocol rule 7). Thread-safe."""
        ...

    def close(self) -> None: ...


class Disk(Protocol):
    """A local file system. Relative paths start at the process's working directory."""

    def append(self, path: Path) -> AppendFile:
        """Opens a file for appending, and creates it if missing. Its name is durable only after sync_dir."""
        ...

    def read(self, path: Path, offset: int = 0, length: int | None = None) -> bytes: ...

    def size(self, path: Path) -> int: ...

    def exists(self, path: Path) -> bool: ...

    def names(self, directory: Path) -> Sequence[str]:
        """Returns sorted names in the directory; empty if it does not exist."""
        ...

    def make_dir(self, directory: Path) -> None:
        """Creates a directory and its parents, durably."""
        ...

    def rename(self, old: Path, new: Path) -> None:
        """Renames atomically, replacing ``new``; durable after sync_dir."""
        ...

    def remove(self, path: Path) -> None: ...

    def truncate(self, path: Path, size: int) -> None:
        """Cuts the file and makes the cut durable."""
        ...

    def rewrite(self, path: Path, offset: int) -> None:
        """Writes the bytes from ``offset`` to the end again, in place, and makes the file durable.

        After a failed sync, in this process or an earlier one, the cache may hold pages that never reached the disk
        and that a later sync skips while it reports success (protocol rule 7).
        """
        ...

    def sync_dir(self, directory: Path) -> None: ...

    def replace(self, path: Path, data: bytes) -> None:
        """Writes a whole small file atomically and durably (temporary file, sync, rename, sync_dir)."""
        ...

    def create(self, path: Path, data: bytes) -> bool:
        """Like ``replace``, but if the name exists, makes the existing file durable and returns False."""
        ...


REWRITE_CHUNK_BYTES = 4 << 20


def _named(error: OSError, path: Path) -> OSError:
    """Returns the same error with the file's name, which calls on a descriptor do not report."""
    return OSError(error.errno, error.strerror, str(path))


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Adds the file's name to an OSError from a library that omits the name."""
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        raise _named(error, path) from error


class RealAppendFile:
    """AppendFile over a descriptor; close-on-exec, so no child inherits it."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._path = path
        self._size = os.fstat(self._fd).st_size

    @property
    def size(self) -> int:
        return self._size

    def write(self, *chunks: bytes) -> None:
        data: bytes | memoryview = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        total = len(data)
        try:
            done = os.write(self._fd, data)
            while done < total:  # a short write: disk nearly full, or a signal
                done += os.write(self._fd, memoryview(data)[done:])
        except OSError as error:
            raise _named(error, self._path) from None
        self._size += total

    def sync(self) -> None:
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            raise _named(error, self._path) from None

    def close(self) -> None:
        os.close(self._fd)


class RealDisk:
    def append(self, path: Path) -> AppendFile:
        return RealAppendFile(path)

    def read(self, path: Path, offset: int = 0, length: int | None = None) -> bytes:
        with open(path, "rb", buffering=0) as f:
            f.seek(offset)
            if length is None:
                return f.read()
            parts = []
            while length > 0:
                part = f.read(length)
                if not part:
                    break
                parts.append(part)
                length -= len(part)
            return b"".join(parts)

    def size(self, path: Path) -> int:
        return path.stat().st_size

    def exists(self, path: Path) -> bool:
        return path.exists()

    def names(self, directory: Path) -> Sequence[str]:
        try:
            return sorted(os.listdir(directory))
        except FileNotFoundError:
            return []

    def make_dir(self, directory: Path) -> None:
        missing = []
        at = directory
        while not at.exists():
            missing.append(at)
            at = at.parent
        for each in reversed(missing):
            each.mkdir(exist_ok=True)
            self.sync_dir(each.parent)

    def rename(self, old: Path, new: Path) -> None:
        os.replace(old, new)

    def remove(self, path: Path) -> None:
        os.unlink(path)

    def truncate(self, path: Path, size: int) -> None:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.ftruncate(fd, size)
            os.fsync(fd)
        finally:
            os.close(fd)

    def rewrite(self, path: Path, offset: int) -> None:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            while part := os.pread(fd, REWRITE_CHUNK_BYTES, offset):
                done = 0
                while done < len(part):
                    done += os.pwrite(fd, part[done:], offset + done)
                offset += done
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync_dir(self, directory: Path) -> None:
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def replace(self, path: Path, data: bytes) -> None:
        temporary = path.with_name(path.name + ".tmp")
        if temporary.exists():
            temporary.unlink()
        with closing(self.append(temporary)) as file:
            file.write(data)
            file.sync()
        self.rename(temporary, path)
        self.sync_dir(path.parent)

    def create(self, path: Path, data: bytes) -> bool:
        temporary = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
        with closing(self.append(temporary)) as file:
            file.write(data)
            file.sync()
        try:
            os.link(temporary, path)
            created = True
        except FileExistsError:
            created = False
        finally:
            self.remove(temporary)
        self.sync_dir(path.parent)  # its creator may have been killed before
        return created
