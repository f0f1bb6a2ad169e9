"""The slot's lock: an flock on a local disk, held until the process has ended (rule 6)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from photon.adapters.logs.mounts import read_type
from photon.config.file_lock import holder_of, is_locked, lock_file, name_holder
from photon.joiner.slot.identity import SlotRefused

LOCK_NAME = "lock"
WAIT_S = 10.0  # longest wait of a start for a predecessor that is being killed
# File systems on which locks or syncs are not reliable.
NETWORK_FILE_SYSTEMS = frozenset(
    ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "fuse.sshfs", "fuse.s3fs")
)


class SlotLock:
    """A slot's lock, held from ``take`` until ``release`` or the process ends. The descriptor is close-on-exec."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / LOCK_NAME
        self._fd = -1

    def take(self, *, wait_s: float = WAIT_S, sleep: Callable[[float], None] = time.sleep) -> None:
        """Takes the lock, waiting up to ``wait_s``. Raises SlotRefused if another process still runs in this slot."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        kind = read_type(self._path.parent)
        if kind in NETWORK_FILE_SYSTEMS:
            raise SlotRefused(
                f"{self._path.parent}: is on {kind}, where locks do not hold; put slots on a local disk"
            )
        descriptor = lock_file(self._path, wait_s=wait_s, sleep=sleep)
        if descriptor is None:
            raise SlotRefused(
                f"{self._path}: locked by another live process ({holder_of(self._path) or 'unknown'}); "
                "stop it, or give this joiner another slot"
            )
        name_holder(descriptor)
        self._fd = descriptor

    def release(self) -> None:
        """Releases the lock. Call it only once nothing writes in the slot any more."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def is_held(directory: Path) -> bool:
    """True if a process runs in the slot. Raises OSError."""
    return is_locked(directory / LOCK_NAME)
