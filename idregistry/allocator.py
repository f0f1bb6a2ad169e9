"""Keeps a replica's memory what its ids take: large buffers that were freed go back to the system.

glibc raises, with each large buffer that is freed, the size from which it asks the system for memory of its own, and
has a heap for each thread: after a while of large requests a hundred megabytes lie about in pieces.
"""

from __future__ import annotations

import contextlib
import ctypes

_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8
MAPPED_FROM_BYTES = 256 << 10
ARENAS = 2


def keep_lean() -> None:
    """For this process from now on; nothing happens where the C library is not glibc."""
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, MAPPED_FROM_BYTES)
        mallopt(_M_ARENA_MAX, ARENAS)
