"""A simulated disk whose syncs can fail, as a kernel's do: the failed pages are clean afterwards, and lost."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

from tests.simulation.world.disk import PowerOff, SimulatedDisk, SimulatedFile


class FaultyFile:
    """An open file whose sync may fail; what was dirty then is never written by a later sync that says it worked."""

    def __init__(self, disk: FaultyDisk, plain: SimulatedFile) -> None:
        self._disk = disk
        self._plain = plain

    @property
    def size(self) -> int:
        return self._plain.size

    def write(self, *chunks: bytes) -> None:
        self._plain.write(*chunks)

    def sync(self) -> None:
        if self._disk.sync_fails():
            self._disk.lose(self._plain._inode)
            raise OSError(5, "Input/output error (simulated)")
        self._plain.sync()

    def close(self) -> None:
        self._plain.close()


class FaultyDisk(SimulatedDisk):
    """``fail_sync_after(n)``: the n-th sync of a file from now fails, once."""

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self._sync_fails_in = 0
        self._lost: dict[int, tuple[Any, list[tuple[int, int]]]] = {}

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
        return FaultyFile(self, super().append(path))

    def rewrite(self, path: Path, offset: int) -> None:
        if self.operation():
            raise PowerOff
        inode = self._find(path)
        known = self._lost.get(id(inode))
        if known is not None:
            known[1][:] = [(start, min(end, offset)) for start, end in known[1] if start < offset]
        inode.tail_from = len(inode.data)

    def power_cut(self) -> None:
        for inode, ranges in self._lost.values():
            for start, end in ranges:
                end = min(end, len(inode.data))
                if start < end:
                    inode.data[start:end] = bytes(end - start)
        self._lost.clear()
        super().power_cut()
