"""One verifier at a time: a lock in each slot's ``verifier/`` directory, and one for the pipeline."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from photon.config.errors import PhotonError

NAME = "lock"


class VerifierBusy(PhotonError):
    """Another process verifies here. One line."""


def take(directory: Path) -> int:
    """The descriptor that holds ``lock`` in this directory until it is closed or the process is dead.

    Raises VerifierBusy, OSError.
    """
    path = directory / NAME
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(fd, 100, 0).decode(errors="replace").strip()
        os.close(fd)
        raise VerifierBusy(f"{path}: another verifier ({holder or 'pid unknown'}) runs here; stop it first") from None
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"pid {os.getpid()}".encode(), 0)
    return fd


def holder_of(path: Path) -> str | None:
    """What the live process that holds this lock file wrote into it; None: nobody holds it, or it is not there.

    The lock is asked for shared and let go at once: whoever takes it in that moment tries again.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.pread(fd, 100, 0).decode(errors="replace").strip() or "pid unknown"
    finally:
        os.close(fd)
    return None
