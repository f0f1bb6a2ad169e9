"""Ensures one verifier at a time, with a lock in each slot's ``verifier/`` directory and one for the pipeline."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from photon.config.errors import PhotonError
from photon.config.file_lock import holder_of, lock_file, name_holder

NAME = "lock"
WAIT_S = 0.5


class VerifierBusy(PhotonError):
    """Another process verifies this slot or pipeline."""


def take(directory: Path, *, wait_s: float = WAIT_S, sleep: Callable[[float], None] = time.sleep) -> int:
    """Locks ``lock`` in this directory. Returns a descriptor that holds the lock until it is closed or the process
    ends.

    Raises VerifierBusy, OSError.
    """
    path = directory / NAME
    descriptor = lock_file(path, wait_s=wait_s, sleep=sleep)
    if descriptor is None:
        raise VerifierBusy(f"{path}: another verifier ({holder_of(path) or 'pid unknown'}) runs here; stop it first")
    name_holder(descriptor)
    return descriptor
