"""An array that grows without copying its content, so that growing causes no pause.

Small arrays are numpy's and are copied. Large ones are anonymous private memory: the kernel moves their pages to a
new place (mremap), in microseconds at any size. Room that was never written takes no memory.
"""

from __future__ import annotations

import contextlib
import mmap
import sys
from typing import Any

import numpy as np
import numpy.typing as npt

# Smaller arrays are copied when they grow: a fraction of a millisecond, and few mappings for many small buckets.
MAPPED_FROM_BYTES = 1 << 20
_GROWTH = 1.25
# Arrays from this size use huge pages: fewer page faults while they fill; at most 2 MiB are allocated too early.
_HUGE_FROM_BYTES = 16 << 20


class GrowingArray:
    """``reserve`` grows ``array`` to at least that many rows; new rows are zero. Keep no view of ``array`` across a
    ``reserve``: a kept view stays valid, but costs a copy. Not thread-safe.
    """

    def __init__(self, dtype: npt.DTypeLike) -> None:
        self._dtype = np.dtype(dtype)
        self._memory: mmap.mmap | None = None
        self.array: npt.NDArray[Any] = np.zeros(0, self._dtype)

    def reserve(self, rows: int) -> None:
        have = len(self.array)
        if rows <= have:
            return
        wanted = max(rows, int(have * _GROWTH), 16)
        size = wanted * self._dtype.itemsize
        if size < MAPPED_FROM_BYTES:
            grown = np.zeros(wanted, self._dtype)
            grown[:have] = self.array
            self.array = grown
            return
        size = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        if not self._moved(size):
            self._copied(size)
        if size >= _HUGE_FROM_BYTES and sys.platform == "linux":
            assert self._memory is not None
            with contextlib.suppress(OSError):  # a kernel without huge pages
                self._memory.madvise(mmap.MADV_HUGEPAGE)

    def _moved(self, size: int) -> bool:
        memory = self._memory
        if memory is None:
            return False
        self.array = np.zeros(0, self._dtype)  # releases the memory, which cannot move otherwise
        try:
            memory.resize(size)
        except (BufferError, SystemError):  # a view exists; or a system without mremap
            self._view(memory)
            return False
        self._view(memory)
        return True

    def _copied(self, size: int) -> None:
        old = self.array
        self._memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._view(self._memory)
        self.array[: len(old)] = old

    def _view(self, memory: mmap.mmap) -> None:
        self.array = np.frombuffer(memory, self._dtype, len(memory) // self._dtype.itemsize)
