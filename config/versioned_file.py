"""Small JSON files with a version, each replaced as a whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from photon.config.decoding import DECODE_ERRORS
from photon.config.disk import Disk


class _Versioned(Protocol):
    @property
    def version(self) -> int: ...


V = TypeVar("V", bound=_Versioned)


def read_present(disk: Disk, path: Path, kind: type[V], version: int, damaged: Callable[[Path, str], Exception]) -> V:
    """Raises OSError, also where it is not there, and ``damaged`` of the path and why it cannot be read."""
    try:
        found = msgspec.json.decode(disk.read(path), type=kind)
    except DECODE_ERRORS as bad:
        raise damaged(path, str(bad)) from None
    if found.version != version:
        raise damaged(path, f"version {found.version}, this release reads version {version}")
    return found


def read_versioned(
    disk: Disk, path: Path, kind: type[V], version: int, damaged: Callable[[Path, str], Exception]
) -> V | None:
    """As ``read_present``; None: it is not there."""
    return read_present(disk, path, kind, version, damaged) if disk.exists(path) else None
