"""Notification by Linux's inotify: one watch per directory, no thread.

Directories along a link's path are watched too: its target may be renamed and created again while the link
itself does not change.

The kernel queues an event before the write it reports returns. When its queue overflows, or a change leaves files at
unknown places (a directory moved away), the answer is *anywhere*.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from inotify_simple import Event, INotify, flags

from photon.adapters.logs.api import Changes
from photon.adapters.logs.links import hops, name_of, relative, rolled_path
from photon.adapters.logs.mounts import read_type

MASK = int(
    flags.MODIFY | flags.ATTRIB | flags.CREATE | flags.DELETE | flags.MOVED_FROM | flags.MOVED_TO
    | flags.DELETE_SELF | flags.MOVE_SELF | flags.EXCL_UNLINK
)  # fmt: skip
ANYWHERE = int(flags.Q_OVERFLOW | flags.UNMOUNT)
DELETE, MODIFY = int(flags.DELETE), int(flags.MODIFY)
LEFT = int(flags.DELETE | flags.MOVED_FROM)
ISDIR, IGNORED = int(flags.ISDIR), int(flags.IGNORED)
MOVED_FROM, MOVED_TO = int(flags.MOVED_FROM), int(flags.MOVED_TO)


class _Behind(NamedTuple):
    """A watched directory through which links in the log directory lead."""

    path: str  # relative to the log directory
    links: dict[str, set[str]]  # name of a log in it -> paths of the links that lead there


class InotifyWatcher:
    """Implements watching.Watcher. Raises OSError if no further inotify instance is available."""

    def __init__(self, directory: Path, *, foreign: Callable[[str], bool] = lambda kind: False) -> None:
        """``foreign``: True for types of file systems without notification. The watcher fails if it meets one."""
        self._directory = directory
        self._foreign = foreign
        self._inotify = INotify(nonblocking=True)
        self._paths: dict[int, str] = {}
        self._behind: dict[int, _Behind] = {}  # watches of directories that links lead through
        self._stale: set[int] = set()
        self._devices: set[int] = set()
        self._whole = True  # nothing is known before the first full scan
        self.failed = ""

    def begin(self) -> None:
        self._stale = {*self._paths, *self._behind}
        self._behind.clear()

    def end(self) -> None:
        for wd in self._stale:
            self._paths.pop(wd, None)
            self._behind.pop(wd, None)
            try:
                self._inotify.rm_watch(wd)
            except OSError:  # the directory is gone, and the watch with it
                continue
        self._stale = set()

    def enter(self, path: str) -> None:
        if path and (through := hops(self._directory, path)):
            for place in through:
                above, name = os.path.split(place)
                if (wd := self._watch(Path(above))) is not None:
                    if wd not in self._behind:
                        self._behind[wd] = _Behind(relative(above, os.path.realpath(self._directory)), {})
                    self._behind[wd].links.setdefault(name_of(name), set()).add(path)
        elif (wd := self._watch(self._directory / path)) is not None:
            self._paths[wd] = path

    def _watch(self, place: Path) -> int | None:
        """Watches a directory; ``None`` if that is impossible."""
        if self.failed:
            return None
        try:
            wd = int(self._inotify.add_watch(place, MASK | flags.ONLYDIR))
            device = os.stat(place).st_dev
        except OSError as err:
            if err.errno in (errno.ENOSPC, errno.ENOMEM):
                self.failed = (
                    f"{self._directory}: the kernel watches no further directory ({len(self._paths)} are watched), "
                    "so it is polled for changes; raise the sysctl fs.inotify.max_user_watches"
                )
            return None  # gone again, or not listable; its parent reports changes
        if device not in self._devices:
            self._devices.add(device)
            if self._foreign(kind := read_type(place)):
                self.failed = f"{place} is on a network file system ({kind}): {self._directory} is polled for changes"
        self._stale.discard(wd)
        return wd

    def changed(self) -> Changes | None:
        try:
            events = self._inotify.read(timeout=0)
        except OSError as err:
            self.failed = f"{self._directory}: notification failed ({err.strerror}), so it is polled for changes"
            return None
        found = Changes(set(), set())
        moves: set[int] = set()  # files that left one place and have not appeared elsewhere
        anywhere = False
        for event in events:
            paths = self._places(event, moves)
            if paths is None:
                anywhere = True
                continue
            found.paths.update(paths)
            if event.mask & DELETE:
                found.deleted.update(paths)
        return None if anywhere or moves else found

    def _places(self, event: Event, moves: set[int]) -> list[str] | None:
        """Returns the paths that an event concerns, its own first; ``None`` means that they can be anywhere."""
        wd, mask, cookie, name = event
        if mask & ANYWHERE:
            return None
        base, behind = self._paths.get(wd), self._behind.get(wd)
        if mask & IGNORED:
            self._paths.pop(wd, None)
            self._behind.pop(wd, None)
        if not name:  # about the directory itself
            links = [] if behind is None else sorted(set().union(*behind.links.values()))
            return None if base == "" else [*([base] if base else []), *links]
        links = [] if behind is None else sorted(behind.links.get(name_of(name), ()))
        if base is not None:
            path = f"{base}/{name}" if base else str(name)
        elif behind is not None and links:
            path = f"{behind.path}/{name}"
            if mask & MODIFY:  # grown, not moved
                return [path]
            links += [rolled for link in links if (rolled := rolled_path(link, name_of(name), name))]
        else:
            return []
        if mask & ISDIR and mask & LEFT:
            return None
        if mask & MOVED_FROM:
            moves.add(cookie)
        elif mask & MOVED_TO:
            moves.discard(cookie)
        return [path, *links]

    def fileno(self) -> int:
        return int(self._inotify.fileno())

    def close(self) -> None:
        self.failed = self.failed or "closed"
        self._inotify.close()
