"""One process at a time has a map's directory open."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from photon.eventstore.file_map import FileMapBusy


def lock_map(directory: Path) -> int:
    """The descriptor that holds ``map.lock`` until it is closed. Raises FileMapBusy."""
    path = directory / "map.lock"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise FileMapBusy(f"{directory}: another event store has this map open; stop it first") from None
    return fd
