"""What becomes of freed memory: mostly it goes back to the system. Nothing happens but with glibc.

glibc raises, with each large buffer that is freed, the size from which it asks the system for memory of its own, and
has a heap for each thread: after a while of large requests a hundred megabytes lie about in pieces.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
MAPPED_FROM_BYTES = 256 << 10
HEAP_FROM_BYTES = 32 << 20  # the most that glibc takes
ARENAS = 2
GIVE_BACK_SECONDS = 3.0


def keep_lean() -> None:
    """For this process from now on: large buffers come from the system and go there.

    Each then has to fault its pages in again: for processes with few large buffers.
    """
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, MAPPED_FROM_BYTES)
        mallopt(_M_ARENA_MAX, ARENAS)


def keep_what_is_freed() -> None:
    """For this process from now on: buffers below HEAP_FROM_BYTES are not asked of the system again and again.

    For short-lived processes that have large buffers all the time.
    """
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, HEAP_FROM_BYTES)
        mallopt(_M_TRIM_THRESHOLD, 1 << 30)


def give_back() -> None:
    """Whole pages between what is in use, now. Takes a few milliseconds, in which other threads may run."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


async def keep_giving_back() -> None:
    """Runs until it is cancelled. For processes that allocate and free many large buffers."""
    while True:
        await asyncio.sleep(GIVE_BACK_SECONDS)
        await asyncio.to_thread(give_back)
