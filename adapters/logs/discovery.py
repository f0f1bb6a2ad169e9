"""Which files of a directory are logs: names, patterns, and one stat each."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from photon.adapters.logs.problems import LogDirectoryError, ProblemKind, ProblemReporter

DEPTH_MAX = 32
"""Directories nested deeper than this are not entered."""
UNSUPPORTED_SUFFIXES = (".zst", ".bz2", ".xz", ".lz4", ".br", ".zip", ".Z")


@dataclass(frozen=True, slots=True)
class Found:
    """A file as one scan saw it."""

    path: str  # relative to the log directory, '/' between the parts
    key: tuple[int, int]  # device, inode
    size: int  # bytes on disk
    mtime_ns: int


def compile_patterns(patterns: Sequence[str]) -> re.Pattern[str]:
    """Glob patterns on relative paths: ``**/`` any directories, ``*`` and ``?`` within one part, ``[...]``."""
    return re.compile("|".join(f"(?:{_translate(p)})" for p in patterns) or r"(?!)")


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
    try:
        os.listdir(directory)
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


def discover(directory: Path, patterns: re.Pattern[str], problems: ProblemReporter) -> list[Found]:
    """Regular files that match, sorted by path; hidden ones and ``*.tmp`` left out; one entry for each inode.

    Raises OSError when the directory itself cannot be listed.
    """
    found: dict[tuple[int, int], Found] = {}
    for path, entry in _walk(directory, "", problems, 0):
        if not patterns.match(path):
            continue
        if path.endswith(UNSUPPORTED_SUFFIXES):
            problems.tell(ProblemKind.UNSUPPORTED, path, "this compression cannot be read; use gzip or decompress it")
            continue
        try:
            st = entry.stat()
        except OSError:  # gone since, or a dangling link
            continue
        if not stat.S_ISREG(st.st_mode):
            continue
        key = (st.st_dev, st.st_ino)
        # A second name of one inode is no second log. A link (current -> app.log) gives way to the real name.
        if key not in found or (entry.is_symlink() < os.path.islink(directory / found[key].path)):
            found[key] = Found(path, key, st.st_size, st.st_mtime_ns)
    return sorted(found.values(), key=lambda f: f.path)


def _walk(
    directory: Path, prefix: str, problems: ProblemReporter, depth: int
) -> Iterator[tuple[str, os.DirEntry[str]]]:
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
        name = entry.name
        if name.startswith(".") or name.endswith(".tmp"):
            continue
        path = prefix + name
        try:
            name.encode()
        except UnicodeEncodeError:
            shown = path.encode("utf-8", "backslashreplace").decode()
            problems.tell(ProblemKind.UNSUPPORTED, shown, "the file name is not valid UTF-8; rename it")
            continue
        if not entry.is_dir(follow_symlinks=False):
            yield path, entry
        elif depth < DEPTH_MAX:
            yield from _walk(directory, path + "/", problems, depth + 1)
