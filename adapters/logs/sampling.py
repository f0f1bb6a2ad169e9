"""Samples records of a directory's logs: bounded, and spread over all files and over the length of each.

Foreign events refer to primary ones from shortly before. So both sides are sampled at the same places of their files
(the beginning, and each further quarter), and for primary logs most of each window is *before* the place: a larger
``size`` widens these windows until they cover everything.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from photon.adapters.contract import LINES
from photon.adapters.formats.encodings import looks_utf16
from photon.adapters.formats.text_lines import TextLines
from photon.adapters.logs.discovery import Patterns, discover
from photon.adapters.logs.files import ends_in_middle
from photon.adapters.logs.framings import open_anywhere
from photon.adapters.logs.links import LogPath, log_path
from photon.adapters.logs.problems import UNREAD, Problem, ProblemKind, ProblemReporter

FILES_MAX = 64
WINDOWS = 4  # per plain file; a compressed one is read from its beginning
WINDOW_MIN = 16 << 10
CUT_BYTES = 64 << 10
RECORDS_MIN = 40  # per file
HEAD_BYTES = 1024
TITLE_LINES = 20  # at the start of a file: blank ones count, as they may be above a header


@dataclass(frozen=True, slots=True)
class Sampled:
    """File name -> its records without line ends, from the start of the file."""

    records: dict[str, list[bytes]]
    whole: bool  # True if nothing was left out
    unread: tuple[Problem, ...] = ()  # files and directories that cannot be read, and why
    # Unix times between which the files were last written; ``None`` if unknown.
    written: tuple[int, int] | None = None


def sample(
    directory: Path,
    patterns: Patterns,
    *,
    size: int,
    records: int,
    before: float = 0.0,
    links: Sequence[str] = (),
) -> Sampled:
    """Returns about ``size`` bytes, at most ``records`` records. ``before``: share of each window before its place.

    Raises OSError if the directory cannot be listed; files that cannot be read are listed in ``unread``.
    """
    problems = ProblemReporter(None)
    found = discover(directory, patterns, problems, links=links)
    chosen = found if len(found) <= FILES_MAX else [found[at * len(found) // FILES_MAX] for at in range(FILES_MAX)]
    whole = len(chosen) == len(found)
    taken: dict[str, list[bytes]] = {}
    for number, file in enumerate(chosen):
        left = len(chosen) - number  # the unused share of a small file goes to the others
        try:
            place = log_path(directory, file.path, links)
            lines, all_of_it, damage = _lines(place, file.size, max(size // left, WINDOW_MIN), before)
        except OSError as err:
            lines, all_of_it, damage = [], False, ""
            problems.tell(ProblemKind.UNREADABLE, file.path, f"cannot be read ({err.strerror})")
        if damage and not lines:
            problems.tell(ProblemKind.DAMAGED, file.path, damage)
        allowed = max(records // left, RECORDS_MIN)
        whole = whole and all_of_it and len(lines) <= allowed
        if lines:
            taken[file.path] = lines if len(lines) <= allowed else lines[:1] + _runs(lines[1:], allowed)
            size -= sum(map(len, taken[file.path]))
            records -= len(taken[file.path])
    times = [ns // 10**9 for file in chosen if file.path in taken and (ns := file.mtime_ns) > 0]
    written = (min(times), max(times)) if times else None
    return Sampled(taken, whole, tuple(problems.unsolved(UNREAD)), written)


def _lines(path: Path | LogPath, on_disk: int, size: int, before: float) -> tuple[list[bytes], bool, str]:
    """Returns lines of a file, True if they are complete, and the damage. Raises OSError."""
    source = open_anywhere(path, LINES)
    if utf16 := looks_utf16(source.read(0, HEAD_BYTES)):
        source.close()
        source = open_anywhere(path, TextLines(encoding="utf-16"))
    try:
        if source.compressed or on_disk <= size:
            data = source.read(0, size + 1)
            all_of_it = len(data) <= size
            lines = _whole_lines(data, at_start=True, at_end=all_of_it) or _cut(data)
            if utf16:  # each line shows what it is
                lines = [codecs.BOM_UTF16_LE + line.decode("utf-8", "replace").encode("utf-16-le") for line in lines]
            cut_short = ends_in_middle(path.name) if source.cut_short() else ""
            return lines, all_of_it, source.damage() or cut_short
        window, lines = size // WINDOWS, []
        for part in range(WINDOWS):
            begin = max(0, on_disk * part // WINDOWS - int(window * before if part else 0))
            data = source.read(begin, window)
            lines += _whole_lines(data, at_start=begin == 0, at_end=False) or (_cut(data) if begin == 0 else [])
        return lines, False, ""
    finally:
        source.close()


def _cut(data: bytes) -> list[bytes]:
    """Returns the beginning of a line that is too long for the sample: it still shows the kind of log."""
    return [data[:CUT_BYTES]] if data.strip() else []


def _whole_lines(data: bytes, *, at_start: bool, at_end: bool) -> list[bytes]:
    lines = data.split(b"\n")
    lines = lines[0 if at_start else 1 :]
    lines = lines if at_end else lines[:-1]
    last = max((place for place, line in enumerate(lines) if line.strip()), default=0)
    title = min(TITLE_LINES, last) if at_start else 0
    return [line for place, line in enumerate(lines) if place < title or line.strip()]


def _runs(lines: list[bytes], count: int) -> list[bytes]:
    """Returns ``count`` lines, in one run per window: neighbours show how dense values are."""
    each = max(1, count // WINDOWS)
    starts = [part * len(lines) // WINDOWS for part in range(WINDOWS)]
    return [line for start in starts for line in lines[start : start + each]]
