"""A disk on which the process ends at any change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from photon.config.disk import RealAppendFile, RealDisk


class Killed(Exception):
    """The process ends here."""


def _change(method: Callable[..., None]) -> Callable[..., None]:
    def dying(disk: DyingDisk, *arguments: Any) -> None:
        disk.step()
        method(disk, *arguments)
        disk.step()

    return dying


class DyingDisk(RealDisk):
    """The process ends after so many steps: each change has one before and one after it, a write one within."""

    def __init__(self, left: float) -> None:
        self.left = left

    def step(self, what: object = None) -> None:
        self.left -= 1
        if self.left < 0:
            raise Killed

    def append(self, path: Path) -> DyingFile:
        self.step()
        return DyingFile(self, path)

    rename = _change(RealDisk.rename)
    remove = _change(RealDisk.remove)
    truncate = _change(RealDisk.truncate)
    sync_dir = _change(RealDisk.sync_dir)


class DyingFile(RealAppendFile):
    def __init__(self, disk: DyingDisk, path: Path) -> None:
        super().__init__(path)
        self.disk = disk

    def write(self, *chunks: bytes) -> None:
        data = b"".join(chunks)
        super().write(data[: len(data) // 2])
        self.disk.step()
        super().write(data[len(data) // 2 :])

    def sync(self) -> None:
        self.disk.step()
        super().sync()
        self.disk.step()
