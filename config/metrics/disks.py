"""Free space in the directories that a process writes to."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from photon.config.metrics.readings import Readings, Source


def free_space(directories: Mapping[str, Path]) -> Source:
    """Returns a source of the free bytes in each of ``directories`` (purpose -> path) that exists."""

    def read(into: Readings) -> None:
        for name, path in directories.items():
            try:
                found = os.statvfs(path)
            except OSError:
                continue
            into.put("photon_disk_free_bytes", found.f_bavail * found.f_frsize, directory=name)

    return read
