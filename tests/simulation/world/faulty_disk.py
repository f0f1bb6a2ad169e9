"""A simulated disk that goes wrong: syncs fail or take long, space runs out, bits rot.

A failed sync does what a kernel does: the failed pages are clean afterwards, and lost.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from tests.simulation.world.disk import Copy, PowerOff, SimulatedDisk, SimulatedFile


class FaultyFile:
    """An open file whose sync may fail; no later successful sync writes the data that was dirty then."""

    def __init__(self, disk: FaultyDisk, plain: SimulatedFile, path: Path) -> None:
        self._disk = disk
        self._plain = plain
        self._path = path

    @property
    def size(self) -> int:
        return self._plain.size

    def write(self, *chunks: bytes) -> None:
        room = self._disk.room
        if room is not None:
            data = b"".join(chunks)
            if len(data) > room:
                self._disk.room = 0
                self._plain.write(data[:room])
                raise self._disk.full_error(self._path)
            self._disk.room = room - len(data)
        self._plain.write(*chunks)

    def sync(self) -> None:
        if self._disk.sync_fails():
            self._disk.lose(self._plain._inode)
            raise OSError(errno.EIO, "Input/output error (simulated)")
        self._plain.sync()
        if self._disk.sync_seconds:
            self._disk.stall += self._disk.random.uniform(0, self._disk.sync_seconds)

    def close(self) -> None:
        self._plain.close()


class FaultyDisk(SimulatedDisk):
    """``fail_sync_after(n)``: the n-th sync of a file from now fails, once. ``room``: bytes left, None for enough."""

    def __init__(self, random: Random, *, lies_about: str | None = None) -> None:
        super().__init__(random, lies_about=lies_about)
        self._sync_fails_in = 0
        self._lost: dict[int, tuple[Any, list[tuple[int, int]]]] = {}
        self.room: int | None = None
        self.times_full = 0
        self.sync_seconds = 0.0  # longest time of a sync
        self.stall = 0.0  # seconds spent in syncs that have not been accounted for yet

    def full_error(self, path: Path) -> OSError:
        self.times_full += 1
        return OSError(errno.ENOSPC, "No space left on device (simulated)", str(path))

    def take_stall(self) -> float:
        """Seconds the process stood still in syncs since the last call."""
        stall, self.stall = self.stall, 0.0
        return stall

    def fail_sync_after(self, syncs: int) -> None:
        self._sync_fails_in = syncs

    def sync_fails(self) -> bool:
        if self._sync_fails_in:
            self._sync_fails_in -= 1
            return self._sync_fails_in == 0
        return False

    def kill(self) -> None:
        self._sync_fails_in = 0
        super().kill()

    def lose(self, inode: Any) -> None:
        """The dirty pages of this file are in the cache only, and nobody knows."""
        _, ranges = self._lost.setdefault(id(inode), (inode, []))
        ranges.append((inode.tail_from, len(inode.data)))
        inode.tail_from = len(inode.data)

    def append(self, path: Path) -> Any:
        if self.room is not None and self.room == 0 and not self.exists(path) and self.random.random() < 0.5:
            raise self.full_error(path)
        return FaultyFile(self, super().append(path), path)

    def rewrite(self, path: Path, offset: int) -> None:
        if self.operation():
            raise PowerOff
        inode = self._find(path)
        known = self._lost.get(id(inode))
        if known is not None:
            known[1][:] = [(start, min(end, offset)) for start, end in known[1] if start < offset]
        inode.tail_from = len(inode.data)

    def truncate(self, path: Path, size: int) -> None:
        super().truncate(path, size)
        known = self._lost.get(id(self._find(path)))
        if known is not None:  # cut pages are not in the cache any more; new data there is dirty again
            known[1][:] = [(start, min(end, size)) for start, end in known[1] if start < size]

    def put_back(self, copy: Copy) -> None:
        self._lost.clear()
        super().put_back(copy)

    def power_cut(self) -> None:
        for inode, ranges in self._lost.values():
            for start, end in ranges:
                end = min(end, len(inode.data))
                if start < end:
                    inode.data[start:end] = bytes(end - start)
        self._lost.clear()
        super().power_cut()

    def rot(self, under: str, spared: Callable[[str, bytes], int] = lambda path, data: 0) -> str | None:
        """Flips one bit of a file at rest, whose data has long been written back. Returns where, if anywhere.

        ``spared``: number of bytes at the end of a file that stay.
        """
        files = [
            (f"{directory}/{name}", inode)
            for directory, names in sorted(self._durable.items())
            if directory.startswith(under)
            for name, inode in sorted(names.items())
            if inode.data and self._now.get(directory, {}).get(name) is inode
        ]
        if not files:
            return None
        path, inode = self.random.choice(files)
        inode.tail_from = len(inode.data)
        end = len(inode.data) - spared(path, bytes(inode.data))
        at = self.random.randrange(0 if self.random.random() < 0.6 else max(0, end - 90), end)
        inode.data[at] ^= 1 << self.random.randrange(8)
        return f"{path} at byte {at} of {len(inode.data)}"
