"""The slot's lock: flock on a local disk, held until the process is really dead (rule 6)."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path

from photon.adapters.logs.mounts import read_type
from photon.joiner.slot.identity import SlotRefused

LOCK_NAME = "lock"
WAIT_S = 10.0  # how long a start waits for a predecessor that is being killed
POLL_S = 0.05
NETWORK_FILE_SYSTEMS = frozenset(
    ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "fuse.sshfs", "fuse.s3fs")
)
"""File systems on which a lock or a sync does not hold what it says."""


class SlotLock:
    """Held from ``take`` until ``release`` or the process's death. The descriptor is close-on-exec."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / LOCK_NAME
        self._fd = -1

    def take(self, *, wait_s: float = WAIT_S, sleep: Callable[[float], None] = time.sleep) -> None:
        """Blocks up to ``wait_s``. Raises SlotRefused when another process lives on in this slot."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        kind = read_type(self._path.parent)
        if kind in NETWORK_FILE_SYSTEMS:
            raise SlotRefused(
                f"{self._path.parent}: is on {kind}, where locks do not hold; put slots on a local disk"
            )
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        waited = 0.0
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if error.errno not in (errno.EWOULDBLOCK, errno.EACCES) or waited >= wait_s:
                    holder = os.pread(fd, 100, 0).decode(errors="replace").strip()
                    os.close(fd)
                    raise SlotRefused(
                        f"{self._path}: locked by another live process ({holder or 'unknown'}); "
                        "stop it, or give this joiner another slot"
                    ) from error
            sleep(POLL_S)
            waited += POLL_S
        with contextlib.suppress(OSError):  # a full disk: for people only
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"pid {os.getpid()}\n".encode(), 0)
        self._fd = fd

    def release(self) -> None:
        """Only after everything that writes in the slot has ended."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def is_held(directory: Path) -> bool:
    """Whether a process lives in the slot. Holds the lock for no longer than an instant: who wants it just then tries
    again."""
    try:
        fd = os.open(directory / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False
