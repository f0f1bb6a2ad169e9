"""Links in a log directory: permitted targets, and resolution.

Users who may write to a log directory can put a link there to any file that the reading process may read. So a file
is read only if it is really below the log directory, or below a directory listed in its side's ``follow_links``.
Scans skip other links. The check is made on the opened descriptor, because a file may be replaced by a link
between a path check and the open.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, TypeVar

from photon.adapters.logs.identity import log_name
from photon.adapters.logs.problems import ProblemKind, ProblemReporter
from photon.objects.paths import ObjectPath

T = TypeVar("T")
HOPS_MAX = 40  # consecutive links, the kernel's limit
NAMES_MAX = 65_536
name_of = lru_cache(maxsize=NAMES_MAX)(log_name)
_PATH_ONLY = os.O_CLOEXEC | getattr(os, "O_PATH", 0)


class LinkOutside(PermissionError):
    """A path leads to a file that must not be read. ``strerror`` names it, and says what to do."""

    def __init__(self, real: str) -> None:
        super().__init__(None, _outside(real))

    def __str__(self) -> str:
        return str(self.strerror)


@dataclass(frozen=True, slots=True)
class LogPath:
    """A log file, given by its path in a log directory of this machine."""

    directory: Path
    path: str
    links: Sequence[str] = ()  # further directories that may really contain it

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    def open(self, flags: int) -> int:
        """Returns a descriptor. Raises LinkOutside, OSError."""
        fd = _at_its_place(self.directory, self.path, lambda place: os.open(place, flags))
        try:
            self._check(fd)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def _check(self, fd: int) -> None:
        real = _real_of(fd, self.directory / self.path)
        as_written = [str(self.directory), *self.links]
        if not is_below(real, as_written) and not is_below(real, really(as_written)):
            raise LinkOutside(real)


def log_path(directory: Path, path: str, links: Sequence[str] = ()) -> Path | LogPath:
    """Returns a log file to open. ``links``: the side's ``follow_links``."""
    return directory / path if isinstance(directory, ObjectPath) else LogPath(directory, path, links)


def stat_log(directory: Path, path: str) -> os.stat_result:
    """Returns the stat of the file that the log is read from now. Raises OSError."""
    return _at_its_place(directory, path, os.stat)


def _at_its_place(directory: Path, path: str, use: Callable[[str], T]) -> T:
    """Calls ``use`` with a log's path. If a rolled log (``web.log.1``) is missing, looks next to a link's target."""
    try:
        return use(f"{directory}/{path}")
    except FileNotFoundError:
        link = name_of(path)
        if link == path or not (through := hops(directory, link)):
            raise
    return use(through[-1] + path[len(link) :])


def rolled_path(link: str, target: str, name: str) -> str:
    """Returns the path that ``name``, a rolled file next to a link's target, has in the log that the link names.

    Empty if the link or the target is itself named like a rolled file.
    """
    return link + name[len(target) :] if name_of(link) == link and name_of(target) == target else ""


def relative(real: str, directory: str) -> str:
    """Returns the relative path from a directory's real path to another real path."""
    to, base = real.split("/"), directory.rstrip("/").split("/")
    same = 0
    while same < len(base) and same < len(to) and to[same] == base[same]:
        same += 1
    return "/".join([".."] * (len(base) - same) + to[same:])


def is_below(real: str, directories: Iterable[str]) -> bool:
    """True if a real path is below one of these directories.

    No path is below a directory that is given with links or ``..``.
    """
    return any(real.startswith(each.rstrip("/") + "/") for each in directories)


def really(directories: Iterable[str]) -> list[str]:
    """Returns the real paths of existing directories."""
    found = []
    for each in directories:
        try:
            found.append(_real(each))
        except OSError:
            continue
    return found


def _real(place: str) -> str:
    """Lets the kernel resolve a path, as it limits the number of links. Raises OSError."""
    fd = os.open(place, _PATH_ONLY)
    try:
        return _real_of(fd, place)
    finally:
        os.close(fd)


def _real_of(fd: int, place: str | Path) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:  # no /proc: not Linux
        return os.path.realpath(place)


def _outside(real: str) -> str:
    shown = real if real.isprintable() else ascii(real)
    todo = "add its directory to follow_links, or remove the link"
    return f"leads to {shown}, outside the log directory; not read: {todo}"


