"""One process at a time has a map's directory open."""

from __future__ import annotations

from pathlib import Path

from photon.config.file_lock import lock_file
from photon.eventstore.file_map import FileMapBusy


def lock_map(directory: Path) -> int:
    """The descriptor that holds ``map.lock`` until it is closed. Raises FileMapBusy."""
    descriptor = lock_file(directory / "map.lock")
    if descriptor is None:
        raise FileMapBusy(f"{directory}: another event store has this map open; stop it first")
    return descriptor
