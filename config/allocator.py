"""Controls whether freed memory goes back to the system. Has an effect only with glibc.

Each time a large buffer is freed, glibc raises the size above which buffers are mapped separately; it also has a heap
per thread. After many large requests, a hundred megabytes are left in unused fragments.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
MAPPED_FROM_BYTES = 256 << 10
HEAP_FROM_BYTES = 32 << 20  # the most that glibc accepts
ARENAS = 2
GIVE_BACK_SECONDS = 3.0


def keep_lean() -> None:
    """Makes large buffers come from the system, and go back to it when they are freed.

    Each new buffer has to fault its pages in again, so this is for processes with few large buffers.
    """
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, MAPPED_FROM_BYTES)
        mallopt(_M_ARENA_MAX, ARENAS)


def keep_what_is_freed() -> None:
    """Keeps freed buffers below HEAP_FROM_BYTES instead of requesting them from the system repeatedly.

    For short-lived processes that use large buffers throughout.
    """
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, HEAP_FROM_BYTES)
        mallopt(_M_TRIM_THRESHOLD, 1 << 30)


def give_back() -> None:
    """Returns whole free pages to the system. Takes a few milliseconds, in which other threads may run."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


async def keep_giving_back() -> None:
    """Calls give_back repeatedly until cancelled. For processes that allocate and free many large buffers."""
    while True:
        await asyncio.sleep(GIVE_BACK_SECONDS)
        await asyncio.to_thread(give_back)
