"""Copies published logs into a directory, file by file and byte by byte; the copies are logs of the next join.

Invariants, whenever the process is killed or the power fails:

1. A copy is a byte prefix of its source, and has only bytes that its source has published.
2. ``DIRECTORY/.NAME.SUFFIX`` has a position only once everything before it is durable, including file names.
3. A start continues at that position. Bytes beyond it are compared with the source, and replaced if they differ. A
file that lacks bytes before it is refused.
4. A damaged range is skipped and reported; blank lines take its place, so that offsets stay.

Finished files may be moved away. ``tests/simulation/log/test_copier.py`` attacks each rule.

Two other modules copy published logs differently. ``sinks.objects`` writes whole files, as an object cannot grow, and
has a manifest instead of a position. ``joiner.copies`` asks the copy for its ends, which decide how much the slot may
publish.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from photon.config.clock import NS_PER_S
from photon.config.disk import AppendFile, Disk
from photon.config.errors import PhotonError
from photon.outputs.cursor import CursorFile
from photon.outputs.damaged import filler

WHOLE_NAME = ".whole"  # in the directory: everything published up to this Unix time in nanoseconds is there
SAID_NS = NS_PER_S  # minimum time between two updates of that file


class RelayedLogLost(PhotonError):
    """A copied file lacks bytes that were copied into it before."""

    def __init__(self, path: Path, copied: int, found: int) -> None:
        super().__init__(
            f"{path}: {copied} bytes were copied into it, but it has {found}; restore it uncompressed (a slot's "
            f"newest file must stay), or delete all of {path.parent} to copy everything again"
        )


class Block(NamedTuple):
    """Whole lines of a file, or without data, a damaged range."""

    log: str  # the files of a log are written one after another
    name: str
    start: int
    end: int
    data: bytes


class Copier(ABC):
    """Copies one source into one directory. Not thread-safe; locks the file with the position."""

    def __init__(self, disk: Disk, directory: Path, name: str, suffix: str) -> None:
        """``name``: the source's name, unique in the directory. Raises UsageError if another process copies it there;
        OSError.
        """
        self._disk, self._directory, self.name = disk, directory, name
        disk.make_dir(directory)
        self._kept = CursorFile(disk, directory / f".{name}.{suffix}")
        self._logs: dict[str, tuple[Path, AppendFile]] = {}  # the newest file of each log
        # The position after everything copied; ``None`` means that nothing was
        self._place: Callable[[], bytes] | None = None
        self._saved = b""
        self._said_ns = 0
        self.bytes = self.events = 0  # copied since the start

    @abstractmethod
    def _read(self) -> Iterator[Sequence[Block]]:
        """Yields everything that is published now and was not yielded before."""

    @abstractmethod
    def _read_to(self) -> Callable[[], bytes]:
        """Returns a function that encodes the position after everything yielded so far, even if called later."""

    @abstractmethod
    def behind(self) -> int:
        """Returns the number of published bytes not copied yet. Raises PublishedDamaged, OSError."""

    def step(self) -> Iterator[int]:
        """Copies everything published now; yields the bytes of each block after copying it.

        Raises RelayedLogLost, OSError, and errors of reading; unusable after any error except TopicUnreachable.
        """
        for blocks in self._read():
            for block in blocks:
                self._append(block)
            self._place = self._read_to()
            size = sum(len(block.data) for block in blocks)
            self.bytes += size
            self.events += sum(block.data.count(b"\n") for block in blocks)
            yield size

    def pass_on(self, now_ns: int | None = None, is_over: Callable[[], bool] = lambda: False) -> bool:
        """Durably copies everything published now. Returns False if ``is_over`` ended it before that. ``now_ns``:
        also records, once a second, the time up to which the copy is complete; only for the sole source of a
        directory. Raises like ``step``; after a PhotonError, the copied part is durable.
        """
        try:
            whole = not any(is_over() for _ in self.step())
        except PhotonError:  # not OSError: after a failed sync, another one may report success for lost bytes
            self.save()
            raise
        self.save()
        if whole and now_ns is not None and now_ns >= self._said_ns + SAID_NS:
            say_whole(self._disk, self._directory, now_ns)
            self._said_ns = now_ns
        return whole

    def save(self) -> None:
        """Makes the copied bytes durable, then the position. Raises RelayedLogLost, OSError."""
        if self._place is None or (place := self._place()) == self._saved:
            return
        for path, file in self._logs.values():
            self._sync(path, file)
        self._disk.sync_dir(self._directory)
        self._disk.replace(self._kept.path, place + b"\n")
        self._saved = place

    def close(self) -> None:
        for _, file in self._logs.values():
            file.close()
        self._kept.close()

    # -- files ---------------------------------------------------------------------------------------------------
    def _append(self, block: Block) -> None:
        path, file = self._log(block)
        if not block.data:
            for part in filler(max(block.end - file.size, 0)):
                file.write(part)
            return
        there = file.size - block.start
        if there > 0:  # written by an earlier process that did not save its position
            written = self._disk.read(path, block.start, min(there, len(block.data)))
            if written != block.data[: len(written)]:
                file.close()
                self._disk.truncate(path, block.start)
                there, file = 0, self._disk.append(path)
                self._logs[block.log] = path, file
        file.write(block.data[there:])

    def _log(self, block: Block) -> tuple[Path, AppendFile]:
        path, newest = self._directory / block.name, self._logs.get(block.log)
        if newest is None or newest[0] != path:
            if (there := self._size(path)) < block.start:
                raise RelayedLogLost(path, block.start, there)
            if there > block.start:
                self._disk.rewrite(path, block.start)  # it may be only in the cache
            if newest is not None:
                self._sync(*newest)
                newest[1].close()
            newest = self._logs[block.log] = path, self._disk.append(path)
        return newest

    def _sync(self, path: Path, file: AppendFile) -> None:
        """Syncs a file. Raises RelayedLogLost if its size has changed, as after a removal."""
        if (there := self._size(path)) != file.size:
            raise RelayedLogLost(path, file.size, there)
        file.sync()

    def _size(self, path: Path) -> int:
        return self._disk.size(path) if self._disk.exists(path) else 0


def whole_ns(directory: Path) -> int:
    """Returns the time (ns) up to which the directory has all published bytes; 0 before the first copy."""
    try:
        return int((directory / WHOLE_NAME).read_bytes())
    except (FileNotFoundError, ValueError):
        return 0


def say_whole(disk: Disk, directory: Path, time_ns: int) -> None:
    """Records the time that ``whole_ns`` returns. Raises OSError."""
    disk.replace(directory / WHOLE_NAME, b"%d\n" % time_ns)