def hops(directory: Path | str, path: str, known: dict[str, str] | None = None) -> list[str]:
    """Returns the places along a link's path; the last one is not a link, and may not exist.

    Each is in a directory's real path, unless that directory does not exist. ``known``: real paths of directories,
    which this function extends.
    """
    known = {} if known is None else known
    found: list[str] = []
    place = f"{directory}/{path}"
    while len(found) < HOPS_MAX:
        try:
            text = os.readlink(place)
        except OSError:
            break
        above, name = os.path.split(os.path.join(os.path.dirname(place), text))
        if name in ("", ".", ".."):
            above, name = os.path.split(os.path.realpath(os.path.join(above, name)))
        try:
            if above not in known:
                known[above] = _real(above)
        except OSError:
            found.append(os.path.normpath(f"{above}/{name}"))
            break
        place = f"{known[above].rstrip('/')}/{name}"
        found.append(place)
    return found


class Sibling(NamedTuple):
    """A rolled file of the same log next to the target of a link."""

    path: str  # as if it were next to the link; else relative to the log directory
    stat: os.stat_result


class Links:
    """Follows the links of a log directory. Directories of targets are listed once per pass."""

    def __init__(self, directory: Path, follow: Sequence[str] = ()) -> None:
        """``follow``: directories that links may lead into. Raises OSError if one does not exist."""
        self._directory = directory
        self._follow = follow
        self._root = ""
        self._inside: list[str] = []
        self._listed: dict[str, dict[str, list[os.DirEntry[str]]]] = {}
        self._known: dict[str, str] = {}
        self._refused: dict[str, str] = {}
        self.dangling: set[str] = set()  # links that may be followed and had no target when last examined

    def begin(self, *, whole: bool) -> None:
        """Begins a pass; ``whole``: over all links. Raises OSError if the log directory is gone."""
        self._listed.clear()
        self._known.clear()
        if whole:
            self._refused.clear()
            self.dangling.clear()
        self._root = _real(str(self._directory))
        self._inside = [self._root, *really(self._follow)]

    def target(self, path: str) -> str | None:
        """Returns the place that a link leads to; ``None`` means it may not be followed (see ``tell``)."""
        self._refused.pop(path, None)
        self.dangling.discard(path)
        places = hops(self._root, path, self._known)
        if not places:  # no longer a link
            return None
        if is_below(places[-1], self._inside):
            return places[-1]
        if os.path.isfile(places[-1]) or _is_denied(places[-1]):
            self._refused[path] = _outside(places[-1])
        return None

    def unreadable(self, path: str, why: str) -> None:
        """Notes that a link may be followed, but that its target cannot be examined."""
        self._refused[path] = f"its target cannot be examined ({why}); make it readable for this user"

    def gone(self, path: str) -> None:
        """Notes that nothing exists at this path."""
        self._refused.pop(path, None)
        self.dangling.discard(path)

    def tell(self, problems: ProblemReporter) -> None:
        """Reports links that are not followed, and withdraws reports that no longer hold."""
        problems.only(ProblemKind.LINK, self._refused)

    def siblings(self, link: str, target: str) -> list[Sibling]:
        """Returns other files of the log that is, or was, at the link's ``target``."""
        above, name = os.path.split(target)
        if above not in self._listed:
            self._listed[above] = _by_log_name(above)
        found = []
        for entry in self._listed[above].get(name_of(name), ()):
            if entry.name == name:
                continue
            try:
                path = rolled_path(link, name, entry.name)
                if not path or os.path.lexists(f"{self._root}/{path}"):
                    path = relative(f"{above}/{entry.name}", self._root)
                found.append(Sibling(path, entry.stat(follow_symlinks=False)))
            except OSError:  # gone since
                continue
        return found


def _is_denied(place: str) -> bool:
    try:
        os.stat(place)
    except PermissionError:
        return True
    except OSError:
        return False
    return False


def _by_log_name(directory: str) -> dict[str, list[os.DirEntry[str]]]:
    """Returns the regular files of a directory by the name of their log; empty if it cannot be listed."""
    found: dict[str, list[os.DirEntry[str]]] = {}
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.is_file(follow_symlinks=False):
                    found.setdefault(name_of(entry.name), []).append(entry)
    except OSError:
        return {}
    return found
