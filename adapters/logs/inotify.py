"""Notification by Linux's inotify: one watch a directory, no thread.

The kernel queues an event before the write that it tells of returns. When its queue overflows, or a change leaves
open where things stand now (a directory moved away), the answer is *anywhere*.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

from inotify_simple import Event, INotify, flags

from photon.adapters.logs.api import Changes
from photon.adapters.logs.mounts import read_type

MASK = int(
    flags.MODIFY | flags.ATTRIB | flags.CREATE | flags.DELETE | flags.MOVED_FROM | flags.MOVED_TO
    | flags.DELETE_SELF | flags.MOVE_SELF | flags.EXCL_UNLINK
)  # fmt: skip
ATTRIBUTES = int(flags.ATTRIB)
ANYWHERE = int(flags.Q_OVERFLOW | flags.UNMOUNT)
DELETE = int(flags.DELETE)
LEFT = int(flags.DELETE | flags.MOVED_FROM)
ISDIR, IGNORED = int(flags.ISDIR), int(flags.IGNORED)
MOVED_FROM, MOVED_TO = int(flags.MOVED_FROM), int(flags.MOVED_TO)


class InotifyWatcher:
    """Implements watching.Watcher. Raises OSError when there can be no further inotify instance."""

    def __init__(
        self, directory: Path, *, foreign: Callable[[str], bool] = lambda kind: False, attributes: bool = True
    ) -> None:
        """``foreign``: whether a file system of this type changes unnoticed; meeting one, the watcher has failed.
        ``attributes``: whether a change of a file's owner, rights or times counts."""
        self._mask = MASK if attributes else MASK & ~ATTRIBUTES
        self._directory = directory
        self._foreign = foreign
        self._inotify = INotify(nonblocking=True)
        self._paths: dict[int, str] = {}
        self._stale: set[int] = set()
        self._devices: set[int] = set()
        self._whole = True  # nothing is known before the first look at everything
        self.failed = ""

    def begin(self) -> None:
        self._stale = set(self._paths)

    def end(self) -> None:
        for wd in self._stale:
            self._paths.pop(wd, None)
            try:
                self._inotify.rm_watch(wd)
            except OSError:  # its directory is gone, and the watch with it
                continue
        self._stale = set()

    def enter(self, path: str) -> None:
        if self.failed:
            return
        place = self._directory / path
        try:
            wd = self._inotify.add_watch(place, self._mask)
            device = os.stat(place).st_dev
        except OSError as err:
            if err.errno in (errno.ENOSPC, errno.ENOMEM):
                self.failed = (
                    f"{self._directory}: the kernel watches no further directory ({len(self._paths)} are watched), "
                    "so it is polled for changes; raise the sysctl fs.inotify.max_user_watches"
                )
            return  # else: gone again, or not to be listed either; its parent notifies of a change
        if device not in self._devices:
            self._devices.add(device)
            if self._foreign(kind := read_type(place)):
                self.failed = f"{place} is on a network file system ({kind}): {self._directory} is polled for changes"
        self._paths[wd] = path
        self._stale.discard(wd)

    def changed(self) -> Changes | None:
        try:
            events = self._inotify.read(timeout=0)
        except OSError as err:
            self.failed = f"{self._directory}: notification failed ({err.strerror}), so it is polled for changes"
            return None
        found = Changes(set(), set())
        moves: set[int] = set()  # files that left one place and were not yet seen to come to another
        anywhere = False
        for event in events:
            path = self._place(event, moves)
            if path is None:
                anywhere = True
            elif path:
                found.paths.add(path)
                if event.mask & DELETE:
                    found.deleted.add(path)
        return None if anywhere or moves else found

    def _place(self, event: Event, moves: set[int]) -> str | None:
        """The path that an event is about; empty: none; None: anywhere."""
        wd, mask, cookie, name = event
        if mask & ANYWHERE:
            return None
        base = self._paths.get(wd)
        if base is None:
            return ""
        if mask & IGNORED:
            del self._paths[wd]
            return base or None
        if not name:  # of a directory itself, or of the file behind a link
            return base or None
        if mask & ISDIR and mask & LEFT:
            return None
        if mask & MOVED_FROM:
            moves.add(cookie)
        elif mask & MOVED_TO:
            moves.discard(cookie)
        return f"{base}/{name}" if base else str(name)

    def fileno(self) -> int:
        return int(self._inotify.fileno())

    def close(self) -> None:
        self.failed = self.failed or "closed"
        self._inotify.close()
