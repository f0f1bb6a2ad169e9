"""Which files of a directory are logs: names, patterns, and one stat each."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from photon.adapters.logs.elsewhere import FoundFile, elsewhere
from photon.adapters.logs.problems import LogDirectoryError, ProblemKind, ProblemReporter

DEPTH_MAX = 32
"""Directories nested deeper than this are not entered."""
NOTHING_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
"""An entry that is gone since it was listed, or a link that leads nowhere."""
UNSUPPORTED_SUFFIXES = (".bz2", ".xz", ".lz4", ".br", ".zip", ".Z")


Enter = Callable[[str], None]
"""Told of each directory before it is listed ("": the log directory itself), and of each link to a file."""


class SeenFiles(NamedTuple):
    """What stands at some paths now."""

    found: list[FoundFile]
    missing: list[str]


def _enter_nothing(path: str) -> None:
    pass


class Patterns(NamedTuple):
    """Compiled glob patterns, asked with relative paths."""

    match: Callable[[str], re.Match[str] | None]
    """Whether it is one of the files."""
    reach: Callable[[str], re.Match[str] | None]
    """Whether a file below the directory may be one. Others are not listed: beside one log may be a large tree."""


def compile_patterns(patterns: Sequence[str]) -> Patterns:
    """Glob patterns on relative paths: ``**/`` any directories, ``*`` and ``?`` within one part, ``[...]``."""
    above = [each for pattern in patterns for each in _above(pattern)]
    return Patterns(_any_of(patterns).match, _any_of(above).match)


def _any_of(patterns: Sequence[str]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{_translate(p)})" for p in patterns) or r"(?!)")


def _above(pattern: str) -> list[str]:
    """Patterns of the directories that are on the way to what matches."""
    if re.search(r"\[[^\]]*/", pattern):  # a class that may hold the separator
        return ["**"]
    parts = pattern.split("/")
    deep = next((place for place, part in enumerate(parts) if "**" in part), len(parts))
    above = ["/".join(parts[:end]) for end in range(1, min(deep + 1, len(parts)))]
    return above + (["/".join([*parts[:deep], "**"])] if deep < len(parts) else [])


def _translate(pattern: str) -> str:
    out = []
    i = 0
    while i < len(pattern):
        if pattern.startswith("**/", i):
            out.append("(?:[^/]+/)*")
            i += 3
        elif pattern.startswith("**", i):
            out.append(".*")
            i += 2
        elif pattern[i] == "*":
            out.append("[^/]*")
            i += 1
        elif pattern[i] == "?":
            out.append("[^/]")
            i += 1
        elif pattern[i] == "[" and (close := pattern.find("]", i + 2)) > 0:
            inside = pattern[i + 1 : close].replace("\\", r"\\").replace("[", r"\[")
            out.append(f"[{'^' + inside[1:] if inside[0] == '!' else inside}]")
            i = close + 1
        else:
            out.append(re.escape(pattern[i]))
            i += 1
    return "".join(out) + r"\Z"


def check_directory(directory: Path) -> None:
    """Raises LogDirectoryError when it is not a directory that can be listed."""
    there = elsewhere(directory)
    try:
        os.listdir(directory) if there is None else there.check()
    except FileNotFoundError:
        raise LogDirectoryError("no such directory", str(directory), "create it or name another one") from None
    except NotADirectoryError:
        raise LogDirectoryError(
            "is a file, not a directory", str(directory), "name the directory that the logs are in"
        ) from None
    except OSError as err:
        raise LogDirectoryError(
            f"cannot be listed ({err.strerror})", str(directory), "make it readable for this user"
        ) from None


def discover(
    directory: Path, patterns: Patterns, problems: ProblemReporter, enter: Enter = _enter_nothing
) -> list[FoundFile]:
    """Regular files that match, sorted by path; hidden ones and ``*.tmp`` left out; one entry for each inode.

    Raises OSError when the directory itself cannot be listed.
    """
    if (there := elsewhere(directory)) is not None:
        return sorted(file for file in there.files() if _is_wanted(file.path, patterns, problems))
    found: dict[tuple[int, int], FoundFile] = {}
    for path, entry in _walk(directory, "", patterns, problems, 0, enter):
        if not _is_log(path, patterns, problems):
            continue
        try:
            st = entry.stat()
        except OSError as err:
            if err.errno not in NOTHING_THERE:
                problems.tell(ProblemKind.UNREADABLE, path, f"cannot be looked at ({err.strerror})")
            continue
        if not stat.S_ISREG(st.st_mode):
            continue
        key = (st.st_dev, st.st_ino)
        link = entry.is_symlink()
        # A second name of one inode is no second log. A link (current -> app.log) gives way to the real name.
        if key not in found or link < found[key].link:
            found[key] = FoundFile(path, key, st.st_size, st.st_mtime_ns, st.st_nlink, link)
    links = [each.path for each in found.values() if each.link]
    return sorted([each for each in found.values() if not each.link] + look_at_links(directory, links, enter))


def look_at_links(directory: Path, links: Sequence[str], enter: Enter) -> list[FoundFile]:
    """The files that these links lead to, seen after ``enter`` was told of them."""
    found = []
    for path in links:
        enter(path)
        try:
            st = os.stat(directory / path)
        except OSError:
            continue
        if stat.S_ISREG(st.st_mode):
            found.append(FoundFile(path, (st.st_dev, st.st_ino), st.st_size, st.st_mtime_ns, st.st_nlink, True))
    return found


def look_at(
    directory: Path,
    patterns: Patterns,
    problems: ProblemReporter,
    paths: Collection[str],
    enter: Enter = _enter_nothing,
) -> SeenFiles:
    """The logs at, or in a directory below, these paths. Raises OSError when one cannot be looked at."""
    found: list[FoundFile] = []
    missing = []
    root = f"{directory}/"
    for path in sorted(paths):
        try:
            st = os.lstat(root + path)
            if stat.S_ISDIR(st.st_mode):
                found += _below(directory, path, patterns, problems, enter)
                continue
            if not _is_named(path.rpartition("/")[2], path, problems) or not _is_log(path, patterns, problems):
                continue
        except (FileNotFoundError, NotADirectoryError):
            missing.append(path)
            continue
        if stat.S_ISLNK(st.st_mode):
            behind = look_at_links(directory, [path], enter)
            found += behind
            missing += [] if behind else [path]
        elif stat.S_ISREG(st.st_mode):
            found.append(FoundFile(path, (st.st_dev, st.st_ino), st.st_size, st.st_mtime_ns, st.st_nlink))
    return SeenFiles(found, missing)


def _below(
    directory: Path, path: str, patterns: Patterns, problems: ProblemReporter, enter: Enter
) -> Iterator[FoundFile]:
    if not patterns.reach(path) or any(not _is_named(part, path, problems) for part in path.split("/")):
        return
    below = [name for name, _ in _walk(directory, path + "/", patterns, problems, path.count("/") + 1, enter)]
    yield from look_at(directory, patterns, problems, below, enter).found


def _is_log(path: str, patterns: Patterns, problems: ProblemReporter) -> bool:
    if not patterns.match(path):
        return False
    if path.endswith(UNSUPPORTED_SUFFIXES):
        problems.tell(ProblemKind.UNSUPPORTED, path, "this compression cannot be read; use gzip or zstd")
        return False
    return True


def _is_wanted(path: str, patterns: Patterns, problems: ProblemReporter) -> bool:
    named = all(_is_named(part, path, problems) for part in path.split("/"))
    return named and _is_log(path, patterns, problems)


def _is_named(name: str, path: str, problems: ProblemReporter) -> bool:
    """No hidden or temporary file, and a name that can be written down."""
    if name.startswith(".") or name.endswith(".tmp"):
        return False
    if not name.isascii():
        try:
            name.encode()
        except UnicodeEncodeError:
            shown = path.encode("utf-8", "backslashreplace").decode()
            problems.tell(ProblemKind.UNSUPPORTED, shown, "the file name is not valid UTF-8; rename it")
            return False
    return True


def _walk(
    directory: Path, prefix: str, patterns: Patterns, problems: ProblemReporter, depth: int, enter: Enter
) -> Iterator[tuple[str, os.DirEntry[str]]]:
    enter(prefix.removesuffix("/"))
    try:
        with os.scandir(directory / prefix) as it:
            entries = sorted(it, key=lambda e: e.name)
    except OSError as err:
        if not prefix:
            raise
        if not isinstance(err, FileNotFoundError):
            problems.tell(ProblemKind.UNREADABLE, prefix, f"directory cannot be listed ({err.strerror})")
        return
    problems.solved(ProblemKind.UNREADABLE, prefix)
    for entry in entries:
        path = prefix + entry.name
        if not _is_named(entry.name, path, problems):
            continue
        if not entry.is_dir(follow_symlinks=False):
            yield path, entry
        elif depth < DEPTH_MAX and patterns.reach(path):
            yield from _walk(directory, path + "/", patterns, problems, depth + 1, enter)
