"""Notification of changes below a log directory: the interface, and the choice between it and polling."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from photon.adapters.logs.api import Changes
from photon.adapters.logs.discovery import check_directory
from photon.adapters.logs.elsewhere import elsewhere
from photon.adapters.logs.mounts import is_network, read_type


class Watch(enum.StrEnum):
    # By notification; by polling on a network file system, where other machines' writes are not notified.
    AUTO = "auto"
    NATIVE = "native"  # by notification on any file system: only this machine writes there
    POLL = "poll"


class Watcher(Protocol):
    """Collects changes in the directories that were entered. Paths are relative to the log directory."""

    failed: str  # why it may miss changes, in one line; then close it. Empty if all is well

    def begin(self) -> None:
        """Begins a pass: every directory will be entered again."""
        ...

    def end(self) -> None:
        """Ends a pass: directories that were not entered since ``begin`` no longer exist."""
        ...

    def enter(self, path: str) -> None:
        """From now on, collects changes in this directory, or of the log that this link leads to."""
        ...

    def changed(self) -> Changes | None:
        """Returns where something changed since the last call; ``None`` means anywhere."""
        ...

    def fileno(self) -> int:
        """Returns a descriptor that is readable whenever ``changed`` has news."""
        ...

    def close(self) -> None: ...


def open_watcher(directory: Path, watch: Watch, report: Callable[[str], None]) -> Watcher | None:
    """Returns a watcher; ``None`` if the directory has to be polled. ``report`` receives a line if that is
    unexpected.

    Raises LogDirectoryError.
    """
    check_directory(directory)
    if watch is Watch.POLL or elsewhere(directory) is not None:
        return None
    kind = read_type(directory)
    if watch is Watch.AUTO and is_network(kind):
        report(f"{directory} is on a network file system ({kind}): it is polled for changes")
        return None
    from photon.adapters.logs.inotify import InotifyWatcher  # not available on every system

    try:
        foreign = is_network if watch is Watch.AUTO else lambda kind: False
        return InotifyWatcher(directory, foreign=foreign)
    except OSError as err:
        report(
            f"{directory}: the system does not notify of changes ({err.strerror}), so it is polled; "
            "raise the sysctl fs.inotify.max_user_instances"
        )
        return None


@contextmanager
def watching(directory: Path, watch: Watch, report: Callable[[str], None]) -> Iterator[Watcher | None]:
    """``open_watcher`` as a context manager."""
    watcher = open_watcher(directory, watch, report)
    try:
        yield watcher
    finally:
        if watcher is not None:
            watcher.close()
