"""Where a datacentre keeps the copies of other datacentres' output, for those who read them.

Below its state: ``copies/DATACENTRE/SLOT/``, in the form of a slot's state directory (``photon.outputs.published``),
with the files themselves in ``output/`` in it.
"""

from __future__ import annotations

from pathlib import Path

from photon.config.disk import Disk

COPIES_NAME = "copies"
COPY_NAME = "copy.json"
OUTPUT_NAME = "output"
SEALED_NAME = "sealed.json"
"""Written when its slot is retired, before anything is cleared or read by it: the copy changes no more."""


def kept_directory(state: Path, datacentre: str, slot: str) -> Path:
    """Of one copy. ``state``: of the datacentre that keeps it."""
    return state / COPIES_NAME / datacentre / slot


def is_kept(disk: Disk, directory: Path) -> bool:
    """Whether a copy is there."""
    return disk.exists(directory / COPY_NAME)


def kept_slots(disk: Disk, state: Path, datacentre: str) -> list[Path]:
    """The copies of a datacentre's slots below the state of another, by name."""
    directory = state / COPIES_NAME / datacentre
    return [directory / name for name in disk.names(directory) if is_kept(disk, directory / name)]
