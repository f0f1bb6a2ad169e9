"""A slot as seen from outside: if it exists, which process holds it, and how many bytes are still to be redone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from photon.config.disk import Disk
from photon.config.file_lock import holder_of

LOCK_NAME = "lock"
REDO_NAME = "redo"


@dataclass(frozen=True, slots=True)
class SlotState:
    there: bool  # its state directory is on this machine
    holder: str | None  # the live process that holds its lock
    redo_bytes: int
    retired: bool | None  # ``None``: unknown

    @property
    def word(self) -> str:
        if self.retired:
            return "retired"
        if not self.there:
            return "missing"
        return "live" if self.holder is not None else "down"

    def __str__(self) -> str:
        parts = ["retired"] if self.retired else []
        if not self.there:
            return ", ".join([*parts, "its directory is not there"])
        holder = "no live process holds it" if self.holder is None else f"held by a live process ({self.holder})"
        return ", ".join([*parts, holder, f"{self.redo_bytes:,} bytes in its redo log"])


def state_of(disk: Disk, directory: Path, *, retired: bool | None = None) -> SlotState:
    if not disk.exists(directory):
        return SlotState(False, None, 0, retired)
    redo = directory / REDO_NAME
    held = 0
    for name in disk.names(redo):
        try:
            held += disk.size(redo / name)
        except FileNotFoundError:  # a segment that was finished with
            continue
    return SlotState(True, holder_of(directory / LOCK_NAME), held, retired)
