"""A file that one process at a time has locked."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from photon.config.errors import UsageError


def lock_file(path: Path) -> int | None:
    """The descriptor that holds the lock until it is closed; None: another process holds it. Raises OSError."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if isinstance(error, BlockingIOError):
            return None
        raise
    return descriptor


@contextmanager
def alone(path: Path, busy: str) -> Iterator[None]:
    """Holds the lock meanwhile. Raises UsageError with ``busy`` while another process holds it, OSError."""
    descriptor = lock_file(path)
    if descriptor is None:
        raise UsageError(busy)
    try:
        yield
    finally:
        os.close(descriptor)
