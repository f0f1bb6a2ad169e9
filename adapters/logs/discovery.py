"""Finds the logs in a directory by their names and patterns, with one stat per file."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from photon.adapters.logs.elsewhere import FoundFile, elsewhere
from photon.adapters.logs.links import Links
from photon.adapters.logs.problems import LogDirectoryError, ProblemKind, ProblemReporter
from photon.config.errors import UsageError

DEPTH_MAX = 32  # Directories nested deeper than this are not entered
# An entry that disappeared after it was listed, or a link that leads nowhere.
NOTHING_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
UNSUPPORTED_SUFFIXES = (".lz4", ".br", ".zip", ".7z", ".Z")


# Called with each directory before it is listed ("": the log directory itself), and with each link to a file.
Enter = Callable[[str], None]


class SeenFiles(NamedTuple):
    """Files found at the paths that were looked at, and the paths where there was none."""

    found: list[FoundFile]
    missing: list[str]


def _enter_nothing(path: str) -> None:
    pass


class Patterns(NamedTuple):
    """Compiled glob patterns, matched against relative paths."""

    match: Callable[[str], re.Match[str] | None]  # matches the files
    # Matches directories that may contain such a file. Others are not listed: a log may be next to a large tree.
    reach: Callable[[str], re.Match[str] | None]


def compile_patterns(patterns: Sequence[str]) -> Patterns:
    """Compiles glob patterns for relative paths: ``**/`` matches any directories; ``*`` and ``?`` match no slash.

    Raises UsageError.
    """
    above = [each for pattern in patterns for each in _above(pattern)]
    return Patterns(_any_of(patterns).match, _any_of(above).match)


def _any_of(patterns: Sequence[str]) -> re.Pattern[str]:
    try:
        return re.compile("|".join(f"(?:{_translate(p)})" for p in patterns) or r"(?!)")
    except re.error as error:
        raise UsageError(f"{', '.join(patterns)}: not a valid glob pattern ({error}); correct the [...]") from None


def _above(pattern: str) -> list[str]:
    """Returns patterns that match the parent directories of the files that ``pattern`` matches."""
    if re.search(r"\[[^\]]*/", pattern):  # a class that may contain the separator
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
    """Raises LogDirectoryError if ``directory`` does not exist or cannot be listed."""
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
    directory: Path,
    patterns: Patterns,
    problems: ProblemReporter,
    enter: Enter = _enter_nothing,
    links: Links | Sequence[str] = (),
) -> list[FoundFile]:
    """Returns regular files that match, sorted by path, without hidden ones and ``*.tmp``; one entry for each inode.

    A link that matches represents the log it leads to, including rolled files next to the target. ``links``: the
    directories that it may lead into, or the object that has already followed links of this directory.

    Raises OSError if the directory itself cannot be listed.
    """
    if (there := elsewhere(directory)) is not None:
        return sorted(file for file in there.files() if _is_wanted(file.path, patterns, problems))
    links = links if isinstance(links, Links) else Links(directory, links)
    links.begin(whole=True)
    found, behind = list[FoundFile](), list[FoundFile]()
    for path, entry in _walk(directory, "", patterns, problems, 0, enter):
        if not _is_log(path, patterns, problems):
            continue
        if entry.is_symlink():
            behind += _behind(path, links, problems, enter)
            continue
        try:
            st = entry.stat(follow_symlinks=False)
        except OSError as err:
            if err.errno not in NOTHING_THERE:
                problems.tell(ProblemKind.UNREADABLE, path, f"cannot be examined ({err.strerror})")
            continue
        if stat.S_ISREG(st.st_mode):
            found.append(_found(path, st))
    links.tell(problems)
    # A second name of one inode is not a second log. A link (current -> app.log) is dropped in favour of the real
    # name.
    taken: dict[tuple[int, int], FoundFile] = {}
    for each in (*found, *sorted(behind, key=lambda file: (file.rank, file.path))):
        taken.setdefault(each.key, each)
    return sorted(taken.values())


def _found(path: str, st: os.stat_result, rank: int = 0) -> FoundFile:
    return FoundFile(path, (st.st_dev, st.st_ino), st.st_size, st.st_mtime_ns, st.st_nlink, rank)


def _behind(path: str, links: Links, problems: ProblemReporter, enter: Enter) -> list[FoundFile]:
    """Returns the target of a link, and the other files of its log.

    Calls ``enter`` with the link before examining them.
    """
    if links.target(path) is None:
        return []
    enter(path)
    target = links.target(path)  # again: changes before the watch began are not notified
    if target is None:
        return []
    found = []
    try:
        st = os.lstat(target)
        if not stat.S_ISREG(st.st_mode):
            return []
        found.append(_found(path, st, 1))
    except (FileNotFoundError, NotADirectoryError):
        links.dangling.add(path)
    except OSError as err:
        links.unreadable(path, str(err.strerror))
        return []
    for each, st in links.siblings(path, target):
        if stat.S_ISREG(st.st_mode) and _is_readable(each, problems):
            found.append(_found(each, st, 2))
    return found


def look_at(
    directory: Path,
    patterns: Patterns,
    problems: ProblemReporter,
    paths: Collection[str],
    enter: Enter = _enter_nothing,
    links: Links | None = None,
) -> SeenFiles:
    """Looks for logs at these paths and, for directories, below them. Raises OSError if one cannot be examined."""
    links = Links(directory) if links is None else links
    links.begin(whole=False)
    seen = _seen(directory, patterns, problems, paths, enter, links)
    links.tell(problems)
    return seen


def _seen(
    directory: Path,
    patterns: Patterns,
    problems: ProblemReporter,
    paths: Collection[str],
    enter: Enter,
    links: Links,
) -> SeenFiles:
    found: list[FoundFile] = []
    missing = []
    root = f"{directory}/"
    for path in sorted(paths):
        try:
            st = os.lstat(root + path)
            if path.startswith("../"):  # a link leads to it, or to a file next to it
                if stat.S_ISREG(st.st_mode) and _is_readable(path, problems):
                    found.append(_found(path, st, 3))
                continue
            if stat.S_ISDIR(st.st_mode):
                found += _below(directory, path, patterns, problems, enter, links)
                continue
            if not _is_named(path.rpartition("/")[2], path, problems) or not _is_log(path, patterns, problems):
                continue
        except (FileNotFoundError, NotADirectoryError):
            missing.append(path)
            links.gone(path)
            continue
        if stat.S_ISLNK(st.st_mode):
            behind = _behind(path, links, problems, enter)
            found += behind
            missing += [] if any(each.path == path for each in behind) else [path]
        elif stat.S_ISREG(st.st_mode):
            found.append(_found(path, st))
            links.gone(path)
    there = {each.path for each in found}  # includes rolled files, for paths where nothing exists
    return SeenFiles(found, [path for path in missing if path not in there])


def _below(
    directory: Path, path: str, patterns: Patterns, problems: ProblemReporter, enter: Enter, links: Links
) -> Iterator[FoundFile]:
    if not patterns.reach(path) or any(not _is_named(part, path, problems) for part in path.split("/")):
        return
    below = [name for name, _ in _walk(directory, path + "/", patterns, problems, path.count("/") + 1, enter)]
    yield from _seen(directory, patterns, problems, below, enter, links).found


def _is_log(path: str, patterns: Patterns, problems: ProblemReporter) -> bool:
    return patterns.match(path) is not None and _is_supported(path, problems)


def _is_readable(path: str, problems: ProblemReporter) -> bool:
    """True unless the file is ignored because of its name or its compression; reports the latter."""
    return _is_named(path.rpartition("/")[2], path, problems) and _is_supported(path, problems)


def _is_supported(path: str, problems: ProblemReporter) -> bool:
    if path.endswith(UNSUPPORTED_SUFFIXES):
        problems.tell(
            ProblemKind.UNSUPPORTED,
            path,
            f"{path.rpartition('.')[2]} is not a supported compression; use .gz, .zst, .bz2 or .xz",
        )
        return False
    return True


def _is_wanted(path: str, patterns: Patterns, problems: ProblemReporter) -> bool:
    named = all(_is_named(part, path, problems) for part in path.split("/"))
    return named and _is_log(path, patterns, problems)


def _is_named(name: str, path: str, problems: ProblemReporter) -> bool:
    """True for a valid name that is not hidden or temporary."""
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
