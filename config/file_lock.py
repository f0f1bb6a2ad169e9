"""Locks a file for one process at a time. The lock lasts until the process closes the descriptor, or dies."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from photon.config.errors import UsageError

POLL_S = 0.02
HOLDER_BYTES = 20  # all holders write this length, so that it never contains parts of a predecessor's


def try_lock(descriptor: int, *, shared: bool = False) -> bool:
    """Tries to lock without waiting. Returns True if the lock was acquired. Raises OSError."""
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def lock_file(
    path: Path, *, shared: bool = False, wait_s: float = 0.0, sleep: Callable[[float], None] = time.sleep
) -> int | None:
    """Returns the descriptor that holds the lock until closed; ``None`` if another process has it. Raises OSError.

    Waits up to ``wait_s``, because a process that only checks a lock (``is_locked``) also holds it for a moment.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        for left in reversed(range(round(wait_s / POLL_S) + 1)):
            if try_lock(descriptor, shared=shared):
                return descriptor
            if left:
                sleep(POLL_S)
    except OSError:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def is_locked(path: Path) -> bool:
    """True if a process holds the lock. Locks it shared for a moment, so others may fail to lock. Raises OSError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not try_lock(descriptor, shared=True)
    finally:
        os.close(descriptor)


def name_holder(descriptor: int) -> None:
    """Writes this process's name into the lock file, where ``holder_of`` reads it."""
    with suppress(OSError):  # a full disk: the name is only for people
        os.pwrite(descriptor, f"pid {os.getpid()}".ljust(HOLDER_BYTES).encode(), 0)


def holder_of(path: Path) -> str | None:
    """Returns the text that the live holder of this lock file wrote into it; ``None`` if no process holds it."""
    with suppress(OSError):
        if is_locked(path):
            return path.read_bytes()[:100].decode(errors="replace").strip() or "pid unknown"
    return None


@contextmanager
def alone(path: Path, busy: str) -> Iterator[None]:
    """Holds the lock inside the context. Raises UsageError(``busy``) if another process does, or OSError."""
    descriptor = lock_file(path)
    if descriptor is None:
        raise UsageError(busy)
    try:
        yield
    finally:
        os.close(descriptor)
