"""One verifier at a time: a lock in each slot's ``verifier/`` directory, and one for the pipeline."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path

from photon.config.errors import PhotonError

NAME = "lock"
WAIT_S = 0.5
POLL_S = 0.02
HOLDER_BYTES = 20  # what the holder writes has one length, so that it is never half of its predecessor's


class VerifierBusy(PhotonError):
    """Another process verifies here."""


def take(directory: Path, *, wait_s: float = WAIT_S, sleep: Callable[[float], None] = time.sleep) -> int:
    """A descriptor that holds ``lock`` in this directory until it is closed or the process dies. Waits up to
    ``wait_s``: a process that only looks holds the lock for a moment, too. Raises VerifierBusy, OSError."""
    path = directory / NAME
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    left = round(wait_s / POLL_S)
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if not left:
                holder = _holder(fd)
                os.close(fd)
                raise VerifierBusy(f"{path}: another verifier ({holder}) runs here; stop it first") from None
        left -= 1
        sleep(POLL_S)
    with contextlib.suppress(OSError):  # a full disk: for people only
        os.pwrite(fd, f"pid {os.getpid()}".ljust(HOLDER_BYTES).encode(), 0)
    return fd


def _holder(fd: int) -> str:
    return os.pread(fd, 100, 0).decode(errors="replace").strip() or "pid unknown"


def holder_of(path: Path) -> str | None:
    """What the live process that holds this lock file wrote into it; None: no process does, or there is no such file.
    Takes the lock shared for a moment: a process that wants it just then tries again."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _holder(fd)
    finally:
        os.close(fd)
    return None
