"""Rereads a changed deployment file, for settings that processes adopt without a restart."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from photon.config.errors import UsageError
from photon.config.settings import Settings


class SettingsReload:
    def __init__(self, file: Path, load: Callable[[], Settings], report: Callable[[str], None]) -> None:
        """``load`` reads the file as at the start, with environment and flags; ``report`` receives its errors.

        Create this before the file is read for the first time, so that no change is missed.
        """
        self._file = file
        self._load = load
        self._report = report
        self._seen = _stamp(file)
        self._said = ""

    def changed(self) -> Settings | None:
        """Returns the settings if the file has changed since the last call and is valid.

        An invalid or half-written file changes nothing; it is reported once and read again after its next change.
        """
        stamp = _stamp(self._file)
        if stamp == self._seen:
            return None
        self._seen = stamp
        try:
            settings = self._load()
        except UsageError as error:
            if str(error) != self._said:
                self._report(f"the changed configuration is not applied: {error}")
            self._said = str(error)
            return None
        self._said = ""
        return settings


def _stamp(file: Path) -> tuple[int, int, int] | None:
    """Returns values that change whenever the file's content does; ``None`` if it does not exist."""
    try:
        stat = os.stat(file)
    except OSError:
        return None
    return stat.st_ino, stat.st_mtime_ns, stat.st_size
